"""A curve T(N) as a file tells it, and what may be wrong with a file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from pytest_specdec.measurements import VerifyCurve


if TYPE_CHECKING:
    from pytest_specdec.theory.steps import StepMap

# From the median absolute deviation to the standard deviation, where times are normal.
MAD_TO_SD = 1.4826
# Largest standard deviation, in units of the time itself.
MAX_NOISE = 10.0
# A time or rate below this is none.
TINY = 1e-9


class BadFile(ValueError):
    """A file that can't be read as curves: its name, the line where one is at fault, and what to do."""

    def __init__(self, name: str, line: int | None, problem: str) -> None:
        self.name = name
        self.line = line
        self.problem = problem
        super().__init__(f"{name}: {problem}" if line is None else f"{name}:{line}: {problem}")


@dataclass(frozen=True, slots=True)
class Curve:
    """T(N) of one setting.

    ``name`` tells it from the file's other curves, ``origin`` says in a few words what wrote it and what was
    timed. ``noise_ms`` has the standard deviation of each T(N), shape (sizes,); None where ``verify`` has
    paired blocks, or where nothing is known of the noise. ``remarks`` are what else a reader has to know.
    """

    name: str
    origin: str
    verify: VerifyCurve
    noise_ms: tuple[float, ...] | None = None
    remarks: tuple[str, ...] = ()

    def steps(self, ratio: float = 1.4) -> StepMap:
        """Cliffs, drops, dips and plateaus, with bounds from paired blocks or the noise."""
        from pytest_specdec.theory.steps import find_steps

        return find_steps(self.verify.n, self.verify.blocks_ms(), ratio=ratio, noise=self.noise_ms)


def unpaired(
    times: Mapping[int, Sequence[float]],
    deviations: Mapping[int, float] | None = None,
    *,
    source: str,
    depth: int = 0,
    rows: str = "all",
) -> tuple[VerifyCurve, tuple[float, ...] | None]:
    """Return the curve, and its noise in ms, of times (ms) that were taken one size after the other.

    The noise of a size is its standard deviation where ``deviations`` has one, else the one that goes with
    the median absolute deviation of its times, which a slow first run does not spoil. It is not divided by
    the root of their number: repetitions that follow each other vary less than those of another day.
    """
    sizes = sorted(times)
    # Bounds grow with e to the noise: more than this says no more and would overflow.
    noise = tuple(
        min((deviations or {}).get(n, _spread(times[n])), MAX_NOISE * median(times[n])) for n in sizes
    )
    curve = VerifyCurve(
        tuple(sizes), tuple((tuple(times[n]),) for n in sizes), depth=depth, rows=rows, source=source
    )
    return curve, noise if any(noise) else None


def chosen(curves: Iterable[Curve], wanted: str) -> list[Curve]:
    """Return the curve of a number, from 1, or else all curves with the text in their names."""
    found = list(curves)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(found):
        return [found[int(wanted) - 1]]
    return [curve for curve in found if wanted.casefold() in curve.name.casefold()]


def whole(value: object) -> int | None:
    """Read a whole number from a text or a JSON number; None where it is none."""
    number = finite(value)
    return int(number) if number is not None and number.is_integer() else None


def finite(value: object) -> float | None:
    """Read a finite number from a text or a JSON number; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _spread(times: Sequence[float]) -> float:
    from pytest_specdec.theory.stats import mad

    return MAD_TO_SD * mad(times) if len(times) > 1 else 0.0
