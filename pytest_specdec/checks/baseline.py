"""Limits against this machine's baseline: the curve's shape, the acceptance counts, the speedup."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from pytest_specdec.checks.conditions import ALPHA
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.checks.curve import ratio_bounds
from pytest_specdec.checks.speed import Speedup
from pytest_specdec.checks.speed import pairs_section
from pytest_specdec.checks.speed import speedup
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports import text
from pytest_specdec.reports.curve import evidence
from pytest_specdec.reports.curve import place
from pytest_specdec.theory.steps import Step
from pytest_specdec.theory.steps import find_steps
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import Measurement


ACCEPT = "accept the new state with --specdec-update=all"
RECORD = "record one with --specdec-update=new"
# Prompts or sizes named in one sentence.
SHOWN = 3
# A step that changed by less than this share is the same step, whichever side of the line it fell on.
SAME_STEP = 0.05


def within_baseline(
    live: Measurement,
    stored: Measurement | None,
    *,
    metric: str,
    tolerance: float | None = None,
    limit: str = "",
    alpha: float | None = None,
) -> Verdict:
    """Hold a measurement against the stored one.

    ``metric`` is "curve" (T(N)/T(1) within `tolerance`, default 0.15, and no new cliff), "acceptance" (each
    prompt's counts, exactly: `tolerance` does not apply to counters) or "speedup" (not lower by more than
    `tolerance`, default 0.10). Times fail only when the bounds are clear of the limit. What got better is
    reported, never red. `alpha` is the one-sided error of a bound.

    Raises:
        ValueError: the metric is unknown, or a measurement is of another kind than the metric needs.
    """
    if metric not in METRICS:
        raise ValueError(f"within_baseline knows {', '.join(sorted(METRICS))}, not {metric!r}")
    kind, judge, name = METRICS[metric]
    limit = limit or f"within_baseline({metric!r})"
    for which, value in (("live", live), ("stored", stored)):
        if value is not None and not isinstance(value, kind):
            raise ValueError(
                f"within_baseline({metric!r}) compares {kind.kind}; the {which} measurement is {value.kind}"
            )
    if stored is None:
        return _not_measured(name, limit, f"the baseline holds no {metric} for these settings: {RECORD}")
    verdict: Verdict = judge(live, stored, tolerance, limit, alpha)
    return verdict


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


@dataclass(frozen=True, slots=True)
class Counts:
    """What one prompt's rounds drafted, accepted and produced."""

    prompt: str
    rounds: int
    drafted: int
    accepted: int
    produced: int

    def better_than(self, other: Counts) -> bool:
        """Whether a larger share was accepted, and a round gave no fewer tokens."""
        more = self.accepted * max(other.drafted, 1) > other.accepted * max(self.drafted, 1)
        return more and self.produced * other.rounds >= other.produced * self.rounds


def compare_curves(
    live: VerifyCurve,
    stored: VerifyCurve,
    tolerance: float | None,
    limit: str,
    alpha: float | None = None,
) -> Verdict:
    """Compare shapes: what T(N)/T(1) is now and was then; absolute times depend on the day."""
    allowed = 1 + (0.15 if tolerance is None else tolerance)
    common = [n for n in live.n if n in stored.n]
    if len(common) < 2:
        why = f"measured N = {text.sizes(live.n)}, the baseline has {text.sizes(stored.n)}: {RECORD}"
        return _not_measured("T(N)/T(1)", limit, why)
    base = common[0]
    error = ALPHA if alpha is None else alpha
    changes = [_change(live, stored, n, base, error) for n in common[1:]]
    worse = [change for change in changes if change.low > allowed]
    doubtful = [change for change in changes if change.ratio > allowed >= change.low]
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


