from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_specdec.checks.curve import cliff_at
from pytest_specdec.checks.curve import max_draft_cost
from pytest_specdec.checks.curve import max_verify_cost
from pytest_specdec.checks.curve import no_cliff
from pytest_specdec.checks.curve import ratio_bounds
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.verdict import Outcome

from .curves import METAL
from .curves import SAWTOOTH
from .curves import SMOOTH
from .curves import make_curve


PASS, FAIL, INCONCLUSIVE, NOT_MEASURED = (
    Outcome.PASS,
    Outcome.FAIL,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_MEASURED,
)


def test_the_cliff_is_where_the_mark_says() -> None:
    verdict = cliff_at(make_curve(METAL), n=9)
    assert verdict.outcome is PASS
    assert verdict.metric == "T(9)/T(8)"
    assert verdict.value == pytest.approx(78.98 / 44.77, rel=0.01)
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.low < 78.98 / 44.77 < verdict.high
    assert verdict.because.startswith("the first cliff is at 9 (T(9)/T(8) = 1.7")
    assert verdict.limit == "cliff_at(9)"


def test_bounds_err_by_alpha_on_each_side() -> None:
    curve = make_curve(METAL)
    logs = np.log(curve.blocks_ms())
    _, low, high = ratio_bounds(logs[8] - logs[7], 0.02)
    verdict = cliff_at(curve, n=9, alpha=0.02)
    assert (verdict.low, verdict.high) == (low, high)
    verdict = no_cliff(curve, upto=9, alpha=0.02)
    assert (verdict.low, verdict.high) == (low, high)
    assert verdict.value is not None
    assert low < verdict.value < high


def test_an_earlier_cliff_fails_and_is_named() -> None:
    verdict = cliff_at(make_curve(SAWTOOTH), n=9, limit="cliff_at(9)")
    assert verdict.outcome is FAIL
    assert re.match(
        r"the first cliff is at 5 \(T\(5\)/T\(4\) = 1\.4\d, bounds 1\.4\d-1\.4\d\), "
        r"not at 9 \(T\(9\)/T\(8\) = 1\.2\d\)\. ",
        verdict.because,
    )
    assert (
        "Worse: the longest draft before the cliff is k = 3, where a cliff at 9 allowed k = 7"
        in verdict.because
    )
    assert "only a baseline tells" in verdict.because
    assert verdict.because.endswith("If that is the new state, write cliff_at(5)")
    assert verdict.limit == "cliff_at(9)"


def test_a_later_cliff_fails_as_an_improvement() -> None:
    verdict = cliff_at(make_curve(METAL), n=5)
    assert verdict.outcome is FAIL
    assert "the first cliff is at 9" in verdict.because
    assert (
        "Better: the longest draft before the cliff is k = 7, where a cliff at 5 allowed k = 3"
        in verdict.because
    )


def test_without_a_cliff_the_nearest_step_is_named() -> None:
    verdict = cliff_at(make_curve(SMOOTH), n=9)
    assert verdict.outcome is FAIL
    assert re.match(
        r"no cliff up to N = 10; the nearest to one is the step at 5: "
        r"T\(5\)/T\(4\) = 1\.2\d < ratio 1\.4, not at 9",
        verdict.because,
    )
    assert "No draft up to k = 9 meets a cliff, where a cliff at 9 allowed k = 7" in verdict.because
    assert verdict.because.endswith("write no_cliff(10)")


def test_a_lower_ratio_finds_the_smaller_step() -> None:
    split = {**SMOOTH, 9: 49.5, 10: 53.0}
    assert cliff_at(make_curve(split), n=9, ratio=1.15).outcome is PASS
    assert cliff_at(make_curve(split), n=9, ratio=1.4).outcome is FAIL


def test_proportional_growth_is_no_cliff_at_two() -> None:
    verdict = cliff_at(make_curve({1: 10.0, 2: 20.0, 3: 30.0}), n=2)
    assert verdict.outcome is FAIL
    assert "T(2)/T(1) = 2.0" in verdict.because or "T(3)/T(2)" in verdict.because
    assert "(1.25 times the cost per token so far)" in verdict.because


