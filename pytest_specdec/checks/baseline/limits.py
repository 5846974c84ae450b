"""How far a metric may move from the baseline, and what to do when it moved farther."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Final

import numpy as np

from pytest_specdec.checks.remedies import ACCEPT
from pytest_specdec.reports import text
from pytest_specdec.theory.stats import hodges_lehmann
from pytest_specdec.theory.stats import pairs_needed
from pytest_specdec.theory.stats import signed_rank_bounds
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from numpy.typing import ArrayLike


# Prompts or sizes named in one sentence.
SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Allowance:
    """The change that a metric may make: more than `relative` of its baseline and more than `absolute`.

    `relative` is what a mark's `tolerance` replaces; `absolute`, in `unit`, stays: less than that is what
    clocks and schedulers do.
    """

    relative: float
    absolute: float
    unit: str

    def share(self, tolerance: float | None) -> float:
        """The relative change allowed: the user's, else this metric's own."""
        return self.relative if tolerance is None else tolerance

    def dearest(self, then: float, tolerance: float | None) -> float:
        """The largest cost that is still the baseline's."""
        return max(then * (1 + self.share(tolerance)), then + self.absolute)

    def told(self, tolerance: float | None) -> str:
        """Both sides in words: "15% and 0.01 of T(1)"."""
        return f"{self.share(tolerance):.0%} and {self.absolute:g} {self.unit}"


ALLOWED: Final[Mapping[str, Allowance]] = {
    # A shape: load, heat and clock rates move T(N) and T(1) alike, caches do not.
    "curve": Allowance(0.15, 0.05, "ms of a pass"),
    # Both arms of a pair share the moment, so a twentieth can be told; a tenth is failed (benchmarks).
    "speedup": Allowance(0.05, 0.05, "ms per token"),
    # k drafts of a hundredth of a pass each don't decide whether a round pays.
    "draft_cost": Allowance(0.15, 0.01, "of T(1)"),
    "forward_share": Allowance(0.05, 0.02, "of the request time"),
    # Python and the system's scheduler move it more than anything that llama.cpp does.
    "overhead": Allowance(0.25, 0.2, "ms per round"),
}


def not_measured(metric: str, limit: str, because: str) -> Verdict:
    """Return the verdict on what can't be compared."""
    return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because)


def reason(doubt: Outcome, why: str, better: bool, *, told: str, beyond: str, blame: str, fine: str) -> str:
    """Say what became of a metric, `doubt` and `why` being the answer of `exceeded`.

    `told` is what it was and is; `beyond`, what it did too much where it is worse; `blame`, what moved;
    `fine`, what it did not do.
    """
    if doubt is Outcome.FAIL:
        return f"{told}, {beyond} beyond doubt{blame}; {ACCEPT}"
    if doubt is Outcome.INCONCLUSIVE:
        return f"{told}, {beyond}, but {why}"
    return f"better: {told}; {ACCEPT}" if better else f"{told}, {fine}"


def exceeded(excess: ArrayLike, alpha: float) -> tuple[Outcome, str]:
    """Judge how far the prompts' values lie beyond their limits, shape (prompts,), positive being too far.

    FAIL when the location is above 0 beyond doubt, at the one-sided error `alpha`; INCONCLUSIVE, with the
    reason, when it is above 0 only as estimated.
    """
    values = np.asarray(excess, dtype=float)
    if hodges_lehmann(values) <= 0:
        return Outcome.PASS, ""
    low, _ = signed_rank_bounds(values, alpha, sides=1)
    if low > 0:
        return Outcome.FAIL, ""
    if math.isfinite(low):
        return Outcome.INCONCLUSIVE, "the bounds are not clear of it"
    needed = pairs_needed(alpha, sides=1)
    few = f"{text.plural(len(values), 'prompt')} can't tell, {needed} are the fewest that can"
    return Outcome.INCONCLUSIVE, f"{few} (--specdec-prompts)"
