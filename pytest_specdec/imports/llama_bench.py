"""llama-bench output: every `-p N -n 0` row is one T(N), with the logits of the last row only."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from typing import Final

from pytest_specdec.imports.curve import TINY
from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve
from pytest_specdec.imports.curve import finite
from pytest_specdec.imports.curve import unpaired
from pytest_specdec.imports.curve import whole


SOURCE: Final = "llama-bench"
LAST_ROW: Final = "logits of the last row only"
HOW: Final = "llama-bench -p 1-16 -n 0 -o json"

# Fields that differ from row to row of one curve.
_OF_A_ROW: Final = frozenset(
    (
        "n_prompt",
        "n_gen",
        "test_time",
        "avg_ns",
        "stddev_ns",
        "avg_ts",
        "stddev_ts",
        "samples_ns",
        "samples_ts",
    )
)
# Fields that say nothing more in a name than those that stand for them.
_STANDS_FOR: Final = {
    "model_size": "model_type",
    "model_n_params": "model_type",
    "size": "model_type",
    "params": "model_type",
    "build_number": "build_commit",
}
_SHOWN: Final = {"n_depth": "depth", "build_commit": "build"}
_TEST: Final = re.compile(r"pp ?(\d+)(?: ?\+ ?tg ?(\d+))?(?: ?@ ?d ?(\d+))?")
_OTHER_TEST: Final = re.compile(r"tg ?(\d+)(?: ?@ ?d ?(\d+))?")
_RATE: Final = re.compile(r"([0-9.eE+]+)(?:\s*(?:±|\+-|\+/-)\s*([0-9.eE+]+))?")
_INSERT: Final = re.compile(r"INSERT INTO \S+ \((.*?)\)\s*VALUES\s*\((.*)\)\s*;?\s*", re.IGNORECASE)
_QUOTED: Final = re.compile(r"\s*'((?:[^']|'')*)'\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class Row:
    """One test of a benchmark, its fields named as in llama-bench's JSON, and the line it begins on."""

    line: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Timed:
    """What a row says of T(n): times in ms, and a standard deviation where there are no single times."""

    n: int
    times: tuple[float, ...]
    deviation: float | None


def curves(rows: Iterable[Row], name: str, form: str) -> list[Curve]:
    """Return one curve per setting (model, depth, n_ubatch, build …), in the file's order.

    Rows that generate (n_gen > 0) are no T(N) and are left out; sizes that come more than once are joined.

    Raises:
        BadFile: a row lacks a field, holds what is no number, or there is no T(N) in any.
    """
    groups: dict[tuple[tuple[str, str], ...], list[_Timed]] = {}
    skipped = 0
    for row in rows:
        if _whole(row, "n_gen", name, 0) > 0:
            skipped += 1
            continue
        setting = tuple((k, str(v)) for k, v in row.fields.items() if k not in _OF_A_ROW)
        groups.setdefault(setting, []).append(_timed(row, name))
    if not groups:
        told = "every row generates (n_gen > 0)" if skipped else "no rows"
        raise BadFile(name, None, f"{told}: nothing tells T(N); run {HOW}")
    settings = [dict(setting) for setting in groups]
    return [
        _curve(title, setting, timed, form, skipped)
        for title, setting, timed in zip(_titles(settings), settings, groups.values(), strict=True)
    ]


def rows_of_json(elements: Iterable[tuple[int, Any]], name: str) -> Iterator[Row]:
    """Yield the rows of JSON objects, each with the line it begins on."""
    for line, element in elements:
        if not isinstance(element, dict) or "n_prompt" not in element:
            raise BadFile(
                name, line, f"is no row of llama-bench: an object with n_prompt is wanted; run {HOW}"
            )
        yield Row(line, element)


def rows_of_csv(text: str, name: str) -> Iterator[Row]:
    """Yield the rows of `-o csv`."""
    reader = csv.reader(text.splitlines(), strict=True)
    header: list[str] = []
    try:
        for cells in reader:
            if not any(cells) or cells == header:
                continue
            if "n_prompt" in cells:
                header = cells
            elif len(cells) != len(header):
                told = f"has {len(cells)} cells where the header has {len(header)}"
                raise BadFile(name, reader.line_num, f"{told}: the line is cut or not llama-bench's")
            else:
                yield Row(reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise BadFile(name, reader.line_num, f"is no CSV ({error})") from None


def rows_of_sql(text: str, name: str) -> Iterator[Row]:
    """Yield the rows of `-o sql`: its INSERT statements, one a line."""
    for line, content in enumerate(text.splitlines(), 1):
        if not content.lstrip().upper().startswith("INSERT"):
            continue
        match = _INSERT.fullmatch(content.strip())
        names = [part.strip() for part in match[1].split(",")] if match else []
        values = _quoted(match[2]) if match else None
        if values is None or len(values) != len(names):
            told = "is no INSERT of llama-bench: names and quoted values must be as many"
            raise BadFile(name, line, f"{told} (llama-bench does not escape quotes in values)")
        yield Row(line, dict(zip(names, values, strict=True)))


def rows_of_markdown(
    tables: Iterable[tuple[Sequence[str], Sequence[tuple[int, Sequence[str]]], str]], name: str
) -> Iterator[Row]:
    """Yield the rows of `-o md`: tables as (header, rows with their lines, build as told under the table)."""
    for header, lines, build in tables:
        for line, cells in lines:
            fields: dict[str, Any] = dict(zip(header, cells, strict=True))
            test, rate = fields.pop("test"), fields.pop("t/s")
            yield Row(
                line,
                {
                    **_renamed(fields),
                    "build_commit": build,
                    **_tested(test, line, name),
                    **_rated(rate, line, name),
                },
            )


def _renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"model_type" if name == "model" else name: value for name, value in fields.items()}


