"""What drafting a token costs, against the baseline's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_specdec.checks.baseline.limits import ALLOWED
from pytest_specdec.checks.baseline.limits import not_measured
from pytest_specdec.checks.conditions import ALPHA
from pytest_specdec.checks.conditions import bounds_told
from pytest_specdec.checks.conditions import is_point
from pytest_specdec.checks.curve import ratio_bounds
from pytest_specdec.checks.remedies import ACCEPT
from pytest_specdec.checks.remedies import RECORD
from pytest_specdec.measurements import DraftCost
from pytest_specdec.reports import text
from pytest_specdec.theory.stats import shift
from pytest_specdec.theory.stats import shift_bounds
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Cost:
    """t_draft/T(1) with its bounds, and the two times in ms."""

    value: float
    low: float
    high: float
    draft_ms: float
    target_ms: float

    @classmethod
    def of(cls, cost: DraftCost, alpha: float) -> Cost:
        """Estimate from paired blocks."""
        bounds = ratio_bounds(_logs(cost), alpha)
        return cls(*bounds, float(np.median(cost.draft_ms)), float(np.median(cost.target_ms)))


def compare_draft_cost(
    live: DraftCost,
    stored: DraftCost,
    tolerance: float | None,
    limit: str,
    alpha: float | None = None,
) -> Verdict:
    """Compare t_draft/T(1): fails when it is dearer by more than is allowed, the bounds of both included."""
    metric = "t_draft/T(1)"
    if not live.draft_ms:
        because = f"no block was measured: the source ({live.method}) drafted nothing"
        return not_measured(metric, limit, because)
    if not stored.draft_ms or live.method != stored.method:
        return not_measured(metric, limit, f"the baseline's draft cost is not comparable: {RECORD}")
    allowance, error = ALLOWED["draft_cost"], ALPHA if alpha is None else alpha
    now, then = Cost.of(live, error), Cost.of(stored, error)
    change, low, high = _change(live, stored, error)
    most = allowance.dearest(then.value, tolerance)
    told = (
        f"a drafted token ({live.method}) costs {text.against(now.value, most)} of a target pass "
        f"({_bounds(now, live)}), was {text.number(then.value)} ({_bounds(then, stored)})"
    )
    beyond = f"{told}, dearer by more than {allowance.told(tolerance)}"
    if then.value * low > most:
        outcome, because = Outcome.FAIL, f"{beyond}; {_term_that_moved(now, then)}; {ACCEPT}"
    elif then.value * change > most:
        outcome = Outcome.INCONCLUSIVE
        blocks = f"{text.plural(len(live.draft_ms), 'block')} against {len(stored.draft_ms)} can't tell"
        because = f"{beyond}, but {blocks if low == 0 else 'the bounds are not clear of it'}"
    elif then.value > allowance.dearest(then.value * high, tolerance):
        outcome, because = Outcome.PASS, f"better: {told}; {ACCEPT}"
    else:
        outcome, because = Outcome.PASS, f"{told}, no dearer by more than {allowance.told(tolerance)}"
    point = is_point(live.source, len(live.draft_ms))
    rows = [
        ["draft", text.number(now.draft_ms), text.number(then.draft_ms)],
        ["T(1)", text.number(now.target_ms), text.number(then.target_ms)],
    ]
    return Verdict(
        outcome=outcome,
        metric=metric,
        value=now.value,
        low=None if point else now.low,
        high=None if point else now.high,
        limit=limit,
        because=because,
        section="\n".join(text.table(["", "ms", "was"], rows, left=(0,))),
        baseline=then.value,
    )


def _bounds(seen: Cost, cost: DraftCost) -> str:
    return bounds_told(seen.low, seen.high, cost.source, len(cost.draft_ms))


def _logs(cost: DraftCost) -> NDArray[np.float64]:
    # A proposal may be too quick for the clock; its logarithm has to exist.
    draft = np.maximum(np.asarray(cost.draft_ms, dtype=float), 1e-6)
    logs: NDArray[np.float64] = np.log(draft / np.asarray(cost.target_ms, dtype=float))
    return logs


def _change(live: DraftCost, stored: DraftCost, alpha: float) -> tuple[float, float, float]:
    """Return now ÷ then with its bounds, 0 and infinity with too few blocks; single values have none."""
    x, y = _logs(live), _logs(stored)
    if any(is_point(cost.source, len(cost.draft_ms)) for cost in (live, stored)):
        return ratio_bounds(np.subtract.outer(x, y).ravel(), alpha)
    low, high = shift_bounds([x], [y], alpha, sides=1)
    return math.exp(shift([x], [y])), math.exp(low), math.exp(high)


def _term_that_moved(now: Cost, then: Cost) -> str:
    return (
        f"drafting takes {text.number(now.draft_ms)} ms per token, took {text.number(then.draft_ms)} "
        f"(x {text.number(now.draft_ms / then.draft_ms)}), a target pass {text.number(now.target_ms)} ms, "
        f"took {text.number(then.target_ms)} (x {text.number(now.target_ms / then.target_ms)})"
    )