@pytest.mark.parametrize(
    ("then", "word"),
    [(78.98, "the same"), (160.0, "better"), (50.0, "worse")],
)
def test_the_baseline_tells_whether_cost_got_better(then: float, word: str) -> None:
    old = make_curve({**METAL, 9: then}, seed=1)
    early = {**METAL, 5: 60.0, 6: 61.0, 7: 62.0, 8: 63.0}
    verdict = cliff_at(make_curve(early, noise=0.001), n=9, baseline=old)
    assert verdict.outcome is FAIL
    assert re.search(rf"T\(9\)/T\(1\) was [\d.]+ in the baseline and is 4\.3\d: {word}\. ", verdict.because)
    assert verdict.baseline == pytest.approx(then / 44.77, rel=0.02)


def test_a_baseline_of_another_grid_tells_nothing() -> None:
    old = make_curve({1: 10.0, 4: 20.0, 16: 40.0})
    verdict = cliff_at(make_curve(METAL), n=5, baseline=old)
    assert "only a baseline tells" in verdict.because
    assert verdict.baseline is None


def test_bounds_that_straddle_the_ratio_decide_nothing() -> None:
    flat = {1: 10.0, 2: 10.2, 3: 10.4, 4: 10.6, 5: 14.84}
    verdict = cliff_at(make_curve(flat, noise=0.05), n=5)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.low < 1.4 <= verdict.high
    assert "whether 5 is a cliff is open" in verdict.because
    assert "the lower one under ratio 1.4, the upper one not" in verdict.because
    told = re.search(r"has bounds (1\.\d+)-(1\.\d+),", verdict.because)
    assert told is not None
    assert float(told[1]) < 1.4 <= float(told[2])
    assert "specdec(blocks=...)" in verdict.because


def test_a_doubtful_earlier_step_leaves_a_clear_cliff_open() -> None:
    times = {1: 10.0, 2: 10.2, 3: 10.4, 4: 10.6, 5: 14.84, 6: 30.0}
    verdict = cliff_at(make_curve(times, noise=0.05), n=6)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.because.startswith("the first cliff may be at 5 already: T(5)/T(4) = 1.")


def test_a_doubtful_earlier_step_does_not_save_a_flat_one() -> None:
    times = {1: 10.0, 2: 10.2, 3: 10.4, 4: 10.6, 5: 14.84, 6: 15.0}
    verdict = cliff_at(make_curve(times, noise=0.05), n=6)
    assert verdict.outcome is FAIL
    assert verdict.because.startswith("no cliff up to N = 6 beyond doubt (T(5)/T(4)")
    assert "allowed k" not in verdict.because


def test_a_cliff_inside_a_gap_is_not_pinned_down() -> None:
    gap = {n: t for n, t in METAL.items() if n not in (9,)}
    for n, wanted in (
        (9, 'N = 9 too: specdec(sizes="1-9,12,16,24,32")'),
        (10, "N = 9 and 10 too"),
        (12, "N = 11 too"),
    ):
        verdict = cliff_at(make_curve(gap), n=n)
        assert verdict.outcome is INCONCLUSIVE
        assert verdict.because.startswith("the first cliff is in (8, 12] (T(12)/T(8) = 1.7")
        assert f"not pinned down: measure {wanted}" in verdict.because


def test_a_gap_may_hide_a_cliff_that_its_slope_does_not_show() -> None:
    # From 2 to 8 a rise of 1.5 is far below proportional, but may happen in one step.
    verdict = cliff_at(make_curve({1: 10.0, 2: 10.0, 8: 15.0}), n=5)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.because.startswith("a cliff may lie in (2, 8]")


def test_a_gap_whose_rise_straddles_the_ratio_is_open() -> None:
    curve = make_curve({1: 10.0, 8: 20.0, 12: 28.0}, noise=0.05)
    verdict = cliff_at(curve, n=10)
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.low < 1.4 <= verdict.high
    assert verdict.outcome is INCONCLUSIVE
    verdict = no_cliff(curve, upto=10)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.because.startswith("a cliff may lie in (8, 12] (")


