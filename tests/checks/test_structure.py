"""Structural soundness as a limit, and as the explanation of an acceptance that is next to nothing."""

from __future__ import annotations

import pytest

from pytest_specdec.checks.structure import explain
from pytest_specdec.checks.structure import needs_probes
from pytest_specdec.checks.structure import structurally_sound
from pytest_specdec.measurements import ProbeResult
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import Structure
from pytest_specdec.verdict import Outcome


SOUND = (
    ProbeResult("rollback", "sound", "removed tokens leave no trace"),
    ProbeResult("vocabulary", "skipped", "there is no draft model"),
    ProbeResult("self-draft", "sound", "accepted"),
)
COLLISION = ProbeResult("positions", "fault", "target: rollback refused, positions collided", ("X = 7",))
REFUSED = ProbeResult("rollback", "fault", "target: llama_memory_seq_rm refused", ("seq_rm: False",))
PERMUTED = ProbeResult("vocabulary", "fault", "token ids are permuted", ("0 of 315 are equal",))


def found(*changed: ProbeResult, **fields: object) -> Structure:
    by_name = {one.probe: one for one in (*SOUND, *changed)}
    return Structure(3, "two-model", tuple(by_name.values()), **fields)  # type: ignore[arg-type]


def run(accepted: list[int], drafted: int = 3, method: str = "two-model") -> SpeculativeRun:
    rounds = len(accepted)
    one = Speculation(
        prompt="one",
        prompt_tokens=5,
        tokens=tuple(range(1 + rounds + sum(accepted))),
        drafted=(drafted,) * rounds,
        accepted=tuple(accepted),
        cut=False,
        draft_ms=(1.0,) * rounds,
        verify_ms=(10.0,) * rounds,
        prefill_ms=1.0,
        draft_prefill_ms=0.0,
        decode_ms=11.0 * rounds,
        forward_ms=10.0 * rounds,
        stop="limit",
    )
    return SpeculativeRun(3, method, (one,))


def test_a_pair_without_faults_passes_and_says_what_was_not_asked() -> None:
    verdict = structurally_sound(found())
    assert verdict.outcome is Outcome.PASS
    assert verdict.because == "2 probes found no fault (rollback, self-draft); not asked: vocabulary"
    assert verdict.limit == "structurally_sound()"
    assert verdict.value == 0.0


def test_a_fault_fails_with_its_cause_and_shows_the_evidence() -> None:
    verdict = structurally_sound(found(PERMUTED))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.because == "vocabulary: token ids are permuted"
    assert "0 of 315 are equal" in verdict.section
    assert verdict.value == 1.0


def test_the_gravest_fault_comes_first() -> None:
    verdict = structurally_sound(found(COLLISION, REFUSED, PERMUTED))
    assert verdict.because.index("vocabulary") < verdict.because.index("rollback: target")
    assert verdict.because.index("rollback: target") < verdict.because.index("positions: ")
    assert verdict.value == 3.0


def test_only_the_probes_named_count() -> None:
    assert structurally_sound(found(PERMUTED), probes=("rollback",)).outcome is Outcome.PASS
    verdict = structurally_sound(found(PERMUTED), probes=("rollback", "vocabulary"))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.limit == "structurally_sound('rollback', 'vocabulary')"


def test_a_probe_with_nothing_to_ask_measured_nothing() -> None:
    verdict = structurally_sound(found(), probes=("vocabulary",))
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert verdict.because == "vocabulary: there is no draft model"


def test_a_probe_that_is_not_in_an_older_measurement_measured_nothing() -> None:
    verdict = structurally_sound(found(), probes=("eog",))
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert verdict.because == "no probe eog among rollback, vocabulary, self-draft"


def test_a_probe_that_could_not_tell_leaves_doubt_and_hides_no_fault() -> None:
    doubt = ProbeResult("self-draft", "skipped", "could not tell: every text ended")
    assert structurally_sound(found(doubt)).outcome is Outcome.INCONCLUSIVE
    assert structurally_sound(found(doubt), probes=("rollback",)).outcome is Outcome.PASS
    assert structurally_sound(found(doubt, PERMUTED)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("accepted", "needed"),
    [
        ([0] * 30, True),
        ([0] * 29, False),
        ([1] + [0] * 29, True),
        ([1, 1] + [0] * 28, False),
        ([1, 1] + [0] * 38, False),
        ([1] + [0] * 39, True),
    ],
)
def test_probes_are_needed_below_five_per_cent_over_thirty_rounds(accepted: list[int], needed: bool) -> None:
    assert needs_probes(run(accepted)) is needed


def test_rounds_without_a_draft_say_nothing() -> None:
    assert not needs_probes(run([0] * 60, drafted=0))


def test_without_a_fault_the_source_does_not_fit_the_text() -> None:
    told = explain(run([0] * 30, method="ngram"), found())
    assert told == "no structural fault: this source (ngram) does not fit this text"
    doubt = ProbeResult("eog", "skipped", "could not tell: every text ended")
    assert "(eog could not tell)" in explain(run([0] * 30), found(doubt))


def test_a_fault_is_the_cause() -> None:
    assert explain(run([0] * 30), found(PERMUTED)) == "cause: vocabulary: token ids are permuted"


def test_what_snapshots_mended_is_not_the_cause_of_this_run() -> None:
    told = explain(run([0] * 30), found(REFUSED, COLLISION, rollback="snapshot"))
    assert told.startswith("cause where states are not saved: rollback: target: llama_memory_seq_rm refused")
    assert "positions collided" in told
    assert told.endswith("this run saved them, and with them this source (two-model) does not fit this text")
    assert explain(run([0] * 30), found(REFUSED, PERMUTED)) == "cause: vocabulary: token ids are permuted"
    assert explain(run([0] * 30), found(COLLISION)) == f"cause: positions: {COLLISION.cause}"
