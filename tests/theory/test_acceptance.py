"""Acceptance counted by hand, the censored estimator against a simulation, intervals against brute force."""

from __future__ import annotations

import json
import math
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats as reference

from pytest_specdec.theory.acceptance import Acceptance
from pytest_specdec.theory.acceptance import Shift


def simulate(alpha: float, k: int, rounds: int, seed: int) -> NDArray[np.int64]:
    """Return accepted tokens per round of the i.i.d. model, shape (rounds,)."""
    hits = np.random.default_rng(seed).random((rounds, k)) < alpha
    accepted: NDArray[np.int64] = np.cumprod(hits, axis=1).sum(axis=1)
    return accepted


def assert_shift(found: Shift | None, prompt: int | str, shift: float) -> None:
    assert found is not None
    assert found.prompt == prompt
    assert found.shift == pytest.approx(shift)


# drafted, accepted, cut
made_rounds = st.integers(0, 6).flatmap(
    lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted), st.booleans())
)


def test_counts_by_hand() -> None:
    #                rejected at 1, 3; full; nothing drafted; cut after 1; full and cut
    found = Acceptance.from_rounds(
        drafted=[3, 3, 3, 0, 3, 2],
        accepted=[0, 2, 3, 0, 1, 2],
        prompt=["a", "a", "a", "b", "b", "b"],
        cut=[False, False, False, False, True, True],
    )
    assert (found.rounds, found.prompts, found.drafted, found.accepted) == (6, 2, 14, 8)
    assert found.tokens == 8 + 4  # no bonus in the two cut rounds
    assert found.rejections == 2
    assert found.rate == pytest.approx(8 / 14)
    assert found.length == pytest.approx(12 / 6)
    assert found.length_macro == pytest.approx((8 / 3 + 4 / 3) / 2)
    assert found.alpha == pytest.approx(8 / 10)
    # Position 1: all five that drafted. 2: without the round cut after 1. 3: also without the one of two.
    assert found.position_rounds == (5, 4, 3)
    assert found.positions == pytest.approx((4 / 5, 3 / 4, 1 / 3))
    assert found.conditional_rounds == (5, 3, 2)
    assert found.conditionals == pytest.approx((4 / 5, 3 / 3, 1 / 2))


def test_without_cut_every_short_round_is_a_rejection() -> None:
    found = Acceptance.from_rounds([3, 3], [1, 1], [0, 1])
    assert (found.rejections, found.tokens) == (2, 4)
    assert found.alpha == 0.5


@given(st.lists(st.tuples(made_rounds, st.integers(0, 3)), min_size=1, max_size=30))
def test_what_holds_for_all_rounds(data: list[tuple[tuple[int, int, bool], int]]) -> None:
    drafted, accepted, cut = zip(*(row for row, _ in data), strict=True)
    found = Acceptance.from_rounds(drafted, accepted, [prompt for _, prompt in data], cut)
    assert found.tokens == found.accepted + found.rounds - sum(cut)
    assert found.length == pytest.approx(found.tokens / found.rounds)
    for value, (low, high), top in (
        (found.rate, found.rate_interval, 1.0),
        (found.alpha, found.interval, 1.0),
        (found.length, found.length_interval, max(drafted) + 1.0),
    ):
        assert 0.0 <= low <= high <= top
        assert math.isnan(value) or low <= value <= high
    for share in chain(found.positions, found.conditionals):
        assert math.isnan(share) or 0.0 <= share <= 1.0
    assert len(found.positions) == len(found.conditionals) == max(drafted)
    # Fewer rounds reach a later position.
    assert list(found.position_rounds) == sorted(found.position_rounds, reverse=True)
    if not math.isnan(found.alpha):
        assert found.alpha >= found.rate - 1e-12


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_with_one_draft_length_positions_and_yield_agree(accepted: list[int]) -> None:
    found = Acceptance.from_rounds([5] * len(accepted), accepted, [0] * len(accepted))
    assert found.length == pytest.approx(1 + sum(found.positions))
    product = 1.0
    for position, conditional in zip(found.positions, found.conditionals, strict=True):
        product *= 0.0 if math.isnan(conditional) else conditional
        assert position == pytest.approx(product)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_censored_estimate_finds_the_alpha_of_a_simulation(alpha: float, k: int) -> None:
    drafted, prompts = np.full(20_000, k), np.zeros(20_000, dtype=int)
    runs = [Acceptance.from_rounds(drafted, simulate(alpha, k, 20_000, seed), prompts) for seed in range(8)]
    assert np.mean([run.alpha for run in runs]) == pytest.approx(alpha, abs=0.005)
    # Accepted / drafted is the same thing at k = 1, and falls with k by construction.
    rate_bias = np.mean([run.rate for run in runs]) - alpha
    assert abs(rate_bias) < 0.005 if k == 1 else rate_bias < -0.04


