from __future__ import annotations

import pytest

from pytest_specdec.measurements import ProbeResult
from pytest_specdec.measurements import Structure
from pytest_specdec.reports.structure import rollback_line
from pytest_specdec.reports.structure import structure_section


FOUND = Structure(
    4,
    "two-model",
    (
        ProbeResult("rollback", "sound", "no trace", ("the same bits",)),
        ProbeResult("vocabulary", "fault", "another one", ("288 in common", "27 of 315 differ")),
        ProbeResult("eog", "skipped", "could not tell"),
    ),
    rollback_ms=0.5,
)


def test_a_line_per_probe_and_the_evidence_of_faults() -> None:
    assert structure_section(FOUND) == [
        "structural probes, k = 4, two-model; rejected drafts are rolled back by removing tokens, "
        "0.50 ms a round",
        "rollback    sound    no trace",
        "vocabulary  FAULT    another one",
        "    288 in common",
        "    27 of 315 differ",
        "eog         skipped  could not tell",
    ]


def test_all_evidence_or_none() -> None:
    assert "    the same bits" in structure_section(FOUND, evidence="all")
    assert not [line for line in structure_section(FOUND, evidence="none") if line.startswith(" ")]


@pytest.mark.parametrize(
    ("mode", "ms", "line"),
    [
        ("seq_rm", None, "rejected drafts are rolled back by removing tokens"),
        ("snapshot", 12.34, "rejected drafts are rolled back by state snapshots, 12.34 ms a round"),
    ],
)
def test_how_drafts_are_rolled_back(mode: str, ms: float | None, line: str) -> None:
    assert rollback_line(mode, ms) == line
