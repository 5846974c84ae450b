"""The shape of the verify cost against the baseline's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_specdec.checks.baseline.limits import ALLOWED
from pytest_specdec.checks.baseline.limits import SHOWN
from pytest_specdec.checks.baseline.limits import not_measured
from pytest_specdec.checks.conditions import ALPHA
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.checks.curve import ratio_bounds
from pytest_specdec.checks.remedies import ACCEPT
from pytest_specdec.checks.remedies import RECORD
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports import text
from pytest_specdec.reports.curve import evidence
from pytest_specdec.reports.curve import place
from pytest_specdec.theory.steps import Step
from pytest_specdec.theory.steps import find_steps
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


# A step that changed by less than this share is the same step, whichever side of the line it fell on.
SAME_STEP = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """T(n)/T(base) now and then; `ratio` is now ÷ then, its bounds those of both together."""

    n: int
    live: float
    live_low: float
    live_high: float
    stored: float
    ratio: float
    low: float
    high: float

    @property
    def rise(self) -> float:
        """What it costs more now, in one-token passes."""
        return self.live - self.stored

    @property
    def least_rise(self) -> float:
        """The same by the bounds of both: `live_low` less the upper bound of `stored`."""
        return self.live_low * (1 - 1 / self.low)


def compare_curves(
    live: VerifyCurve,
    stored: VerifyCurve,
    tolerance: float | None,
    limit: str,
    alpha: float | None = None,
) -> Verdict:
    """Compare shapes: what T(N)/T(1) is now and was then; absolute times depend on the day."""
    allowed = 1 + ALLOWED["curve"].share(tolerance)
    common = [n for n in live.n if n in stored.n]
    if len(common) < 2:
        why = f"measured N = {text.sizes(live.n)}, the baseline has {text.sizes(stored.n)}: {RECORD}"
        return not_measured("T(N)/T(1)", limit, why)
    base = common[0]
    error = ALPHA if alpha is None else alpha
    changes = [_change(live, stored, n, base, error) for n in common[1:]]
    # A rise that nobody could time is none, however large its share.
    floor = ALLOWED["curve"].absolute / stored.medians_ms()[base]
    worse = [change for change in changes if change.low > allowed and change.least_rise > floor]
    doubtful = [change for change in changes if change.ratio > allowed and change.rise > floor]
    doubtful = [change for change in doubtful if change not in worse]
    better = [change for change in changes if change.high < 1 / allowed]
    new, gone, maybe = _cliffs(live, stored, error)
    told = []
    if worse:
        outcome = Outcome.FAIL
        told.append(f"verify cost rose: {_listed(worse, base, allowed)}")
    if new:
        outcome = Outcome.FAIL
        told.append(_cliffs_told("a cliff that the baseline has not", new))
    if not worse and not new:
        outcome = Outcome.INCONCLUSIVE if doubtful or maybe else Outcome.PASS
        if doubtful:
            told.append(f"verify cost may have risen, bounds not clear: {_listed(doubtful, base, allowed)}")
        if maybe:
            told.append(_cliffs_told("there may be a cliff that the baseline has not", maybe))
    if outcome is Outcome.PASS:
        told.append(f"T(N)/T({base}) is within {allowed - 1:.0%} of the baseline at N = {text.sizes(common)}")
    if better:
        told.append(f"better: {_listed(better, base, allowed)}")
    if gone:
        told.append(_cliffs_told("better: a cliff of the baseline is gone", gone))
    if outcome is Outcome.FAIL or better or gone:
        told.append(ACCEPT)
    worst = max(changes, key=lambda change: (change in worse, change.ratio))
    verdict = Verdict(
        outcome=outcome,
        metric=f"T({worst.n})/T({base})",
        value=worst.live,
        low=worst.live_low,
        high=worst.live_high,
        limit=limit,
        because="; ".join(told),
        section=_curve_section(live, stored, changes, base),
        baseline=worst.stored,
    )
    return under_conditions(verdict, live, error)


def _change(live: VerifyCurve, stored: VerifyCurve, n: int, base: int, alpha: float) -> Change:
    now, now_low, now_high = _ratio(live, n, base, alpha)
    then, then_low, then_high = _ratio(stored, n, base, alpha)
    return Change(n, now, now_low, now_high, then, now / then, now_low / then_high, now_high / then_low)


def _ratio(curve: VerifyCurve, n: int, base: int, alpha: float) -> tuple[float, float, float]:
    logs = np.log(curve.blocks_ms())
    return ratio_bounds(logs[curve.n.index(n)] - logs[curve.n.index(base)], alpha)


def _cliffs(
    live: VerifyCurve, stored: VerifyCurve, alpha: float
) -> tuple[list[Step], list[Step], list[Step]]:
    """Return the cliffs that are new, those that are gone, and those that may be new."""
    old_steps = find_steps(stored.n, stored.blocks_ms(), alpha=2 * alpha).steps
    then = {(step.after, step.n): step for step in old_steps}
    new, gone, maybe = [], [], []
    for step in find_steps(live.n, live.blocks_ms(), alpha=2 * alpha).steps:
        old = then.get((step.after, step.n))
        if old is None or abs(step.ratio / old.ratio - 1) < SAME_STEP:
            continue
        if old.is_cliff and step.high < step.needed:
            gone.append(step)
        elif step.is_cliff and old.high < old.needed and step.low > old.high:
            new.append(step)
        elif step.high >= step.needed and not old.is_cliff and step.ratio > old.ratio:
            maybe.append(step)
    return new, gone, maybe


def _cliffs_told(what: str, steps: Sequence[Step]) -> str:
    return f"{what}: " + ", ".join(f"{place(step)} ({evidence(step)})" for step in steps)


def _listed(changes: Sequence[Change], base: int, allowed: float) -> str:
    """Name the largest changes with their numbers, and the other sizes."""
    rising = changes[0].ratio > 1
    limit = allowed if rising else 1 / allowed
    ranked = sorted(changes, key=lambda change: change.ratio, reverse=rising)
    shown = ", ".join(
        f"T({change.n})/T({base}) was {text.number(change.stored)}, is {text.number(change.live)} "
        f"(x {text.against(change.ratio, limit)}, bounds {text.interval(change.low, change.high)})"
        for change in ranked[:SHOWN]
    )
    rest = f", also N = {text.sizes(change.n for change in ranked[SHOWN:])}" if len(ranked) > SHOWN else ""
    return f"{shown}{rest}; tolerance x {text.number(limit)}"


def _curve_section(live: VerifyCurve, stored: VerifyCurve, changes: Sequence[Change], base: int) -> str:
    now, then = live.medians_ms(), stored.medians_ms()
    rows = [[str(base), text.number(now[base]), text.number(then[base]), "1", "1", "", ""]]
    rows += [
        [
            str(change.n),
            text.number(now[change.n]),
            text.number(then[change.n]),
            text.number(change.live),
            text.number(change.stored),
            text.number(change.ratio),
            text.interval(change.low, change.high),
        ]
        for change in changes
    ]
    header = ["N", "T(N) ms", "was", f"T(N)/T({base})", "was", "change", "bounds"]
    return "\n".join(text.table(header, rows))
