"""Classes of kernel paths: at which batch sizes the bits of a batch's rows change.

Another matrix kernel rounds differently, so row r of a batch of N of the same tokens has the same bits for
all N that one kernel path computes. Letters stand for bits: row r of two batches was computed alike exactly
when its letters are equal, and letters of different rows are not comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from typing import Any
from typing import Final

from pytest_specdec.theory import arguments


# A letter for bits beyond those that have one: equal to nothing, itself included.
UNKNOWN: Final = "*"


@dataclass(frozen=True, slots=True)
class Change:
    """What differs between batch size n and the one before it in the list, `after`.

    `rows` are the positions whose bits differ, the first one is 0; `patterns` the indices of the patterns
    that show it.
    """

    n: int
    after: int
    rows: tuple[int, ...]
    patterns: tuple[int, ...]

    def where(self) -> str:
        """Return the place as text: "8", or "in (8, 16]" when sizes between were not in the list."""
        return str(self.n) if self.n == self.after + 1 else f"in ({self.after}, {self.n}]"


@dataclass(frozen=True, slots=True)
class ClassRange:
    """Batch sizes `start` to `stop`, both in the list, that one path computes; equal letters, equal row 0."""

    start: int
    stop: int
    letter: str


@dataclass(frozen=True, slots=True)
class ClassMap:
    """Where the path changes, and what lies between; all sizes are of the list, in increasing order."""

    thresholds: tuple[int, ...]
    ranges: tuple[ClassRange, ...]
    changes: tuple[Change, ...]
    """One per threshold."""

    def to_json(self) -> dict[str, Any]:
        """Return builtin types only."""
        changes = [{**asdict(c), "rows": list(c.rows), "patterns": list(c.patterns)} for c in self.changes]
        return {
            "thresholds": list(self.thresholds),
            "ranges": [asdict(one) for one in self.ranges],
            "changes": changes,
        }


def find_classes(n: Sequence[int], patterns: Sequence[Sequence[str]], remainder: Sequence[int]) -> ClassMap:
    """Return the thresholds of a kernel map and the ranges between them.

    A size is a threshold when row 0 has other letters than in the batch before it in the list, or any other
    row that both have does, in any pattern. Rows that either batch computed as a smaller batch would don't
    count: their bits tell of that smaller batch.

    Args:
        n: batch sizes, shape (sizes,), increasing.
        patterns: one or more of shape (sizes,): patterns[p][i] has one letter per row of batch i, or none.
        remainder: how many of each batch's last rows are computed as a smaller batch, shape (sizes,).

    Raises:
        ValueError: lengths don't match, or n is not increasing.
    """
    sizes = [int(size) for size in arguments.integers("n", n, low=1, increasing=True)]
    rest = [int(rows) for rows in arguments.integers("remainder", remainder)]
    if len(rest) != len(sizes):
        raise ValueError(f"remainder must have one value for each of the {len(sizes)} sizes, got {len(rest)}")
    _check(sizes, patterns)
    changes = []
    for i in range(1, len(sizes)):
        comparable = min(sizes[i - 1] - rest[i - 1], sizes[i] - rest[i])
        rows, shown = set(), []
        for p, pattern in enumerate(patterns):
            found = _differing(pattern[i - 1], pattern[i], max(1, comparable))
            rows |= found
            shown += [p] if found else []
        if rows:
            changes.append(Change(sizes[i], sizes[i - 1], tuple(sorted(rows)), tuple(shown)))
    thresholds = tuple(change.n for change in changes)
    return ClassMap(thresholds, _ranges(sizes, patterns, thresholds), tuple(changes))


def _check(sizes: Sequence[int], patterns: Sequence[Sequence[str]]) -> None:
    for p, pattern in enumerate(patterns):
        if len(pattern) != len(sizes):
            told = f"one text for each of the {len(sizes)} sizes, got {len(pattern)}"
            raise ValueError(f"patterns[{p}] must have {told}")
        for size, letters in zip(sizes, pattern, strict=True):
            if letters and len(letters) != size:
                told = f"one letter per row, or none, for N = {size}, got {len(letters)}"
                raise ValueError(f"patterns[{p}] must have {told}")


def _differing(before: str, here: str, rows: int) -> set[int]:
    if not before and not here:
        return set()
    if not before or not here:
        return {0}
    pairs = zip(before[:rows], here[:rows], strict=True)
    return {row for row, (one, other) in enumerate(pairs) if one != other or one == UNKNOWN}


def _ranges(
    sizes: Sequence[int], patterns: Sequence[Sequence[str]], thresholds: Sequence[int]
) -> tuple[ClassRange, ...]:
    starts = [0, *(sizes.index(n) for n in thresholds)]
    stops = [*(start - 1 for start in starts[1:]), len(sizes) - 1]
    known: dict[tuple[str, ...], str] = {}
    ranges, letters = [], 0
    for start, stop in zip(starts, stops, strict=True):
        row0 = tuple(pattern[start][:1] for pattern in patterns)
        letter = None if UNKNOWN in row0 else known.get(row0)
        if letter is None:
            letter = known[row0] = _letter(letters)
            letters += 1
        ranges.append(ClassRange(sizes[start], sizes[stop], letter))
    return tuple(ranges)


def _letter(index: int) -> str:
    """Return a, b, …, z, aa, ab, …."""
    name = ""
    while index >= 0:
        name = chr(ord("a") + index % 26) + name
        index = index // 26 - 1
    return name