def test_a_flat_gap_holds_no_cliff() -> None:
    flat = {n: t for n, t in METAL.items() if n <= 8} | {12: 45.0}
    verdict = cliff_at(make_curve(flat), n=10)
    assert verdict.outcome is FAIL
    assert "not at 10: from 8 to 12 T changes by a factor of 1.0" in verdict.because


def test_beyond_the_grid_nothing_is_measured() -> None:
    verdict = cliff_at(make_curve(SMOOTH), n=13)
    assert verdict.outcome is NOT_MEASURED
    assert verdict.value is None
    assert 'measure N = 12 and 13 too: specdec(sizes="1-10,12-13")' in verdict.because


def test_beyond_the_grid_an_earlier_cliff_still_fails() -> None:
    verdict = cliff_at(make_curve(METAL), n=40)
    assert verdict.outcome is FAIL
    assert "the first cliff is at 9 (" in verdict.because
    assert "not at 40. " in verdict.because


def test_the_smallest_size_has_no_step() -> None:
    verdict = cliff_at(make_curve({4: 10.0, 5: 11.0}), n=4)
    assert verdict.outcome is NOT_MEASURED
    assert 'measure N = 3 too: specdec(sizes="3-5")' in verdict.because


def test_the_section_shows_the_curve() -> None:
    section = cliff_at(make_curve(SAWTOOTH), n=9).section
    rows = {line.split()[0]: line for line in section.splitlines() if line.strip()[:1].isdigit()}
    assert rows["5"].endswith("cliff")
    assert rows["7"].endswith("dip")
    assert rows["8"].endswith("drop")
    assert not rows["4"].endswith(("cliff", "dip", "drop"))
    assert "depth 0" in section
    assert "8 blocks" in section
    assert section.splitlines()[-1].startswith("T(N): ")


def test_published_values_are_taken_as_they_are() -> None:
    curve = VerifyCurve(tuple(METAL), tuple(((t,),) for t in METAL.values()), source="published")
    assert cliff_at(curve, n=9).outcome is PASS
    assert cliff_at(curve, n=8).outcome is FAIL


@pytest.mark.parametrize("n", [8, 9])
def test_too_few_blocks_decide_nothing(n: int) -> None:
    verdict = cliff_at(make_curve(METAL, blocks=3), n=n)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.because.startswith("only 3 blocks were measured, 7 are the fewest that can tell")
    assert "As measured: the first cliff is at 9" in verdict.because
    assert cliff_at(make_curve(METAL, blocks=7), n=9).outcome is PASS


@pytest.mark.parametrize("n", [8, 9])
def test_a_disturbed_run_decides_nothing(n: int) -> None:
    disturbed = make_curve(METAL, sentinel_ms=(10.0, 10.0, 40.0, 38.0, 41.0, 40.0, 39.0, 10.0, 36.0))
    verdict = cliff_at(disturbed, n=n)
    assert verdict.outcome is INCONCLUSIVE
    assert "the run was disturbed: one and the same forward took 10.00 to 41.00 ms" in verdict.because
    assert "As measured: the first cliff is at 9" in verdict.because


def test_one_spike_is_no_disturbance() -> None:
    spiked = make_curve(METAL, sentinel_ms=(10.0, 10.5, 90.0, 11.0, 10.1, 10.4, 13.0, 10.0, 10.0))
    assert cliff_at(spiked, n=9).outcome is PASS


def test_no_cliff_holds() -> None:
    verdict = no_cliff(make_curve(SMOOTH), upto=10)
    assert verdict.outcome is PASS
    assert verdict.metric == "T(5)/T(4)"
    assert verdict.value == pytest.approx(29.2 / 23.5, rel=0.01)
    assert verdict.because.startswith("no cliff up to N = 10; the nearest to one is the step at 5")
    assert no_cliff(make_curve(METAL)).outcome is PASS
    assert no_cliff(make_curve(METAL)).limit == "no_cliff(8)"


