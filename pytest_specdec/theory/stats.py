"""Distribution-free statistics for paired times: deterministic, numpy only."""

from __future__ import annotations

import math
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
