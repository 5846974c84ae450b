"""The noise floor: the smallest change that times can show, from runs between which nothing changed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pytest_specdec.theory import arguments
from pytest_specdec.theory.stats import hodges_lehmann
from pytest_specdec.theory.stats import signed_rank_bounds


# What the last of three looks spends; the floor is what a gate can reach with all its pairs.
ALPHA = 0.003
# Two blocks in each half are the fewest that a typical value can be taken of.
MIN_BLOCKS = 4


def paired_floor(log_ratios: ArrayLike, alpha: float = ALPHA) -> float | None:
    """Return the noise floor of A/A pairs, shape (pairs,), natural logs, as a share: 0.02 is 2 %.

    It is how far the exact signed-rank bounds (each one-sided at `alpha`) of the typical ratio reach from 1,
    the farther one. None with too few pairs for bounds.

    Raises:
        ValueError: the ratios are none, or not finite.
    """
    low, high = signed_rank_bounds(log_ratios, alpha, sides=1)
    return None if math.isinf(low) else math.expm1(max(-low, high))


def halves_floor(ms: ArrayLike) -> tuple[float, int] | None:
    """Return the noise floor of T(N)/T(first N) within one curve, and the row that has it.

    `ms` has shape (sizes, blocks), positive. The floor is, as a share, the largest change over all sizes
    between the Hodges-Lehmann estimates of the odd blocks and of the even ones; half of the blocks on either
    side make it 1.4 times as wide as between two whole curves, and its odd and even blocks share drift.
    None with fewer than `MIN_BLOCKS` blocks, or one size.

    Raises:
        ValueError: a time is not positive and finite.
    """
    times = np.asarray(ms, dtype=float)
    arguments.floats("ms", times.ravel())
    if times.ndim != 2 or len(times) < 2 or times.shape[1] < MIN_BLOCKS:
        return None
    if times.min() <= 0:
        raise ValueError("ms must be positive")
    logs = np.log(times[1:]) - np.log(times[0])
    gaps = [abs(hodges_lehmann(row[::2]) - hodges_lehmann(row[1::2])) for row in logs]
    widest = int(np.argmax(gaps))
    return math.expm1(gaps[widest]), widest + 1