def _tested(test: str, line: int, name: str) -> dict[str, int]:
    if match := _TEST.fullmatch(test):
        return {"n_prompt": int(match[1]), "n_gen": int(match[2] or 0), "n_depth": int(match[3] or 0)}
    if match := _OTHER_TEST.fullmatch(test):
        return {"n_prompt": 0, "n_gen": int(match[1]), "n_depth": int(match[2] or 0)}
    raise BadFile(name, line, f"test is {test!r}, not one such as 'pp8' or 'pp8 @ d256'")


def _rated(rate: str, line: int, name: str) -> dict[str, str]:
    match = _RATE.fullmatch(rate)
    if match is None:
        raise BadFile(name, line, f"t/s is {rate!r}, not a rate such as '239.93 ± 0.94'")
    return {"avg_ts": match[1], "stddev_ts": match[2] or "0"}


def _quoted(text: str) -> list[str] | None:
    values: list[str] = []
    at = 0
    while at < len(text):
        match = _QUOTED.match(text, at)
        if match is None:
            return None
        values.append(match[1].replace("''", "'"))
        at = match.end()
    return values


def _timed(row: Row, name: str) -> _Timed:
    n = _whole(row, "n_prompt", name, 1)
    samples = row.fields.get("samples_ns")
    if samples:
        if not isinstance(samples, list):
            raise BadFile(name, row.line, f"samples_ns is {samples!r}, not a list")
        return _Timed(n, tuple(_positive(ns, "samples_ns", row, name) / 1e6 for ns in samples), None)
    rate = row.fields.get("avg_ts")
    if "avg_ns" in row.fields:
        ms = _positive(row.fields["avg_ns"], "avg_ns", row, name) / 1e6
    elif rate is not None:
        ms = 1000.0 * n / _positive(rate, "avg_ts", row, name)
    else:
        raise BadFile(name, row.line, "has none of samples_ns, avg_ns and avg_ts: nothing tells its time")
    # Not stddev_ns, whose integer arithmetic overflows for runs of seconds.
    spread = finite(row.fields.get("stddev_ts"))
    if not spread or spread < 0 or rate is None:
        return _Timed(n, (ms,), None)
    return _Timed(n, (ms,), ms * spread / _positive(rate, "avg_ts", row, name))


def _curve(title: str, setting: Mapping[str, str], timed: Sequence[_Timed], form: str, skipped: int) -> Curve:
    times: dict[int, list[float]] = {}
    deviations: dict[int, float] = {}
    for one in timed:
        times.setdefault(one.n, []).extend(one.times)
        if one.deviation is not None:
            deviations[one.n] = max(deviations.get(one.n, 0.0), one.deviation)
    depth = whole(setting.get("n_depth", "0")) or 0
    curve, noise = unpaired(times, deviations, source=SOURCE, depth=depth, rows="last")
    remarks = []
    ubatch = whole(setting.get("n_ubatch", "512")) or 512
    if wide := [n for n in curve.n if n > ubatch]:
        told = ", ".join(map(str, wide))
        remarks.append(f"N = {told} took more than one pass: n_ubatch is {ubatch}")
    if skipped:
        remarks.append(f"rows that generate (n_gen > 0) are left out: {skipped}")
    origin = f"{SOURCE} ({form}), depth {depth}, {LAST_ROW}"
    return Curve(title, origin, curve, noise, tuple(remarks))


def _titles(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Name each setting by its model, and by what differs between them."""
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    differing = [name for name in names if len({setting.get(name) for setting in settings}) > 1]
    if "model_filename" in differing:
        differing = [name for name in differing if name != "model_type"]
    shown = [name for name in differing if _STANDS_FOR.get(name) not in names]
    titles = []
    for setting in settings:
        parts = [] if "model_filename" in shown else [_model(setting)]
        if "n_depth" not in shown and setting.get("n_depth", "0") != "0":
            parts.append(f"depth {setting['n_depth']}")
        for name in shown:
            value = setting.get(name, "?")
            if name == "model_filename":
                parts.append(PurePosixPath(value.replace("\\", "/")).name.removesuffix(".gguf"))
            elif name != "model_type":
                parts.append(f"{_SHOWN.get(name, name)} {value}")
        titles.append(", ".join(part for part in parts if part))
    return titles


def _model(setting: Mapping[str, str]) -> str:
    return setting.get("model_type") or PurePosixPath(setting.get("model_filename", "")).name or "llama-bench"


def _whole(row: Row, field: str, name: str, low: int) -> int:
    value = row.fields.get(field, 0)
    number = whole(value)
    if number is None or number < low:
        raise BadFile(name, row.line, f"{field} is {value!r}, not a whole number of at least {low}")
    return number


def _positive(value: object, field: str, row: Row, name: str) -> float:
    number = finite(value)
    if number is None or number < TINY:
        raise BadFile(name, row.line, f"{field} holds {value!r}, not a number above 0")
    return number