def compare_acceptance(
    live: SpeculativeRun,
    stored: SpeculativeRun,
    tolerance: float | None,
    limit: str,
    alpha: float | None = None,
) -> Verdict:
    """Compare each prompt's counts exactly; `tolerance` and `alpha` do not apply to counters."""
    metric = f"acceptance k={live.k}"
    if (live.k, live.method) != (stored.k, stored.method):
        why = f"measured {live.method} at k = {live.k}, the baseline has {stored.method} at k = {stored.k}"
        return _not_measured(metric, limit, f"{why}; acceptance is comparable at one k only: {RECORD}")
    if live.published is not None or stored.published is not None:
        return _compare_published(live, stored, metric, limit)
    now, then = _counts(live), _counts(stored)
    if [one.prompt for one in now] != [one.prompt for one in then]:
        why = f"the baseline was measured on other prompts ({text.plural(len(then), 'prompt')}): {RECORD}"
        return _not_measured(metric, limit, why)
    pairs = list(zip(now, then, strict=True))
    changed = [(new, old) for new, old in pairs if new != old]
    better = [(new, old) for new, old in changed if new.better_than(old)]
    rest = [pair for pair in changed if pair not in better]
    if rest:
        outcome = Outcome.FAIL
        because = f"acceptance is not the baseline's on {_prompts_told(rest, len(pairs))}"
        if better:
            because = f"{because}; better on {_prompts_told(better, len(pairs))}"
        because = f"{because}; counts are exact, so something changed: compare builds and models, or {ACCEPT}"
    elif better:
        outcome = Outcome.PASS
        because = f"better: more is accepted on {_prompts_told(better, len(pairs))}; {ACCEPT}"
    else:
        outcome = Outcome.PASS
        total = f"{live.accepted} of {text.plural(live.drafted, 'drafted token')} accepted"
        where = f"{text.plural(len(pairs), 'prompt')}, k = {live.k}"
        because = f"{total} on {where}: each prompt's counts are the baseline's"
    rows = [
        [
            new.prompt,
            str(new.rounds),
            str(old.rounds),
            f"{new.accepted}/{new.drafted}",
            f"{old.accepted}/{old.drafted}",
            "" if new == old else "better" if new.better_than(old) else "changed",
        ]
        for new, old in pairs
    ]
    header = ["prompt", "rounds", "were", "accepted", "was", ""]
    section = "\n".join(text.table(header, rows, left=(0, 5)))
    return Verdict(
        outcome=outcome,
        metric=metric,
        value=live.accepted / live.drafted if live.drafted else None,
        low=None,
        high=None,
        limit=limit,
        because=because,
        section=section,
        baseline=stored.accepted / stored.drafted if stored.drafted else None,
    )


def _compare_published(live: SpeculativeRun, stored: SpeculativeRun, metric: str, limit: str) -> Verdict:
    """Compare totals, which is all that published runs have."""
    if live.published is None or stored.published is None:
        which = "measured run" if live.published is not None else "baseline"
        why = f"published totals have no counts per prompt to hold against those of the {which}"
        return _not_measured(metric, limit, f"{why}: {RECORD}")
    now, then = live.published, stored.published
    rates = f"acceptance rate {text.against(now.rate, then.rate)}, was {text.number(then.rate)} (published)"
    outcome = Outcome.PASS
    if now == then:
        because = f"acceptance rate {text.number(now.rate)} (published, k = {live.k}) is the baseline's"
    elif now.rate > then.rate:
        because = f"better: {rates}; {ACCEPT}"
    else:
        outcome = Outcome.FAIL
        because = f"published totals are not the baseline's: {rates}; {ACCEPT}"
    return Verdict(outcome, metric, now.rate, None, None, limit, because, baseline=then.rate)


