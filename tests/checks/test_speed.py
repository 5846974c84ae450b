from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest

from pytest_specdec.checks.speed import LOOKS
from pytest_specdec.checks.speed import answer
from pytest_specdec.checks.speed import decided
from pytest_specdec.checks.speed import min_speedup
from pytest_specdec.checks.speed import speedup
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.verdict import Outcome


SPREAD = (0.97, 1.02, 0.99, 1.01, 1.03, 0.98, 1.0, 1.005)


def run(ratios: Sequence[float], *, prompts: int = 8, plain_ms: float = 3150.0) -> SpeedRun:
    """Pairs of 64 tokens: 20 tokens/s plain, and the ratios to that."""
    return SpeedRun(
        3,
        "two-model",
        tuple(SpeedPair(f"p{i % prompts}", 64, plain_ms, 64, plain_ms / r) for i, r in enumerate(ratios)),
    )


def around(ratio: float, looks: int = 1) -> list[float]:
    return [ratio * factor for _ in range(looks) for factor in SPREAD]


def test_the_error_spent_fits_the_pairs() -> None:
    assert [pairs for pairs, _ in LOOKS] == [8, 16, 24]
    assert sum(share for _, share in LOOKS) == pytest.approx(0.01)
    # n pairs can't go below 1 / 2^n.
    assert all(0.5**pairs <= share for pairs, share in LOOKS)


def test_bounds_of_the_first_look_are_the_extremes() -> None:
    # P(W = 0) = 1/256 <= 0.004 < 2/256: the outermost Walsh averages, the extreme pairs themselves.
    seen = speedup(run(around(1.5)))
    assert seen is not None
    assert seen.low == pytest.approx(1.5 * min(SPREAD))
    assert seen.high == pytest.approx(1.5 * max(SPREAD))
    assert seen.value == pytest.approx(1.5, rel=0.005)
    assert (seen.pairs, seen.look) == (8, 1)


