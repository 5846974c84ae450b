"""One round of speculation: what it yields and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pytest_specdec.theory import arguments
from pytest_specdec.theory import steps
from pytest_specdec.theory.arguments import FloatArray


class ConcurrencyError(ValueError):
    """A ledger was asked about several concurrent requests, where it does not hold."""


def refuse_concurrency(concurrency: int) -> None:
    """Raise unless `concurrency` is 1.

    Raises:
        ConcurrencyError: it is more: a round cost linear in k then misses by some 15 %, because each step
            batches rounds of different widths.
        ValueError: it is no whole number of at least 1.
    """
    if arguments.whole("concurrency", concurrency, low=1) > 1:
        raise ConcurrencyError(
            f"concurrency={concurrency}: no ledger for several concurrent requests. Their steps batch rounds "
            "of different widths, so a round's cost is not linear in the draft length k: measure each k at "
            "this concurrency"
        )


def tokens_per_round(alpha: float, k: int) -> float:
    """Return (1 - alpha^(k + 1)) / (1 - alpha), the tokens a round yields, bonus included.

    The i.i.d. model of Leviathan et al. 2023 (arXiv 2211.17192, eq. 1): each draft is accepted with
    probability `alpha`, independently.

    Raises:
        ValueError: `alpha` is not in [0, 1], or `k` is negative.
    """
    alpha = arguments.number("alpha", alpha, low=0.0, high=1.0)
    # Rounded once: the yield must not fall with k.
    return math.fsum(alpha ** np.arange(arguments.whole("k", k) + 1))


def tokens_from_positions(positions: ArrayLike, k: int) -> float:
    """Return 1 + P_1 + ... + P_k, the tokens a round yields by its unconditional acceptance per position.

    Holds without independence; `positions` has the shape (positions,), at least `k` of them.

    Raises:
        ValueError: a rate is not in [0, 1], or fewer than `k` are given.
    """
    k = arguments.whole("k", k)
    rates = arguments.floats("positions", positions, low=0.0, high=1.0)
    if k > len(rates):
        raise ValueError(f"positions must have at least k={k} rates, got {len(rates)}")
    return 1.0 + float(rates[:k].sum())


def solve_alpha(tokens_per_round: float, k: int) -> float:
    """Return the alpha with which the i.i.d. model yields `tokens_per_round` at draft length `k`.

    Raises:
        ValueError: `k` is less than 1, or `tokens_per_round` is not in [1, k + 1].
    """
    k = arguments.whole("k", k, low=1)
    wanted = arguments.number("tokens_per_round", tokens_per_round, low=1.0, high=k + 1.0)
    powers = np.arange(k + 1)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if float(np.sum(middle**powers)) < wanted:
            low = middle
        else:
            high = middle
    return 1.0 if wanted == k + 1.0 else (low + high) / 2


def expected_rate(tokens_per_round: float, k: int) -> float:
    """Return the acceptance rate (accepted / drafted) that goes with a yield at draft length `k`.

    Raises:
        ValueError: `k` is less than 1, or `tokens_per_round` is not in [1, k + 1].
    """
    k = arguments.whole("k", k, low=1)
    return (arguments.number("tokens_per_round", tokens_per_round, low=1.0, high=k + 1.0) - 1.0) / k


def ideal_speedup(alpha: float, k: int, draft_cost: float = 0.0) -> float:
    """Return the speedup if verifying cost one token whatever its width and rounds had no overhead.

    Leviathan et al. 2023, theorem 3.8: tokens per round / (k c + 1), c = `draft_cost`. An upper bound only.

    Raises:
        ValueError: an argument is out of range.
    """
    draft_cost = arguments.number("draft_cost", draft_cost, low=0.0)
    produced = tokens_per_round(alpha, k)
    return produced / (k * draft_cost + 1.0)


def operations_factor(alpha: float, k: int, draft_operations: float = 0.0) -> float:
    """Return how many times the arithmetic of plain decoding speculation does.

    Leviathan et al. 2023, theorem 3.11: (k c' + k + 1) / tokens per round, c' = `draft_operations` per token
    of the draft model in units of the target's.

    Raises:
        ValueError: an argument is out of range.
    """
    draft_operations = arguments.number("draft_operations", draft_operations, low=0.0)
    produced = tokens_per_round(alpha, k)
    return (k * draft_operations + k + 1.0) / produced


def round_ms(k: int, verify_ms: float, draft_ms: float, overhead_ms: float = 0.0) -> float:
    """Return k * draft_ms + verify_ms + overhead_ms, the time of a round in ms.

    Args:
        k: draft length.
        verify_ms: T(k + 1), at the run's mean depth.
        draft_ms: time per drafted token.
        overhead_ms: time per round not explained by drafting and verifying.

    Raises:
        ValueError: an argument is negative, or `verify_ms` is 0.
    """
    k = arguments.whole("k", k)
    verify_ms = arguments.number("verify_ms", verify_ms, above=0.0)
    draft_ms = arguments.number("draft_ms", draft_ms, low=0.0)
    return k * draft_ms + verify_ms + arguments.number("overhead_ms", overhead_ms, low=0.0)


def tokens_per_second(tokens_per_round: float, round_ms: float) -> float:
    """Return the decode rate of rounds that yield `tokens_per_round` in `round_ms`.

    Raises:
        ValueError: `tokens_per_round` is negative, or `round_ms` is not positive.
    """
    produced = arguments.number("tokens_per_round", tokens_per_round, low=0.0)
    return 1000.0 * produced / arguments.number("round_ms", round_ms, above=0.0)


@dataclass(frozen=True, slots=True)
class VerifyCost:
    """T(n) in ms and where it comes from."""

    n: int
    ms: float
    plateau: tuple[int, int] | None = None
    """(start, stop) of the plateau it was read off; None when n was measured."""

    def describe(self) -> str:
        """Return the value with its origin as text."""
        text = f"T({self.n}) = {self.ms:.2f} ms"
        if self.plateau is None:
            return text
        return f"{text}, not measured: read off the plateau {self.plateau[0]}-{self.plateau[1]}"


def verify_cost(curve: Mapping[int, float], n: int, *, flat: float | None = None) -> VerifyCost:
    """Return T(n) from the measured `curve`, N to ms.

    A size that was not measured is refused, because T has steps, unless `flat` is given and n lies inside a
    plateau, a range of at least three measured sizes where T varies by no more than the share `flat` (see
    `steps.find_steps`): then T(n) is interpolated between its neighbours, and the result says so.

    Raises:
        ValueError: `curve` is empty or holds what is no size or time, or n was not measured (and is on no
            plateau).
    """
    n = arguments.whole("n", n, low=1)
    sizes, times = curve_arrays(curve)
    if n in sizes:
        return VerifyCost(n, float(times[sizes.tolist().index(n)]))
    measured = ", ".join(str(size) for size in sizes.tolist())
    if flat is None:
        raise ValueError(f"curve: N={n} was not measured; measured sizes: {measured}")
    for start, stop in steps.find_steps(sizes, times, flat=flat).plateaus:
        if start < n < stop:
            return VerifyCost(n, float(np.interp(n, sizes, times)), (start, stop))
    raise ValueError(f"curve: N={n} was not measured and lies on no plateau; measured sizes: {measured}")


def curve_arrays(curve: Mapping[int, float]) -> tuple[arguments.IntArray, FloatArray]:
    """Return sizes and times of `curve` (N to ms), shape (sizes,) each, sizes increasing.

    Raises:
        ValueError: `curve` is empty, a size is no whole number of at least 1, or a time is not positive.
    """
    names = sorted(curve)
    sizes = arguments.integers("curve", names, low=1, increasing=True)
    return sizes, arguments.floats("curve", [curve[name] for name in names], above=0.0)


def at_depth(depths: ArrayLike, ms: ArrayLike, depth: float) -> FloatArray:
    """Return T(N) at a context depth between measured ones, shape (sizes,), by linear interpolation.

    Attention reads the cache once per pass, so T grows linearly with depth; beyond the measured depths other
    kernels may begin, so nothing is extrapolated.

    Args:
        depths: measured depths in tokens, shape (depths,), increasing.
        ms: T(N) in ms at each, shape (depths, sizes).
        depth: the depth asked for, as the mean depth of a run.

    Raises:
        ValueError: `depth` lies outside `depths`, or an argument is empty, not finite, unsorted or of another
            shape.
    """
    known = arguments.integers("depths", depths, increasing=True)
    times = arguments.floats("ms", ms, ndim=(2,), above=0.0)
    arguments.same_length("ms", times, "depths", len(known))
    depth = arguments.number("depth", depth, low=0.0)
    if not known[0] <= depth <= known[-1]:
        raise ValueError(
            f"depth={depth:g} lies outside the measured {known[0]}-{known[-1]}: measure T(N) nearer to it"
        )
    right = int(np.searchsorted(known, depth))
    left = max(0, right - 1)
    gap = int(known[right] - known[left])
    share = (depth - int(known[left])) / gap if gap else 0.0
    result: FloatArray = (1.0 - share) * times[left] + share * times[right]
    return result
