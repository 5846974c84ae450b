"""Amdahl's law: bounds, inverses, and the closure of theory and measurement."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory import amdahl


shares = st.floats(0.0, 1.0)
factors = st.floats(1.0, 100.0)


@pytest.mark.parametrize(
    ("share", "factor", "expected"), [(0.3, 5, 1.316), (0.9, 2, 1.818), (0.55, 3.5, 1.647), (0.0, 9, 1.0)]
)
def test_known_speedups(share: float, factor: float, expected: float) -> None:
    assert amdahl.speedup(share, factor) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(("share", "expected"), [(0.55, 2.222), (0.4, 1.667), (0.0, 1.0), (1.0, math.inf)])
def test_known_ceilings(share: float, expected: float) -> None:
    assert amdahl.ceiling(share) == pytest.approx(expected, abs=5e-4)


@given(shares, factors, factors)
def test_speedup_is_bounded_and_grows_with_both(share: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 1.0 - 1e-12 <= amdahl.speedup(share, low) <= amdahl.speedup(share, high) * (1 + 1e-12)
    assert amdahl.speedup(share, high) <= min(high, amdahl.ceiling(share)) * (1 + 1e-12)
    assert amdahl.speedup(share / 2, high) <= amdahl.speedup(share, high) * (1 + 1e-12)


@given(shares, st.floats(0.05, 1.0))
def test_a_factor_under_one_slows_down_and_never_below_itself(share: float, factor: float) -> None:
    assert factor * (1 - 1e-12) <= amdahl.speedup(share, factor) <= 1.0 + 1e-12


@given(st.floats(0.05, 1.0), st.floats(0.1, 50.0))
def test_required_factor_is_the_inverse(share: float, factor: float) -> None:
    assert amdahl.required_factor(share, amdahl.speedup(share, factor)) == pytest.approx(factor, rel=1e-6)


@given(st.floats(0.05, 0.99), st.floats(0.1, 50.0).filter(lambda factor: abs(factor - 1) > 0.05))
def test_required_share_is_the_inverse(share: float, factor: float) -> None:
    assert amdahl.required_share(factor, amdahl.speedup(share, factor)) == pytest.approx(share, rel=1e-6)


def test_nothing_reaches_the_ceiling() -> None:
    assert amdahl.required_factor(0.5, 2.0) == math.inf
    assert amdahl.required_factor(0.5, 3.0) == math.inf
    assert amdahl.required_factor(0.5, 1.999) < math.inf
    assert amdahl.required_factor(0.0, 1.0) == 1.0
    with pytest.raises(ValueError, match="share is 0: no factor"):
        amdahl.required_factor(0.0, 1.1)
    with pytest.raises(ValueError, match=r"target=3 is out of reach of factor=2"):
        amdahl.required_share(2.0, 3.0)
    with pytest.raises(ValueError, match="factor is 1"):
        amdahl.required_share(1.0, 2.0)


def test_closure_of_a_request_that_follows_the_law() -> None:
    # 1000 ms, 600 of them decode forwards, which become 300.
    found = amdahl.close(request_ms_off=1000, forward_ms_off=600, request_ms_on=700, forward_ms_on=300)
    assert (found.share, found.factor) == pytest.approx((0.6, 2.0))
    assert found.predicted == pytest.approx(found.measured)
    assert found.closes(1e-9)
    assert found.rest_growth_ms == 0.0


def test_closure_shows_what_the_rest_grew_by() -> None:
    found = amdahl.close(request_ms_off=1000, forward_ms_off=600, request_ms_on=850, forward_ms_on=300)
    assert found.residual == pytest.approx(850 / 700 - 1)
    assert not found.closes(0.10)
    assert found.closes(0.25)
    assert found.rest_growth_ms == pytest.approx(150.0)


@given(st.floats(1, 1e4), st.floats(1, 1e4), st.floats(1, 1e4), st.floats(0, 1e4))
def test_closure_is_exact_when_the_rest_stays(
    forward: float, rest: float, faster: float, growth: float
) -> None:
    found = amdahl.close(
        request_ms_off=forward + rest,
        forward_ms_off=forward,
        request_ms_on=faster + rest + growth,
        forward_ms_on=faster,
    )
    assert found.residual == pytest.approx(growth / (faster + rest), abs=1e-9)
    assert found.rest_growth_ms == pytest.approx(growth, abs=1e-6)


def test_a_part_longer_than_its_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="forward_ms_on must be at most 700"):
        amdahl.close(request_ms_off=1000, forward_ms_off=600, request_ms_on=700, forward_ms_on=701)


def test_load_decides_the_share() -> None:
    long_prompt, chat = amdahl.load_profile(
        [(4000, 50), (100, 500)],
        prefill_ms_per_token=0.5,
        forward_ms=20.0,
        other_ms_per_token=1.0,
        fixed_ms=10.0,
    )
    assert long_prompt.share == pytest.approx(49 * 20 / (4000 * 0.5 + 49 * 20 + 50 + 10))
    assert long_prompt.ceiling == pytest.approx(amdahl.ceiling(long_prompt.share))
    assert chat.share > 0.9 > 0.4 > long_prompt.share
    assert (chat.prompt_tokens, chat.answer_tokens) == (100, 500)


@given(st.integers(1, 5000), st.integers(1, 2000))
def test_share_grows_with_the_answer_and_falls_with_the_prompt(prompt: int, answer: int) -> None:
    here, longer_answer, longer_prompt = (
        load.share
        for load in amdahl.load_profile(
            [(prompt, answer), (prompt, answer + 1), (prompt + 1, answer)],
            prefill_ms_per_token=0.5,
            forward_ms=20.0,
            other_ms_per_token=1.0,
        )
    )
    assert 0.0 <= longer_prompt <= here <= longer_answer < 1.0
    if answer > 1:
        assert longer_prompt < here < longer_answer


def test_an_answer_of_one_token_has_no_decode_forward() -> None:
    (load,) = amdahl.load_profile([(10, 1)], prefill_ms_per_token=0.0, forward_ms=20.0)
    assert (load.share, load.ceiling) == (0.0, 1.0)
