"""Paired changes with bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory.change import Change
from pytest_specdec.theory.change import difference
from pytest_specdec.theory.change import ratio
from pytest_specdec.theory.stats import hodges_lehmann
from pytest_specdec.theory.stats import signed_rank_bounds


OLD = np.array([10.0, 11.0, 9.5, 10.4, 10.1, 9.9, 10.2, 10.0])


def test_a_factor_is_found_whatever_drift_both_share() -> None:
    drift = np.linspace(1.0, 3.0, 8)
    found = ratio(1.2 * OLD * drift, OLD * drift, 0.01)
    assert (found.value, found.low, found.high) == pytest.approx((1.2, 1.2, 1.2))
    assert found.pairs == 8
    assert found.bounded


def test_ratio_is_that_of_the_log_ratios() -> None:
    new = OLD[::-1]
    logs = np.log(new / OLD)
    low, high = signed_rank_bounds(logs, 0.01, sides=1)
    found = ratio(new, OLD, 0.01)
    expected = (math.exp(hodges_lehmann(logs)), math.exp(low), math.exp(high))
    assert (found.value, found.low, found.high) == pytest.approx(expected)
    assert found.low < 1 < found.high


def test_difference_is_in_the_unit_of_the_values() -> None:
    found = difference(OLD + 2.5, OLD, 0.01)
    assert (found.value, found.low, found.high) == pytest.approx((2.5, 2.5, 2.5))
    assert difference(OLD, OLD + 2.5, 0.01).value == pytest.approx(-2.5)


def test_too_few_pairs_have_no_bounds() -> None:
    found = ratio(1.2 * OLD[:6], OLD[:6], 0.01)
    assert not found.bounded
    assert (found.low, found.high) == (0.0, math.inf)
    assert found.inverse == Change(1 / found.value, 0.0, math.inf, 6)
    assert ratio(OLD[:7], OLD[:7], 0.01).bounded


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=7, max_size=20))
def test_the_inverse_is_the_other_way_round(pairs: list[tuple[float, float]]) -> None:
    new, old = zip(*pairs, strict=True)
    there, back = ratio(new, old, 0.01), ratio(old, new, 0.01)
    turned = there.inverse
    assert (turned.value, turned.low, turned.high) == pytest.approx((back.value, back.low, back.high))
    assert there.low <= there.value <= there.high


def test_values_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="new must have one row for each of the 8 of old, got 7"):
        ratio(OLD[:7], OLD, 0.01)
    with pytest.raises(ValueError, match="old must be greater than 0"):
        ratio(OLD, OLD - 10, 0.01)
    with pytest.raises(ValueError, match="new must not be empty"):
        difference([], [], 0.01)
