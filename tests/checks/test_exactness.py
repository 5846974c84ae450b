from __future__ import annotations

from typing import Any

import pytest

from pytest_specdec.checks.exactness import STEPS
from pytest_specdec.checks.exactness import case_faults
from pytest_specdec.checks.exactness import lossless
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import ExactnessCase
from pytest_specdec.measurements import Parting
from pytest_specdec.measurements import TokenMargin
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


def case(prompt: str = "code", **changes: Any) -> ExactnessCase:
    """An exact run of 64 tokens; `changes` spoil it."""
    values: dict[str, Any] = {
        "prompt": prompt,
        "tokens": 64,
        "first_difference": None,
        "margins": (),
        "noise": 0.5,
        "difference": 0.4,
        "difference_at": 12,
        "widths": (1, 4),
        "plain": tuple(range(64)),
        "speculative": tuple(range(64)),
    }
    return ExactnessCase(**{**values, **changes})


def other_from(position: int) -> tuple[int, ...]:
    return tuple(i if i < position else i + 1000 for i in range(64))


def judge(*cases: ExactnessCase) -> Verdict:
    return lossless(Exactness(3, "two-model", cases))


def near_tie(margin: float, delta: float, position: int = 23) -> dict[str, Any]:
    return {
        "first_difference": position,
        "margins": (TokenMargin(position, 1023, 23, margin, delta),),
        "speculative": other_from(position),
    }


def test_equal_tokens_hold() -> None:
    verdict = judge(case(), case("prose"))
    assert verdict.outcome is Outcome.PASS
    assert verdict.value == 0
    assert verdict.metric == "differing prompts k=3"
    assert verdict.because == "128 tokens on 2 prompts equal plain decoding (k = 3, two-model)"


def test_a_near_tie_holds_and_is_told() -> None:
    verdict = judge(case(**near_tie(0.247, 0.2)), case("prose"))
    assert verdict.outcome is Outcome.PASS
    assert verdict.value == 1
    assert "are the target's own (k = 3, two-model): 1 text parts from plain decoding" in verdict.because
    assert "'code' at 23, margin 0.247 <= 2δ = 0.400" in verdict.because


@pytest.mark.parametrize(("margin", "holds"), [(0.4, True), (0.400001, False)])
def test_the_margin_is_compared_exactly(margin: float, holds: bool) -> None:
    verdict = judge(case(**near_tie(margin, 0.2)))
    assert verdict.outcome is (Outcome.PASS if holds else Outcome.FAIL)
    assert ("lies 0.400001 under 23" in verdict.because) is not holds


def test_the_mark_stands_in_for_a_limit_that_was_not_given() -> None:
    assert judge(case()).limit == judge().limit == "lossless()"


def test_a_token_beyond_rounding_fails_with_the_evidence() -> None:
    verdict = judge(case("prose"), case(**near_tie(1.84, 0.26)))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.because == (
        "1 of 2 prompts is not the target's own (k = 3, two-model): 'code' at token 23: step 3: token 1023 "
        "lies 1.840 under 23, the choice of a clean one-token pass, more than 2δ = 0.520. Rounding between "
        "kernels cannot do that: suspect rollback, positions or acceptance"
    )
    lines = verdict.section.splitlines()
    assert lines[0].split()[0] == "prompt"
    assert any(line.split() == ["code", "64", "-", "23", "1", "0.400", "0.500", "1,4"] for line in lines)
    assert "  plain:       tokens 20-: 20 21 22 23 24 25 26" in lines
    assert "  speculative: tokens 20-: 20 21 22 1023 1024 1025 1026" in lines
    assert "prose:" not in lines


def test_every_token_counts_not_only_the_first_other_one() -> None:
    margins = (TokenMargin(23, 1023, 23, 0.1, 0.2), TokenMargin(40, 1040, 40, 0.9, 0.2))
    verdict = judge(case(first_difference=23, margins=margins, speculative=other_from(23)))
    assert verdict.outcome is Outcome.FAIL
    assert "'code' at token 40" in verdict.because


def test_a_bad_token_fails_also_where_the_texts_agree() -> None:
    # Both runs share a fault that clean passes don't have.
    verdict = judge(case(margins=(TokenMargin(9, 9, 8, 0.9, 0.1),)))
    assert verdict.outcome is Outcome.FAIL
    assert "'code' at token 9" in verdict.because


