"""Plain text building blocks: numbers, tables, sparklines, bar charts."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from collections.abc import Sequence

from pytest_specdec.values import ranges


BLOCKS = "▁▂▃▄▅▆▇█"


def number(value: float, digits: int = 2) -> str:
    """Write a value with `digits` decimals, two significant digits where it is small: 120.25, 0.79, 0.012."""
    if not math.isfinite(value):
        return str(value)
    if 0 < abs(value) < 0.1:
        digits = max(digits, 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def against(value: float, limit: float, digits: int = 2) -> str:
    """Write `value` with as many decimals as it takes to see on which side of `limit` it lies."""
    for places in range(digits, 7):
        written = f"{value:.{places}f}"
        if value == limit or (float(written) != limit and (float(written) < limit) == (value < limit)):
            return written
    return repr(value)


def interval(low: float, high: float, digits: int = 2) -> str:
    """Write bounds as "1.41-1.47"; an open end is "?"."""
    low_end = number(low, digits) if math.isfinite(low) else "?"
    high_end = number(high, digits) if math.isfinite(high) else "?"
    return f"{low_end}-{high_end}"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: "1 prompt", "8 prompts"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def sizes(values: Iterable[int]) -> str:
    """Write batch sizes as the setting `sizes` takes them: "1-12,16"."""
    return ranges(sorted(set(values)))


def width(text: str) -> int:
    """Return the columns that `text` takes in a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def shorten(text: str, columns: int, *, keep: str = "start") -> str:
    """Cut `text` to `columns`, its start or its end kept; "…" stands for what is missing."""
    if width(text) <= columns:
        return text
    if columns <= 1:
        return "…"[:columns]
    chars = text if keep == "start" else text[::-1]
    kept = ""
    room = columns - 1
    for char in chars:
        room -= width(char)
        if room < 0:
            break
        kept += char
    return f"{kept}…" if keep == "start" else f"…{kept[::-1]}"


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Fill `text` to `columns`; with `right`, in front."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = ()) -> list[str]:
    """Align rows under a header; numbers to the right, the columns in `left` to the left; one line each."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(width(line[i]) for line in lines) for i in range(len(header))]
    return [
        "  ".join(pad(cell, widths[i], right=i not in left) for i, cell in enumerate(line)).rstrip()
        for line in lines
    ]


def sparkline(values: Sequence[float]) -> str:
    """Draw one block per value, from the smallest to the largest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((value - low) / span * top)] for value in values)


def chart(
    labels: Sequence[str],
    values: Sequence[float],
    *,
    marks: Sequence[str] = (),
    height: int = 8,
    columns: int = 76,
    unit: str = "",
) -> list[str]:
    """Draw bars from zero, one per value, with an axis, labels below and marks under the labels.

    Bars are two columns wide where `columns` allows, else one. When there are more values than columns, a bar
    stands for its neighbours too and shows the largest of them.

    Raises:
        ValueError: labels (or marks) and values differ in number.
    """
    if len(labels) != len(values) or (marks and len(marks) != len(values)):
        raise ValueError(f"{len(values)} values, but {len(labels)} labels and {len(marks)} marks")
    if not values:
        return []
    highest = max(values)
    axis = f"{number(highest)} {unit}".rstrip()
    room = max(1, columns - len(axis) - 2)
    per_bar = math.ceil(len(values) / room)
    bars = [max(values[i : i + per_bar]) for i in range(0, len(values), per_bar)]
    below = [[line[i] for i in range(0, len(line), per_bar)] for line in (labels, marks) if line]
    cell = max(1, min(4, room // len(bars)))
    bar = max(1, cell - 2) if cell > 1 else 1
    eighths = [round(value / highest * height * 8) if highest > 0 else 0 for value in bars]
    lines = []
    for row in range(height - 1, -1, -1):
        edge = axis if row == height - 1 else "0" if row == 0 else ""
        drawn = "".join(pad(_piece(filled - 8 * row) * bar, cell) for filled in eighths)
        lines.append(f"{edge:>{len(axis)}} ▕{drawn}".rstrip())
    lines.extend(" " * (len(axis) + 2) + _under(line, cell) for line in below if any(line))
    return lines


def _piece(eighths: int) -> str:
    return " " if eighths <= 0 else BLOCKS[min(eighths, 8) - 1]


def _under(labels: Sequence[str], cell: int) -> str:
    """Write each label where its bar begins, leaving out those that would touch the one before."""
    line = ""
    for i, label in enumerate(labels):
        at = i * cell
        if label and (at > len(line) or at == 0):
            line = line.ljust(at) + label
    return line
