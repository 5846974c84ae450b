"""Green runs over time: one JSON line per run and pair, appended to a file in the machine's folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from datetime import UTC
from datetime import datetime
from pathlib import Path
from typing import Any
from typing import Final

from pytest_specdec.store.document import rounded
from pytest_specdec.store.errors import BaselineError
from pytest_specdec.store.writing import writing


VERSION: Final = 1
#: Far beyond what a run writes; it bounds what one line can cost.
MAX_LINE: Final = 2**20

_LARGEST: Final = 1e15
_TEXTS: Final = ("at", "build", "pair", "plugin")
_AT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True, slots=True)
class Green:
    """One green run of a pair.

    ``at`` is a moment, UTC, as "2026-03-14T09:26:53Z"; ``build`` a build's short name; ``plugin`` the version
    of pytest-specdec; ``figures`` has the summary numbers of each measurement by key.
    """

    at: str
    pair: str
    build: str
    plugin: str
    figures: Mapping[str, Mapping[str, float]] = field(hash=False)

    def to_json(self) -> dict[str, Any]:
        """Builtin types only, numbers at six significant digits."""
        return {
            "version": VERSION,
            "at": self.at,
            "pair": self.pair,
            "build": self.build,
            "plugin": self.plugin,
            "figures": rounded({key: dict(numbers) for key, numbers in self.figures.items()}),
        }


@dataclass(frozen=True, slots=True)
class Damaged:
    """A line that is no run: its number, from 1, and what is wrong with it."""

    line: int
    problem: str


def moment(now: datetime | None = None) -> str:
    """Write a moment (default: this one) as `Green.at` has it."""
    return (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def append(path: Path, runs: Iterable[Green]) -> None:
    """Add lines at the end of a file, which is made when missing.

    A line that a killed process left unfinished is ended first, so that it spoils no other.

    Raises:
        BaselineError: it can't be written; the file is as it was.
    """
    lines = [json.dumps(run.to_json(), ensure_ascii=False, allow_nan=False) for run in runs]
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
    if not content:
        return
    with writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        try:
            size = os.fstat(descriptor).st_size
            if size and not _ends_a_line(descriptor, size):
                content = b"\n" + content
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except BaseException:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def read(path: Path) -> Iterator[Green | Damaged]:
    """The lines of a file in order; none where there is no file.

    Raises:
        BaselineError: it can't be read.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE):
                number += 1
                if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
                    while (more := file.readline(MAX_LINE)) and not more.endswith(b"\n"):
                        pass
                    yield Damaged(number, f"is longer than {MAX_LINE:,} bytes")
                elif raw.strip():
                    yield _line(number, raw)
    except FileNotFoundError:
        return
    except OSError as error:
        problem = f"can't be read ({error.strerror or error})"
        raise BaselineError(path, problem, "check its permissions") from None


def _ends_a_line(descriptor: int, size: int) -> bool:
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"


def _line(number: int, raw: bytes) -> Green | Damaged:
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        return Damaged(number, "is truncated or no JSON")
    if not isinstance(told, dict):
        return Damaged(number, "is no run")
    version = told.get("version")
    if isinstance(version, int) and version > VERSION:
        return Damaged(number, f"was written by a newer pytest-specdec (version {version})")
    if version != VERSION or not all(isinstance(told.get(name), str) for name in _TEXTS):
        return Damaged(number, f"is no run: it needs version, figures, {', '.join(_TEXTS)}")
    if not _AT.fullmatch(told["at"]):
        return Damaged(number, "has no moment such as 2026-03-14T09:26:53Z")
    if not _are_figures(told.get("figures")):
        return Damaged(number, "has figures that are no finite numbers by key and name")
    return Green(told["at"], told["pair"], told["build"], told["plugin"], told["figures"])


def _are_figures(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(numbers, dict)
        and all(
            isinstance(number, (int, float)) and not isinstance(number, bool) and abs(number) <= _LARGEST
            for number in numbers.values()
        )
        for numbers in value.values()
    )
