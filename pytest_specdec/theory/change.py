"""How much something changed between two arms that were measured next to each other: paired, with bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pytest_specdec.theory import arguments
from pytest_specdec.theory.stats import hodges_lehmann
from pytest_specdec.theory.stats import signed_rank_bounds


@dataclass(frozen=True, slots=True)
class Change:
    """The Hodges-Lehmann estimate of a change with its exact one-sided signed-rank bounds.

    With too few pairs for a bound, the bounds are those of the quantity itself: 0 or -inf, and inf.
    """

    value: float
    low: float
    high: float
    pairs: int

    @property
    def bounded(self) -> bool:
        """Whether there were pairs enough for bounds."""
        return math.isfinite(self.high)

    @property
    def inverse(self) -> Change:
        """The change of the reciprocal: a time's ratio as that of the rate."""
        high = 1 / self.low if self.low > 0 else math.inf
        return Change(1 / self.value, 1 / self.high if self.bounded else 0.0, high, self.pairs)


def ratio(new: ArrayLike, old: ArrayLike, alpha: float) -> Change:
    """Return new ÷ old of paired positive values, shape (pairs,) each, judged on their log-ratios.

    Each bound on its own is wrong with probability at most `alpha`.

    Raises:
        ValueError: the values differ in number, there are none, or one is not positive.
    """
    here, before = arguments.floats("new", new, above=0.0), arguments.floats("old", old, above=0.0)
    arguments.same_length("new", here, "old", len(before))
    logs = np.log(here) - np.log(before)
    low, high = signed_rank_bounds(logs, alpha, sides=1)
    return Change(math.exp(hodges_lehmann(logs)), math.exp(low), math.exp(high), len(logs))


def difference(new: ArrayLike, old: ArrayLike, alpha: float) -> Change:
    """Return new - old of paired values, shape (pairs,) each, in their unit; bounds as in `ratio`.

    Raises:
        ValueError: the values differ in number, there are none, or one is not finite.
    """
    here, before = arguments.floats("new", new), arguments.floats("old", old)
    arguments.same_length("new", here, "old", len(before))
    low, high = signed_rank_bounds(here - before, alpha, sides=1)
    return Change(hodges_lehmann(here - before), low, high, len(here))
