"""The share of the request time that decode forwards take, against the baseline's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_specdec.checks.accounts import STAGES
from pytest_specdec.checks.baseline.limits import ALLOWED
from pytest_specdec.checks.baseline.limits import exceeded
from pytest_specdec.checks.baseline.limits import not_measured
from pytest_specdec.checks.baseline.limits import reason
from pytest_specdec.checks.conditions import ALPHA
from pytest_specdec.checks.remedies import RECORD
from pytest_specdec.measurements import Timeline
from pytest_specdec.reports import text
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


def compare_forward_shares(
    live: Timeline,
    stored: Timeline,
    tolerance: float | None,
    limit: str,
    alpha: float | None = None,
) -> Verdict:
    """Compare Amdahl's p prompt by prompt, speculation off: fails when it is clearly lower than allowed."""
    metric = "forward share"
    shares, before = _shares(live), _shares(stored)
    if shares.keys() != before.keys():
        why = f"the baseline was measured on other prompts ({text.plural(len(before), 'prompt')}): {RECORD}"
        return not_measured(metric, limit, why)
    allowance, error = ALLOWED["forward_share"], ALPHA if alpha is None else alpha
    now, then = np.array(list(shares.values())), np.array([before[prompt] for prompt in shares])
    share = allowance.share(tolerance)
    # What is left of a share that may fall: less by both the relative and the absolute change.
    doubt, why = exceeded(_least(then, share, allowance.absolute) - now, error)
    gain, _ = exceeded(_least(now, share, allowance.absolute) - then, error)
    told = (
        f"with speculation off, {live.forward_share:.1%} of the request time is decode forwards, was "
        f"{stored.forward_share:.1%}"
    )
    allowed = allowance.told(tolerance)
    because = reason(
        doubt,
        why,
        gain is Outcome.FAIL,
        told=told,
        beyond=f"less by more than {allowed}",
        blame=f"; {_stage_that_grew(live, stored)}",
        fine=f"no less by more than {allowed}",
    )
    rows = [[prompt, f"{one:.1%}", f"{old:.1%}"] for prompt, one, old in zip(shares, now, then, strict=True)]
    return Verdict(
        outcome=doubt,
        metric=metric,
        value=live.forward_share,
        low=None,
        high=None,
        limit=limit,
        because=because,
        section="\n".join(text.table(["prompt", "forward share", "was"], rows, left=(0,))),
        baseline=stored.forward_share,
    )


def _shares(timeline: Timeline) -> dict[str, float]:
    return {
        request.prompt: request.target_forward_ms / request.wall_ms
        for request in timeline.requests
        if not request.speculating
    }


def _least(then: NDArray[np.float64], share: float, absolute: float) -> NDArray[np.float64]:
    return np.minimum(then * (1 - share), then - absolute)


def _stage_that_grew(live: Timeline, stored: Timeline) -> str:
    """Say which stage takes more than it did, measured in decode forwards, which the day's speed cancels."""
    stages = [part for part in STAGES if part not in ("target_forward_ms", "wall_ms")]
    grown = {part: _in_forwards(live, part) - _in_forwards(stored, part) for part in stages}
    part = max(grown, key=lambda name: grown[name])
    return (
        f"{STAGES[part]} takes {text.number(_in_forwards(live, part))} of the forwards' time, took "
        f"{text.number(_in_forwards(stored, part))}"
    )


def _in_forwards(timeline: Timeline, part: str) -> float:
    forward = timeline.total_ms("target_forward_ms", speculating=False)
    return timeline.total_ms(part, speculating=False) / forward if forward > 0 else 0.0