def test_cut_rounds_counted_as_rejections_would_bias_alpha() -> None:
    rng = np.random.default_rng(2)
    rounds, k, alpha = 20_000, 5, 0.8
    accepted = simulate(alpha, k, rounds, 3)
    limit = rng.integers(0, 8, rounds)
    cut = limit <= accepted
    seen = np.where(cut, np.minimum(accepted, limit), accepted)
    prompts = np.arange(rounds) % 40
    drafted = np.full(rounds, k)
    assert Acceptance.from_rounds(drafted, seen, prompts, cut).alpha == pytest.approx(alpha, abs=0.005)
    assert Acceptance.from_rounds(drafted, seen, prompts).alpha < alpha - 0.1


def test_the_interval_is_the_jackknife_over_prompts() -> None:
    rng = np.random.default_rng(4)
    prompts = np.repeat(np.arange(6), 40)
    accepted = np.concatenate([simulate(a, 4, 40, 20 + i) for i, a in enumerate(rng.uniform(0.2, 0.9, 6))])
    drafted = np.full(len(accepted), 4)
    found = Acceptance.from_rounds(drafted, accepted, prompts)
    without = [
        Acceptance.from_rounds(drafted[prompts != p], accepted[prompts != p], prompts[prompts != p])
        for p in range(6)
    ]
    for name, value, interval in (
        ("alpha", found.alpha, found.interval),
        ("rate", found.rate, found.rate_interval),
        ("length", found.length, found.length_interval),
    ):
        values = np.array([getattr(other, name) for other in without])
        half = reference.t.ppf(0.975, 5) * math.sqrt(5 / 6 * ((values - values.mean()) ** 2).sum())
        assert interval == pytest.approx((value - half, value + half))
    shifts = np.array([other.alpha - found.alpha for other in without])
    worst = int(np.argmax(np.abs(shifts)))
    assert_shift(found.leave_one_out, worst, shifts[worst])


