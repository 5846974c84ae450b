"""A baseline's text and what it must look like: read, checked against schema.json, written to be diffed."""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Iterator
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from typing import NoReturn

from pytest_specdec.store.errors import RECORD_ANEW
from pytest_specdec.store.errors import BaselineError
from pytest_specdec.store.migrate import SCHEMA_VERSION
from pytest_specdec.store.migrate import Document
from pytest_specdec.store.migrate import MigrationError
from pytest_specdec.store.migrate import migrate


if TYPE_CHECKING:
    from jsonschema.protocols import Validator

#: Far beyond what a run writes; they bound the time that reading takes.
MAX_BYTES = 32 * 2**20
MAX_FIELDS = 200_000

_TOO_MANY = f"holds more than {MAX_FIELDS:,} fields, more than any run writes"
_DIGITS = 6


def read(path: Path) -> Document:
    """The checked document in a file, migrated to this release's schema.

    Raises:
        BaselineError: it can't be read, isn't a sound baseline, or is newer than this release.
        FileNotFoundError: there is no such file.
    """
    document = parse(_bytes(path), path)
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise BaselineError(path, f"is no baseline (schema_version is {_short(version)})", RECORD_ANEW)
    if version > SCHEMA_VERSION:
        raise BaselineError(
            path,
            f"was written by a newer pytest-specdec (schema {version}, this release knows {SCHEMA_VERSION})",
            "upgrade pytest-specdec, or delete the file and record anew with --specdec-update=new",
        )
    try:
        document = migrate(document)
    except MigrationError as error:
        raise BaselineError(path, str(error), RECORD_ANEW) from None
    check(document, path)
    return document


def parse(content: bytes, path: Path) -> Document:
    """The JSON object in a file's content, with finite numbers and no key twice; `path` is for messages."""
    if content.count(b'":') > MAX_FIELDS:
        # Before they are parsed, which takes longest; those written otherwise are counted by `check`.
        raise BaselineError(path, _TOO_MANY, RECORD_ANEW)
    try:
        text = content.decode("utf-8-sig")
        document = json.loads(
            text, parse_constant=_not_finite, parse_float=_finite, object_pairs_hook=_without_duplicates
        )
        # A lone surrogate passes json, but can be neither printed nor written.
        if re.search(r"\\u[dD][89a-fA-F]", text):
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise BaselineError(path, "is nested too deep to be a baseline", RECORD_ANEW) from None
    except UnicodeError:
        raise BaselineError(path, "is not UTF-8 text", RECORD_ANEW) from None
    except ValueError as error:
        problem = f"is truncated or no JSON ({error})" if content.strip() else "is empty"
        raise BaselineError(path, problem, RECORD_ANEW) from None
    if not isinstance(document, dict):
        raise BaselineError(path, f"holds {_short(document)}, not a baseline", RECORD_ANEW)
    return document


def check(document: Document, path: Path, remedy: str = RECORD_ANEW) -> None:
    """Hold a document against schema.json, and its parts against each other; the rest is for messages.

    Raises:
        BaselineError: the first fault, with its place in the file.
    """
    if _fields(document) > MAX_FIELDS:
        raise BaselineError(path, _TOO_MANY, remedy)
    fault = _schema_fault(document) or next(_faults(document), None)
    if fault:
        raise BaselineError(path, f"does not hold what a baseline must: {fault}", remedy)


def rounded(value: Any) -> Any:
    """The same JSON value with floats at six significant digits, tuples as lists."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return value


def render(document: Document) -> str:
    """JSON text for diffs: keys sorted (numbers in them by size), and one row a line.

    A row is an array of scalars, an array of these inside another array (all blocks of one batch size), or
    an object of scalars inside an array. Raises `ValueError` for numbers that are not finite.
    """
    return _render(document, 0) + "\n"


def _bytes(path: Path) -> bytes:
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise BaselineError(
                path, "is no file", "move it away, then record anew with --specdec-update=new"
            )
        if info.st_size > MAX_BYTES:
            size = f"{info.st_size / 2**20:.0f} MiB"
            raise BaselineError(path, f"has {size}, more than any run writes", RECORD_ANEW)
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BaselineError(
            path, f"can't be read ({error.strerror or error})", "check its permissions"
        ) from None


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"{name} is no finite number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{_short(text)} is no finite number")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {_short(twice)} stands there twice, as after a merge of two versions")
    return found


def _fields(value: Any) -> int:
    """Members of all objects, with the objects and arrays in arrays; it stops counting beyond the limit."""
    count = 0
    rest = [value]
    while rest and count <= MAX_FIELDS:
        item = rest.pop()
        children = item.values() if isinstance(item, dict) else item
        nested = [child for child in children if isinstance(child, (dict, list))]
        count += len(item) if isinstance(item, dict) else len(nested)
        rest.extend(nested)
    return count


def _schema_fault(document: Document) -> str | None:
    from jsonschema.exceptions import best_match

    first = next(_validator().iter_errors(document), None)
    if first is None:
        return None
    error = best_match(iter([first])) or first
    place = error.json_path.removeprefix("$.") if error.json_path != "$" else "the top level"
    return f"{_short(place, 120)}: {_short(error.message, 200)}"


@cache
def _validator() -> Validator:
    # When first needed: the import takes longer than everything else in this package.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    schema = json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"))
    plain_items = Draft202012Validator.VALIDATORS["items"]

    def items(validator: Any, items: Any, instance: Any, within: Any) -> Iterator[Any]:
        """As the standard keyword, but numbers that are sound at first sight aren't looked at again."""
        name = str(items.get("$ref", "")).rpartition("/")[2]
        number = schema["$defs"].get(name, items)
        if not isinstance(instance, list) or number.get("type") not in ("number", "integer"):
            yield from plain_items(validator, items, instance, within)
            return
        types = (int, float) if number["type"] == "number" else (int,)
        low, high = number.get("minimum", -math.inf), number.get("maximum", math.inf)
        above = number.get("exclusiveMinimum", -math.inf)
        for index, value in enumerate(instance):
            if type(value) not in types or not (low <= value <= high and value > above):
                yield from validator.descend(value, items, path=index)

    validator: Validator = extend(Draft202012Validator, {"items": items})(schema)  # type: ignore[no-untyped-call]
    return validator


