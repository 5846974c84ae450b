"""The shape of the verify cost T(N): cliffs, drops, dips, plateaus, and what changed between two curves.

A *cliff* is a measured size n, with n0 the measured size before, whose next token costs more than tokens have
cost so far: T(n)/T(n0) >= `ratio` and (T(n) - T(n0))/(n - n0) >= `slope` * T(n0)/n0. Both conditions limit
T(n)/T(n0) from below, so a step is judged on one number, `Step.needed` = max(ratio, 1 + slope (n - n0)/n0).
Proportional growth never reaches it. Every judgement is made on bounds: where they straddle the limit the
place is inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pytest_specdec.theory import arguments
from pytest_specdec.theory import stats
from pytest_specdec.theory.arguments import FloatArray
from pytest_specdec.theory.arguments import IntArray


# A fall of less than this share is ripple, whatever its significance: no dip, no drop.
DIP = 0.02
DROP = 0.05


@dataclass(frozen=True, slots=True)
class Step:
    """T(n)/T(after) of two neighbouring measured sizes, its bounds, and the ratio that makes n a cliff."""

    n: int
    after: int
    ratio: float
    low: float
    high: float
    needed: float = 1.4

    @property
    def is_cliff(self) -> bool:
        """Whether n is a cliff beyond doubt."""
        return self.low >= self.needed

    @property
    def straddles(self) -> bool:
        """Whether the bounds leave open if n is a cliff."""
        return self.low < self.needed <= self.high

    def where(self) -> str:
        """Return the place as text: "9", or "in (8, 12]" when sizes between were not measured."""
        return str(self.n) if self.n == self.after + 1 else f"in ({self.after}, {self.n}]"


@dataclass(frozen=True, slots=True)
class StepMap:
    """The steps of one curve and what they are. All sizes are measured ones, in increasing order."""

    steps: tuple[Step, ...]
    """All neighbouring pairs."""
    cliffs: tuple[Step, ...]
    straddling: tuple[Step, ...]
    """Places that may be cliffs: the bounds of their ratio leave it open."""
    drops: tuple[Step, ...]
    """Where a larger batch costs less than the one before, by `drop` or more and beyond noise."""
    dips: tuple[int, ...]
    """Sizes that cost more than the next larger one, by `dip` or more and beyond noise."""
    plateaus: tuple[tuple[int, int], ...]
    """(start, stop) of the ranges where T is flat."""
    largest: Step | None
    """The upward step that comes nearest to being a cliff, or exceeds it most; None when T never rises."""
    sawtooth: int | None
    """The period in tokens, when at least three drops follow each other at one distance."""

    @property
    def safe_draft_length(self) -> int | None:
        """First cliff - 2, the longest draft whose verification stays before the cliff; None without one.

        With a gap in the grid the cliff may begin at the first size that was not measured, so the last size
        known to be cheap counts.
        """
        return self.cliffs[0].after - 1 if self.cliffs else None

    def to_json(self) -> dict[str, Any]:
        """Return builtin types only: lists, dicts, numbers, None."""
        data = asdict(self)
        data["safe_draft_length"] = self.safe_draft_length
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()} | {
            "plateaus": [list(plateau) for plateau in self.plateaus]
        }


@dataclass(frozen=True, slots=True)
class Change:
    """T(n) of one curve divided by T(n) of another, with bounds."""

    n: int
    ratio: float
    low: float
    high: float


def find_steps(
    n: ArrayLike,
    ms: ArrayLike,
    *,
    ratio: float = 1.4,
    slope: float = 1.25,
    noise: ArrayLike | None = None,
    alpha: float = 0.02,
    flat: float = 0.10,
    drop: float = DROP,
    dip: float = DIP,
) -> StepMap:
    """Return the cliffs, drops, dips and plateaus of T(N).

    Args:
        n: batch sizes, shape (sizes,), increasing; gaps are allowed.
        ms: T(n) in ms: medians, shape (sizes,), or samples, shape (sizes, blocks), column b of every row
            measured in the same block, so that drift cancels in the ratios.
        ratio: a cliff is at least this ratio, on its lower bound.
        slope: and at least this marginal cost, in units of the cost per token so far.
        noise: standard deviations of the medians in ms, shape (sizes,); bounds are then +-2 of them, to first
            order. Without samples and noise the bounds are the value itself.
        alpha: two-sided error of the signed-rank bounds from samples; with too few blocks for it, the bounds
            are the smallest and the largest paired ratio.
        flat: on a plateau, which has at least three measured sizes, T varies by no more than this share. None
            begins at a dip: that size is dearer than the flat part after it.
        drop: a drop is a fall from the size before by at least this share, and beyond noise.
        dip: a dip is followed by a fall of at least this share, and beyond noise.

    Raises:
        ValueError: an argument is empty, not finite, out of range, unsorted, or of another shape.
    """
    sizes, times = _curve(n, ms)
    flat = arguments.number("flat", flat, low=0.0)
    drop = arguments.number("drop", drop, low=0.0, below=1.0)
    dip = arguments.number("dip", dip, low=0.0, below=1.0)
    steps = _steps(sizes, times, ratio, slope, noise, alpha)
    dips = tuple(step.after for step in steps if _falls(step, dip))
    drops = tuple(step for step in steps if _falls(step, drop))
    rising = [step for step in steps if step.ratio > 1.0]
    return StepMap(
        steps=steps,
        cliffs=tuple(step for step in steps if step.is_cliff),
        straddling=tuple(step for step in steps if step.straddles),
        drops=drops,
        dips=dips,
        plateaus=_plateaus(sizes, _medians(times), flat, dips),
        largest=max(rising, key=lambda step: step.ratio / step.needed, default=None),
        sawtooth=_period([step.n for step in drops if step.n == step.after + 1]),
    )


def step_at(
    n: ArrayLike,
    ms: ArrayLike,
    at: int,
    *,
    ratio: float = 1.4,
    slope: float = 1.25,
    noise: ArrayLike | None = None,
    alpha: float = 0.02,
) -> Step:
    """Return the step to size `at` from the measured size before; the other arguments as for `find_steps`.

    Raises:
        ValueError: `at` was not measured, or no smaller size was; or as for `find_steps`.
    """
    sizes, times = _curve(n, ms)
    for step in _steps(sizes, times, ratio, slope, noise, alpha):
        if step.n == at:
            return step
    if at == sizes[0]:
        raise ValueError(f"at={at} is the smallest size measured: a step needs a smaller one too")
    raise ValueError(f"at={at} was not measured; measured sizes: {_listed(sizes)}")


def flatness(n: ArrayLike, ms: ArrayLike, start: int, stop: int) -> float:
    """Return max T / min T - 1 over the measured sizes `start` to `stop`, both included (medians).

    Raises:
        ValueError: `start` or `stop` was not measured, or `start` is not below `stop`; or as for
            `find_steps`.
    """
    sizes, times = _curve(n, ms)
    for name, place in (("start", start), ("stop", stop)):
        if place not in sizes:
            raise ValueError(f"{name}={place} was not measured; measured sizes: {_listed(sizes)}")
    if start >= stop:
        raise ValueError(f"start={start} must be less than stop={stop}")
    chosen = _medians(times)[(sizes >= start) & (sizes <= stop)]
    return float(chosen.max() / chosen.min() - 1.0)


def compare_curves(
    n: ArrayLike, before: ArrayLike, after: ArrayLike, *, floor: float = 0.05, alpha: float = 0.02
) -> tuple[Change, ...]:
    """Return the sizes at which `after` takes another time than `before`, surely by more than `floor`.

    Args:
        n: batch sizes, shape (sizes,), increasing.
        before: T(n) in ms of one build, medians (sizes,) or samples (sizes, blocks).
        after: T(n) in ms of the other; of one shape with `before`, samples paired by block.
        floor: changes by less than this share do not count, up or down (1 / (1 + floor)).
        alpha: as for `find_steps`.

    Raises:
        ValueError: as for `find_steps`, or the shapes differ.
    """
    sizes, old = _curve(n, before, "before")
    _, new = _curve(n, after, "after")
    if old.shape != new.shape:
        raise ValueError(f"after must have the shape of before, {old.shape}, got {new.shape}")
    limit = 1.0 + arguments.number("floor", floor, low=0.0)
    changes = [Change(int(size), *_paired_ratio(new[i], old[i], alpha)) for i, size in enumerate(sizes)]
    return tuple(change for change in changes if change.low > limit or change.high < 1.0 / limit)


def _curve(n: ArrayLike, ms: ArrayLike, name: str = "ms") -> tuple[IntArray, FloatArray]:
    """Return the sizes, shape (sizes,), and the times, shape (sizes, blocks) or, medians, (sizes, 1)."""
    sizes = arguments.integers("n", n, low=1, increasing=True)
    times = arguments.floats(name, ms, ndim=(1, 2), above=0.0)
    arguments.same_length(name, times, "n", len(sizes))
    return sizes, times if times.ndim == 2 else times[:, np.newaxis]


def _listed(sizes: IntArray) -> str:
    return ", ".join(str(size) for size in sizes.tolist())


def _medians(times: FloatArray) -> FloatArray:
    medians: FloatArray = np.median(times, axis=1)
    return medians


def _steps(
    sizes: IntArray, times: FloatArray, ratio: float, slope: float, noise: ArrayLike | None, alpha: float
) -> tuple[Step, ...]:
    ratio = arguments.number("ratio", ratio, above=1.0)
    slope = arguments.number("slope", slope, low=0.0)
    spread = _relative_noise(noise, times)
    result = []
    for i in range(1, len(sizes)):
        n0, n1 = int(sizes[i - 1]), int(sizes[i])
        value, low, high = _paired_ratio(times[i], times[i - 1], alpha)
        if spread is not None:
            width = math.exp(2.0 * math.hypot(spread[i - 1], spread[i]))
            low, high = value / width, value * width
        result.append(Step(n1, n0, value, low, high, max(ratio, 1.0 + slope * (n1 - n0) / n0)))
    return tuple(result)


def _relative_noise(noise: ArrayLike | None, times: FloatArray) -> FloatArray | None:
    if noise is None:
        return None
    if times.shape[1] > 1:
        raise ValueError("noise is for medians: with samples in ms the bounds come from them")
    deviations = arguments.floats("noise", noise, low=0.0)
    arguments.same_length("noise", deviations, "n", len(times))
    return deviations / times[:, 0]


def _paired_ratio(upper: FloatArray, lower: FloatArray, alpha: float) -> tuple[float, float, float]:
    """Return the ratio and its bounds, from samples of shape (blocks,) paired by position."""
    logs = np.log(upper) - np.log(lower)
    low, high = stats.signed_rank_bounds(logs, alpha)
    if math.isinf(low):
        low, high = float(logs.min()), float(logs.max())
    if len(logs) == 1:
        value = float(upper[0] / lower[0])
        return value, value, value
    return math.exp(stats.hodges_lehmann(logs)), math.exp(low), math.exp(high)


def _falls(step: Step, share: float) -> bool:
    return step.high < 1.0 and step.ratio <= 1.0 - share


def _plateaus(
    sizes: IntArray, medians: FloatArray, flat: float, dips: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Return the longest flat range of three or more measured sizes, and those left and right of it."""
    best = (0, 0)
    for i, start in enumerate(sizes.tolist()):
        j = _flat_until(i, medians, flat)
        if j - i > best[1] - best[0] and start not in dips:
            best = (i, j)
    i, j = best
    if j - i < 2:
        return ()
    return (
        *_plateaus(sizes[:i], medians[:i], flat, dips),
        (int(sizes[i]), int(sizes[j])),
        *_plateaus(sizes[j + 1 :], medians[j + 1 :], flat, dips),
    )


def _flat_until(i: int, medians: FloatArray, flat: float) -> int:
    """Return the last index up to which T, from index `i` on, varies by no more than the share `flat`."""
    low = high = medians[i]
    while i + 1 < len(medians):
        low, high = min(low, medians[i + 1]), max(high, medians[i + 1])
        if high > low * (1.0 + flat):
            break
        i += 1
    return i


def _period(places: Sequence[int]) -> int | None:
    """Return the distance that at least three neighbouring places share: the first such."""
    distances = np.diff(np.asarray(places, dtype=np.int64)).tolist()
    for first, second in pairwise(distances):
        if first == second:
            return int(first)
    return None
