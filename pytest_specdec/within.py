"""`within_baseline`, metric by metric: what is measured for it, and which stored measurement holds it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pytest_specdec.bench.procedures import RECORDED_LOOKS
from pytest_specdec.checks import anchor
from pytest_specdec.checks import baseline
from pytest_specdec.checks import noise
from pytest_specdec.checks.conditions import disturbed
from pytest_specdec.limits import Limit
from pytest_specdec.marks import METRICS
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import NoiseRun
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.probe import COUNTED
from pytest_specdec.probe import CURVE
from pytest_specdec.probe import DRAFT
from pytest_specdec.probe import MAPPED
from pytest_specdec.probe import SPEED
from pytest_specdec.probe import Probe
from pytest_specdec.probe import Task
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


def _live_curve(probe: Probe, settled: Callable[[SpeedRun], bool]) -> Measurement:
    return probe.curve()


def _live_acceptance(probe: Probe, settled: Callable[[SpeedRun], bool]) -> Measurement:
    return probe.speculation()


def _live_speedup(probe: Probe, settled: Callable[[SpeedRun], bool]) -> Measurement:
    update = probe.bench.settings.update
    if update == "all" or (update == "new" and probe.stored(SpeedRun.kind) is None):
        return probe.speed(None, lambda run: False, RECORDED_LOOKS)
    return probe.speed(None, settled)


def _live_kernels(probe: Probe, settled: Callable[[SpeedRun], bool]) -> Measurement:
    return probe.kernel_map()


def _live_draft_cost(probe: Probe, settled: Callable[[SpeedRun], bool]) -> Measurement:
    return probe.draft_cost()


def _live_timeline(probe: Probe, settled: Callable[[SpeedRun], bool]) -> Measurement:
    return probe.timeline()


# What measures each metric; only pairs are taken look by look, until they settle the verdict.
_METRICS: Mapping[str, tuple[int, str, Callable[[Probe, Callable[[SpeedRun], bool]], Measurement]]] = {
    "kernels": (MAPPED, KernelMap.kind, _live_kernels),
    "curve": (CURVE, VerifyCurve.kind, _live_curve),
    "acceptance": (COUNTED, SpeculativeRun.kind, _live_acceptance),
    "draft_cost": (DRAFT, DraftCost.kind, _live_draft_cost),
    "forward_share": (DRAFT, Timeline.kind, _live_timeline),
    "overhead": (DRAFT, SpeculativeRun.kind, _live_acceptance),
    "speedup": (SPEED, SpeedRun.kind, _live_speedup),
}


def baseline_tasks(limit: Limit) -> list[Task]:
    """Return the tasks of a `within_baseline` limit, one per metric."""
    found = []
    for metric in limit.arguments["metrics"] or METRICS:
        turn, _, _ = _METRICS[metric]
        tolerance = limit.arguments["tolerance"]
        hold = _maps_within if metric == "kernels" else partial(_within, metric)
        found.append(Task(limit.text, metric, turn, partial(hold, tolerance, limit.text)))
    return found


def _maps_within(tolerance: float | None, limit: str, probe: Probe) -> Verdict:
    """Hold the kernel map at every depth; each is a measurement of its own."""
    verdicts = [
        (depth, _within("kernels", tolerance, limit, probe.at_depth(depth)))
        for depth in probe.bench.settings.map_depths
    ]
    _, first = min(verdicts, key=lambda pair: _GRAVITY.index(pair[1].outcome))
    told = [f"depth {depth}: {verdict.because}" for depth, verdict in verdicts]
    sections = [verdict.section for _, verdict in verdicts if verdict.outcome is first.outcome]
    return replace(first, because="; ".join(told), section="\n\n".join(dict.fromkeys(filter(None, sections))))


_GRAVITY = (Outcome.FAIL, Outcome.NOT_MEASURED, Outcome.INCONCLUSIVE, Outcome.PASS)


def _beside(metric: str, tolerance: float | None, limit: str, probe: Probe) -> Verdict:
    """Hold one metric of the build under test against the old arm's, measured beside it."""
    assert probe.beside is not None
    _, kind, _ = _METRICS[metric]
    old, live = probe.beside.both(kind)
    extra: dict[str, Any] = {**probe.error_rate, **(probe.of_maps if isinstance(live, KernelMap) else {})}
    verdict = baseline.within_baseline(live, old, metric=metric, tolerance=tolerance, limit=limit, **extra)
    told = "the baseline is the old arm, measured beside it"
    verdict = replace(verdict, because=f"{verdict.because} ({told})")
    return anchor.with_build(verdict, probe.beside.builds())


def _noise_source(metric: str, stored: Measurement | None, probe: Probe) -> tuple[Measurement | None, bool]:
    """Return what tells the noise floor of a metric, and whether this run measures and records it."""
    update = probe.bench.settings.update
    if metric == "curve":
        if update == "all" or (update == "new" and stored is None):
            return probe.curve(), True
        return stored, False
    if metric != "speedup" or probe.replays:
        return None, False
    known = probe.stored(NoiseRun.kind)
    if update == "all" or (update == "new" and known is None):
        return probe.noise(), True
    return known, False


def _within(metric: str, tolerance: float | None, limit: str, probe: Probe) -> Verdict:
    """Hold one metric against the baseline; where the run records, what is recorded holds."""
    if probe.beside is not None:
        return _beside(metric, tolerance, limit, probe)
    _, kind, measure = _METRICS[metric]
    settings = probe.bench.settings
    widened = ""
    entry = probe.entry(kind)
    stored = None if entry is None else entry.measurement
    first = None if entry is None or entry.anchor is None else entry.anchor
    extra: dict[str, Any] = dict(probe.error_rate)

    def judge(live: Measurement, then: Measurement | None = stored) -> Verdict:
        return baseline.within_baseline(live, then, metric=metric, tolerance=tolerance, limit=limit, **extra)

    def settled(run: SpeedRun) -> bool:
        return all(
            baseline.settled(run, then, tolerance=tolerance, **probe.error_rate)
            for then in (stored, None if first is None else first.measurement)
            if isinstance(then, SpeedRun)
        )

    source, fresh = _noise_source(metric, stored, probe)
    floor = noise.noise_floor(source)
    if tolerance is None:
        tolerance = noise.widened(floor, metric=metric)
        widened = (
            ""
            if floor is None or tolerance is None
            else f"; {noise.because_widened(floor, tolerance, metric=metric)}"
        )
    elif fault := noise.tighter_than_noise(
        floor, metric=metric, tolerance=tolerance, limit=limit, recorded=fresh
    ):
        return fault
    live = measure(probe, settled)
    if isinstance(live, KernelMap):
        extra.update(probe.of_maps)
    if entry is None:
        if settings.update == "none":
            verdict = judge(live)
            because = probe.no_baseline() or verdict.because
            return replace(verdict, because=because, policy_skip=settings.missing == "skip")
        itself = judge(live, live)
        because = "recorded as new baseline"
        if metric not in baseline.COUNTED and (why := disturbed(live)):
            because = f"{because}, but {why}"
        return replace(itself, outcome=Outcome.PASS, baseline=None, because=because)
    verdict = judge(live)
    verdict = replace(verdict, because=verdict.because + widened)
    if first is not None:
        verdict = anchor.anchored(verdict, judge(live, first.measurement), first.recorded)
    verdict = anchor.with_build(verdict, probe.other_build(entry))
    if settings.update == "all":
        because = f"recorded over the old baseline, against which: {verdict.outcome}: {verdict.because}"
        return replace(verdict, outcome=Outcome.PASS, because=because)
    return anchor.on_purpose(verdict)
