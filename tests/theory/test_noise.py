from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_specdec.theory.noise import ALPHA
from pytest_specdec.theory.noise import halves_floor
from pytest_specdec.theory.noise import paired_floor
from pytest_specdec.theory.stats import signed_rank_bounds


def blocks(ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    """Blocks of three sizes; the last costs twice the first, times `ratios`."""
    return np.array([[10.0] * len(ratios), [15.0] * len(ratios), (20.0 * ratios).tolist()])


def test_the_floor_is_the_farther_bound() -> None:
    logs = np.random.default_rng(1).normal(0.002, 0.03, 24)
    low, high = signed_rank_bounds(logs, ALPHA, sides=1)
    assert low < 0 < high
    assert high > -low
    assert paired_floor(logs) == pytest.approx(np.exp(high) - 1)
    assert paired_floor(-logs) == pytest.approx(np.exp(high) - 1)


def test_more_noise_has_a_higher_floor() -> None:
    noise = np.random.default_rng(2).normal(0.0, 1.0, 24)
    quiet, loud = paired_floor(0.01 * noise), paired_floor(0.05 * noise)
    assert quiet is not None
    assert loud is not None
    assert 0 < quiet < 0.02 < loud


def test_no_floor_without_bounds() -> None:
    # 1 / 2^8 > 0.003 > 1 / 2^9.
    assert paired_floor([0.01] * 8) is None
    assert paired_floor([0.01] * 9) == pytest.approx(np.exp(0.01) - 1)
    with pytest.raises(ValueError, match=r"empty|at least one"):
        paired_floor([])


def test_a_change_between_odd_and_even_blocks_is_the_floor() -> None:
    found = halves_floor(blocks(np.array([1.0, 1.1] * 4)))
    assert found is not None
    assert found[0] == pytest.approx(0.1)
    assert found[1] == 2
    assert halves_floor(blocks(np.array([1.0] * 8))) == (0.0, 1)


def test_drift_and_one_spike_raise_it_little() -> None:
    drifting = halves_floor(blocks(np.linspace(1.0, 1.12, 8)))
    spiked = halves_floor(blocks(np.array([1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0])))
    assert drifting is not None
    assert spiked is not None
    assert drifting[0] < 0.03
    assert spiked[0] < 0.01


def test_too_few_blocks_or_sizes() -> None:
    assert halves_floor(blocks(np.ones(3))) is None
    assert halves_floor(blocks(np.ones(4))) is not None
    assert halves_floor([[1.0] * 8]) is None


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_times_must_be_times(bad: float) -> None:
    times = blocks(np.ones(8))
    times[1, 3] = bad
    with pytest.raises(ValueError, match=r"ms must|finite"):
        halves_floor(times)
