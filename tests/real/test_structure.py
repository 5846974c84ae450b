"""Each structural probe finds its planted fault and is quiet on sound pairs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_specdec.bench.session import BenchSession
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.measurements import ProbeResult
from pytest_specdec.measurements import Structure
from pytest_specdec.settings import Settings
from tests import tiny_models
from tests.real.conftest import SMOLLM2


PROBES = ["rollback", "vocabulary", "batch", "self-draft", "positions", "context-end", "eog"]
TEXTS = ["the dog bit a man and the man bit the dog", "a kitten is in the garden", "we dance and they dine"]
SMALL = {"n_ctx": 1024, "n_batch": 128, "n_ubatch": 128, "threads": 1}

Probe = Callable[..., Structure]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny models, a relative of one and a stranger to it, and a few texts."""
    made = tmp_path_factory.mktemp("pairs")
    tiny_models.build_all(made, [kind for kind in tiny_models.KINDS if kind != "clip"])
    tiny_models.write("llama", made / "relative.gguf", noise=0.05)
    for kind in ("llama", "mamba", "lfm2", "gemma3"):
        tiny_models.write(kind, made / f"{kind}-stranger.gguf", noise=1.0)
    lines = [json.dumps({"text": text, "template": "raw"}) for text in TEXTS]
    (made / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    return made


@pytest.fixture(scope="module")
def probe(folder: Path) -> Iterator[Probe]:
    """Probe a pair of tiny models by their names, all in one worker."""
    session = BenchSession(Settings(rootdir=folder))

    def ask(target: str, draft: str | None = None, **changes: object) -> Structure:
        return session.bench(_settings(folder, target, draft, **changes)).structure()

    yield ask
    session.close()


def _settings(folder: Path, target: str, draft: str | None, **changes: object) -> Settings:
    pair = {"target": f"{target}.gguf"} | ({"draft": f"{draft}.gguf"} if draft else {})
    return Settings(rootdir=folder).merged(**{**SMALL, "prompts": "prompts.jsonl", **pair, **changes})


def _of(found: Structure, name: str) -> ProbeResult:
    (one,) = [one for one in found.probes if one.probe == name]
    return one


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("llama", "relative"),
        ("llama", "llama-stranger"),
        ("gemma3", None),
        ("moe-q4_k", "moe-f32"),
        ("qwen2vl", None),
        ("llama-32", None),
    ],
)
def test_sound_pairs_are_left_alone(probe: Probe, target: str, draft: str | None) -> None:
    found = probe(target, draft)
    assert [one.probe for one in found.probes] == PROBES
    assert {one.probe: one.cause for one in found.probes if one.outcome == "fault"} == {}
    skipped = {one.probe for one in found.probes if one.outcome == "skipped"}
    assert skipped == (set() if draft else {"vocabulary"})
    assert found.rollback == "seq_rm"


@pytest.mark.parametrize("k", [1, 7])
def test_a_sound_pair_is_sound_at_other_draft_lengths(probe: Probe, k: int) -> None:
    assert [one.outcome for one in probe("llama", "relative", k=k).probes] == ["sound"] * len(PROBES)


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        (
            "llama-b",
            "another vocabulary: 32 of 315 pieces differ (token 288: target 'ba', draft 'ab'), 32 unknown",
        ),
        ("llama-permuted", "token ids are permuted: 314 of 315 pieces differ"),
        ("llama-32", "rule does not hold for type (target SPM, draft BPE), add-BOS flag"),
    ],
)
def test_a_draft_that_means_something_else(probe: Probe, draft: str, words: str) -> None:
    found = probe("llama", draft)
    (fault,) = found.faults
    assert fault.probe == "vocabulary"
    assert words in fault.cause
    assert any("different pieces in common" in line for line in fault.evidence)


@pytest.mark.parametrize("kind", ["mamba", "lfm2"])
def test_states_that_cannot_forget(probe: Probe, kind: str) -> None:
    found = probe(kind, kind)
    assert [fault.probe for fault in found.faults] == ["rollback", "positions"]
    cause = _of(found, "rollback").cause
    assert "llama_memory_seq_rm refused to remove positions" in cause
    assert "measured with state snapshots instead, which restore bit for bit and cost" in cause
    assert (found.rollback, found.rollback_ms is not None) == ("snapshot", True)
    collided = _of(found, "positions").cause
    assert "rollback refused, positions collided" in collided
    assert "X = 7" in collided
    assert "Y = 5" in collided


def test_a_hybrid_that_says_true_and_does_not_restore(probe: Probe) -> None:
    found = _of(probe("lfm2", "lfm2"), "rollback")
    if "n_rs_seq" not in "".join(found.evidence):
        pytest.skip("this llama.cpp keeps no recurrent states of its own")
    assert "with n_rs_seq = 9 it says True and does not restore" in found.cause
    assert "across batches of one token (logits differ by up to" in found.cause


