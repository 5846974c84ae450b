"""Whether counts were drawn from given odds: the G-test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pytest_specdec.theory import arguments


#: Cells expected less often than this are joined: the test's distribution is known for large counts only.
LEAST_EXPECTED = 5.0
_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class GTest:
    """G = 2 sum of observed x ln(observed / expected), its degrees of freedom, and the p-value.

    `impossible` counts draws of what has no odds; with any, p is 0 and G infinite.
    """

    g: float
    df: int
    p: float
    draws: int
    impossible: int


def g_test(counts: ArrayLike, odds: ArrayLike) -> GTest:
    """Hold counts against odds, both of shape (cells,); odds add up to 1.

    Cells that are expected fewer than 5 times are joined (Cochran's rule); one cell alone says nothing,
    p = 1. Under the odds G follows the chi-squared distribution (Wilks).

    Raises:
        ValueError: an argument is empty, negative or of another length, nothing was drawn, or the odds don't
            add up to 1.
    """
    seen = arguments.integers("counts", counts)
    shares = np.asarray(odds, dtype=np.float64)
    if shares.ndim != 1 or not np.isfinite(shares).all() or (shares < 0).any():
        raise ValueError("odds must be finite numbers from 0 on, shape (cells,)")
    arguments.same_length("counts", seen, "odds", len(shares))
    if abs(shares.sum() - 1.0) > 1e-6:
        raise ValueError(f"odds must add up to 1, not {shares.sum():.6g}")
    draws = int(seen.sum())
    if not draws:
        raise ValueError("counts must have a draw")
    impossible = int(seen[shares == 0].sum())
    possible = shares > 0
    seen, expected = seen[possible], shares[possible] * draws
    rare = expected < LEAST_EXPECTED
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    df = len(seen) - 1
    if impossible:
        return GTest(math.inf, df, 0.0, draws, impossible)
    drawn = seen > 0
    g = max(0.0, 2.0 * float((seen[drawn] * np.log(seen[drawn] / expected[drawn])).sum()))
    return GTest(g, df, chi_squared_tail(g, df) if df else 1.0, draws, 0)


def chi_squared_tail(x: float, df: int) -> float:
    """Return P(X > x) of the chi-squared distribution: the regularised upper incomplete gamma Q(df/2, x/2).

    By its series below df/2 + 1 and its continued fraction above (Numerical Recipes, 6.2).

    Raises:
        ValueError: `x` is negative or `df` less than 1.
    """
    a = arguments.whole("df", df, low=1) / 2.0
    z = arguments.number("x", x, low=0.0) / 2.0
    if z == 0.0:
        return 1.0
    scale = math.exp(a * math.log(z) - z - math.lgamma(a))
    if z < a + 1.0:
        term = total = 1.0 / a
        for n in range(1, _STEPS):
            term *= z / (a + n)
            total += term
            if term < total * 1e-15:
                break
        return max(0.0, 1.0 - scale * total)
    b = z + 1.0 - a
    c, d = math.inf, 1.0 / b
    h = d
    for n in range(1, _STEPS):
        an = n * (a - n)
        b += 2.0
        d = 1.0 / (an * d + b)
        c = b + an / c
        h *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return scale * h
