"""From a limit to what is measured for it and the check that judges: one task per verdict."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from typing import Any

from pytest_specdec.bench.session import Bench
from pytest_specdec.checks import acceptance
from pytest_specdec.checks import accounts
from pytest_specdec.checks import baseline
from pytest_specdec.checks import curve
from pytest_specdec.checks import exactness
from pytest_specdec.checks import shape
from pytest_specdec.checks import speed
from pytest_specdec.marks import METRICS
from pytest_specdec.marks import Limit
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


# Exact counters come first: they hold under any load and cost less than times.
COUNTED, COMPARED, CURVE, DRAFT, SPEED = range(5)


@dataclass(frozen=True, slots=True)
class Probe:
    """What a task works with.

    `stored` gives the baseline's measurement of a kind at a draft length; `no_baseline` says, where there is
    no baseline at all, which there are; `used` notes that the test relies on the live measurement; `spent`
    says that the test's time is up.
    """

    bench: Bench
    stored: Callable[[str, int | None], Measurement | None]
    no_baseline: Callable[[], str]
    used: Callable[[str, int | None], None]
    spent: Callable[[], bool]

    @property
    def error_rate(self) -> dict[str, Any]:
        """The user's error rate, for checks of times."""
        alpha = self.bench.settings.alpha
        return {} if alpha is None else {"alpha": alpha}

    def curve(self) -> VerifyCurve:
        """Measure T(N)."""
        measured = self.bench.verify_curve()
        self.used(VerifyCurve.kind, None)
        return measured

    def draft_cost(self) -> DraftCost:
        """Measure what drafting a token costs."""
        measured = self.bench.draft_cost()
        self.used(DraftCost.kind, None)
        return measured

    def speculation(self) -> SpeculativeRun:
        """Count what is drafted and accepted."""
        measured = self.bench.speculate()
        self.used(SpeculativeRun.kind, None)
        return measured

    def exactness(self) -> Exactness:
        """Compare speculative with plain decoding."""
        measured = self.bench.exactness()
        self.used(Exactness.kind, None)
        return measured

    def speed(self, k: int | None, enough: Callable[[SpeedRun], bool]) -> SpeedRun:
        """Time pairs of plain and speculative decoding until a look is enough or the time is up."""
        measured = self.bench.speed(k, until=lambda run: enough(run) or self.spent())
        self.used(SpeedRun.kind, k)
        return measured


@dataclass(frozen=True, slots=True)
class Task:
    """One verdict to come: the limit as written, the metric's name, its turn, and how it is decided."""

    limit: str
    metric: str
    turn: int
    decide: Callable[[Probe], Verdict]


def tasks(limit: Limit) -> list[Task]:
    """Return the tasks of one limit, one verdict each."""
    if limit.name == "within_baseline":
        return _against_baseline(limit)
    turn, plan = PLANS[limit.name]
    return [Task(limit.text, limit.name, turn, partial(plan, limit.arguments, limit.text))]