@pytest.mark.parametrize(("difference", "holds"), [(1.0, True), (1.0000001, False)])
def test_logits_may_differ_by_twice_the_noise_and_no_more(difference: float, holds: bool) -> None:
    verdict = judge(case(difference=difference))
    assert verdict.outcome is (Outcome.PASS if holds else Outcome.FAIL)
    if not holds:
        assert (
            "'code' at token 12: step 3: logits differ by 1.0000001 from a clean one-token pass, where clean "
            "passes of N = 1,4 differ by 0.500 at most"
        ) in verdict.because


def test_rounds_of_one_token_leave_no_room_at_all() -> None:
    single: dict[str, Any] = {"widths": (1,), "noise": 0.0}
    assert judge(case(**single, difference=0.0)).outcome is Outcome.PASS
    assert judge(case(**single, difference=1e-6)).outcome is Outcome.FAIL


def test_without_clean_passes_equal_tokens_hold() -> None:
    assert judge(case(widths=(), noise=0.0, difference=0.3)).outcome is Outcome.PASS


def test_without_clean_passes_another_token_fails() -> None:
    verdict = judge(case(widths=(), first_difference=5, speculative=other_from(5)))
    assert verdict.outcome is Outcome.FAIL
    assert "'code' at token 5: step 3: it differs from plain decoding (1005 instead of 5)" in verdict.because
    assert "no clean pass was made to tell why" in verdict.because


def test_a_difference_without_a_near_tie_fails() -> None:
    margins = (TokenMargin(40, 1040, 40, 0.1, 0.2),)
    verdict = judge(case(first_difference=23, margins=margins, speculative=other_from(23)))
    assert verdict.outcome is Outcome.FAIL
    assert "though clean passes show no near tie there" in verdict.because


def test_a_text_that_ends_early_fails() -> None:
    verdict = judge(case(first_difference=30, tokens=30, speculative=tuple(range(30))))
    assert verdict.outcome is Outcome.FAIL
    assert "(one text ends: 30 instead of 64 tokens)" in verdict.because


def test_faults_come_by_position_and_are_counted() -> None:
    margins = tuple(TokenMargin(i, i + 1000, i, 0.9, 0.1) for i in range(20, 30))
    spoiled = case(first_difference=20, margins=margins, difference=2.0, speculative=other_from(20))
    assert [fault.position for fault in case_faults(spoiled)] == [12, *range(20, 30)]
    assert "  and 6 more" in judge(spoiled).section.splitlines()


def test_as_many_faults_as_are_shown_leave_nothing_to_count() -> None:
    margins = tuple(TokenMargin(i, i + 1000, i, 0.9, 0.1) for i in range(20, 25))
    spoiled = case(first_difference=20, margins=margins, speculative=other_from(20))
    section = judge(spoiled).section
    assert section.count("  token 2") == 5
    assert "more" not in section.replace("more than", "")


def test_no_token_is_not_measured() -> None:
    for verdict in (judge(), judge(case(tokens=0, widths=(), plain=(), speculative=()))):
        assert verdict.outcome is Outcome.NOT_MEASURED
        assert "no token was generated" in verdict.because


def test_many_near_ties_are_shortened() -> None:
    assert not judge(*[case(f"p{i}", **near_tie(0.1, 0.2)) for i in range(5)]).because.endswith("...)")
    verdict = judge(*[case(f"p{i}", **near_tie(0.1, 0.2)) for i in range(7)])
    assert verdict.outcome is Outcome.PASS
    assert "'p4'" in verdict.because
    assert "'p5'" not in verdict.because
    assert verdict.because.endswith("; ...)")


OTHER_BITS = "step 1: clean passes of N = 4 have other bits than plain decoding from token 2 on"
NOT_ALIKE = "step 2: the rows of a batch of N = 4 are not computed alike (token 8)"

# The case's fields where a step is the strictest that applied.
DECIDED: dict[int, dict[str, Any]] = {
    1: {"steps": (1, 2, 3)},
    2: {"steps": (2, 3), "reasons": (OTHER_BITS,)},
    3: {"steps": (3,), "reasons": (OTHER_BITS, NOT_ALIKE)},
}


def parting(step: int, **changes: Any) -> dict[str, Any]:
    """A bit-exact step that applied and failed at token 2."""
    values: dict[str, Any] = {
        "step": step,
        "drafts": "real",
        "against": "plain" if step == 1 else "clean",
        "position": 2,
        "token": 7,
        "other": 7,
        "round": 2,
    }
    return {**DECIDED[step], "partings": (Parting(**{**values, **changes}),)}


