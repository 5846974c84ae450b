"""The draft length advised, over measured sizes, with the reason in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory import steps
from pytest_specdec.theory.ledger import best_draft_length
from pytest_specdec.theory.ledger import round_ms
from pytest_specdec.theory.ledger import tokens_per_round


# Flat, then a cliff at 9.
CLIFF = {n: 20.0 + 0.2 * n if n < 9 else 60.0 for n in range(1, 17)}


def test_the_last_size_before_the_cliff_wins_and_the_reason_says_so() -> None:
    advice = best_draft_length(CLIFF, 0.5, alpha=0.9, overhead_ms=1.0)
    assert advice.best_k == 7
    assert advice.speculate
    assert "8 is the last N before the cliff at 9 (2.78x)" in advice.reason
    assert "against 49.50 without (T(1) of the verify curve)" in advice.reason
    assert advice.plain_source == "T(1) of the verify curve"


def test_over_a_gap_the_reason_does_not_pretend_to_know_the_place() -> None:
    curve = {n: CLIFF[n] for n in (1, 2, 4, 8, 12, 16)}
    advice = best_draft_length(curve, 0.5, alpha=0.9)
    assert advice.best_k == 7
    assert "8 is the last N before the cliff in (8, 12]" in advice.reason


@given(
    st.lists(st.floats(1.0, 100.0), min_size=2, max_size=12),
    st.floats(0.0, 1.0),
    st.floats(0.0, 5.0),
    st.floats(0.0, 5.0),
)
def test_no_candidate_is_better_than_the_advice(
    ms: list[float], alpha: float, draft_ms: float, overhead_ms: float
) -> None:
    curve = dict(enumerate(ms, start=1))
    advice = best_draft_length(curve, draft_ms, alpha=alpha, overhead_ms=overhead_ms)
    speeds = {
        k: tokens_per_round(alpha, k) * curve[1] / round_ms(k, curve[k + 1], draft_ms, overhead_ms)
        for k in range(1, len(ms))
    }
    assert [row.speedup for row in advice.table] == pytest.approx(list(speeds.values()))
    best = max(speeds.values())
    assert advice.speedup == pytest.approx(max(1.0, best))
    assert advice.speculate is (best > 1.0 + 1e-9)
    assert advice.best_k == (advice.best_row.k if advice.speculate else 0)
    assert speeds[advice.best_row.k] == pytest.approx(best)
    assert advice.reason.startswith("do not speculate") is not advice.speculate


def test_a_sawtooth_is_optimised_over_measured_sizes_not_over_a_curve() -> None:
    teeth = {n: 20.0 if n % 4 == 0 else 20.0 + 6.0 * (n % 4) for n in range(2, 13)} | {1: 20.0}
    advice = best_draft_length(teeth, 0.1, alpha=0.8)
    assert (advice.best_k + 1) % 4 == 0
    assert "k=4 sags" not in advice.reason
    assert f"k={advice.best_k}" in advice.reason


def test_when_nothing_pays_the_reason_shows_the_sum() -> None:
    advice = best_draft_length({1: 10.0, 2: 15.0, 4: 24.0}, 8.0, alpha=0.5, overhead_ms=2.0)
    assert not advice.speculate
    assert (advice.best_k, advice.speedup) == (0, 1.0)
    assert advice.reason.startswith("do not speculate: no draft length pays, the best of 2 is k=1")
    assert (
        "k=1 yields 1.50 tokens in 25.00 ms (verify 15.00 + draft 1 x 8.00 + overhead 2.00)" in advice.reason
    )
    assert "60.00 tokens/s predicted, against 100.00 without" in advice.reason
    assert "0.60x" in advice.reason


def test_breaking_even_is_not_worth_it() -> None:
    assert not best_draft_length({1: 10.0, 2: 15.0}, 0.0, alpha=0.5).speculate
    assert not best_draft_length({1: 1.875, 2: 1.875}, 0.0, alpha=0.0).speculate
    assert best_draft_length({1: 10.0, 2: 14.9}, 0.0, alpha=0.5).speculate


def test_of_equals_the_shortest_wins() -> None:
    advice = best_draft_length({1: 10.0, 2: 10.0, 3: 10.0, 4: 10.0}, 0.0, yields={1: 1.5, 2: 1.5, 3: 1.5})
    assert advice.best_k == 1


def test_what_was_measured_outranks_the_prediction() -> None:
    curve = {1: 10.0, 2: 11.0, 3: 12.0, 4: 13.0}
    yields = {1: 1.6, 2: 2.0, 3: 2.3}
    assert best_draft_length(curve, 0.5, yields=yields).best_k == 3
    advice = best_draft_length(curve, 0.5, yields=yields, measured={1: 130.0, 3: 110.0})
    assert [row.k for row in advice.table] == [1, 3]
    assert advice.best_k == 1
    assert advice.speedup == pytest.approx(1.3)
    assert "139.13 tokens/s predicted, 130.00 measured" in advice.reason


def test_positions_limit_the_candidates_and_the_plain_time_may_be_given() -> None:
    advice = best_draft_length(CLIFF, 0.5, positions=[0.7, 0.5], plain_ms=25.0, plain_source="end to end")
    assert [row.k for row in advice.table] == [1, 2]
    assert advice.plain_ms == 25.0
    assert "40.00 without (end to end)" in advice.reason


def test_a_step_map_from_samples_decides_about_the_cliff() -> None:
    sizes = list(CLIFF)
    unsure = steps.find_steps(sizes, list(CLIFF.values()), noise=[12.0] * len(sizes))
    assert unsure.cliffs == ()
    advice = best_draft_length(CLIFF, 0.5, alpha=0.9, step_map=unsure)
    assert advice.best_k == 7
    assert "cliff" not in advice.reason


def test_an_unmeasured_size_needs_the_plateau_rule_and_is_marked() -> None:
    curve = {n: CLIFF[n] for n in (1, 2, 8, 9, 10, 16)}
    with pytest.raises(ValueError, match="N=12 was not measured"):
        best_draft_length(curve, 0.5, alpha=0.9, candidates=[1, 11])
    advice = best_draft_length(curve, 0.5, alpha=0.9, candidates=[11, 1, 11], flat=0.1)
    assert [row.k for row in advice.table] == [1, 11]
    assert "not measured: read off the plateau 9-16" in advice.table[1].note
    assert "behind the cliff at 9" in advice.table[1].note


def test_after_a_drop_a_size_is_no_longer_behind_the_cliff() -> None:
    curve = {1: 10.0, 2: 11.0, 3: 12.0, 4: 30.0, 5: 31.0, 6: 14.0}
    notes = {row.k: row.note for row in best_draft_length(curve, 0.1, alpha=0.8).table}
    assert "behind the cliff at 4" in notes[3]
    assert "behind the cliff at 4" in notes[4]
    assert "N=5 is a dip: 6 tokens cost less (14.00 against 31.00 ms)" in notes[4]
    assert notes[5] == ""


def test_one_source_of_yield_is_wanted() -> None:
    with pytest.raises(ValueError, match="positions, alpha, yields: give exactly one"):
        best_draft_length(CLIFF, 0.5)
    with pytest.raises(ValueError, match="positions, alpha, yields: give exactly one"):
        best_draft_length(CLIFF, 0.5, positions=[0.5], alpha=0.5)
    with pytest.raises(ValueError, match="yields: nothing for the candidate k=2"):
        best_draft_length(CLIFF, 0.5, yields={1: 1.5}, candidates=[1, 2])
    with pytest.raises(ValueError, match="candidates: none left"):
        best_draft_length({1: 10.0}, 0.5, alpha=0.5)


def test_json_has_builtin_types_only() -> None:
    data = best_draft_length(CLIFF, 0.5, alpha=0.9).to_json()
    assert json.loads(json.dumps(data)) == data
    assert data["best_k"] == 7