def test_a_sliding_window_without_its_full_cache(probe: Probe) -> None:
    found = probe("gemma3", "gemma3", swa_full=False)
    (fault,) = found.faults
    assert fault.probe == "rollback"
    assert "llama_memory_seq_rm said True, and the logits differ afterwards by up to" in fault.cause
    assert "without swa_full it keeps the window only" in fault.cause
    assert found.rollback == "snapshot"


def test_a_gap_that_m_rope_lets_pass_is_told(probe: Probe) -> None:
    assert "a gap in positions passes in silence" in _of(probe("qwen2vl"), "positions").cause


def test_a_context_longer_than_the_model_was_trained_on_is_told(probe: Probe, folder: Path) -> None:
    tiny_models.write("llama", folder / "short.gguf", context=512)
    evidence = _of(probe("llama", "short"), "context-end").evidence
    assert any("the draft was trained on 512 tokens, and n_ctx is 1024" in line for line in evidence)


@pytest.mark.parametrize(
    ("fault", "probes", "words"),
    [
        ("draft_rollback_short=1", {"self-draft"}, "suspect rollback of the draft's cache"),
        ("rollback_short=1", {"self-draft"}, "suspect rollback of the target's cache"),
        (
            "skew=1",
            {"self-draft", "eog"},
            "llama.cpp refused, cache and host disagree: llama_decode returned -1",
        ),
        ("accept_extra=1", {"self-draft", "eog"}, "accepted a token that was never the model's own choice"),
        ("abort=1", set(PROBES) - {"vocabulary"}, "ended by SIGABRT"),
    ],
)
def test_faults_of_the_cache_and_of_verification(
    folder: Path, fault: str, probes: set[str], words: str
) -> None:
    session = BenchSession(Settings(rootdir=folder, env=(("SPECDEC_FAULTS", fault),)))
    try:
        found = session.bench(_settings(folder, "llama", "relative")).structure()
    finally:
        session.close()
    # A cache that is out of step may run out of room early, too.
    assert {one.probe for one in found.faults} - {"context-end"} == probes - {"context-end"}
    assert words in _of(found, "self-draft").cause


@pytest.mark.parametrize(
    ("target", "changes", "fault", "words"),
    [
        ("llama", "", "", "*no structural fault: this source (two-model) does not fit this text*"),
        ("llama", "", "keep_rejected=1", "*cause: self-draft: *suspect rollback of the target's cache*"),
        ("mamba", "", "", "*cause where states are not saved: rollback: *refused*this run saved them*"),
        ("lfm2", "", "", "*cause where states are not saved: rollback: *refused*does not restore*"),
        ("gemma3", "swa_full=False", "", "*cause where states are not saved: rollback: *without swa_full*"),
    ],
)
def test_a_failure_of_acceptance_names_the_cause(
    gate: Callable[..., pytest.RunResult], folder: Path, target: str, changes: str, fault: str, words: str
) -> None:
    result = gate(
        f"""
        @accept_rate(0.5)
        @specdec(target={str(folder / f"{target}.gguf")!r}, draft={str(folder / f"{target}-stranger.gguf")!r},
                 prompts={str(folder / "prompts.jsonl")!r}, n_predict=24, **{SMALL!r})
        @specdec({changes})
        def test_pair(): pass
        """,
        *([f"--specdec-env=SPECDEC_FAULTS={fault}"] if fault else []),
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([words])


def test_a_real_pair_is_sound() -> None:
    session = BenchSession(Settings())
    try:
        settings = Settings().merged(**SMOLLM2, n_ctx=512, n_predict=16, prompts="default::prose")
        found = session.bench(settings).structure()
    finally:
        session.close()
    assert {one.probe: (one.outcome, one.cause) for one in found.probes if one.outcome != "sound"} == {}


def test_prompt_lookup_on_prose_is_sound_and_does_not_fit(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @specdec(target="smollm2-135m", prompts="default::prose", n_ctx=512, k=2)
        class TestLookup:
            @structurally_sound()
            @specdec(n_predict=16)
            def test_lookup_is_sound(self): pass

            @accept_rate(0.5)
            @specdec(n_predict=48)
            def test_lookup_fits(self): pass
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*accept_rate(0.5): fail: acceptance rate 0.*"])
    result.stdout.no_fnmatch_line("*cause: *")


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("fault", ["abort", "kill"])
def test_only_a_death_of_its_own_code_is_a_finding(folder: Path, fault: str) -> None:
    """What ends the worker from outside says nothing of the pair."""
    session = BenchSession(Settings(rootdir=folder, env=(("SPECDEC_FAULTS", f"{fault}=1"),)))
    bench = session.bench(_settings(folder, "llama", None))
    try:
        if fault == "abort":
            found = _of(bench.structure(), "rollback")
            assert found.outcome == "fault"
            assert found.cause.startswith("the worker was ended by SIGABRT: llama.cpp aborted")
        else:
            with pytest.raises(WorkerDied, match=r"^the worker was ended by SIGKILL: from outside"):
                bench.structure()
    finally:
        session.close()