def test_no_cliff_fails_at_the_cliff() -> None:
    verdict = no_cliff(make_curve(METAL), upto=9)
    assert verdict.outcome is FAIL
    assert verdict.metric == "T(9)/T(8)"
    assert verdict.because.startswith("there is a cliff at 9 (T(9)/T(8) = 1.7")
    assert "k = 7, not 8" in verdict.because


def test_no_cliff_with_a_doubt() -> None:
    flat = {1: 10.0, 2: 10.2, 3: 10.4, 4: 10.6, 5: 14.84}
    verdict = no_cliff(make_curve(flat, noise=0.05), upto=5)
    assert verdict.outcome is INCONCLUSIVE
    assert "whether there is a cliff at 5 is open: T(5)/T(4) = 1." in verdict.because
    assert no_cliff(make_curve(flat, noise=0.05), upto=4).outcome is PASS


def test_no_cliff_up_to_a_size_in_a_gap() -> None:
    gap = {n: t for n, t in METAL.items() if n != 9}
    verdict = no_cliff(make_curve(gap), upto=10)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.because.startswith("a cliff may lie in (8, 12] (")
    assert 'measure N = 10 too: specdec(sizes="1-8,10,12,16,24,32")' in verdict.because
    assert no_cliff(make_curve(METAL), upto=10).outcome is FAIL
    assert (
        no_cliff(make_curve({n: t for n, t in METAL.items() if n < 9} | {12: 45.0}), upto=10).outcome is PASS
    )


def test_no_cliff_beyond_the_grid() -> None:
    verdict = no_cliff(make_curve(SMOOTH), upto=12)
    assert verdict.outcome is NOT_MEASURED
    assert 'N = 12 was not measured: measure N = 12 too: specdec(sizes="1-10,12")' in verdict.because


def test_a_falling_curve_has_no_step() -> None:
    verdict = no_cliff(make_curve({1: 30.0, 2: 20.0, 3: 10.0}), upto=3)
    assert verdict.outcome is PASS
    assert verdict.because == "no cliff up to N = 3: T never rises"


def test_verify_cost_within_the_limit() -> None:
    verdict = max_verify_cost(make_curve(METAL), n=8, ratio=2.6)
    assert verdict.outcome is PASS
    assert verdict.metric == "T(8)/T(1)"
    assert verdict.value == pytest.approx(44.77 / 18.15, rel=0.01)
    assert verdict.because.endswith("within 2.6")
    assert verdict.limit == "max_verify_cost(8, 2.6)"


def test_verify_cost_over_the_limit() -> None:
    verdict = max_verify_cost(make_curve(METAL), n=8, ratio=1.3)
    assert verdict.outcome is FAIL
    assert verdict.because.startswith("verifying 8 tokens costs 2.4")
    assert re.search(
        r"\(44\.\d\d against 18\.\d\d ms, bounds 2\.4\d-2\.[45]\d\), more than 1\.3$", verdict.because
    )


def test_verify_cost_at_the_limit_is_open() -> None:
    verdict = max_verify_cost(make_curve({1: 10.0, 8: 20.0}, noise=0.05), n=8, ratio=2.0)
    assert verdict.outcome is INCONCLUSIVE
    assert "the lower bound is within 2, the upper one is not" in verdict.because


@pytest.mark.parametrize(("n", "missing"), [(9, "N = 1 and N = 9"), (4, "N = 1")])
def test_verify_cost_needs_both_sizes(n: int, missing: str) -> None:
    verdict = max_verify_cost(make_curve({2: 10.0, 4: 20.0}), n=n, ratio=2.0)
    assert verdict.outcome is NOT_MEASURED
    assert verdict.because.startswith(f"{missing} not measured: measure N = 1")


def test_a_bound_at_the_limit_has_not_crossed_it() -> None:
    curve = make_curve({1: 10.0, 8: 20.0}, noise=0.05)
    first = max_verify_cost(curve, n=8, ratio=2.0)
    assert first.low is not None
    assert first.high is not None
    assert max_verify_cost(curve, n=8, ratio=first.high).outcome is PASS
    assert max_verify_cost(curve, n=8, ratio=first.low).outcome is INCONCLUSIVE
    assert max_verify_cost(curve, n=8, ratio=0.999 * first.low).outcome is FAIL


