"""The G-test against SciPy, and both of its sides."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from pytest_specdec.theory.distribution import chi_squared_tail
from pytest_specdec.theory.distribution import g_test


@pytest.mark.parametrize("df", [1, 2, 3, 7, 30, 63, 400])
@pytest.mark.parametrize("factor", [0.0, 0.01, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0])
def test_the_tail_is_scipys(df: int, factor: float) -> None:
    expected = scipy_stats.chi2.sf(factor * df, df)
    assert chi_squared_tail(factor * df, df) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_g_and_p_are_scipys() -> None:
    counts, odds = [30, 14, 34, 45, 57, 20], [0.15, 0.1, 0.15, 0.2, 0.3, 0.1]
    found = g_test(counts, odds)
    expected = scipy_stats.power_divergence(counts, np.asarray(odds) * 200, lambda_="log-likelihood")
    assert found.g == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.df, found.draws, found.impossible) == (5, 200, 0)


def test_rare_cells_are_one() -> None:
    assert g_test([500, 494, 2, 4], [0.5, 0.494, 0.002, 0.004]).df == 2
    assert g_test([3], [1.0]).p == 1.0


def test_what_has_no_odds_and_is_drawn_is_impossible() -> None:
    found = g_test([99, 1], [1.0, 0.0])
    assert (found.p, found.impossible) == (0.0, 1)


def test_false_alarms_come_at_their_rate_and_a_bias_is_found() -> None:
    rng = np.random.default_rng(1)
    odds = rng.dirichlet(np.ones(40))
    alarms = sum(g_test(rng.multinomial(20_000, odds), odds).p < 0.05 for _ in range(400))
    assert 8 <= alarms <= 34
    biased = odds.copy()
    biased[0] *= 1.5
    assert g_test(rng.multinomial(20_000, biased / biased.sum()), odds).p < 1e-6


@pytest.mark.parametrize(
    ("counts", "odds", "told"),
    [
        ([], [], "counts must not be empty"),
        ([1, 2], [1.0], "odds"),
        ([1, 2], [0.4, 0.4], "odds must add up to 1"),
        ([1, 2], [-0.5, 1.5], "odds must be finite numbers from 0 on"),
        ([0, 0], [0.5, 0.5], "counts must have a draw"),
    ],
)
def test_wrong_arguments_are_named(counts: list[int], odds: list[float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        g_test(counts, odds)
