"""What a round of speculation costs beside drafting and verifying, against the baseline's."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pytest_specdec.checks.baseline.limits import ALLOWED
from pytest_specdec.checks.baseline.limits import exceeded
from pytest_specdec.checks.baseline.limits import not_measured
from pytest_specdec.checks.baseline.limits import reason
from pytest_specdec.checks.conditions import ALPHA
from pytest_specdec.checks.remedies import RECORD
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.reports import text
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


def compare_overheads(
    live: SpeculativeRun,
    stored: SpeculativeRun,
    tolerance: float | None,
    limit: str,
    alpha: float | None = None,
) -> Verdict:
    """Compare ms per round prompt by prompt: fails when they are clearly more than allowed.

    A round's time is taken as it was run, not as T(N) predicts it: choosing tokens, rolling back, waiting and
    Python are left. On a machine that drafts and verifies slower today they may take as much longer.
    """
    metric = f"overhead k={live.k}, ms per round"
    if (live.k, live.method) != (stored.k, stored.method):
        why = f"measured {live.method} at k = {live.k}, the baseline has {stored.method} at k = {stored.k}"
        return not_measured(metric, limit, f"{why}: {RECORD}")
    if live.published is not None or stored.published is not None:
        return not_measured(metric, limit, f"published totals don't tell the time of rounds: {RECORD}")
    runs, before = _with_rounds(live), _with_rounds(stored)
    if not runs or runs.keys() != before.keys():
        prompts = text.plural(len(before), "prompt")
        why = f"the baseline was measured on other prompts ({prompts} with rounds): {RECORD}"
        return not_measured(metric, limit, why)
    allowance, error = ALLOWED["overhead"], ALPHA if alpha is None else alpha
    now = np.array([overhead_ms(run) for run in runs.values()])
    then = np.array([overhead_ms(before[prompt]) for prompt in runs])
    paces = [max(1.0, _pace(run, before[prompt])) for prompt, run in runs.items()]
    most = np.array([allowance.dearest(one * pace, tolerance) for one, pace in zip(then, paces, strict=True)])
    doubt, why = exceeded(now - most, error)
    gain, _ = exceeded(then - [allowance.dearest(one, tolerance) for one in now], error)
    value, baseline = _pooled(runs.values()), _pooled(before.values())
    told = (
        f"a round (k = {live.k}, {live.method}) takes {text.number(value)} ms beside drafting and verifying, "
        f"took {text.number(baseline)}"
    )
    allowed = allowance.told(tolerance)
    because = reason(
        doubt,
        why,
        gain is Outcome.FAIL,
        told=told,
        beyond=f"more by more than {allowed}",
        blame=": choosing tokens, rollback, waits or Python got dearer",
        fine=f"no more by more than {allowed}",
    )
    rows = [
        [prompt, str(len(run.drafted)), *map(text.number, values)]
        for (prompt, run), *values in zip(runs.items(), now, then, most, strict=True)
    ]
    header = ["prompt", "rounds", "ms per round", "was", "allowed"]
    return Verdict(
        outcome=doubt,
        metric=metric,
        value=value,
        low=None,
        high=None,
        limit=limit,
        because=because,
        section="\n".join(text.table(header, rows, left=(0,))),
        baseline=baseline,
    )


def overhead_ms(run: Speculation) -> float:
    """Return the wall time per round beside drafting and verifying, in ms; prefills are no round's."""
    return _unexplained_ms(run) / len(run.drafted)


def _unexplained_ms(run: Speculation) -> float:
    return run.decode_ms - run.draft_prefill_ms - sum(run.draft_ms) - sum(run.verify_ms)


def _pace(now: Speculation, then: Speculation) -> float:
    """Return how much longer a round drafts and verifies than it did; 1 where nothing was timed."""
    ms, before = ((sum(run.draft_ms) + sum(run.verify_ms)) / len(run.drafted) for run in (now, then))
    return ms / before if before > 0 else 1.0


def _pooled(runs: Iterable[Speculation]) -> float:
    kept = list(runs)
    return sum(map(_unexplained_ms, kept)) / sum(len(run.drafted) for run in kept)


def _with_rounds(run: SpeculativeRun) -> dict[str, Speculation]:
    return {one.prompt: one for one in run.speculations if one.drafted}
