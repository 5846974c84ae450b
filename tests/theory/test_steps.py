"""Cliffs, drops, dips and plateaus of made curves with known answers."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_specdec.theory.steps import Step
from pytest_specdec.theory.steps import compare_curves
from pytest_specdec.theory.steps import find_steps
from pytest_specdec.theory.steps import flatness
from pytest_specdec.theory.steps import step_at


def samples(ms: list[float], noise: float, blocks: int = 8, drift: float = 0.0) -> NDArray[np.float64]:
    """Return (sizes, blocks) samples around `ms`, with relative noise and drift over the blocks."""
    rng = np.random.default_rng(1)
    trend = np.linspace(1.0, 1.0 + drift, blocks)
    made: NDArray[np.float64] = (
        np.array(ms)[:, None] * trend * np.exp(rng.normal(0, noise, (len(ms), blocks)))
    )
    return made


@given(
    st.lists(st.integers(1, 200), min_size=2, max_size=12, unique=True).map(sorted),
    st.floats(0.01, 1e3),
    st.floats(0.0, 1e3),
)
def test_proportional_growth_with_a_fixed_cost_is_never_a_cliff(
    n: list[int], slope: float, fixed: float
) -> None:
    found = find_steps(n, [fixed + slope * size for size in n])
    assert found.cliffs == ()
    assert found.drops == ()
    assert found.safe_draft_length is None


@given(st.integers(2, 40), st.floats(1.41, 20.0), st.integers(2, 60))
def test_a_single_jump_is_found_where_it_is(at: int, jump: float, last: int) -> None:
    n = list(range(1, max(at, last) + 1))
    found = find_steps(n, [10.0 * (jump if size >= at else 1.0) for size in n])
    is_cliff = jump >= 1.0 + 1.25 / (at - 1)
    assert [step.n for step in found.cliffs] == ([at] if is_cliff else [])
    assert found.largest is not None
    assert (found.largest.n, found.largest.after) == (at, at - 1)
    assert found.safe_draft_length == (at - 2 if is_cliff else None)


@given(st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(unit: float) -> None:
    ms = [18.0, 21.0, 28.0, 27.0, 29.0, 80.0, 81.0, 80.0, 60.0]
    one, other = find_steps(range(1, 10), ms), find_steps(range(1, 10), [unit * value for value in ms])
    assert [step.n for step in one.cliffs] == [step.n for step in other.cliffs] == [6]
    assert [step.n for step in one.drops] == [step.n for step in other.drops] == [9]
    assert one.dips == other.dips == (3, 8)
    assert one.plateaus == other.plateaus == ((6, 8),)


@pytest.mark.parametrize(("ms", "is_cliff"), [(20.0, False), (22.4, False), (22.6, True)])
def test_at_two_the_slope_decides(ms: float, is_cliff: bool) -> None:
    # 1.25 times as dear as the first token, on top of it: 2.25.
    assert bool(find_steps([1, 2], [10.0, ms]).cliffs) is is_cliff


@pytest.mark.parametrize(("ms", "is_cliff"), [(13.9, False), (14.1, True)])
def test_further_out_the_ratio_decides(ms: float, is_cliff: bool) -> None:
    assert bool(find_steps([20, 21], [10.0, ms]).cliffs) is is_cliff
    assert bool(find_steps([20, 21], [10.0, ms], ratio=1.2).cliffs)


def test_a_gap_in_the_grid_is_said_and_the_safe_length_stays_before_it() -> None:
    found = find_steps([1, 4, 8, 12, 16], [10.0, 11.0, 12.0, 30.0, 31.0])
    (cliff,) = found.cliffs
    assert (cliff.n, cliff.after) == (12, 8)
    assert cliff.where() == "in (8, 12]"
    assert found.safe_draft_length == 7
    assert Step(9, 8, 1.76, 1.7, 1.8).where() == "9"


def test_across_a_gap_growth_in_proportion_is_no_cliff_though_it_exceeds_the_ratio() -> None:
    assert find_steps([8, 16], [10.0, 20.0]).cliffs == ()
    assert find_steps([8, 16], [10.0, 22.6]).cliffs[0].n == 16


def test_samples_decide_on_their_bounds() -> None:
    n = [7, 8, 9, 10]
    quiet = find_steps(n, samples([40.0, 41.0, 62.0, 63.0], 0.005))
    assert [step.n for step in quiet.cliffs] == [9]
    assert quiet.straddling == ()
    (cliff,) = quiet.cliffs
    assert 1.4 < cliff.low < cliff.ratio < cliff.high
    assert cliff.ratio == pytest.approx(62 / 41, rel=0.01)
    loud = find_steps(n, samples([40.0, 41.0, 62.0, 63.0], 0.15))
    assert loud.cliffs == ()
    assert [step.n for step in loud.straddling] == [9]


def test_a_step_inside_the_noise_is_none() -> None:
    n = [7, 8, 9, 10]
    ms = samples([40.0, 40.0, 40.0, 40.0], 0.10)
    medians = np.median(ms, axis=1)
    assert find_steps(n, medians).dips != ()  # the values alone would say so
    found = find_steps(n, ms)
    assert (found.cliffs, found.straddling, found.drops, found.dips) == ((), (), (), ())


def test_pairing_by_block_cancels_drift() -> None:
    n = [8, 9]
    ms = samples([40.0, 60.0], 0.005, drift=1.0)
    assert [step.n for step in find_steps(n, ms).cliffs] == [9]
    unpaired = ms.copy()
    unpaired[1] = unpaired[1][::-1]
    assert find_steps(n, unpaired).cliffs == ()


def test_too_few_blocks_for_alpha_give_the_extreme_ratios() -> None:
    ms = np.array([[10.0, 10.0, 10.0], [15.0, 20.0, 13.0]])
    step = step_at([8, 9], ms, 9)
    assert (step.low, step.high) == pytest.approx((1.3, 2.0))
    assert step.straddles
    enough = np.tile(ms, 6)
    assert step_at([8, 9], enough, 9).low > step.low


@pytest.mark.parametrize(("noise", "cliff", "straddling"), [(0.0, [9], []), (0.5, [9], []), (1.5, [], [9])])
def test_standard_deviations_decide_on_two_of_them(
    noise: float, cliff: list[int], straddling: list[int]
) -> None:
    found = find_steps([8, 9], [40.0, 60.0], noise=[noise, noise])
    assert [step.n for step in found.cliffs] == cliff
    assert [step.n for step in found.straddling] == straddling
    width = math.exp(2 * math.hypot(noise / 40, noise / 60))
    assert found.steps[0].low == pytest.approx(1.5 / width)
    assert found.steps[0].high == pytest.approx(1.5 * width)


def test_a_fall_inside_the_deviations_is_neither_dip_nor_drop() -> None:
    n, ms = [3, 4], [28.0, 26.0]
    assert find_steps(n, ms).dips == (3,)
    assert [step.n for step in find_steps(n, ms).drops] == [4]
    noisy = find_steps(n, ms, noise=[1.0, 1.0])
    assert (noisy.dips, noisy.drops) == ((), ())


@pytest.mark.parametrize(("ms", "dips", "drops"), [(99.0, (), []), (97.0, (5,), []), (94.0, (5,), [6])])
def test_a_fall_is_ripple_then_dip_then_drop(ms: float, dips: tuple[int, ...], drops: list[int]) -> None:
    found = find_steps([5, 6], [100.0, ms])
    assert found.dips == dips
    assert [step.n for step in found.drops] == drops


def test_a_sawtooth_has_a_period() -> None:
    n = list(range(1, 17))
    teeth = [10.0 * (2 if size % 4 else 1) for size in n]
    assert find_steps(n, teeth).sawtooth == 4
    assert [step.n for step in find_steps(n, teeth).drops] == [4, 8, 12, 16]
    assert find_steps(n[:11], teeth[:11]).sawtooth is None


def test_plateaus_are_disjoint_and_of_three_sizes_at_least() -> None:
    n = list(range(1, 11))
    ms = [10.0, 10.5, 20.0, 20.5, 21.0, 40.0, 40.1, 41.0, 43.9, 90.0]
    assert find_steps(n, ms).plateaus == ((3, 5), (6, 9))
    assert find_steps(n, ms, flat=0.03).plateaus == ((6, 8),)
    assert find_steps(n, ms, flat=0.001).plateaus == ()


def test_a_plateau_does_not_begin_at_a_dip_but_may_hold_one() -> None:
    n = list(range(1, 8))
    assert find_steps(n, [10.5, 10.0, 10.0, 10.5, 10.0, 10.0, 10.0]).plateaus == ((2, 7),)
    assert find_steps(n, [10.1, 10.0, 10.0, 10.5, 10.0, 10.0, 10.0]).plateaus == ((1, 7),)
    assert find_steps([3, 4, 5], [10.5, 10.0, 10.6]).plateaus == ()


@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=15), st.floats(0.0, 0.5))
def test_every_plateau_is_flat_and_apart(ms: list[float], flat: float) -> None:
    n = list(range(1, len(ms) + 1))
    plateaus = find_steps(n, ms, flat=flat).plateaus
    assert all(stop - start >= 2 for start, stop in plateaus)
    assert all(flatness(n, ms, start, stop) <= flat + 1e-9 for start, stop in plateaus)
    assert all(first[1] < second[0] for first, second in pairwise(plateaus))


def test_the_largest_step_is_the_nearest_to_a_cliff_not_the_largest_ratio() -> None:
    # 1 to 2 doubles, as proportional cost would; 8 to 9 is the step worth naming.
    found = find_steps([1, 2, 8, 9], [10.0, 19.0, 40.0, 52.0])
    assert found.cliffs == ()
    assert found.largest is not None
    assert found.largest.n == 9
    assert find_steps([1, 2, 3], [3.0, 2.0, 1.0]).largest is None


def test_one_size_has_no_steps() -> None:
    found = find_steps([4], [10.0])
    assert (found.steps, found.cliffs, found.largest, found.safe_draft_length) == ((), (), None, None)


def test_step_at_judges_one_place() -> None:
    n, ms = [1, 2, 8, 9], [10.0, 12.0, 20.0, 40.0]
    assert step_at(n, ms, 9) == find_steps(n, ms).cliffs[0]
    assert not step_at(n, ms, 2).is_cliff
    with pytest.raises(ValueError, match=r"at=4 was not measured; measured sizes: 1, 2, 8, 9"):
        step_at(n, ms, 4)
    with pytest.raises(ValueError, match="at=1 is the smallest size measured"):
        step_at(n, ms, 1)


def test_flatness_is_the_spread_between_two_measured_sizes() -> None:
    n, ms = [8, 9, 12, 16], [10.0, 20.0, 22.0, 21.0]
    assert flatness(n, ms, 9, 16) == pytest.approx(0.10)
    assert flatness(n, ms, 8, 16) == pytest.approx(1.2)
    with pytest.raises(ValueError, match="stop=15 was not measured"):
        flatness(n, ms, 9, 15)
    with pytest.raises(ValueError, match="start=16 must be less than stop=9"):
        flatness(n, ms, 16, 9)


def test_compare_curves_names_what_changed_beyond_the_floor() -> None:
    n, before = [1, 2, 3, 4], [10.0, 11.0, 12.0, 13.0]
    changes = compare_curves(n, before, [10.2, 11.0, 18.0, 6.5])
    assert [(change.n, round(change.ratio, 3)) for change in changes] == [(3, 1.5), (4, 0.5)]
    assert compare_curves(n, before, before) == ()


def test_compare_curves_with_samples_wants_the_bounds_beyond_the_floor() -> None:
    n = [1, 2]
    old, new = samples([10.0, 10.0], 0.01), samples([10.0, 12.0], 0.01)[:, ::-1]
    assert [change.n for change in compare_curves(n, old, new)] == [2]
    for to in (12.0, 8.0):
        loud, other = samples([10.0, 10.0], 0.3), samples([10.0, to], 0.3)[:, ::-1]
        ratio = float(np.median(other[1]) / np.median(loud[1]))
        assert ratio > 1.05 if to > 10 else ratio < 1 / 1.05  # the values alone would say so
        assert compare_curves(n, loud, other) == ()


def test_json_has_builtin_types_only() -> None:
    data = find_steps(np.arange(1, 10), samples([10.0 + size for size in range(9)], 0.01)).to_json()
    assert json.loads(json.dumps(data)) == data
    assert {
        "cliffs",
        "drops",
        "dips",
        "plateaus",
        "straddling",
        "largest",
        "safe_draft_length",
    } <= data.keys()
    cliff = find_steps([8, 9, 10, 11], [10.0, 20.0, 20.0, 20.0]).to_json()
    assert cliff["cliffs"][0]["n"] == 9
    assert cliff["plateaus"] == [[9, 11]]
    assert cliff["safe_draft_length"] == 7
