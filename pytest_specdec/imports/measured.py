"""Verify curves in this project's own JSON: a measurement, `specdec curve --json`, `--specdec-json`."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Final

from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve
from pytest_specdec.imports.curve import finite
from pytest_specdec.imports.curve import whole
from pytest_specdec.measurements import VerifyCurve


ROWS: Final = {"all": "logits of all rows", "last": "logits of the last row only"}


def curves(document: object, name: str) -> list[Curve]:
    """Return every verify curve inside a JSON value, named by its key, or by the place it stands at.

    Raises:
        BadFile: a curve is damaged.
    """
    return [_checked(title, place, data, name) for title, place, data in _found(document, "", "")]


def curve_of(title: str, verify: VerifyCurve) -> Curve:
    """Return a measured curve with what it says of itself."""
    return Curve(
        title, f"{verify.source}, depth {verify.depth}, {ROWS.get(verify.rows, verify.rows)}", verify
    )


def _found(value: object, title: str, place: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    if isinstance(value, dict):
        if value.get("kind") == VerifyCurve.kind and "samples_ms" in value:
            yield title, place, value
            return
        own = value.get("key")
        for key, child in value.items():
            yield from _found(child, own if isinstance(own, str) else key, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _found(child, title, f"{place}[{index}]")


def _checked(title: str, place: str, data: Mapping[str, Any], name: str) -> Curve:
    where = f"{place}: " if place else ""
    sizes, samples = data.get("n"), data["samples_ms"]
    if not isinstance(sizes, list) or not sizes or any(whole(n) is None or n < 1 for n in sizes):
        raise BadFile(name, None, f"{where}n is no list of batch sizes")
    if sizes != sorted(set(sizes)):
        raise BadFile(name, None, f"{where}n is not increasing")
    if not isinstance(samples, list) or len(samples) != len(sizes):
        raise BadFile(name, None, f"{where}samples_ms has not one entry for each of {len(sizes)} sizes")
    for n, blocks in zip(sizes, samples, strict=True):
        if not _is_table(blocks) or len(blocks) != len(samples[0]):
            told = (
                f"{where}samples_ms of N = {n} are no blocks of times in ms, as many as those of the others"
            )
            raise BadFile(name, None, told)
    depth, rows = whole(data.get("depth", 0)), data.get("rows", "all")
    if depth is None or depth < 0 or rows not in ROWS:
        raise BadFile(name, None, f"{where}depth or rows are none")
    verify = VerifyCurve.from_json({**data, "n": [int(n) for n in sizes], "depth": depth})
    return curve_of(title, verify)


def _is_table(blocks: object) -> bool:
    """Whether this is a list of lists of times, none of them empty."""
    return (
        isinstance(blocks, list)
        and bool(blocks)
        and all(isinstance(calls, list) and calls for calls in blocks)
        and all((finite(ms) or 0) > 0 for calls in blocks for ms in calls)
    )