def _cliff_at(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    stored = probe.stored(VerifyCurve.kind, None)
    before = stored if isinstance(stored, VerifyCurve) else None
    return curve.cliff_at(probe.curve(), **arguments, limit=limit, baseline=before, **probe.error_rate)


def _no_cliff(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return curve.no_cliff(probe.curve(), **arguments, limit=limit, **probe.error_rate)


def _max_verify_cost(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return curve.max_verify_cost(probe.curve(), **arguments, limit=limit, **probe.error_rate)


def _max_draft_cost(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return curve.max_draft_cost(probe.draft_cost(), **arguments, limit=limit, **probe.error_rate)


def _accept_rate(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return acceptance.accept_rate(probe.speculation(), **arguments, limit=limit)


def _accept_length(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return acceptance.accept_length(probe.speculation(), **arguments, limit=limit)


def _lossless(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return exactness.lossless(probe.exactness(), **arguments, limit=limit)


def _min_speedup(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    k, x, prove = arguments["k"], arguments["x"], arguments["prove"]
    rate = probe.error_rate
    run = probe.speed(k, lambda run: speed.decided(run, x=x, prove=prove, **rate))
    return speed.min_speedup(run, x=x, prove=prove, limit=limit, **rate)


def _accept_at(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return acceptance.accept_at(probe.speculation(), **arguments, limit=limit)


def _plateau(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return shape.plateau(probe.curve(), **arguments, limit=limit, **probe.error_rate)


def _dip_at(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return shape.dip_at(probe.curve(), **arguments, limit=limit, **probe.error_rate)


def _ledger_closes(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return accounts.ledger_closes(probe.bench.ledger_run(), **arguments, limit=limit)


def _min_forward_share(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return accounts.min_forward_share(probe.bench.timeline(), **arguments, limit=limit)


def _memory_headroom(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return accounts.memory_headroom(probe.bench.memory(), **arguments, limit=limit)


PLANS: Mapping[str, tuple[int, Callable[[Mapping[str, Any], str, Probe], Verdict]]] = {
    "accept_rate": (COUNTED, _accept_rate),
    "accept_length": (COUNTED, _accept_length),
    "accept_at": (COUNTED, _accept_at),
    "lossless": (COMPARED, _lossless),
    "memory_headroom": (COMPARED, _memory_headroom),
    "cliff_at": (CURVE, _cliff_at),
    "no_cliff": (CURVE, _no_cliff),
    "plateau": (CURVE, _plateau),
    "dip_at": (CURVE, _dip_at),
    "max_verify_cost": (CURVE, _max_verify_cost),
    "max_draft_cost": (DRAFT, _max_draft_cost),
    "min_forward_share": (DRAFT, _min_forward_share),
    "ledger_closes": (DRAFT, _ledger_closes),
    "min_speedup": (SPEED, _min_speedup),
}


def _live_curve(probe: Probe, judge: Callable[[Measurement], Verdict]) -> Measurement:
    return probe.curve()


def _live_acceptance(probe: Probe, judge: Callable[[Measurement], Verdict]) -> Measurement:
    return probe.speculation()


def _live_speedup(probe: Probe, judge: Callable[[Measurement], Verdict]) -> Measurement:
    # A baseline that is about to be recorded takes every look: its noise is in all later comparisons.
    recording = probe.bench.settings.update != "none"
    return probe.speed(None, lambda run: not recording and judge(run).outcome is not Outcome.INCONCLUSIVE)


_METRICS: Mapping[str, tuple[int, str, Callable[[Probe, Callable[[Measurement], Verdict]], Measurement]]] = {
    "curve": (CURVE, VerifyCurve.kind, _live_curve),
    "acceptance": (COUNTED, SpeculativeRun.kind, _live_acceptance),
    "speedup": (SPEED, SpeedRun.kind, _live_speedup),
}


def _against_baseline(limit: Limit) -> list[Task]:
    found = []
    for metric in limit.arguments["metrics"] or METRICS:
        turn, _, _ = _METRICS[metric]
        tolerance = limit.arguments["tolerance"]
        found.append(Task(limit.text, metric, turn, partial(_within, metric, tolerance, limit.text)))
    return found


def _within(metric: str, tolerance: float | None, limit: str, probe: Probe) -> Verdict:
    """Hold one metric against the baseline; where the run records, what is recorded holds."""
    _, kind, measure = _METRICS[metric]
    settings = probe.bench.settings
    stored = probe.stored(kind, None)

    def judge(live: Measurement, then: Measurement | None = stored) -> Verdict:
        return baseline.within_baseline(
            live, then, metric=metric, tolerance=tolerance, limit=limit, **probe.error_rate
        )

    live = measure(probe, judge)
    if stored is None:
        if settings.update == "none":
            verdict = judge(live)
            because = probe.no_baseline() or verdict.because
            return replace(verdict, because=because, policy_skip=settings.missing == "skip")
        itself = judge(live, live)
        return replace(itself, outcome=Outcome.PASS, baseline=None, because="recorded as new baseline")
    verdict = judge(live)
    if settings.update == "all":
        because = f"recorded over the old baseline, against which: {verdict.outcome}: {verdict.because}"
        return replace(verdict, outcome=Outcome.PASS, because=because)
    return verdict