def test_prompts_that_agree_do_not_shrink_the_interval_below_independent_tokens() -> None:
    drafted, accepted, prompts = [4] * 60, [1, 3, 4] * 20, [i // 3 for i in range(60)]
    found = Acceptance.from_rounds(drafted, accepted, prompts)
    wilson = reference.binomtest(found.accepted, found.accepted + found.rejections).proportion_ci(
        method="wilson"
    )
    assert found.interval == pytest.approx((wilson.low, wilson.high))
    half = reference.norm.ppf(0.975) * np.std([2, 4, 5] * 20, ddof=1) / math.sqrt(60)
    assert found.length_interval == pytest.approx((found.length - half, found.length + half))


def test_everything_accepted_does_not_prove_certainty() -> None:
    found = Acceptance.from_rounds([3] * 10, [3] * 10, [0, 1] * 5)
    assert found.alpha == 1.0
    assert 0.8 < found.interval[0] < 0.95
    assert found.interval[1] == 1.0


def test_the_clustered_interval_covers_where_one_of_independent_rounds_does_not() -> None:
    rng = np.random.default_rng(9)
    runs, prompts, rounds, k = 200, 12, 40, 4
    truth = 0.6
    clustered = independent = 0
    for _ in range(runs):
        # Prompts differ: alpha is beta distributed with mean 0.6; the ratio of sums estimates its own mean.
        alphas = rng.beta(6, 4, prompts)
        hits = rng.random((prompts, rounds, k)) < alphas[:, None, None]
        accepted = np.cumprod(hits, axis=2)[:, :, 0].ravel()
        found = Acceptance.from_rounds(
            np.ones(prompts * rounds, dtype=int), accepted, np.repeat(np.arange(prompts), rounds)
        )
        alone = reference.binomtest(found.accepted, found.drafted).proportion_ci(method="wilson")
        clustered += found.interval[0] <= truth <= found.interval[1]
        independent += alone.low <= truth <= alone.high
    assert clustered / runs >= 0.91
    assert independent / runs <= 0.7


def test_one_runaway_prompt_shows_in_the_shift() -> None:
    drafted = [4] * 120
    accepted = [1] * 20 + [4] * 100
    found = Acceptance.from_rounds(drafted, accepted, ["short"] * 20 + ["runaway"] * 100)
    assert_shift(found.length_leave_one_out, "runaway", 2 - 540 / 120)
    assert found.length_macro == pytest.approx((2 + 5) / 2)
    assert_shift(found.rate_leave_one_out, "runaway", 20 / 80 - 420 / 480)


def test_a_single_prompt_gives_no_interval() -> None:
    found = Acceptance.from_rounds([3, 3], [1, 2], ["only", "only"])
    assert found.interval == found.rate_interval == (0.0, 1.0)
    assert found.length_interval == (0.0, 4.0)
    assert found.leave_one_out is None


def test_a_prompt_without_drafts_is_no_evidence() -> None:
    found = Acceptance.from_rounds([3, 3, 0], [1, 2, 0], ["a", "a", "none drafted"])
    assert found.interval == (0.0, 1.0)


def test_nothing_drafted_is_undefined_not_zero() -> None:
    found = Acceptance.from_rounds([0, 0], [0, 0], [1, 2])
    assert math.isnan(found.rate)
    assert math.isnan(found.alpha)
    assert found.length == 1.0
    assert found.positions == ()
    assert found.to_json()["rate"] is None


def test_a_position_nobody_reached_is_undefined() -> None:
    found = Acceptance.from_rounds([2, 2], [0, 0], [1, 2])
    assert found.positions == (0.0, 0.0)
    assert found.conditionals[0] == 0.0
    assert math.isnan(found.conditionals[1])
    assert found.to_json()["conditionals"] == [0.0, None]


def test_confidence_widens() -> None:
    accepted = simulate(0.5, 3, 60, 1)
    wide, narrow = (
        Acceptance.from_rounds(np.full(60, 3), accepted, np.arange(60) % 6, confidence=c).interval
        for c in (0.99, 0.8)
    )
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_json_has_builtin_types_only() -> None:
    found = Acceptance.from_rounds(np.array([3, 3]), np.array([1, 2]), np.array(["a", "b"]), np.array([0, 1]))
    data = found.to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["leave_one_out"]["prompt"] in ("a", "b")
    numbered = Acceptance.from_rounds([3, 3], [1, 2], list(np.array([7, 8])))
    assert numbered.leave_one_out is not None
    assert type(numbered.leave_one_out.prompt) is int


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        (([3], [4], ["a"], None), "accepted must not exceed drafted, but round 0 accepted 4 of 3"),
        (([3, 3], [1], ["a", "a"], None), "accepted must have one row for each of the 2 of drafted, got 1"),
        (([3], [1], [], None), "prompt must have one row"),
        (([3], [1], [1.5], None), "prompt must hold ints or strings, but holds 1.5"),
        (([3], [1], ["a"], [2]), "cut must hold True or False"),
        (([3], [1], ["a"], [True, False]), "cut must have one row"),
        (([-1], [0], ["a"], None), "drafted must be at least 0"),
        (([3], [0.5], ["a"], None), "accepted must hold whole numbers, but holds 0.5"),
        (([], [], [], None), "drafted must not be empty"),
    ],
)
def test_bad_rounds_are_named(
    rounds: tuple[list[int], list[float], list[str], list[int] | None], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Acceptance.from_rounds(*rounds)
