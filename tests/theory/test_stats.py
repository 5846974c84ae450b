"""Signed-rank statistics against brute force and SciPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats as reference

from pytest_specdec.theory import stats


values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


@given(values)
def test_hodges_lehmann_is_the_median_of_all_pairwise_means(x: list[float]) -> None:
    means = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(x, 2)]
    assert stats.hodges_lehmann(x) == pytest.approx(float(np.median(means)), rel=1e-12, abs=1e-9)


@given(values, st.floats(-1e6, 1e6))
def test_hodges_lehmann_moves_with_the_data_and_turns_with_its_sign(x: list[float], shift: float) -> None:
    here = stats.hodges_lehmann(x)
    assert stats.hodges_lehmann([a + shift for a in x]) == pytest.approx(here + shift, abs=1e-6)
    assert stats.hodges_lehmann([-a for a in x]) == pytest.approx(-here, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("alpha", [0.004, 0.01, 0.05, 0.2, 0.9])
def test_bounds_are_the_order_statistics_that_all_sign_patterns_allow(
    n: int, sides: int, alpha: float
) -> None:
    x = np.random.default_rng(n).normal(size=n)
    ranks = np.arange(1, n + 1)
    sums = [int(ranks[list(signs)].sum()) for signs in itertools.product([False, True], repeat=n)]
    walsh = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(x, 2))
    rank = 0
    while sum(total <= rank for total in sums) / 2**n <= alpha / sides:
        rank += 1
    expected = (-math.inf, math.inf) if rank == 0 else (walsh[rank - 1], walsh[-rank])
    assert stats.signed_rank_bounds(x, alpha, sides=sides) == pytest.approx(expected)


@pytest.mark.parametrize("n", [7, 8, 12, 20])
@pytest.mark.parametrize("alpha", [0.02, 0.05, 0.2])
def test_bounds_are_where_the_exact_test_starts_to_reject(n: int, alpha: float) -> None:
    x = np.random.default_rng(100 + n).normal(0.3, 1.0, size=n)
    for bound, inwards in zip(stats.signed_rank_bounds(x, alpha), (1, -1), strict=True):
        inside, outside = bound + inwards * 1e-9, bound - inwards * 1e-9
        assert reference.wilcoxon(x - inside, method="exact").pvalue > alpha
        assert reference.wilcoxon(x - outside, method="exact").pvalue <= alpha


@pytest.mark.parametrize(
    ("bound", "alternative", "inwards"),
    [(stats.signed_rank_lower, "greater", 1e-9), (stats.signed_rank_upper, "less", -1e-9)],
)
def test_one_sided_bounds_are_those_of_the_one_sided_test(
    bound: Callable[[NDArray[np.float64], float], float], alternative: str, inwards: float
) -> None:
    x = np.random.default_rng(5).normal(size=16)
    at = bound(x, 0.003)
    inside = reference.wilcoxon(x - (at + inwards), method="exact", alternative=alternative).pvalue
    outside = reference.wilcoxon(x - (at - inwards), method="exact", alternative=alternative).pvalue
    assert outside <= 0.003 < inside


def test_eight_pairs_reach_0_004_one_sided_and_not_0_0039() -> None:
    x = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.3, 5.8]
    assert stats.signed_rank_bounds(x, 0.004, sides=1) == (1.0, 9.0)
    assert stats.signed_rank_bounds(x, 0.0039, sides=1) == (-math.inf, math.inf)
    assert stats.signed_rank_bounds(x, 0.004, sides=2) == (-math.inf, math.inf)
    assert stats.signed_rank_lower(x, 0.0039) == -math.inf
    assert stats.signed_rank_upper(x, 0.0039) == math.inf


@given(st.floats(1e-6, 0.99), st.sampled_from([1, 2]))
def test_pairs_needed_is_the_first_size_with_finite_bounds(alpha: float, sides: int) -> None:
    n = stats.pairs_needed(alpha, sides=sides)
    assert math.isfinite(stats.signed_rank_bounds(np.arange(n), alpha, sides=sides)[0])
    if n > 1:
        assert stats.signed_rank_bounds(np.arange(n - 1), alpha, sides=sides) == (-math.inf, math.inf)


@given(st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=20), st.floats(0.01, 0.4))
def test_bounds_enclose_the_estimate_and_narrow_with_alpha(x: list[float], alpha: float) -> None:
    low, high = stats.signed_rank_bounds(x, alpha)
    narrow_low, narrow_high = stats.signed_rank_bounds(x, 2 * alpha)
    assert low <= narrow_low <= stats.hodges_lehmann(x) <= narrow_high <= high


def test_bounds_are_exact_for_many_pairs() -> None:
    # From n = 50 on the null distribution is no longer exact in binary; it must still agree.
    x = np.random.default_rng(7).normal(size=60)
    low, high = stats.signed_rank_bounds(x, 0.05)
    assert reference.wilcoxon(x - (low + 1e-9), method="exact").pvalue > 0.05
    assert reference.wilcoxon(x - (high + 1e-9), method="exact").pvalue <= 0.05


def test_one_spike_does_not_move_the_estimate() -> None:
    x = np.random.default_rng(3).normal(1.0, 0.01, size=8)
    spiked = x.copy()
    spiked[2] = 1000.0
    assert abs(stats.hodges_lehmann(spiked) - 1.0) < 0.02
    assert abs(float(spiked.mean()) - 1.0) > 100.0


@pytest.mark.parametrize(("x", "expected"), [([5.0], 0.0), ([1, 1, 2, 2, 4, 6, 9], 1.0), ([1, 3, 100], 2.0)])
def test_mad(x: list[float], expected: float) -> None:
    assert stats.mad(x) == expected


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 30, 101])
@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 0.9, 0.975, 0.9999])
def test_student_t_quantile(p: float, df: int) -> None:
    assert stats.student_t_quantile(p, df) == pytest.approx(reference.t.ppf(p, df), rel=1e-8, abs=1e-12)


strata = st.lists(
    st.tuples(
        st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=4),
        st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=3,
)


@given(strata)
def test_a_shift_is_the_median_of_the_differences_within_strata(
    rows: list[tuple[list[float], list[float]]],
) -> None:
    differences = [a - b for x, y in rows for a in x for b in y]
    x, y = [x for x, _ in rows], [y for _, y in rows]
    assert stats.shift(x, y) == pytest.approx(float(np.median(differences)), rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("sizes", [((3, 4),), ((1, 1), (2, 3)), ((2, 2), (1, 3), (2, 1))])
@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_bounds_of_a_shift_are_those_that_all_ways_to_deal_allow(
    sizes: tuple[tuple[int, int], ...], alpha: float
) -> None:
    random = np.random.default_rng(len(sizes))
    x, y = [random.normal(size=m) for m, _ in sizes], [random.normal(size=n) for _, n in sizes]
    # Without a shift, any m of a stratum's values may have come first.
    dealt = [0]
    for m, n in sizes:
        counts = [
            sum(a > b for a in first for b in set(range(m + n)) - set(first))
            for first in itertools.combinations(range(m + n), m)
        ]
        dealt = [total + count for total in dealt for count in counts]
    rank = 0
    while sum(total <= rank for total in dealt) / len(dealt) <= alpha:
        rank += 1
    differences = sorted(a - b for one, other in zip(x, y, strict=True) for a in one for b in other)
    expected = (-math.inf, math.inf) if rank == 0 else (differences[rank - 1], differences[-rank])
    assert stats.shift_bounds(x, y, alpha, sides=1) == pytest.approx(expected)
    assert stats.shift_bounds(x, y, 2 * alpha) == pytest.approx(expected)


@pytest.mark.parametrize(("m", "n"), [(8, 8), (24, 24), (5, 48)])
def test_bounds_of_a_shift_are_where_the_exact_rank_sum_test_starts_to_reject(m: int, n: int) -> None:
    random = np.random.default_rng(m + n)
    x, y = random.normal(0.5, 1.0, size=m), random.normal(size=n)
    for bound, inwards in zip(stats.shift_bounds([x], [y], 0.02), (1, -1), strict=True):
        inside, outside = bound + inwards * 1e-9, bound - inwards * 1e-9
        assert reference.mannwhitneyu(x - inside, y, method="exact").pvalue > 0.02
        assert reference.mannwhitneyu(x - outside, y, method="exact").pvalue <= 0.02


def test_what_differs_between_strata_cancels() -> None:
    random = np.random.default_rng(7)
    x, y = random.normal(0.5, 1.0, size=(4, 3)), random.normal(size=(4, 6))
    apart = 100.0 * np.arange(4)[:, None]
    assert stats.shift(list(x + apart), list(y + apart)) == pytest.approx(stats.shift(list(x), list(y)))
    here = stats.shift_bounds(list(x), list(y), 0.05)
    assert stats.shift_bounds(list(x + apart), list(y + apart), 0.05) == pytest.approx(here)


def test_too_few_values_have_no_bounds() -> None:
    x, y = [[1.0]] * 8, [[0.0]] * 8
    assert stats.shift_bounds(x, y, 0.004, sides=1) == (1.0, 1.0)
    assert stats.shift_bounds(x, y, 0.003, sides=1) == (-math.inf, math.inf)


@pytest.mark.parametrize(("x", "y"), [([], []), ([[1.0]], [[1.0], [2.0]])])
def test_strata_have_two_sides(x: list[list[float]], y: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=f"equally many strata, at least one, got {len(x)} and {len(y)}"):
        stats.shift(x, y)
    with pytest.raises(ValueError, match="y must not be empty"):
        stats.shift_bounds([[1.0]], [[]], 0.1)
