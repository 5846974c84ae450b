"""What the structural probes found, as text: one line per probe, its evidence below."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Final

from pytest_specdec.reports import text


if TYPE_CHECKING:
    from pytest_specdec.measurements import ProbeResult
    from pytest_specdec.measurements import Structure


WORDS: Final = {"sound": "sound", "fault": "FAULT", "skipped": "skipped"}


def structure_section(structure: Structure, *, evidence: str = "faults") -> list[str]:
    """Return a line per probe and the evidence of "faults", of "all" or of "none", indented below it."""
    columns = max((len(one.probe) for one in structure.probes), default=0)
    lines = [
        f"structural probes, k = {structure.k}, {structure.method}; "
        f"{rollback_line(structure.rollback, structure.rollback_ms)}"
    ]
    for one in structure.probes:
        lines.append(f"{text.pad(one.probe, columns)}  {WORDS[one.outcome]:<7}  {one.cause}")
        if evidence == "all" or (evidence == "faults" and one.outcome == "fault"):
            lines += _indented(one)
    return lines


def rollback_line(mode: str, ms: float | None) -> str:
    """Say how rejected drafts leave the target's cache, and what that costs."""
    how = {"seq_rm": "by removing tokens", "snapshot": "by state snapshots"}[mode]
    cost = "" if ms is None else f", {text.number(ms)} ms a round"
    return f"rejected drafts are rolled back {how}{cost}"


def _indented(one: ProbeResult) -> list[str]:
    return [f"    {line}" for line in one.evidence]
