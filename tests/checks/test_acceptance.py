from __future__ import annotations

import pytest

from pytest_specdec.checks.acceptance import accept_length
from pytest_specdec.checks.acceptance import accept_rate
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.verdict import Outcome


def speculation(
    prompt: str, drafted: list[int], accepted: list[int], *, cut: bool = False, prompt_tokens: int = 7
) -> Speculation:
    produced = 1 + sum(accepted) + len(drafted) - (1 if cut else 0)
    times = (1.0,) * len(drafted)
    return Speculation(
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        tokens=tuple(range(produced)),
        drafted=tuple(drafted),
        accepted=tuple(accepted),
        cut=cut,
        draft_ms=times,
        verify_ms=times,
        prefill_ms=1.0,
        draft_prefill_ms=1.0,
        decode_ms=10.0,
        forward_ms=9.0,
        stop="eog" if cut else "limit",
    )


@pytest.fixture
def run() -> SpeculativeRun:
    """On code 6 of 10 drafted tokens are accepted, on prose 2 of 10: 8 of 20."""
    return SpeculativeRun(
        2,
        "two-model",
        (
            speculation("code", [2, 2, 2, 2, 2], [2, 2, 1, 1, 0]),
            speculation("prose", [2, 2, 2, 2, 2], [1, 0, 0, 1, 0]),
        ),
    )


def test_a_rate_in_range_holds(run: SpeculativeRun) -> None:
    verdict = accept_rate(run, low=0.2, high=0.95)
    assert verdict.outcome is Outcome.PASS
    assert verdict.value == 8 / 20
    assert verdict.low is None
    assert verdict.high is None
    assert verdict.metric == "acceptance k=2"
    assert verdict.because == (
        "acceptance rate 0.40 (8 of 20 drafted tokens, 2 prompts, k = 2, two-model) is within 0.2-0.95"
    )


def test_both_ends_of_the_range_count_in(run: SpeculativeRun) -> None:
    assert accept_rate(run, low=0.4).outcome is Outcome.PASS
    assert accept_rate(run, low=0.1, high=0.4).outcome is Outcome.PASS
    assert accept_rate(run, low=0.4000001).outcome is Outcome.FAIL
    assert accept_rate(run, low=0.1, high=0.3999999).outcome is Outcome.FAIL


def test_a_low_rate_fails_with_counts(run: SpeculativeRun) -> None:
    verdict = accept_rate(run, low=0.99, limit="accept_rate(0.99)")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.because == (
        "acceptance rate 0.40 (8 of 20 drafted tokens, 2 prompts, k = 2, two-model) is below 0.99"
    )
    assert verdict.limit == "accept_rate(0.99)"


def test_a_near_miss_shows_on_which_side_it_lies() -> None:
    run = SpeculativeRun(1, "ngram", (speculation("a", [1] * 1000, [1] * 498 + [0] * 502),))
    assert "acceptance rate 0.498 (" in accept_rate(run, low=0.5).because


def test_a_suspiciously_high_rate_fails(run: SpeculativeRun) -> None:
    verdict = accept_rate(run, low=0.1, high=0.3)
    assert verdict.outcome is Outcome.FAIL
    assert "is above 0.3: a draft this right is the target itself" in verdict.because
    assert "lossless()" in verdict.because


def test_the_section_has_prompts_and_positions(run: SpeculativeRun) -> None:
    lines = [line.split() for line in accept_rate(run, low=0.99).section.splitlines()]
    assert ["code", "5", "10", "6", "0.60", "2.20"] in lines
    assert ["prose", "5", "10", "2", "0.20", "1.40"] in lines
    assert ["all", "10", "20", "8", "0.40", "1.80"] in lines
    # Position 1 was right in 6 of 10 rounds, position 2 in 2 of 10, which is 2 of those 6.
    assert ["1", "10", "0.60", "0.60"] in lines
    assert ["2", "10", "0.20", "0.33"] in lines


def test_prompts_of_one_name_stay_apart() -> None:
    run = SpeculativeRun(2, "ngram", (speculation("a", [2], [2]), speculation("a", [2, 2], [0, 0])))
    verdict = accept_rate(run, low=0.1)
    assert "2 prompts" in verdict.because
    rows = [line.split() for line in verdict.section.splitlines() if line.startswith("a ")]
    assert [row[3] for row in rows] == ["2", "0"]


def test_nothing_drafted_is_not_measured() -> None:
    run = SpeculativeRun(3, "ngram", (speculation("prose", [0, 0, 0], [0, 0, 0]),))
    for verdict in (accept_rate(run, low=0.0), accept_length(run, low=1.0)):
        assert verdict.outcome is Outcome.NOT_MEASURED
        assert verdict.value is None
        assert verdict.because.startswith("the source (ngram) proposed nothing in 3 rounds on 1 prompt")


def test_generation_that_ends_at_once_is_not_measured() -> None:
    run = SpeculativeRun(3, "ngram", (speculation("prose", [], []),))
    verdict = accept_rate(run, low=0.0)
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert "generation ended at once" in verdict.because


@pytest.mark.parametrize(
    ("rounds", "right", "hint"),
    [(40, 1, True), (40, 2, False), (29, 0, False), (30, 0, True)],
)
def test_a_hopeless_first_position_is_pointed_out(rounds: int, right: int, hint: bool) -> None:
    accepted = [1] * right + [0] * (rounds - right)
    run = SpeculativeRun(3, "two-model", (speculation("a", [3] * rounds, accepted),))
    verdict = accept_rate(run, low=0.5)
    assert verdict.outcome is Outcome.FAIL
    assert ("even the first drafted token was right in" in verdict.because) is hint


def test_acceptance_length_counts_the_bonus(run: SpeculativeRun) -> None:
    verdict = accept_length(run, low=1.8)
    assert verdict.outcome is Outcome.PASS
    assert verdict.value == 18 / 10
    assert verdict.because == (
        "acceptance length 1.80 (18 tokens in 10 rounds, 2 prompts, k = 2, two-model) reaches 1.8"
    )
    assert accept_length(run, low=1.81).outcome is Outcome.FAIL


def test_a_cut_round_has_no_bonus() -> None:
    whole = SpeculativeRun(2, "two-model", (speculation("a", [2, 2], [2, 1]),))
    cut = SpeculativeRun(2, "two-model", (speculation("a", [2, 2], [2, 1], cut=True),))
    assert accept_length(whole, low=1.0).value == 5 / 2
    assert accept_length(cut, low=1.0).value == 4 / 2
    # One token per round on average, the first one apart.
    for run in (whole, cut):
        tokens = len(run.speculations[0].tokens) - 1
        assert accept_length(run, low=1.0).value == tokens / 2


def test_a_cut_round_says_nothing_of_the_positions_behind() -> None:
    run = SpeculativeRun(2, "two-model", (speculation("a", [2, 2], [2, 0], cut=True),))
    lines = [line.split() for line in accept_length(run, low=1.0).section.splitlines()]
    assert ["1", "1", "1.00", "1.00"] in lines
    assert ["a", "2", "4", "2", "0.50", "1.50"] in lines


def test_the_mark_stands_in_for_a_limit_that_was_not_given(run: SpeculativeRun) -> None:
    assert accept_rate(run, low=0.2).limit == "accept_rate(0.2, 1)"
    assert accept_length(run, low=1.5).limit == "accept_length(1.5)"


def test_a_length_no_draft_can_reach_is_said_so(run: SpeculativeRun) -> None:
    verdict = accept_length(run, low=3.5)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.because.endswith("which no draft of k = 2 can reach: a round gives 3 at most")
    assert "can reach" not in accept_length(run, low=3.0).because