def _faults(document: Document) -> Iterator[str]:
    """What a schema can't say: parts that don't fit each other."""
    builds = document["builds"]
    for key, entry in document["entries"].items():
        for held in filter(None, (entry, entry.get("anchor"))):
            where = f"entry {_short(key)}" if held is entry else f"the anchor of entry {_short(key)}"
            if held["build"] not in builds:
                yield f"{where} has build {_short(held['build'])}, not in builds"
            for fault in _measurement_faults(held["measurement"]):
                yield f"{where}: {fault}"


def _measurement_faults(measurement: Document) -> Iterator[str]:
    kind = measurement["kind"]
    if kind == "verify_curve":
        n, samples = measurement["n"], measurement["samples_ms"]
        if len(n) != len(samples):
            yield f"{len(n)} batch sizes, but samples for {len(samples)}"
        if len({len(blocks) for blocks in samples}) > 1:
            yield "batch sizes with different numbers of blocks"
        if n != sorted(n):
            yield "batch sizes out of order"
    if kind == "speculative":
        for run in measurement["speculations"]:
            if len({len(run[name]) for name in ("drafted", "accepted", "draft_ms", "verify_ms")}) > 1:
                yield f"prompt {_short(run['prompt'])} has columns of different length"
            if any(a > d for a, d in zip(run["accepted"], run["drafted"], strict=False)):
                yield f"prompt {_short(run['prompt'])} has more tokens accepted than drafted"
            if any(one["round"] >= len(run["drafted"]) for one in run.get("misses", ())):
                yield f"prompt {_short(run['prompt'])} has a rejection in a round that it doesn't have"
    if "published" in measurement and (measurement.get("speculations") or measurement.get("pairs")):
        yield "published totals beside measured runs"
    for one in (
        (*measurement.get("maps", ()), *measurement.get("one_thread", ())) if kind == "kernel_map" else ()
    ):
        if (
            len({len(one[name]) for name in ("n", "hidden", "logits", "digests", "repeated", "remainder")})
            > 1
        ):
            yield f"the map at depth {one['depth']} has columns of several lengths"
    if kind == "draft_cost" and len(measurement["draft_ms"]) != len(measurement["target_ms"]):
        yield "draft and target times for different numbers of blocks"


def _short(value: Any, length: int = 60) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _render(value: Any, indent: int, *, inside: bool = False) -> str:
    if not isinstance(value, (dict, list)) or not value or _is_row(value, inside):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
    pad = "  " * (indent + 1)
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {_render(value[key], indent + 1)}"
            for key in sorted(value, key=_natural)
        ]
    else:
        parts = [_render(item, indent + 1, inside=True) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(pad + part for part in parts) + "\n" + "  " * indent + closing


def _natural(key: str) -> list[tuple[int, str]]:
    # Text and digits alternate, so that equal places compare alike: T(2) before T(10).
    parts = re.split(r"([0-9]+)", key)
    return [(len(part) if index % 2 else 0, part) for index, part in enumerate(parts)]


def _is_row(value: dict[str, Any] | list[Any], inside: bool) -> bool:
    if isinstance(value, dict):
        return inside and not any(isinstance(item, (dict, list)) for item in value.values())
    nested = [item for item in value if isinstance(item, (dict, list))]
    if not nested:
        return True
    return inside and all(isinstance(item, list) and not _holds_containers(item) for item in nested)


def _holds_containers(value: list[Any]) -> bool:
    return any(isinstance(item, (dict, list)) for item in value)
