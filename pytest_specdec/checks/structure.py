"""Is the pair structurally sound, and does structure explain that next to nothing is accepted?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Final

from pytest_specdec.checks.acceptance import HOPELESS
from pytest_specdec.checks.acceptance import HOPELESS_ROUNDS
from pytest_specdec.reports import text
from pytest_specdec.reports.structure import structure_section
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import ProbeResult
    from pytest_specdec.measurements import SpeculativeRun
    from pytest_specdec.measurements import Structure


UNTOLD: Final = "could not tell"
# Which fault explains the others: one in front of it makes those behind it likely.
_GRAVITY: Final = ("vocabulary", "self-draft", "rollback", "positions", "batch", "context-end", "eog")


def structurally_sound(structure: Structure, *, probes: Sequence[str] = (), limit: str = "") -> Verdict:
    """Hold the probes named, all without names, to having found no fault."""
    limit = limit or f"structurally_sound({', '.join(map(repr, probes))})"
    metric = f"structural faults k={structure.k}"
    chosen = [one for one in structure.probes if not probes or one.probe in probes]
    ran = [one for one in chosen if one.outcome != "skipped"]
    faults = sorted((one for one in chosen if one.outcome == "fault"), key=_gravity)
    untold = untold_probes(structure, probes)
    section = "\n".join(structure_section(structure))
    if faults:
        because = "; ".join(f"{one.probe}: {one.cause}" for one in faults)
        return Verdict(Outcome.FAIL, metric, float(len(faults)), None, None, limit, because, section)
    if not ran:
        because = "; ".join(f"{one.probe}: {one.cause}" for one in chosen) or (
            f"no probe {', '.join(probes)} among {', '.join(one.probe for one in structure.probes)}"
        )
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because, section)
    told = f"{text.plural(len(ran), 'probe')} found no fault ({', '.join(one.probe for one in ran)})"
    if untold:
        because = f"{told}; {'; '.join(f'{one.probe}: {one.cause}' for one in untold)}"
        return Verdict(Outcome.INCONCLUSIVE, metric, 0.0, None, None, limit, because, section)
    skipped = [one.probe for one in chosen if one.outcome == "skipped"]
    left = f"; not asked: {', '.join(skipped)}" if skipped else ""
    return Verdict(Outcome.PASS, metric, 0.0, None, None, limit, f"{told}{left}", section)


def untold_probes(structure: Structure, probes: Sequence[str] = ()) -> tuple[ProbeResult, ...]:
    """Return the probes that ran and could not tell; those with nothing to ask are not among them."""
    return tuple(
        one
        for one in structure.probes
        if one.outcome == "skipped" and one.cause.startswith(UNTOLD) and (not probes or one.probe in probes)
    )


def needs_probes(run: SpeculativeRun) -> bool:
    """Whether next to nothing is accepted, in rounds enough to say so: not even the first drafted token."""
    judged = [
        accepted > 0
        for one in run.speculations
        for drafted, accepted in zip(one.drafted, one.accepted, strict=True)
        if drafted
    ]
    return len(judged) >= HOPELESS_ROUNDS and sum(judged) < HOPELESS * len(judged)


def explain(run: SpeculativeRun, structure: Structure) -> str:
    """Say why next to nothing is accepted: the gravest fault, or that the source does not fit the text."""
    faults = sorted(structure.faults, key=_gravity)
    # Where a run was made at all, rollback is proven, by snapshots if need be: what they mend is not in it.
    refused = any(one.probe == "rollback" for one in faults)
    own = [one for one in faults if not (refused and one.probe in ("rollback", "positions"))]
    if own:
        return "cause: " + "; ".join(f"{one.probe}: {one.cause}" for one in own)
    misfit = f"this source ({run.method}) does not fit this text"
    if faults:
        told = "; ".join(f"{one.probe}: {one.cause}" for one in faults)
        return f"cause where states are not saved: {told}; this run saved them, and with them {misfit}"
    untold = [one.probe for one in untold_probes(structure)]
    but = f" ({', '.join(untold)} could not tell)" if untold else ""
    return f"no structural fault{but}: {misfit}"


def _gravity(one: ProbeResult) -> int:
    return _GRAVITY.index(one.probe) if one.probe in _GRAVITY else len(_GRAVITY)