def test_drift_cancels_in_paired_blocks() -> None:
    # Every block twice as slow as the one before.
    samples = tuple(tuple((t * 2.0**b,) for b in range(8)) for t in METAL.values())
    verdict = max_verify_cost(VerifyCurve(tuple(METAL), samples), n=8, ratio=2.5)
    assert verdict.outcome is PASS
    assert verdict.low == pytest.approx(44.77 / 18.15)
    assert verdict.high == pytest.approx(44.77 / 18.15)


def cost(ratios: list[float]) -> DraftCost:
    return DraftCost("two-model", tuple(10.0 * r for r in ratios), (10.0,) * len(ratios))


RATIOS = [0.78, 0.79, 0.80, 0.80, 0.81, 0.81, 0.82, 0.83]


def test_draft_cost_within_and_over_the_limit() -> None:
    verdict = max_draft_cost(cost(RATIOS), c=0.85)
    assert verdict.outcome is PASS
    assert verdict.value == pytest.approx(0.805, abs=0.002)
    over = max_draft_cost(cost(RATIOS), c=0.2)
    assert over.outcome is FAIL
    assert "a drafted token (two-model) costs 0.8" in over.because
    assert over.because.endswith("more than 0.2")
    rows = [line.split() for line in over.section.splitlines()]
    assert rows[:2] == [
        ["block", "draft", "ms", "T(1)", "ms", "ratio"],
        ["1", "7.80", "10.00", "0.78"],
    ]
    assert over.limit == "max_draft_cost(0.2)"


def test_draft_cost_at_the_limit_is_open() -> None:
    assert max_draft_cost(cost(RATIOS), c=0.805).outcome is INCONCLUSIVE


def test_draft_cost_of_few_blocks_is_no_confident_failure() -> None:
    verdict = max_draft_cost(cost([0.8, 0.8]), c=0.2)
    assert verdict.outcome is INCONCLUSIVE
    assert "only 2 blocks were measured" in verdict.because
    assert max_draft_cost(cost([0.8, 0.8]), c=0.9).outcome is PASS


def test_draft_cost_without_a_draft() -> None:
    verdict = max_draft_cost(DraftCost("ngram", (), ()), c=0.1)
    assert verdict.outcome is NOT_MEASURED
    assert "the source (ngram) drafted nothing" in verdict.because


def test_a_draft_too_quick_for_the_clock_costs_nothing() -> None:
    verdict = max_draft_cost(DraftCost("ngram", (0.0,) * 8, (10.0,) * 8), c=0.01)
    assert verdict.outcome is PASS
    assert verdict.value == pytest.approx(0.0, abs=1e-6)


def test_ratio_bounds_of_eight_pairs() -> None:
    # P(W <= 1) = 2/256 < 0.01 < 3/256 = P(W <= 2): the second Walsh average from each end.
    logs = [math.log(r) for r in RATIOS]
    walsh = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    value, low, high = ratio_bounds(logs)
    assert (low, high) == pytest.approx((math.exp(walsh[1]), math.exp(walsh[-2])))
    assert low < value < high


@settings(max_examples=15, deadline=None, database=None, derandomize=True)
@given(steps=st.lists(st.sampled_from([0.9, 1.0, 1.1, 1.3, 1.5, 2.0, 3.0]), min_size=2, max_size=8))
def test_one_size_at_most_is_the_first_cliff(steps: list[float]) -> None:
    times, ms = {1: 10.0}, 10.0
    for n, factor in enumerate(steps, 2):
        ms *= factor
        times[n] = ms
    curve = make_curve(times)
    held = [n for n in times if n > 1 and cliff_at(curve, n=n).outcome is PASS]
    assert len(held) <= 1
    for n in held:
        assert no_cliff(curve, upto=n).outcome is FAIL
    if no_cliff(curve, upto=max(times)).outcome is FAIL:
        assert len(held) == 1
