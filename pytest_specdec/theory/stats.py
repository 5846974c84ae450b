"""Distribution-free statistics for paired times: deterministic, numpy only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from pytest_specdec.theory import arguments
from pytest_specdec.theory.arguments import FloatArray


def hodges_lehmann(x: ArrayLike) -> float:
    """Return the Hodges-Lehmann location of `x`, shape (n,): the median of all Walsh averages.

    Hodges and Lehmann 1963. In the unit of `x`; for paired log-ratios, the log of the typical ratio.

    Raises:
        ValueError: `x` is empty or not finite.
    """
    return float(np.median(_walsh_averages(arguments.floats("x", x))))


def signed_rank_bounds(x: ArrayLike, alpha: float, *, sides: int = 2) -> tuple[float, float]:
    """Return the exact Wilcoxon signed-rank bounds (low, high) of the location of `x`, shape (n,).

    With `sides=2` the interval misses the location with probability at most `alpha`; with `sides=1` each of
    the two bounds on its own does (use one of them). The bounds are order statistics of the Walsh averages
    (Hollander and Wolfe, Nonparametric Statistical Methods, 3.3), so they need symmetry but no normality.
    When n is too small for `alpha` (see `pairs_needed`) nothing can be said: (-inf, inf).

    Raises:
        ValueError: `x` is empty or not finite, `alpha` not in (0, 1), `sides` neither 1 nor 2.
    """
    values = arguments.floats("x", x)
    tail = _tail("alpha", alpha, sides)
    # The number of values w with P(W <= w) <= tail; the cumulative probabilities increase.
    rank = int(np.searchsorted(_signed_rank_cdf(len(values)), tail, side="right"))
    if rank == 0:
        return -math.inf, math.inf
    averages = np.sort(_walsh_averages(values))
    return float(averages[rank - 1]), float(averages[-rank])


def signed_rank_lower(x: ArrayLike, alpha: float) -> float:
    """Return the one-sided lower bound: the location is below it with probability at most `alpha`."""
    return signed_rank_bounds(x, alpha, sides=1)[0]


def signed_rank_upper(x: ArrayLike, alpha: float) -> float:
    """Return the one-sided upper bound: the location is above it with probability at most `alpha`."""
    return signed_rank_bounds(x, alpha, sides=1)[1]


def pairs_needed(alpha: float, *, sides: int = 2) -> int:
    """Return the fewest pairs with which `signed_rank_bounds` can say anything at `alpha`."""
    tail = _tail("alpha", alpha, sides)
    n = 1
    while 0.5**n > tail:
        n += 1
    return n


def shift(x: Sequence[ArrayLike], y: Sequence[ArrayLike]) -> float:
    """Return how far `x` lies above `y`, shapes (strata, any): the median of all differences in a stratum.

    The two-sample Hodges-Lehmann estimate (Hollander and Wolfe, 4.2), within strata: what differs between
    them cancels. For log-ratios, the log of the typical change.

    Raises:
        ValueError: another number of strata in `x` than in `y`, or one is empty or not finite.
    """
    return float(np.median(_differences(x, y)))


def shift_bounds(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike], alpha: float, *, sides: int = 2
) -> tuple[float, float]:
    """Return the exact rank-sum bounds (low, high) of how far `x` lies above `y`, shapes (strata, any).

    `alpha` and `sides` as in `signed_rank_bounds`. The bounds are order statistics of the differences within
    strata, by the distribution of the sum of the strata's Mann-Whitney counts (Lehmann, Nonparametrics, 3.3):
    they need no symmetry, only that noise is alike in `x` and `y`. With too few values: (-inf, inf).

    Raises:
        ValueError: as for `shift`; `alpha` not in (0, 1), `sides` neither 1 nor 2.
    """
    differences = np.sort(_differences(x, y))
    tail = _tail("alpha", alpha, sides)
    sizes = tuple(sorted((np.size(a), np.size(b)) for a, b in zip(x, y, strict=True)))
    rank = int(np.searchsorted(_rank_sum_cdf(sizes), tail, side="right"))
    if rank == 0:
        return -math.inf, math.inf
    return float(differences[rank - 1]), float(differences[-rank])


def mad(x: ArrayLike) -> float:
    """Return the median absolute deviation from the median of `x`, shape (n,), in its unit and not rescaled.

    Raises:
        ValueError: `x` is empty or not finite.
    """
    values = arguments.floats("x", x)
    return float(np.median(np.abs(values - np.median(values))))


def student_t_quantile(p: float, df: int) -> float:
    """Return the `p` quantile of Student's t with `df` degrees of freedom: its distribution, bisected.

    Raises:
        ValueError: `p` is not in (0, 1), or `df` is less than 1.
    """
    p = arguments.number("p", p, above=0.0, below=1.0)
    df = arguments.whole("df", df, low=1)
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -student_t_quantile(1.0 - p, df)
    # Bisected in the angle atan(t / sqrt(df)), where the range is finite.
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        if 0.5 + _central_share(middle, df) / 2 < p:
            low = middle
        else:
            high = middle
    return math.sqrt(df) * math.tan((low + high) / 2)


def _central_share(angle: float, df: int) -> float:
    """Return P(|t| < sqrt(df) tan(angle)); Abramowitz and Stegun 26.7.3 and 26.7.4."""
    cosine = math.cos(angle)
    term = cosine if df % 2 else 1.0
    total = 0.0
    for i in range(df % 2, df - 1, 2):
        total += term
        term *= cosine * cosine * (i + 1) / (i + 2)
    if df % 2:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def _tail(name: str, alpha: float, sides: int) -> float:
    if sides not in (1, 2):
        raise ValueError(f"sides must be 1 or 2, got {sides!r}")
    return arguments.number(name, alpha, above=0.0, below=1.0) / sides


def _walsh_averages(values: FloatArray) -> FloatArray:
    """Return (x_i + x_j) / 2 for all i <= j, shape (n (n + 1) / 2,)."""
    i, j = np.triu_indices(len(values))
    # Halved first: the sum of two large values may overflow.
    return values[i] / 2 + values[j] / 2


@lru_cache(maxsize=64)
def _signed_rank_cdf(n: int) -> FloatArray:
    """Return P(W <= w) for w = 0 ... n (n + 1) / 2, W the sum of the positive ranks under symmetry about 0.

    Each rank enters with probability one half: exact in binary floating point up to n = 50.
    """
    probabilities = np.zeros(n * (n + 1) // 2 + 1)
    probabilities[0] = 1.0
    for rank in range(1, n + 1):
        shifted = np.zeros_like(probabilities)
        shifted[rank:] = probabilities[:-rank]
        probabilities = (probabilities + shifted) / 2
    result = np.cumsum(probabilities)
    result.flags.writeable = False
    return result


def _differences(x: Sequence[ArrayLike], y: Sequence[ArrayLike]) -> FloatArray:
    """Return x_i - y_j for all i, j of each stratum, shape (pairs,)."""
    if len(x) != len(y) or not len(x):
        raise ValueError(f"x and y need equally many strata, at least one, got {len(x)} and {len(y)}")
    strata = [(arguments.floats("x", a), arguments.floats("y", b)) for a, b in zip(x, y, strict=True)]
    return np.concatenate([np.subtract.outer(a, b).ravel() for a, b in strata])


@lru_cache(maxsize=64)
def _rank_sum_cdf(sizes: tuple[tuple[int, int], ...]) -> FloatArray:
    """Return P(U <= u), U the sum of the Mann-Whitney counts of strata of m and n values without a shift."""
    probabilities = np.ones(1)
    for m, n in sizes:
        probabilities = np.convolve(probabilities, _mann_whitney(m, n))
    result = np.cumsum(probabilities)
    result.flags.writeable = False
    return result


def _mann_whitney(m: int, n: int) -> FloatArray:
    """Return P(U = u) for u = 0 ... m n, by which of the m + n values is the largest."""
    row = [np.ones(1)] * (n + 1)
    for i in range(1, m + 1):
        left = np.ones(1)
        following = [left]
        for j in range(1, n + 1):
            here = np.zeros(i * j + 1)
            # One of the m beats all j; one of the n beats none.
            here[j:] += row[j] * (i / (i + j))
            here[: len(left)] += left * (j / (i + j))
            following.append(here)
            left = here
        row = following
    return row[n]
