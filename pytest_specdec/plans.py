"""From a limit to what is measured for it and the check that judges: one task per verdict."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pytest_specdec.checks import acceptance
from pytest_specdec.checks import accounts
from pytest_specdec.checks import curve
from pytest_specdec.checks import exactness
from pytest_specdec.checks import kernels
from pytest_specdec.checks import shape
from pytest_specdec.checks import speed
from pytest_specdec.checks import structure
from pytest_specdec.limits import Limit
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.probe import COMPARED
from pytest_specdec.probe import COUNTED
from pytest_specdec.probe import CURVE
from pytest_specdec.probe import DRAFT
from pytest_specdec.probe import MAPPED
from pytest_specdec.probe import SPEED
from pytest_specdec.probe import Probe
from pytest_specdec.probe import Task
from pytest_specdec.reports.structure import structure_section
from pytest_specdec.verdict import Verdict
from pytest_specdec.within import baseline_tasks


def tasks(limit: Limit) -> list[Task]:
    """Return the tasks of one limit, one verdict each."""
    if limit.name == "within_baseline":
        return baseline_tasks(limit)
    turn, plan = PLANS[limit.name]
    return [Task(limit.text, limit.name, turn, partial(plan, limit.arguments, limit.text))]


def _cliff_at(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    stored = probe.stored(VerifyCurve.kind)
    before = stored if isinstance(stored, VerifyCurve) else None
    return curve.cliff_at(probe.curve(), **arguments, limit=limit, baseline=before, **probe.error_rate)


def _no_cliff(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return curve.no_cliff(probe.curve(), **arguments, limit=limit, **probe.error_rate)


def _max_verify_cost(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return curve.max_verify_cost(probe.curve(), **arguments, limit=limit, **probe.error_rate)


def _max_draft_cost(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return curve.max_draft_cost(probe.draft_cost(), **arguments, limit=limit, **probe.error_rate)


def _accept_rate(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    run = probe.speculation()
    return _explained(acceptance.accept_rate(run, **arguments, limit=limit), run, probe)


def _accept_length(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    run = probe.speculation()
    return _explained(acceptance.accept_length(run, **arguments, limit=limit), run, probe)


def _lossless(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return exactness.lossless(probe.exactness(), **arguments, limit=limit)


def _min_speedup(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    k, x, prove = arguments["k"], arguments["x"], arguments["prove"]
    rate = probe.error_rate
    run = probe.speed(k, lambda run: speed.decided(run, x=x, prove=prove, **rate))
    return speed.min_speedup(run, x=x, prove=prove, limit=limit, **rate)


def _accept_at(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    run = probe.speculation()
    return _explained(acceptance.accept_at(run, **arguments, limit=limit), run, probe)


def _explained(verdict: Verdict, run: SpeculativeRun, probe: Probe) -> Verdict:
    """Let the structural probes say why next to nothing is accepted."""
    if probe.replays or not structure.needs_probes(run):
        return verdict
    found = probe.structure()
    return replace(
        verdict,
        because=f"{verdict.because}; {structure.explain(run, found)}",
        section="\n".join(filter(None, [verdict.section, *structure_section(found)])),
    )


def _kernel_thresholds(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    there = probe.at_depth(arguments["depth"])
    before = there.stored(KernelMap.kind)
    return kernels.kernel_thresholds(
        there.kernel_map(),
        **arguments,
        limit=limit,
        baseline=before if isinstance(before, KernelMap) else None,
        **there.of_maps,
    )


def _structurally_sound(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return structure.structurally_sound(probe.structure(), **arguments, limit=limit)


def _plateau(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return shape.plateau(probe.curve(), **arguments, limit=limit, **probe.error_rate)


def _dip_at(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return shape.dip_at(probe.curve(), **arguments, limit=limit, **probe.error_rate)


def _ledger_closes(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return accounts.ledger_closes(probe.ledger_run(), **arguments, limit=limit)


def _min_forward_share(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return accounts.min_forward_share(probe.timeline(), **arguments, limit=limit)


def _memory_headroom(arguments: Mapping[str, Any], limit: str, probe: Probe) -> Verdict:
    return accounts.memory_headroom(probe.memory(), **arguments, limit=limit)


PLANS: Mapping[str, tuple[int, Callable[[Mapping[str, Any], str, Probe], Verdict]]] = {
    "accept_rate": (COUNTED, _accept_rate),
    "accept_length": (COUNTED, _accept_length),
    "accept_at": (COUNTED, _accept_at),
    "lossless": (COMPARED, _lossless),
    "kernel_thresholds": (MAPPED, _kernel_thresholds),
    "structurally_sound": (COMPARED, _structurally_sound),
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