def compare_speed(
    live: SpeedRun, stored: SpeedRun, tolerance: float | None, limit: str, alpha: float | None = None
) -> Verdict:
    """Compare speedups: fails when it is lower by more than `tolerance`, the bounds of both included."""
    allowed = 1 - (0.10 if tolerance is None else tolerance)
    metric = f"speedup k={live.k}"
    now, then = speedup(live, alpha=alpha), speedup(stored, alpha=alpha)
    if now is None:
        why = f"no pair of {len(live.pairs)} decoded anything after the first token: give it other prompts"
        return _not_measured(metric, limit, why)
    if then is None or (live.k, live.method) != (stored.k, stored.method):
        return _not_measured(metric, limit, f"the baseline's speedup is not comparable: {RECORD}")
    change = now.value / then.value
    low = now.low / then.high if then.high > 0 else 0.0
    high = now.high / then.low if then.low > 0 else float("inf")
    told = f"speedup is {_speed_told(now)}, was {_speed_told(then)}: {text.number(change)} of the baseline's"
    if high < allowed:
        outcome = Outcome.FAIL
        doubt = " beyond doubt" if now.pairs and then.pairs else ""
        because = f"{told}, lower by more than {1 - allowed:.0%}{doubt}; {_term_that_moved(now, then)}"
    elif change < allowed:
        outcome = Outcome.INCONCLUSIVE
        because = f"{told}, lower by more than {1 - allowed:.0%}, but the bounds are not clear of it"
    elif low > 1 / allowed:
        outcome, because = Outcome.PASS, f"better: {told}; {ACCEPT}"
    else:
        outcome, because = Outcome.PASS, f"{told}, within {1 - allowed:.0%}"
    return Verdict(
        outcome=outcome,
        metric=metric,
        value=now.value,
        low=now.low if now.low > 0 and now.pairs else None,
        high=now.high if np.isfinite(now.high) and now.pairs else None,
        limit=limit,
        because=because,
        section=f"{pairs_section(live)}\nbaseline:\n{pairs_section(stored)}",
        baseline=then.value,
    )


METRICS: Mapping[str, tuple[type[Any], Callable[..., Verdict], str]] = {
    "curve": (VerifyCurve, compare_curves, "T(N)/T(1)"),
    "acceptance": (SpeculativeRun, compare_acceptance, "acceptance"),
    "speedup": (SpeedRun, compare_speed, "speedup"),
}


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


def _counts(run: SpeculativeRun) -> list[Counts]:
    return [
        Counts(
            one.prompt,
            len(one.drafted),
            sum(one.drafted),
            sum(one.accepted),
            sum(one.accepted) + len(one.drafted) - (1 if one.cut else 0),
        )
        for one in run.speculations
    ]


def _prompts_told(pairs: Sequence[tuple[Counts, Counts]], total: int) -> str:
    shown = "; ".join(
        f"{new.prompt!r}: {new.accepted} of {new.drafted}, was {old.accepted} of {old.drafted}"
        + (f", in {new.rounds} rounds, was {old.rounds}" if new.rounds != old.rounds else "")
        for new, old in pairs[:SHOWN]
    )
    more = "; ..." if len(pairs) > SHOWN else ""
    return f"{len(pairs)} of {text.plural(total, 'prompt')} ({shown}{more})"


def _speed_told(seen: Speedup) -> str:
    if not seen.pairs:
        return f"{text.number(seen.value)}x (published, no interval)"
    bounds = f"{text.interval(seen.low, seen.high)}, " if np.isfinite(seen.high) else ""
    return f"{text.number(seen.value)}x ({bounds}{text.plural(seen.pairs, 'pair')})"


def _term_that_moved(now: Speedup, then: Speedup) -> str:
    """Say which of the two rates moved more, as a share of the baseline's."""
    plain = now.plain_tokens_per_s / then.plain_tokens_per_s
    speculative = now.speculative_tokens_per_s / then.speculative_tokens_per_s
    return (
        f"speculative decoding has {text.number(now.speculative_tokens_per_s, 1)} tokens/s, had "
        f"{text.number(then.speculative_tokens_per_s, 1)} (x {text.number(speculative)}), plain decoding "
        f"{text.number(now.plain_tokens_per_s, 1)}, had {text.number(then.plain_tokens_per_s, 1)} "
        f"(x {text.number(plain)})"
    )


def _not_measured(metric: str, limit: str, because: str) -> Verdict:
    return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because)