@pytest.mark.parametrize("step", STEPS)
def test_the_step_that_decided_is_told_with_the_reasons(step: int) -> None:
    decided = case(**DECIDED[step])
    assert decided.decided == step
    verdict = judge(decided)
    assert verdict.outcome is Outcome.PASS
    why = f" ('code' without {'; '.join(decided.reasons)})" if decided.reasons else ""
    assert verdict.because.endswith(f"; step {step} decided k = 3: {STEPS[step]}{why}")


def test_each_step_tells_its_prompts() -> None:
    verdict = judge(case(**DECIDED[1]), case("list", **DECIDED[1]), case("prose", **DECIDED[3]))
    assert (
        "; step 1 decided k = 3 on 2 prompts: same class, same bits; step 3 decided k = 3" in verdict.because
    )
    assert "on 1 prompt: near ties between classes ('prose' without step 1: clean passes" in verdict.because
    assert "step 2 decided" not in verdict.because
    lines = verdict.section.splitlines()
    assert lines[0].split()[:3] == ["prompt", "tokens", "step"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["code", "64", "1"],
        ["list", "64", "1"],
        ["prose", "64", "3"],
    ]
    assert lines[5:] == ["prose:", f"  without {OTHER_BITS}", f"  without {NOT_ALIKE}"]


def test_a_near_tie_says_which_step_decided() -> None:
    verdict = judge(case(**near_tie(0.1, 0.2), **DECIDED[3]))
    assert verdict.outcome is Outcome.PASS
    assert "margin 0.100 <= 2δ = 0.400); step 3 decided k = 3: near ties" in verdict.because


def test_other_bits_fail_although_no_token_changed() -> None:
    verdict = judge(case("prose"), case(**parting(1)))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.value == 1
    assert verdict.because == (
        "1 of 2 prompts is not the target's own (k = 3, two-model): 'code' at token 2: step 1: the logits "
        "that choose 7 differ in bits between real drafts (round 2) and plain decoding. Every batch size of "
        "this run has the bits of plain decoding, and so must the run: suspect rollback, positions or "
        "acceptance"
    )
    assert f"  token 2: step 1: {case_faults(case(**parting(1)))[0].what}" in verdict.section.splitlines()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"drafts": "useless"},
            "the logits that choose 7 differ in bits between useless drafts (round 2) and ",
        ),
        ({"token": 9}, "real drafts (round 2) give 9, clean passes 7. "),
        (
            {"token": None},
            "the text of real drafts (round 2) has ended, that of clean passes goes on with 7. ",
        ),
        (
            {"other": None},
            "the text of real drafts (round 2) goes on with 7, that of clean passes has ended. ",
        ),
        (
            {"drafts": "perfect", "against": "useless", "round": 1, "other": 8, "other_round": 2},
            "perfect drafts (round 1) give 7, useless drafts (round 2) 8. ",
        ),
    ],
)
def test_a_dependence_on_the_drafts_fails(changes: dict[str, Any], told: str) -> None:
    verdict = judge(case(**parting(2, **changes)))
    assert verdict.outcome is Outcome.FAIL
    assert f"'code' at token 2: step 2: {told}" in verdict.because
    assert "All rows of a batch of k + 1 are computed alike, so the drafts must not matter" in verdict.because


def test_the_strictest_step_speaks_first() -> None:
    both = {**parting(1, position=30), **near_tie(1.84, 0.26)}
    verdict = judge(case("prose", **near_tie(1.9, 0.1, position=3)), case(**both))
    assert "2 of 2 prompts are not the target's own (k = 3, two-model): 'code' at token 30: step 1: " in (
        verdict.because
    )
    assert [(fault.step, fault.position) for fault in case_faults(case(**both))] == [(1, 30), (3, 23)]


def test_a_refusal_by_llama_cpp_is_structural() -> None:
    message = "useless drafts, N = 4, token 2: llama_decode returned -1 for 4 tokens at position 331"
    spoiled: dict[str, Any] = {
        "tokens": 2,
        "widths": (),
        "plain": (),
        "speculative": (),
        "noise": 0.0,
        "difference": 0.0,
    }
    verdict = judge(case(**spoiled, refused=message))
    assert verdict.outcome is Outcome.FAIL
    assert (
        f"'code' at token 2: a structural fault: llama.cpp refused to go on: {message}. " in verdict.because
    )
    assert "Cache and host disagree about what is in the cache: suspect rollback" in verdict.because
    assert "step" not in verdict.because


def test_a_refusal_before_the_first_token_is_no_empty_run() -> None:
    assert judge(case(tokens=0, widths=(), refused="token 0: refused")).outcome is Outcome.FAIL
