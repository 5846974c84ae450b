"""What answers to the probes mean, faults that no sound llama.cpp shows included."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_specdec.bench import findings
from pytest_specdec.bench.findings import Ended
from pytest_specdec.bench.findings import Rolled
from pytest_specdec.bench.rig import PLACES
from pytest_specdec.bench.rig import Rollback
from pytest_specdec.bench.rig import failing


def proof(mode: str = "seq_rm", **wrong: str | float | None) -> dict[str, Any]:
    """A proof of rollback; a case named is refused (text), has other bits (number) or forgot too much."""
    cases = [
        {
            "name": name,
            "holds": name not in wrong,
            "refused": wrong[name] if isinstance(wrong.get(name), str) else None,
            "difference": wrong[name] if isinstance(wrong.get(name), float) else None,
        }
        for name in PLACES
    ]
    return {"mode": mode, "cases": cases, "proven": not wrong}


COST = {"rollback_ms": [0.1, 0.3, 0.2], "forward_ms": [2.0, 2.0, 5.0]}


def test_removed_tokens_without_a_trace_are_sound() -> None:
    found = findings.rollback([Rolled("target", Rollback(proof()), COST), Rolled("draft", Rollback(proof()))])
    assert found.outcome == "sound"
    assert found.cause == "removed tokens leave no trace, bit for bit (target and draft)"
    assert "target: a round's rollback takes 0.20 ms (median of 3), its pass 2.00 ms" in found.evidence


def test_true_without_restoring_is_found_on_either_side() -> None:
    draft = Rollback(proof(whole=0.5, across=1.25), proof("snapshot"))
    found = findings.rollback([Rolled("target", Rollback(proof())), Rolled("draft", draft, COST)])
    assert found.outcome == "fault"
    assert found.cause == (
        "draft: llama_memory_seq_rm said True, and the logits differ afterwards by up to 1.2 (for a whole "
        "batch, across batches); measured with state snapshots instead, which restore bit for bit and cost "
        "0.20 ms a round, beside 2.00 ms for its pass"
    )
    assert "draft: seq_rm across batches: True, other bits: logits differ by up to 1.2" in found.evidence
    assert "draft: snapshots across batches: the same bits" in found.evidence


def test_a_refusal_names_what_llama_cpp_says_once() -> None:
    refused = Rollback(proof(inside="it refused 5..7", whole="it refused 4..7"), proof("snapshot"))
    found = findings.rollback([Rolled("target", refused)])
    assert found.cause.startswith("target: it refused 5..7; measured with state snapshots instead")
    assert "target: seq_rm inside the last batch: False: it refused 5..7" in found.evidence
    assert "target: seq_rm for a whole batch: False" in found.evidence


def test_states_of_llama_cpps_own_that_do_not_restore_are_told() -> None:
    refused = Rollback(proof(inside="refused"), proof("snapshot"))
    native = Rollback(proof(whole=5.0), proof("snapshot"))
    found = findings.rollback([Rolled("target", refused, None, native, 9)])
    assert (
        "with n_rs_seq = 9 it says True and does not restore for a whole batch (logits differ by up to 5)"
        in (found.cause)
    )
    silent = Rollback(proof(**dict.fromkeys(PLACES, "no")), proof("snapshot"))
    found = findings.rollback([Rolled("target", refused, None, silent, 9)])
    assert "n_rs_seq" not in found.cause + "".join(found.evidence)


def test_a_cache_that_neither_way_restores() -> None:
    broken = Rollback(proof(inside=1.0), proof("snapshot", inside=2.0))
    assert broken.mode is None
    found = findings.rollback([Rolled("target", broken)])
    assert "nor do state snapshots restore it: " in found.cause
    assert failing(proof(inside=None)).endswith("what was kept is gone too (inside the last batch)")


def test_a_window_without_its_full_cache_is_named() -> None:
    assert failing(proof(far=0.48)) == (
        "llama_memory_seq_rm said True, and the logits differ afterwards by up to 0.48 (further than a "
        "sliding window's cache reaches: without swa_full it keeps the window only)"
    )


def rows(relative: float, lost: list[list[float]] | None = None, spread: float = 4.0) -> dict[str, Any]:
    width = {"n": 8, "difference": [relative * spread] * 4, "relative": [relative] * 4, "lost": lost or []}
    return {"depth": 256, "rows": 4, "spread": spread, "widths": [width]}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (rows(0.0), "sound"),
        (rows(0.09, [[1, 0.31]]), "sound"),
        (rows(0.31), "fault"),
        (rows(1.4, [[0, 9.0]]), "fault"),
        (rows(0.05, [[2, 2.1]]), "fault"),
        (rows(0.05, [[2, 1.9]]), "sound"),
    ],
)
def test_rows_of_a_batch_differ_by_rounding_alone(answer: dict[str, Any], outcome: str) -> None:
    found = findings.batch([rows(0.01), answer])
    assert found.outcome == outcome
    if outcome == "fault":
        assert found.cause.startswith("in batches of 8 at depth 256")


def test_a_lost_best_token_that_is_no_near_tie_is_told_with_its_margin() -> None:
    found = findings.batch([rows(0.05, [[2, 2.1]])])
    assert (
        "1 row of 4 choose another token than one-token passes, one that lies 2.10 under theirs"
        in found.cause
    )
    assert "top-1 equal in 3 of 4 rows (margins up to 2.10)" in found.evidence[0]


def vocabularies(**changes: Any) -> dict[str, Any]:
    rule = ("type", "add-BOS flag", "add-EOS flag", "BOS token", "EOS token")
    same = {
        "rule": [{"what": name, "target": 1, "draft": 1} for name in rule],
        "sizes": [320, 320],
        "size_allowed": 128,
        "compared": 315,
        "differing": 0,
        "moved": 0,
        "unknown": 0,
        "shared": 320,
        "first": [],
        "special": {"bos": [1, 1]},
        "ends": [[2, 4], [2]],
    }
    return same | changes


def test_one_vocabulary_is_sound() -> None:
    found = findings.vocabulary(vocabularies(sizes=[320, 448]))
    assert found.outcome == "sound"
    assert "end of generation: target 2, 4; draft 2" in found.evidence


def test_permuted_ids_are_told_from_another_vocabulary() -> None:
    first = [[5, "a", "b"]]
    found = findings.vocabulary(vocabularies(differing=314, moved=314, first=first))
    assert found.outcome == "fault"
    assert found.cause.startswith(
        "token ids are permuted: 314 of 315 pieces differ (token 5: target 'a', draft"
    )
    found = findings.vocabulary(vocabularies(differing=32, unknown=32, first=first))
    assert found.cause.startswith("another vocabulary: 32 of 315 pieces differ")
    assert "32 unknown to the target" in found.cause


def test_the_rule_of_llama_cpp_is_named_where_it_does_not_hold() -> None:
    rule = [{"what": "type", "target": 1, "draft": 2}, {"what": "BOS token", "target": 1, "draft": 1}]
    found = findings.vocabulary(vocabularies(rule=rule, sizes=[320, 449]))
    assert "rule does not hold for type (target SPM, draft BPE), size (target 320, draft 449);" in found.cause
    assert "BOS token (target 1, draft 1): equal" in found.evidence


def own(**changes: Any) -> dict[str, Any]:
    run = {"tokens": 32, "rounds": 11, "expected": 20, "accepted": 20, "over": 0, "full": 6, "rejection": 5}
    return run | {"missed": [], "noise": None, "drift": None} | changes


def miss(margin: float, after: str = "rejection") -> dict[str, Any]:
    return {"round": 2, "after": after, "place": 0, "margin": margin}


def test_own_drafts_are_accepted_near_ties_aside() -> None:
    found = findings.self_draft([("target", [own(), own()])])
    assert found.outcome == "sound"
    assert found.cause == "what drafts for itself is accepted: 40 of 40 drafts (target)"
    tie = own(accepted=19, missed=[miss(0.2)], noise=0.1, drift=0.1)
    found = findings.self_draft([("target", [own(), tie])])
    assert found.outcome == "sound"
    assert "39 of 40 drafts, the others at near ties" in found.cause


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (own(accepted=18, missed=[miss(0.21)], noise=0.1, drift=0.1), "rollback of the draft's cache"),
        (own(accepted=18, missed=[miss(0.21)], noise=0.1, drift=0.9), "rollback of the target's cache"),
        (own(accepted=18, missed=[miss(3.0, "full")], noise=0.0, drift=0.0), "after full acceptance"),
        (
            own(accepted=18, missed=[miss(1.0, "start"), miss(3.0)], noise=0.0, drift=0.0),
            "from the first round on",
        ),
        (own(over=1), "accepted a token that was never the model's own choice"),
    ],
)
def test_a_rejected_own_draft_says_where_to_look(run: dict[str, Any], words: str) -> None:
    found = findings.self_draft([("target", [own()]), ("draft", [own(), run])])
    assert found.outcome == "fault"
    assert found.cause.startswith("draft: ")
    assert words in found.cause


def test_texts_that_end_at_once_tell_nothing() -> None:
    found = findings.self_draft([("target", [own(expected=0, accepted=0, rounds=0)])])
    assert found.outcome == "skipped"
    assert found.cause.startswith("could not tell")


def attempt(at: int, accepted: bool, *words: str, **more: Any) -> dict[str, Any]:
    return {"at": at, "accepted": accepted, "words": list(words), **more}


def places(**changes: Any) -> dict[str, Any]:
    sound = {
        "past": 8,
        "twice": attempt(5, False, "X = 7", "Y = 5"),
        "gap": attempt(12, False, "X = 7"),
        "collided": attempt(5, True, removed=True),
        "ends": [[7, 7], [3, 3]],
    }
    return sound | changes


@pytest.mark.parametrize(
    ("changes", "outcome", "words"),
    [
        ({}, "sound", "positions that don't follow are refused"),
        (
            {"gap": attempt(12, True)},
            "sound",
            "a gap in positions passes in silence (target, as with M-RoPE)",
        ),
        ({"twice": attempt(5, True)}, "fault", "takes a position that is in use twice"),
        (
            {"collided": attempt(5, False, "X = 7", "Y = 5", removed=False)},
            "fault",
            "target: rollback refused, positions collided: llama_memory_seq_rm said False, and decoding at 5 "
            "is refused (X = 7; Y = 5)",
        ),
        ({"ends": [[7, 7], [3, 4]]}, "fault", "cache and host disagree"),
    ],
)
def test_positions(changes: dict[str, Any], outcome: str, words: str) -> None:
    found = findings.positions([("target", places(**changes))])
    assert found.outcome == outcome
    assert words in found.cause
    assert "target: position 5 with 8 tokens" in found.evidence[0]


def ended(stop: str, tokens: int) -> Ended:
    return Ended(
        "the draft",
        256,
        {"prompt_tokens": 242, "stop": "context", "tokens": [0] * 15},
        {"stop": stop, "tokens": [0] * tokens, "drafted": [3] * 4},
    )


@pytest.mark.parametrize(
    ("runs", "outcome"),
    [
        ([ended("context", 15)], "sound"),
        ([ended("eog", 15)], "fault"),
        ([ended("context", 14)], "fault"),
        ([ended("limit", 30)], "fault"),
        ([ended("context", 15), ended("context", 12)], "fault"),
    ],
)
def test_speculation_fills_the_context_as_plain_decoding_does(runs: list[Ended], outcome: str) -> None:
    found = findings.context_end(runs, ["a remark"])
    assert found.outcome == outcome
    assert found.evidence[-1] == "a remark"


def wanted(stop: str = "eog", tokens: tuple[int, ...] = (9, 9, 9, 2), own: bool = True) -> dict[str, Any]:
    run = {"tokens": list(tokens), "stop": stop, "accepted": [1, 1], "drafted": [2, 2], "cut": True}
    return {"known": True, "begun": True, "place": 3, "end": 2, "wanted": run, "own": own}


@pytest.mark.parametrize(
    ("answers", "outcome", "words"),
    [
        ([wanted()], "sound", "ends the text"),
        (
            [wanted(), wanted("limit", (9, 9, 9, 2, 9))],
            "fault",
            "token 3 is the end, and the text has 5 tokens",
        ),
        ([wanted(tokens=(9, 9, 9, 9))], "fault", "does not end the text there"),
        ([wanted(own=False)], "fault", "only the draft wants"),
        ([{"known": False}], "skipped", "knows no end-of-generation token"),
        ([{"known": True, "begun": False}], "skipped", "could not tell"),
    ],
)
def test_an_end_inside_a_draft(answers: list[dict[str, Any]], outcome: str, words: str) -> None:
    found = findings.end_of_generation(answers, 2)
    assert found.outcome == outcome
    assert words in found.cause
