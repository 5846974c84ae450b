"""Yield and cost of a round, the fit on some draft lengths, and what moved between two runs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory import ledger
from pytest_specdec.theory.ledger import Ledger
from pytest_specdec.theory.ledger import Terms


shares = st.floats(0.0, 1.0)
lengths = st.integers(1, 64)

CURVE = {1: 10.0, 2: 11.0, 3: 12.5, 4: 13.0, 5: 18.0, 6: 18.5, 7: 18.2, 8: 18.4}


def made_sweep(
    draft_ms: float, overhead_ms: float, alpha: float = 0.7
) -> tuple[dict[int, float], dict[int, float]]:
    """Return yields and rates of a machine that follows the ledger exactly, for k = 1 ... 7."""
    yields = {k: ledger.tokens_per_round(alpha, k) for k in range(1, 8)}
    return yields, {k: 1000.0 * yields[k] / (CURVE[k + 1] + k * draft_ms + overhead_ms) for k in yields}


@given(st.floats(0.0, 0.999), lengths)
def test_yield_is_the_closed_form_and_solve_alpha_its_inverse(alpha: float, k: int) -> None:
    tokens = ledger.tokens_per_round(alpha, k)
    assert tokens == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))
    assert ledger.tokens_per_round(ledger.solve_alpha(tokens, k), k) == pytest.approx(tokens)
    assert ledger.solve_alpha(tokens, k) == pytest.approx(alpha, abs=1e-6)


@given(shares, shares, lengths)
def test_yield_is_bounded_and_grows_with_alpha_and_k(one: float, other: float, k: int) -> None:
    low, high = sorted((one, other))
    assert 1.0 <= ledger.tokens_per_round(low, k) <= ledger.tokens_per_round(high, k) <= k + 1
    assert ledger.tokens_per_round(low, k) <= ledger.tokens_per_round(low, k + 1)
    assert ledger.tokens_per_round(low, 0) == 1.0


@pytest.mark.parametrize(("alpha", "tokens"), [(0.0, 1.0), (1.0, 6.0), (0.5, 1.96875)])
def test_yield_at_the_ends(alpha: float, tokens: float) -> None:
    assert ledger.tokens_per_round(alpha, 5) == tokens
    assert ledger.solve_alpha(tokens, 5) == pytest.approx(alpha)


@given(shares, lengths)
def test_positions_of_the_iid_model_give_its_yield(alpha: float, k: int) -> None:
    positions = alpha ** np.arange(1, k + 1)
    assert ledger.tokens_from_positions(positions, k) == pytest.approx(ledger.tokens_per_round(alpha, k))
    assert ledger.tokens_from_positions(positions, 0) == 1.0


def test_positions_that_do_not_reach_k_are_refused() -> None:
    with pytest.raises(ValueError, match="positions must have at least k=3 rates, got 2"):
        ledger.tokens_from_positions([0.5, 0.2], 3)


@given(shares, lengths)
def test_expected_rate_never_exceeds_alpha(alpha: float, k: int) -> None:
    assert ledger.expected_rate(ledger.tokens_per_round(alpha, k), k) <= alpha + 1e-12


@given(lengths, st.floats(0.1, 100), st.floats(0, 100), st.floats(0, 100))
def test_round_time_adds_up_and_rate_is_its_inverse(
    k: int, verify: float, draft: float, overhead: float
) -> None:
    cost = ledger.round_ms(k, verify, draft, overhead)
    assert cost == pytest.approx(verify + k * draft + overhead)
    assert cost >= ledger.round_ms(k, verify, draft) >= verify
    assert ledger.tokens_per_second(2.5, cost) * cost == pytest.approx(2500)


@given(shares, lengths, st.floats(0, 2))
def test_ideal_speedup_is_an_upper_bound(alpha: float, k: int, cost: float) -> None:
    ideal = ledger.ideal_speedup(alpha, k, cost)
    real = ledger.tokens_per_round(alpha, k) * 10 / ledger.round_ms(k, 11.0, 10 * cost, 0.5)
    assert real < ideal <= ledger.ideal_speedup(alpha, k)
    assert ledger.operations_factor(alpha, k, cost) >= 1.0 - 1e-12


@given(
    st.lists(lengths, min_size=2, max_size=8, unique=True),
    st.floats(0, 50),
    st.floats(0, 50),
    st.randoms(use_true_random=False),
)
def test_fit_recovers_exact_terms(ks: list[int], overhead: float, draft: float, random: object) -> None:
    verify = [20.0 + (13 * k) % 7 for k in ks]
    rounds = [ledger.round_ms(k, v, draft, overhead) for k, v in zip(ks, verify, strict=True)]
    fitted = ledger.fit_overhead(ks, rounds, verify)
    assert fitted == pytest.approx((overhead, draft), abs=1e-6)


@given(st.lists(st.tuples(lengths, st.floats(-20, 20)), min_size=2, max_size=8))
def test_fit_is_the_best_of_all_terms_that_are_not_negative(runs: list[tuple[int, float]]) -> None:
    ks = [k for k, _ in runs]
    assume(len(set(ks)) > 1)
    rest = np.array([value for _, value in runs])
    overhead, draft = ledger.fit_overhead(ks, 100.0 + rest, np.full(len(ks), 100.0))
    assert overhead >= 0
    assert draft >= 0

    def error(o: float, d: float) -> float:
        return float(((rest - o - d * np.array(ks)) ** 2).sum())

    for do, dd in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01), (0.01, -0.001), (-0.01, 0.001)):
        if overhead + do >= 0 and draft + dd >= 0:
            assert error(overhead + do, draft + dd) >= error(overhead, draft) - 1e-9


def test_fit_needs_two_draft_lengths() -> None:
    with pytest.raises(ValueError, match=r"ks must hold two different k .* got \[3, 3\]"):
        ledger.fit_overhead([3, 3], [20.0, 21.0], [10.0, 10.0])


def test_ledger_of_a_machine_that_follows_it_closes_exactly() -> None:
    yields, rates = made_sweep(draft_ms=1.5, overhead_ms=0.8)
    account = Ledger.fit(CURVE, yields, rates, [1, 3, 5])
    assert (account.overhead_ms, account.draft_ms) == pytest.approx((0.8, 1.5))
    assert [row.k for row in account.tested] == [2, 4, 6, 7]
    assert [row.residual for row in account.rows] == pytest.approx([0.0] * 7, abs=1e-12)
    assert [row.measured for row in account.rows] == pytest.approx(list(rates.values()))
    assert account.closes(1e-9)
    assert (account.plain_ms, account.plain_source) == (10.0, "T(1) of the verify curve")


@pytest.mark.parametrize("term", ["verify", "draft", "overhead", "yield"])
def test_a_falsified_term_keeps_the_ledger_from_closing(term: str) -> None:
    yields, rates = made_sweep(draft_ms=1.5, overhead_ms=0.8)
    curve, draft_ms, overhead_ms = dict(CURVE), 1.5, 0.8
    assert Ledger.from_terms(curve, yields, rates, draft_ms=draft_ms, overhead_ms=overhead_ms).closes(0.10)
    if term == "verify":
        curve[8] *= 1.5
    elif term == "draft":
        draft_ms *= 2
    elif term == "overhead":
        overhead_ms += 3.0
    else:
        # A yield that is told too high makes the round look longer than it was.
        yields[7] *= 1.3
    account = Ledger.from_terms(curve, yields, rates, draft_ms=draft_ms, overhead_ms=overhead_ms)
    assert not account.closes(0.10)
    if term == "verify":
        assert account.worst.k == 7
        assert account.worst.residual < 0
        assert not Ledger.fit(curve, yields, rates, [1, 2, 3]).closes(0.10)


def test_the_fit_is_judged_on_what_it_did_not_see() -> None:
    yields, rates = made_sweep(draft_ms=1.5, overhead_ms=0.8)
    rates[1] *= 1.3
    account = Ledger.fit(CURVE, yields, rates, [1, 4, 7])
    assert 1 not in {row.k for row in account.tested}
    assert account.worst.k in {2, 3, 5, 6}


def test_plain_time_is_the_one_given_and_named() -> None:
    yields, rates = made_sweep(1.0, 0.0)
    account = Ledger.fit(CURVE, yields, rates, [1, 2], plain_ms=9.5, plain_source="end to end")
    assert (account.plain_ms, account.plain_source) == (9.5, "end to end")
    assert json.loads(json.dumps(account.to_json()))["plain_source"] == "end to end"


@pytest.mark.parametrize(
    ("fit_on", "message"),
    [
        ([1, 9], "fit_on: k=9 was not measured; measured k"),
        ([1], "fit_on must name at least two k"),
        (range(1, 8), "fit_on must name at least two k and leave at least one"),
    ],
)
def test_fit_on_leaves_something_to_test(fit_on: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ledger.fit(CURVE, *made_sweep(1.0, 0.0), fit_on)


def test_several_requests_at_a_time_are_refused_with_the_reason() -> None:
    yields, rates = made_sweep(1.0, 0.0)
    with pytest.raises(ledger.ConcurrencyError, match=r"concurrency=4.*not linear in the draft length"):
        Ledger.fit(CURVE, yields, rates, [1, 2], concurrency=4)
    with pytest.raises(ledger.ConcurrencyError, match="concurrency=8"):
        Ledger.from_terms(CURVE, yields, rates, draft_ms=1.0, concurrency=8)
    with pytest.raises(ledger.ConcurrencyError, match="concurrency=2"):
        ledger.best_draft_length(CURVE, 1.0, alpha=0.5, concurrency=2)
    assert Ledger.fit(CURVE, yields, rates, [1, 2], concurrency=1).closes(0.01)
    with pytest.raises(ValueError, match="concurrency must be at least 1"):
        Ledger.fit(CURVE, yields, rates, [1, 2], concurrency=0)


def test_verify_cost_is_measured_or_refused_or_read_off_a_plateau_and_says_so() -> None:
    curve = {1: 10.0, 8: 20.0, 9: 40.0, 12: 41.0, 16: 40.0, 32: 42.0, 64: 80.0}
    assert ledger.verify_cost(curve, 9) == ledger.VerifyCost(9, 40.0)
    assert ledger.verify_cost(curve, 9).describe() == "T(9) = 40.00 ms"
    with pytest.raises(ValueError, match="N=17 was not measured; measured sizes: 1, 8, 9, 12, 16, 32, 64"):
        ledger.verify_cost(curve, 17)
    read = ledger.verify_cost(curve, 24, flat=0.10)
    assert (read.n, read.plateau) == (24, (9, 32))
    assert read.ms == pytest.approx(41.0)
    assert read.describe() == "T(24) = 41.00 ms, not measured: read off the plateau 9-32"
    for n in (4, 48, 100):
        with pytest.raises(ValueError, match=f"N={n} was not measured and lies on no plateau"):
            ledger.verify_cost(curve, n, flat=0.10)
    with pytest.raises(ValueError, match="on no plateau"):
        ledger.verify_cost(curve, 24, flat=0.01)


@given(st.floats(0, 512))
def test_at_depth_interpolates_and_never_extrapolates(depth: float) -> None:
    depths, ms = [0, 256, 512], [[10.0, 20.0], [14.0, 30.0], [16.0, 50.0]]
    found = ledger.at_depth(depths, ms, depth)
    assert found == pytest.approx([np.interp(depth, depths, [row[i] for row in ms]) for i in (0, 1)])
    with pytest.raises(ValueError, match="depth=513 lies outside the measured 0-512"):
        ledger.at_depth(depths, ms, 513)
    with pytest.raises(ValueError, match="lies outside the measured 256-512"):
        ledger.at_depth(depths[1:], ms[1:], 255)


def test_at_depth_with_one_depth_knows_that_one() -> None:
    assert ledger.at_depth([256], [[10.0, 20.0]], 256).tolist() == [10.0, 20.0]


@given(st.floats(1, 100), st.floats(1, 8), st.floats(1, 100), st.floats(0, 10))
def test_a_free_draft_bounds_every_real_one(
    verify: float, tokens: float, plain: float, overhead: float
) -> None:
    free = ledger.free_draft(verify, tokens, plain, overhead)
    assert free.ms_per_token * tokens == pytest.approx(verify + overhead)
    assert free.speedup * free.ms_per_token == pytest.approx(plain)
    real = tokens * plain / ledger.round_ms(3, verify, 0.5, overhead)
    assert real < free.speedup <= ledger.free_draft(verify, tokens, plain).speedup


BEFORE = Terms(k=3, tokens_per_round=2.5, verify_ms=20.0, draft_ms=2.0, overhead_ms=1.0)
times = st.floats(0.01, 100)
terms = st.builds(Terms, st.integers(1, 16), st.floats(1, 16), times, times, times)


@given(terms, terms)
def test_attribution_multiplies_to_the_change(before: Terms, after: Terms) -> None:
    found = ledger.attribute(before, after)
    assert found.factor == pytest.approx(after.tokens_per_s / before.tokens_per_s)
    parts = [value for name, value in asdict(found).items() if name != "factor"]
    assert math.prod(parts) == pytest.approx(found.factor)
    back = ledger.attribute(after, before)
    assert back.verify * found.verify == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("after", "term"),
    [
        (replace(BEFORE, tokens_per_round=1.5), "acceptance"),
        (replace(BEFORE, verify_ms=30.0), "verify"),
        (replace(BEFORE, draft_ms=6.0), "draft"),
        (replace(BEFORE, overhead_ms=21.0), "overhead"),
    ],
)
def test_attribution_names_the_term_that_moved(after: Terms, term: str) -> None:
    found = ledger.attribute(BEFORE, after)
    assert found.moved == term
    assert getattr(found, term) == pytest.approx(found.factor)
    assert found.factor < 1
    assert ledger.attribute(BEFORE, BEFORE) == ledger.Attribution(1.0, 1.0, 1.0, 1.0, 1.0)