def test_later_looks_spend_less_and_see_more() -> None:
    first, second, third = (speedup(run(around(1.5, looks))) for looks in (1, 2, 3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert (second.look, third.look) == (2, 3)
    assert first.low < second.low < third.low < third.high < second.high < first.high


def test_a_look_is_a_round_of_prompts_where_there_are_more_than_eight() -> None:
    ratios = [1.5 * SPREAD[i % 8] for i in range(12)]
    one = speedup(run(ratios, prompts=12))
    two = speedup(run(ratios, prompts=8))
    assert one is not None
    assert two is not None
    assert (one.look, two.look) == (1, 2)


def test_a_confident_violation_fails_with_both_rates() -> None:
    verdict = min_speedup(run(around(0.57)), x=1.5, limit="min_speedup(1.5, k=3)")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.value == pytest.approx(0.57, rel=0.005)
    assert re.match(
        r"speculation \(k = 3, two-model\) decodes 11\.4 tokens/s, plain decoding 20\.0: 0\.57x "
        r"\(bounds 0\.55-0\.59, 8 pairs, look 1 of 3\), confidently below 1\.5$",
        verdict.because,
    )
    assert verdict.limit == "min_speedup(1.5, k=3)"
    assert verdict.low == pytest.approx(0.57 * min(SPREAD))
    assert verdict.high == pytest.approx(0.57 * max(SPREAD))
    assert verdict.metric == "speedup k=3"


@pytest.mark.parametrize("prove", [False, True])
def test_a_proven_speedup_passes(prove: bool) -> None:
    verdict = min_speedup(run(around(1.6)), x=1.5, prove=prove)
    assert verdict.outcome is Outcome.PASS
    assert "confidently at least 1.5" in verdict.because


def test_an_unproven_speedup_passes_only_without_prove() -> None:
    pairs = run(around(1.51))
    verdict = min_speedup(pairs, x=1.5)
    assert verdict.outcome is Outcome.PASS
    assert "at least 1.5 (not proven" in verdict.because
    verdict = min_speedup(pairs, x=1.5, prove=True)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "the lower bound does not prove it" in verdict.because


@pytest.mark.parametrize("prove", [False, True])
def test_below_but_not_confidently_is_open(prove: bool) -> None:
    verdict = min_speedup(run(around(1.48)), x=1.5, prove=prove)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "below 1.5, not confidently" in verdict.because


def test_a_bound_at_the_limit_has_not_crossed_it() -> None:
    pairs = run(around(1.5))
    seen = speedup(pairs)
    assert seen is not None
    assert min_speedup(pairs, x=seen.low, prove=True).outcome is Outcome.PASS
    assert decided(pairs, x=seen.low)
    assert min_speedup(pairs, x=seen.high).outcome is Outcome.INCONCLUSIVE
    assert not decided(pairs, x=seen.high)
    assert min_speedup(pairs, x=seen.value).outcome is Outcome.PASS
    assert "the lower bound does not prove it" in min_speedup(pairs, x=seen.value, prove=True).because


def test_the_mark_stands_in_for_a_limit_that_was_not_given() -> None:
    assert min_speedup(run(around(2.0)), x=1.5).limit == "min_speedup(1.5)"
    assert min_speedup(run(around(2.0)), x=1.5, prove=True).limit == "min_speedup(1.5, prove=True)"


def test_eight_pairs_are_enough_to_tell() -> None:
    verdict = min_speedup(run(around(1.48)), x=1.5)
    assert "fewest that can tell" not in verdict.because
    assert "measure on a quieter machine" in verdict.because


def test_too_few_pairs_have_no_bounds() -> None:
    verdict = min_speedup(run(around(0.5)[:7]), x=1.5)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert (verdict.low, verdict.high) == (None, None)
    assert "no bounds yet" in verdict.because
    assert "8 pairs are the fewest that can tell" in verdict.because


@pytest.mark.parametrize(
    ("ratio", "prove", "expected"),
    [(0.57, False, True), (0.57, True, True), (1.6, False, True), (1.6, True, True), (1.51, False, False)],
)
def test_more_pairs_are_taken_while_bounds_are_not_clear(ratio: float, prove: bool, expected: bool) -> None:
    assert decided(run(around(ratio)), x=1.5, prove=prove) is expected


def test_nothing_is_decided_before_the_first_look() -> None:
    assert not decided(run(around(0.5)[:7]), x=1.5)
    assert not decided(SpeedRun(3, "ngram", ()), x=1.5)


def test_alpha_of_the_user_replaces_the_plan() -> None:
    pairs = run(around(1.52))
    assert min_speedup(pairs, x=1.5, prove=True).outcome is Outcome.INCONCLUSIVE
    assert min_speedup(pairs, x=1.5, prove=True, alpha=0.4).outcome is Outcome.PASS
    assert not decided(pairs, x=1.5)
    assert decided(pairs, x=1.5, alpha=0.4)


def test_pairs_without_a_second_token_have_no_rate() -> None:
    pairs = run(around(1.6)).pairs
    seen = speedup(SpeedRun(3, "ngram", (*pairs, SpeedPair("empty", 1, 0.0, 1, 0.0))))
    assert seen is not None
    assert (seen.pairs, seen.left_out) == (8, 1)
    for odd in (SpeedPair("a", 1, 1.0, 9, 1.0), SpeedPair("b", 9, 1.0, 9, 0.0)):
        seen = speedup(SpeedRun(3, "ngram", (*pairs, odd)))
        assert seen is not None
        assert seen.left_out == 1
    two = speedup(SpeedRun(3, "ngram", (*pairs, SpeedPair("two", 2, 0.5, 2, 0.5))))
    assert two is not None
    assert two.left_out == 0
    verdict = min_speedup(SpeedRun(3, "ngram", (SpeedPair("empty", 1, 0.0, 1, 0.0),)), x=1.5)
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert "no pair of 1 decoded anything after the first token" in verdict.because


def test_texts_of_other_lengths_are_compared_by_rate() -> None:
    # 10 tokens/s against 20: whatever the number of tokens.
    pairs = tuple(SpeedPair("p", 11, 1000.0, 21, 1000.0) for _ in range(8))
    seen = speedup(SpeedRun(3, "ngram", pairs))
    assert seen is not None
    assert seen.value == pytest.approx(2.0)
    assert (seen.plain_tokens_per_s, seen.speculative_tokens_per_s) == pytest.approx((10.0, 20.0))


def test_the_section_has_each_prompt() -> None:
    section = min_speedup(run(around(1.6, 2)), x=1.5).section
    rows = {line.split()[0]: line.split() for line in section.splitlines()}
    assert rows["p0"][:3] == ["p0", "2", "64"]
    assert rows["p0"][3] == "20.0"
    assert section.splitlines()[1].startswith("p0")
    assert float(rows["p0"][5]) == pytest.approx(1.6 * 0.97, abs=0.01)
    assert math.isclose(float(rows["p4"][4]), 20 * 1.6 * 1.03, abs_tol=0.1)
    assert "pair ratios: " in section


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.5, "speculation pays here: "),
        (0.6, "speculation does not pay here: do not speculate: "),
        (None, "whether speculation pays here is not decided: "),
    ],
)
def test_the_answer_is_on_the_bounds(ratio: float | None, words: str) -> None:
    ratios = [ratio] * 8 if ratio else [0.7, 1.4, 0.8, 1.3, 0.9, 1.2, 1.1, 0.95]
    pairs = tuple(SpeedPair(f"p{i}", 11, 100.0, 11, 100.0 / r) for i, r in enumerate(ratios))
    assert answer(SpeedRun(3, "ngram", pairs)).startswith(words)
