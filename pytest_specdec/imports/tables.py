"""Tables of N and ms, or of N and tokens per second, one curve per column of values."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Final

from pytest_specdec.imports.curve import TINY
from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve
from pytest_specdec.imports.curve import finite
from pytest_specdec.imports.curve import unpaired
from pytest_specdec.imports.curve import whole
from pytest_specdec.measurements import VerifyCurve


SOURCE: Final = "table"
WANTED: Final = "a header with N and ms, or N and tokens/s"

_N: Final = frozenset(
    ("n", "b", "batch", "batch_size", "ubatch", "n_ubatch", "n_tokens", "tokens", "verify_n")
)
_DEVIATION: Final = re.compile(r"(^|[^a-z])(sd|std|stddev|stdev)([^a-z]|$)")
_MS: Final = re.compile(r"(^|[^a-z])(ms|milliseconds)([^a-z]|$)")
_RATE: Final = re.compile(r"(^|[^a-z])(t/s|tps|tok/s|tokens/s|(tok|tokens)_?per_?(s|sec|second))([^a-z]|$)")

Row = tuple[int, Sequence[str]]


def cells_of_csv(text: str, name: str) -> tuple[list[str], list[Row]]:
    """Return the header and the rows, each with its line; commas, semicolons or tabs separate.

    Lines that begin with # are comments.

    Raises:
        BadFile: there is no header, or a row has another number of cells.
    """
    kept = ["" if line.lstrip().startswith("#") else line for line in text.splitlines()]
    first = next((line for line in kept if line.strip()), "")
    delimiter = next((mark for mark in "\t;" if mark in first), ",")
    reader = csv.reader(kept, delimiter=delimiter, strict=True)
    header: list[str] = []
    rows: list[Row] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            stripped = [cell.strip() for cell in cells]
            if not header:
                header = stripped
            elif len(stripped) != len(header):
                told = f"has {len(stripped)} cells where the header has {len(header)}"
                raise BadFile(name, reader.line_num, told)
            else:
                rows.append((reader.line_num, stripped))
    except csv.Error as error:
        raise BadFile(name, reader.line_num, f"is no CSV ({error})") from None
    if not header:
        raise BadFile(name, None, f"is empty: {WANTED} is wanted")
    return header, rows


def curves(header: Sequence[str], rows: Iterable[Row], name: str) -> list[Curve]:
    """Return one curve per column of ms, or, where there is none, per column of tokens per second.

    T(N) is 1000 N ÷ tokens per second. Rows of one N are repetitions; with a column `block` their times are
    paired by it. A column of standard deviations in ms (`sd_ms`) counts where there is one column of times.

    Raises:
        BadFile: a column is missing, or a cell holds what is no number above 0.
    """
    names = [cell.casefold() for cell in header]
    size = next((i for i, cell in enumerate(names) if cell in _N), None)
    deviation = next((i for i, cell in enumerate(names) if _DEVIATION.search(cell)), None)
    values = [i for i, cell in enumerate(names) if _MS.search(cell) and i not in (size, deviation)]
    rates = not values
    if rates:
        values = [i for i, cell in enumerate(names) if _RATE.search(cell) and i not in (size, deviation)]
    if size is None or not values:
        found = ", ".join(header)
        raise BadFile(name, None, f"the columns are {found}: {WANTED} is wanted")
    block = names.index("block") if "block" in names else None
    kept = list(rows)
    found_curves = []
    for column in values:
        alone = len(values) == 1
        read = _Column(name, header, size, column, rates, deviation if alone else None, block)
        found_curves.append(read.curve(kept, "" if alone else header[column]))
    return found_curves


class _Column:
    """One column of values, read."""

    def __init__(
        self,
        name: str,
        header: Sequence[str],
        size: int,
        column: int,
        rates: bool,
        deviation: int | None,
        block: int | None,
    ) -> None:
        self.name = name
        self.header = header
        self.size = size
        self.column = column
        self.rates = rates
        self.deviation = deviation
        self.block = block

    def curve(self, rows: Iterable[Row], title: str) -> Curve:
        times: dict[int, dict[str, list[float]]] = {}
        deviations: dict[int, float] = {}
        for line, cells in rows:
            if not cells[self.column]:
                continue
            n = whole(cells[self.size])
            if n is None or n < 1:
                raise BadFile(self.name, line, f"N is {cells[self.size]!r}, not a whole number of at least 1")
            value = self._number(line, cells, self.column)
            block = "" if self.block is None else cells[self.block]
            times.setdefault(n, {}).setdefault(block, []).append(1000.0 * n / value if self.rates else value)
            if self.deviation is not None and cells[self.deviation]:
                deviations[n] = self._number(line, cells, self.deviation, low=True)
        if not times:
            raise BadFile(self.name, None, f"column {self.header[self.column]!r} is empty")
        told = "tokens/s" if self.rates else "ms"
        origin = f"{SOURCE} of N and {told}; depth and rows of logits are not said"
        sizes = sorted(times)
        blocks = list(times[sizes[0]])
        if len(blocks) > 1 and all(list(times[n]) == blocks for n in sizes):
            samples = tuple(tuple(tuple(times[n][block]) for block in blocks) for n in sizes)
            return Curve(title, origin, VerifyCurve(tuple(sizes), samples, source=SOURCE))
        joined = {n: [ms for calls in times[n].values() for ms in calls] for n in sizes}
        curve, noise = unpaired(joined, deviations, source=SOURCE)
        return Curve(title, origin, curve, noise)

    def _number(self, line: int, cells: Sequence[str], column: int, *, low: bool = False) -> float:
        cell = cells[column]
        number = finite(cell)
        if number is None or number < 0 or (number < TINY and not low):
            hint = "; decimals are written with a point" if "," in cell else ""
            wanted = "at least 0" if low else "above 0"
            raise BadFile(self.name, line, f"{self.header[column]} is {cell!r}, not a number {wanted}{hint}")
        return number
