"""Limits on the shape of the verify cost T(N) and on the cost of a draft; times, so judged on bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pytest_specdec.checks.conditions import ALPHA
from pytest_specdec.checks.conditions import bounds_told
from pytest_specdec.checks.conditions import is_point
from pytest_specdec.checks.conditions import too_few
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.reports import text
from pytest_specdec.reports.curve import curve_section
from pytest_specdec.reports.curve import evidence
from pytest_specdec.reports.curve import place
from pytest_specdec.reports.curve import quotient
from pytest_specdec.theory.stats import hodges_lehmann
from pytest_specdec.theory.stats import signed_rank_bounds
from pytest_specdec.theory.steps import Step
from pytest_specdec.theory.steps import StepMap
from pytest_specdec.theory.steps import find_steps
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from pytest_specdec.measurements import DraftCost
    from pytest_specdec.measurements import VerifyCurve


_MORE_BLOCKS = "measure more blocks (specdec(blocks=...)) or on a quieter machine"


def ratio_bounds(logs: ArrayLike, alpha: float = ALPHA) -> tuple[float, float, float]:
    """Return (estimate, low, high) of the ratio behind paired log-ratios, shape (blocks,).

    Each bound on its own is wrong with probability at most `alpha`. With too few blocks for that the bounds
    are the smallest and the largest ratio, as in `theory.steps`.
    """
    values = np.asarray(logs, dtype=float)
    low, high = signed_rank_bounds(values, alpha, sides=1)
    if math.isinf(low):
        low, high = float(values.min()), float(values.max())
    return math.exp(hodges_lehmann(values)), math.exp(low), math.exp(high)


def cliff_at(
    curve: VerifyCurve,
    *,
    n: int,
    ratio: float = 1.4,
    limit: str = "",
    alpha: float = ALPHA,
    baseline: VerifyCurve | None = None,
) -> Verdict:
    """Hold the first cliff of the curve against `n`.

    With `baseline`, an older curve, a failure also says what T(n)/T(1) was then.
    """
    steps = find_steps(curve.n, curve.blocks_ms(), ratio=ratio, alpha=2 * alpha)
    here = next((step for step in steps.steps if step.after < n <= step.n), None)
    outcome, because = _judge_cliff(curve, steps, here, n, ratio)
    if outcome is Outcome.FAIL:
        because = f"{because}. {_better_or_worse(curve, steps, n, baseline)}"
    verdict = Verdict(
        outcome=outcome,
        metric=quotient(here) if here else f"T({n})",
        value=here.ratio if here else None,
        low=here.low if here else None,
        high=here.high if here else None,
        limit=limit or f"cliff_at({n})",
        because=because,
        section=curve_section(curve, steps),
        baseline=_old_step(baseline, here),
    )
    return under_conditions(verdict, curve, alpha)


def no_cliff(
    curve: VerifyCurve, *, upto: int = 8, ratio: float = 1.4, limit: str = "", alpha: float = ALPHA
) -> Verdict:
    """Hold the curve against having no cliff at any N up to `upto`."""
    steps = find_steps(curve.n, curve.blocks_ms(), ratio=ratio, alpha=2 * alpha)
    inside = [step for step in steps.steps if step.after < upto]
    # Nearest to being a cliff, as in StepMap.largest.
    worst = max(inside, key=lambda step: step.ratio / step.needed, default=None)
    cliffs = [step for step in inside if step.is_cliff]
    doubts = [step for step in inside if step.straddles]
    sure = next((step for step in cliffs if step.n <= upto), None)
    # The grid jumps over `upto`: the rise across the gap is the most that a step inside it can be.
    beyond = next((step for step in inside if step.n > upto and step.high >= ratio), None)
    if sure is not None:
        outcome = Outcome.FAIL
        worst = sure
        safe = f"the longest draft that stays before it is k = {sure.after - 1}, not {upto - 1}"
        because = f"there is a cliff {place(sure)} ({evidence(sure)}): {safe}"
    elif doubts and doubts[0].n <= upto:
        outcome, worst = Outcome.INCONCLUSIVE, doubts[0]
        because = f"whether there is a cliff {place(doubts[0])} is open: {_straddling(doubts[0], ratio)}"
    elif beyond is not None:
        outcome, worst = Outcome.INCONCLUSIVE, beyond
        told = f"a cliff may lie {place(beyond)} ({evidence(beyond)}), and {upto} is inside"
        because = f"{told}: {_measure(curve, upto)}"
    elif curve.n[-1] < upto:
        outcome = Outcome.NOT_MEASURED
        seen = f"no cliff up to N = {curve.n[-1]}, but N = {upto} was not measured"
        because = f"{seen}: {_measure(curve, upto)}"
    else:
        outcome = Outcome.PASS
        because = _no_cliff_words(f"no cliff up to N = {upto}", worst, ratio)
    verdict = Verdict(
        outcome=outcome,
        metric=quotient(worst) if worst else f"T(N <= {upto})",
        value=worst.ratio if worst else None,
        low=worst.low if worst else None,
        high=worst.high if worst else None,
        limit=limit or f"no_cliff({upto})",
        because=because,
        section=curve_section(curve, steps),
    )
    return under_conditions(verdict, curve, alpha)


def max_verify_cost(
    curve: VerifyCurve, *, n: int, ratio: float, limit: str = "", alpha: float = ALPHA
) -> Verdict:
    """Hold T(n)/T(1), from paired blocks, against a ratio it may not exceed."""
    limit = limit or f"max_verify_cost({n}, {ratio:g})"
    metric = f"T({n})/T(1)"
    section = curve_section(curve, find_steps(curve.n, curve.blocks_ms(), alpha=2 * alpha))
    missing = [size for size in (1, n) if size not in curve.n]
    if missing:
        lacking = " and ".join(f"N = {size}" for size in missing)
        because = f"{lacking} not measured: {_measure(curve, *missing)}"
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because, section)
    logs = np.log(curve.blocks_ms())
    value, low, high = ratio_bounds(logs[curve.n.index(n)] - logs[curve.n.index(1)], alpha)
    medians = curve.medians_ms()
    told = (
        f"verifying {n} tokens costs {text.against(value, ratio)} times a one-token pass "
        f"({text.number(medians[n])} against {text.number(medians[1])} ms, "
        f"{bounds_told(low, high, curve.source, len(curve.samples_ms[0]))})"
    )
    outcome, because = _at_most(told, low, high, ratio)
    verdict = Verdict(outcome, metric, value, low, high, limit, because, section)
    return under_conditions(verdict, curve, alpha)


def max_draft_cost(cost: DraftCost, *, c: float, limit: str = "", alpha: float = ALPHA) -> Verdict:
    """Hold the draft cost t_draft/T(1), from paired blocks, against a ratio it may not exceed."""
    limit = limit or f"max_draft_cost({c:g})"
    metric = "t_draft/T(1)"
    if not cost.draft_ms:
        because = f"no block was measured: the source ({cost.method}) drafted nothing"
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because)
    # A proposal may be too quick for the clock; its logarithm has to exist.
    draft = np.maximum(np.asarray(cost.draft_ms, dtype=float), 1e-6)
    target = np.asarray(cost.target_ms, dtype=float)
    value, low, high = ratio_bounds(np.log(draft / target), alpha)
    draft_ms, target_ms = float(np.median(draft)), float(np.median(target))
    told = (
        f"a drafted token ({cost.method}) costs {text.against(value, c)} of a target pass "
        f"({text.number(draft_ms)} against {text.number(target_ms)} ms, "
        f"{bounds_told(low, high, cost.source, len(cost.draft_ms))})"
    )
    point = is_point(cost.source, len(cost.draft_ms))
    outcome, because = _at_most(told, low, high, c)
    few = "" if point else too_few(len(cost.draft_ms), alpha)
    if outcome is Outcome.FAIL and few:
        outcome, because = Outcome.INCONCLUSIVE, f"{because}, not confidently: {few}"
    rows = [
        [str(block), text.number(d), text.number(t), text.number(d / t)]
        for block, (d, t) in enumerate(zip(draft.tolist(), target.tolist(), strict=True), 1)
    ]
    section = "\n".join(text.table(["block", "draft ms", "T(1) ms", "ratio"], rows))
    verdict = Verdict(outcome, metric, value, low, high, limit, because, section)
    return under_conditions(replace(verdict, low=None, high=None) if point else verdict, cost)


def _judge_cliff(
    curve: VerifyCurve, steps: StepMap, here: Step | None, n: int, ratio: float
) -> tuple[Outcome, str]:
    earlier = [step for step in steps.steps if step.n < n]
    sure = next((step for step in earlier if step.is_cliff), None)
    doubt = next((step for step in earlier if step.straddles), None)
    if sure is not None:
        return Outcome.FAIL, f"the first cliff is {place(sure)} ({evidence(sure)}), {_not_here(here, n)}"
    if here is None:
        if n <= curve.n[0]:
            why = f"a step to N = {n} needs a smaller size measured too, the smallest is {curve.n[0]}"
            return Outcome.NOT_MEASURED, f"{why}: {_measure(curve, max(1, n - 1), n)}"
        why = f"no cliff up to N = {curve.n[-1]}, the largest size measured"
        return Outcome.NOT_MEASURED, f"{why}: {_measure(curve, n - 1, n)}"
    if here.n == n and here.after == n - 1:
        return _judge_step(steps, here, doubt, ratio)
    # Between two measured sizes: the rise across the gap is the most that a step inside it can be.
    if here.high < ratio:
        whole = f"from {here.after} to {here.n} T changes by a factor of {text.number(here.ratio)} altogether"
        return Outcome.FAIL, f"{_first_cliff(steps, ratio)}, not at {n}: {whole}"
    found = "the first cliff is" if here.is_cliff else "a cliff may lie"
    wanted = [size for size in (n - 1, n) if size not in curve.n]
    told = f"{found} in ({here.after}, {here.n}] ({evidence(here)}), not pinned down"
    return Outcome.INCONCLUSIVE, f"{told}: {_measure(curve, *wanted)}"


def _judge_step(steps: StepMap, here: Step, doubt: Step | None, ratio: float) -> tuple[Outcome, str]:
    if here.high < here.needed:
        return Outcome.FAIL, f"{_first_cliff(steps, ratio)}, {_not_here(here, here.n)}"
    if doubt is not None:
        maybe = f"the first cliff may be {place(doubt)} already"
        return Outcome.INCONCLUSIVE, f"{maybe}: {_straddling(doubt, ratio)}"
    if here.straddles:
        return Outcome.INCONCLUSIVE, f"whether {here.n} is a cliff is open: {_straddling(here, ratio)}"
    return Outcome.PASS, f"the first cliff is at {here.n} ({evidence(here)})"


def _first_cliff(steps: StepMap, ratio: float) -> str:
    if steps.cliffs:
        return f"the first cliff is {place(steps.cliffs[0])} ({evidence(steps.cliffs[0])})"
    none = f"no cliff up to N = {steps.steps[-1].n}"
    if steps.straddling:
        return f"{none} beyond doubt ({_straddling(steps.straddling[0], ratio)})"
    return _no_cliff_words(none, steps.largest, ratio)


def _no_cliff_words(none: str, largest: Step | None, ratio: float) -> str:
    if largest is None or largest.ratio <= 1.0:
        return f"{none}: T never rises"
    told = f"{quotient(largest)} = {text.against(largest.ratio, largest.needed)} < {_needed(largest, ratio)}"
    return f"{none}; the nearest to one is the step {place(largest)}: {told}"


def _better_or_worse(curve: VerifyCurve, steps: StepMap, n: int, baseline: VerifyCurve | None) -> str:
    """Say what the move means for the longest draft, and whether verifying n tokens got dearer."""
    cost = _cost_then(curve, max(size for size in curve.n if size <= n), baseline)
    before = f"where a cliff at {n} allowed k = {n - 2}"
    if steps.cliffs:
        first = steps.cliffs[0]
        word = "Worse" if first.n < n else "Better"
        told = f"{word}: the longest draft before the cliff is k = {first.after - 1}, {before}"
        advice = f"cliff_at({first.n})"
    elif steps.straddling:
        return cost
    else:
        told = f"No draft up to k = {curve.n[-1] - 1} meets a cliff, {before}"
        advice = f"no_cliff({curve.n[-1]})"
    return f"{told}; {cost}. If that is the new state, write {advice}"


def _cost_then(curve: VerifyCurve, size: int, baseline: VerifyCurve | None) -> str:
    base = curve.n[0]
    medians = curve.medians_ms()
    now = medians[size] / medians[base]
    what = f"T({size})/T({base})"
    old = baseline.medians_ms() if baseline else {}
    if size not in old or base not in old:
        return f"{what} is {text.number(now)}, and only a baseline tells whether that is better or worse"
    then = old[size] / old[base]
    word = "better" if now < then else "worse"
    if abs(math.log(now / then)) < 0.02:
        word = "the same"
    return f"{what} was {text.number(then)} in the baseline and is {text.number(now)}: {word}"


def _old_step(baseline: VerifyCurve | None, here: Step | None) -> float | None:
    if baseline is None or here is None or (here.after, here.n) not in pairwise(baseline.n):
        return None
    medians = baseline.medians_ms()
    return medians[here.n] / medians[here.after]


def _at_most(told: str, low: float, high: float, limit: float) -> tuple[Outcome, str]:
    if high <= limit:
        return Outcome.PASS, f"{told}, within {limit:g}"
    if low > limit:
        return Outcome.FAIL, f"{told}, more than {limit:g}"
    open_end = f"the lower bound is within {limit:g}, the upper one is not"
    return Outcome.INCONCLUSIVE, f"{told}: {open_end}; {_MORE_BLOCKS}"


def _straddling(step: Step, ratio: float) -> str:
    bounds = f"{text.against(step.low, step.needed)}-{text.against(step.high, step.needed)}"
    told = f"{quotient(step)} = {text.number(step.ratio)} has bounds {bounds}"
    return f"{told}, the lower one under {_needed(step, ratio)}, the upper one not; {_MORE_BLOCKS}"


def _not_here(here: Step | None, n: int) -> str:
    if here is None:
        return f"not at {n}"
    return f"not at {n} ({quotient(here)} = {text.number(here.ratio)})"


def _needed(step: Step, ratio: float) -> str:
    """Name the limit that the step is held against; the second condition of a cliff may ask for more."""
    if step.needed == ratio:
        return f"ratio {ratio:g}"
    return f"{text.number(step.needed)} (1.25 times the cost per token so far)"


def _measure(curve: VerifyCurve, *more: int) -> str:
    wanted = [size for size in sorted(set(more)) if size not in curve.n]
    names = _names(wanted)
    return f'measure N = {names} too: specdec(sizes="{text.sizes([*curve.n, *wanted])}")'


def _names(values: Sequence[int]) -> str:
    return " and ".join(str(value) for value in values)
