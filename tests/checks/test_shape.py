"""Plateaus and dips: both sides, and what is not measured."""

from __future__ import annotations

import pytest

from pytest_specdec.checks.shape import dip_at
from pytest_specdec.checks.shape import plateau
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.verdict import Outcome


# The article's Metal curve: a dip at 3, a plateau from 9.
ARTICLE = {
    1: 18.15,
    2: 20.93,
    3: 28.11,
    4: 27.23,
    8: 44.77,
    9: 78.98,
    12: 79.46,
    16: 80.11,
    24: 79.15,
    32: 79.59,
}


def curve(times: dict[int, float] = ARTICLE, *, noise: float = 0.0) -> VerifyCurve:
    """Eight blocks; every second one of every second size dearer by ``noise``."""
    samples = tuple(
        tuple((ms * (1 + noise * ((b + i) % 2)),) for b in range(8)) for i, ms in enumerate(times.values())
    )
    return VerifyCurve(tuple(times), samples)


def test_a_plateau_holds() -> None:
    verdict = plateau(curve(), start=9, stop=32)
    assert verdict.outcome is Outcome.PASS
    assert "from 9 to 32 T varies by 1.4%" in verdict.because


def test_a_rise_is_no_plateau() -> None:
    verdict = plateau(curve(), start=8, stop=32)
    assert verdict.outcome is Outcome.FAIL
    assert "more than 10%" in verdict.because
    assert "plateaus here: 9-32" in verdict.because


def test_noise_leaves_a_plateau_open() -> None:
    assert plateau(curve(noise=0.3), start=9, stop=32).outcome is Outcome.INCONCLUSIVE


def test_a_plateau_needs_its_ends_measured() -> None:
    verdict = plateau(curve(), start=10, stop=32)
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert "N = 10 not measured" in verdict.because
    assert "10" in verdict.because.partition("sizes=")[2]


def test_a_dip_holds() -> None:
    verdict = dip_at(curve(), n=3)
    assert verdict.outcome is Outcome.PASS
    assert "3 tokens cost more than 4: T(3)/T(4) = 1.03" in verdict.because


@pytest.mark.parametrize("n", [2, 8])
def test_a_rise_is_no_dip(n: int) -> None:
    verdict = dip_at(curve(), n=n)
    assert verdict.outcome is Outcome.FAIL
    assert "dips here: 3" in verdict.because


def test_noise_leaves_a_dip_open() -> None:
    assert dip_at(curve(noise=0.3), n=3).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("n", [5, 32])
def test_a_dip_needs_a_larger_size(n: int) -> None:
    assert dip_at(curve(), n=n).outcome is Outcome.NOT_MEASURED
