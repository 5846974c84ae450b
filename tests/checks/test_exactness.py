from __future__ import annotations

from typing import Any

import pytest

from pytest_specdec.checks.exactness import case_faults
from pytest_specdec.checks.exactness import lossless
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import ExactnessCase
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
        "1 of 2 prompts is not the target's own (k = 3, two-model): 'code' at token 23: token 1023 lies "
        "1.840 under 23, the choice of a clean one-token pass, more than 2δ = 0.520. Rounding between "
        "kernels cannot do that: suspect rollback, positions or acceptance"
    )
    lines = verdict.section.splitlines()
    assert lines[0].split()[0] == "prompt"
    assert any(line.split() == ["code", "64", "23", "1", "0.400", "0.500", "1,4"] for line in lines)
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
            "'code' at token 12: logits differ by 1.0000001 from a clean one-token pass, where clean passes "
            "of N = 1,4 differ by 0.500 at most"
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
    assert "'code' at token 5: it differs from plain decoding (1005 instead of 5)" in verdict.because
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
