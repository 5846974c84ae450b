"""Bandwidth and the floor of the draft cost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory import roofline


sizes = st.floats(1e6, 1e12)
times = st.floats(0.01, 1e4)


@given(sizes, times)
def test_bandwidth_is_bytes_over_time(weight_bytes: float, ms: float) -> None:
    gb_s = roofline.bandwidth_gb_s(weight_bytes, ms)
    assert gb_s * 1e9 * ms / 1e3 == pytest.approx(weight_bytes)
    assert roofline.bandwidth_gb_s(weight_bytes, 2 * ms) == pytest.approx(gb_s / 2)
    assert roofline.share_of_nominal(gb_s, gb_s) == pytest.approx(1.0)


def test_one_gigabyte_in_ten_ms_is_a_hundred() -> None:
    assert roofline.bandwidth_gb_s(1e9, 10.0) == pytest.approx(100.0)
    assert roofline.share_of_nominal(100.0, 400.0) == 0.25


@pytest.mark.parametrize(("large_ms", "gb_s", "bound"), [(20.0, 100.0, True), (15.0, 200.0, False)])
def test_marginal_bandwidth_above_nominal_is_no_bandwidth(large_ms: float, gb_s: float, bound: bool) -> None:
    found = roofline.marginal_bandwidth(1e9, 10.0, 2e9, large_ms, nominal_gb_s=150.0)
    assert found.gb_s == pytest.approx(gb_s)
    assert found.share == pytest.approx(gb_s / 150.0)
    assert found.bandwidth_bound is bound


def test_a_larger_file_that_is_no_slower_is_not_bandwidth_bound() -> None:
    for ms in (10.0, 9.0):
        found = roofline.marginal_bandwidth(1e9, 10.0, 2e9, ms, nominal_gb_s=150.0)
        assert found.gb_s == math.inf
        assert not found.bandwidth_bound


def test_marginal_bandwidth_wants_the_smaller_file_first() -> None:
    with pytest.raises(ValueError, match="large_bytes must be greater than 2e"):
        roofline.marginal_bandwidth(2e9, 10.0, 1e9, 5.0, nominal_gb_s=150.0)


@given(sizes, sizes, times, times)
def test_draft_cost_is_its_floor_times_its_factor(
    draft: float, target: float, fast: float, slow: float
) -> None:
    found = roofline.draft_cost(fast, slow, draft, target)
    assert (
        found.floor
        == pytest.approx(roofline.draft_cost_floor(draft, target))
        == pytest.approx(draft / target)
    )
    assert found.cost == pytest.approx(fast / slow)
    assert found.floor * found.factor == pytest.approx(found.cost)
