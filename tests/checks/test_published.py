"""Published totals are single values: taken as they stand, never as an interval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_specdec.checks.acceptance import accept_at
from pytest_specdec.checks.acceptance import accept_length
from pytest_specdec.checks.acceptance import accept_rate
from pytest_specdec.checks.baseline import within_baseline
from pytest_specdec.checks.curve import cliff_at
from pytest_specdec.checks.curve import max_draft_cost
from pytest_specdec.checks.curve import max_verify_cost
from pytest_specdec.checks.speed import answer
from pytest_specdec.checks.speed import decided
from pytest_specdec.checks.speed import min_speedup
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import PublishedAcceptance
from pytest_specdec.measurements import PublishedSpeed
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.verdict import Outcome

from .test_acceptance import speculation


ACCEPTANCE = SpeculativeRun(7, "two-model", (), "published", PublishedAcceptance(0.25, rounds=4, tokens=12))
RATE_ONLY = replace(ACCEPTANCE, published=PublishedAcceptance(0.25))
LIVE_ACCEPTANCE = SpeculativeRun(7, "two-model", (speculation("p", [7, 7], [2, 1]),))
SPEED = SpeedRun(7, "two-model", (), "published", PublishedSpeed(50.0, 60.0))
LIVE_SPEED = SpeedRun(7, "two-model", tuple(SpeedPair("p", 11, 200.0, 11, 160.0 + i / 10) for i in range(8)))


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.2, 0.3, Outcome.PASS),
        (0.25, 0.25, Outcome.PASS),
        (0.26, 1.0, Outcome.FAIL),
        (0.0, 0.2, Outcome.FAIL),
    ],
)
def test_a_rate_is_compared_as_it_stands(low: float, high: float, outcome: Outcome) -> None:
    verdict = accept_rate(RATE_ONLY, low=low, high=high)
    assert (verdict.outcome, verdict.value, verdict.section) == (outcome, 0.25, "")
    assert "(published without counts, k = 7, two-model)" in verdict.because


def test_the_token_of_the_prefill_is_no_rounds_product() -> None:
    assert ACCEPTANCE.tokens_per_round == 11 / 4
    assert accept_length(ACCEPTANCE, low=2.75).outcome is Outcome.PASS
    assert accept_length(ACCEPTANCE, low=2.76).outcome is Outcome.FAIL


def test_what_a_rate_does_not_tell_is_not_measured() -> None:
    assert accept_length(RATE_ONLY, low=1.0).outcome is Outcome.NOT_MEASURED
    assert accept_at(ACCEPTANCE, position=1, low=0.0).outcome is Outcome.NOT_MEASURED


def test_rates_give_a_speedup_without_an_interval() -> None:
    verdict = min_speedup(SPEED, x=1.2)
    assert (verdict.outcome, verdict.value, verdict.low, verdict.high) == (Outcome.PASS, 1.2, None, None)
    assert min_speedup(SPEED, x=1.21).outcome is Outcome.FAIL
    assert min_speedup(SPEED, x=1.2, prove=True).outcome is Outcome.INCONCLUSIVE
    assert min_speedup(SPEED, x=1.21, prove=True).outcome is Outcome.FAIL
    assert decided(SPEED, x=1.2)


def test_what_pays_elsewhere_is_not_said_to_pay_here() -> None:
    assert answer(SPEED).startswith("speculation pays where these numbers are from: ")
    slow = replace(SPEED, published=PublishedSpeed(50.0, 40.0))
    assert answer(slow).startswith("speculation does not pay where these numbers are from: do not speculate")
    assert answer(LIVE_SPEED).startswith("speculation pays here: ")


@pytest.mark.parametrize(
    ("live", "stored", "metric"),
    [
        (ACCEPTANCE, LIVE_ACCEPTANCE, "acceptance"),
        (LIVE_ACCEPTANCE, ACCEPTANCE, "acceptance"),
    ],
)
def test_totals_and_counts_are_not_comparable(live: Measurement, stored: Measurement, metric: str) -> None:
    verdict = within_baseline(live, stored, metric=metric)
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert "published totals have no counts per prompt" in verdict.because


def test_totals_are_held_against_totals() -> None:
    assert within_baseline(ACCEPTANCE, ACCEPTANCE, metric="acceptance").outcome is Outcome.PASS
    # The same rate from other rounds is another result.
    assert within_baseline(RATE_ONLY, ACCEPTANCE, metric="acceptance").outcome is Outcome.FAIL


def test_speedups_are_held_against_published_ones() -> None:
    verdict = within_baseline(LIVE_SPEED, SPEED, metric="speedup")
    assert verdict.outcome is Outcome.PASS
    assert verdict.low is not None
    assert "was 1.20x (published, no interval)" in verdict.because
    fast = replace(SPEED, published=PublishedSpeed(50.0, 75.0))
    verdict = within_baseline(SPEED, fast, metric="speedup")
    assert (verdict.outcome, verdict.low, verdict.high) == (Outcome.FAIL, None, None)
    assert "lower by more than 5%; " in verdict.because
    pairs = tuple(replace(pair, speculative_ms=pair.speculative_ms * 0.75) for pair in LIVE_SPEED.pairs)
    verdict = within_baseline(LIVE_SPEED, replace(LIVE_SPEED, pairs=2 * pairs), metric="speedup")
    assert "lower by more than 5% beyond doubt; " in verdict.because


@pytest.mark.parametrize(("c", "outcome"), [(0.25, Outcome.PASS), (0.24, Outcome.FAIL)])
def test_a_draft_cost_is_compared_as_it_stands(c: float, outcome: Outcome) -> None:
    published = DraftCost("two-model", (1.0,), (4.0,), source="published")
    verdict = max_draft_cost(published, c=c)
    assert (verdict.outcome, verdict.value, verdict.low, verdict.high) == (outcome, 0.25, None, None)
    assert "a published value without bounds" in verdict.because


def test_one_measured_block_stays_too_few() -> None:
    measured = DraftCost("two-model", (1.0,), (4.0,))
    assert max_draft_cost(measured, c=0.24).outcome is Outcome.INCONCLUSIVE
    curve = VerifyCurve((1, 2, 3), (((10.0,),), ((11.0,),), ((30.0,),)))
    assert cliff_at(curve, n=3).outcome is Outcome.INCONCLUSIVE


def test_a_curve_of_single_values_has_neither_bounds_nor_spread() -> None:
    curve = VerifyCurve((1, 2, 3), (((10.0,),), ((11.0,),), ((30.0,),)), source="published")
    verdict = cliff_at(curve, n=3)
    assert (verdict.outcome, verdict.low, verdict.high) == (Outcome.PASS, None, None)
    assert verdict.because == "the first cliff is at 3 (T(3)/T(2) = 2.73, no bounds)"
    row = next(line.split() for line in verdict.section.splitlines() if line.split()[:1] == ["3"])
    assert row == ["3", "30.00", "3.00", "10.00", "2.73", "cliff"]
    assert "a published value without bounds" in max_verify_cost(curve, n=3, ratio=3.0).because
