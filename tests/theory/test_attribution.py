"""A change in tokens/s, divided among the terms that make it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory.attribution import TERMS
from pytest_specdec.theory.attribution import Attribution
from pytest_specdec.theory.attribution import Terms
from pytest_specdec.theory.attribution import attribute


OLD = Terms(3.0, {4: 9, 1: 1}, {1: 20.0, 4: 40.0, 8: 60.0}, 12.0, 2.0)


def ms(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high)


terms = st.builds(
    Terms,
    tokens_per_round=ms(1, 8),
    widths=st.dictionaries(st.sampled_from((1, 4, 8)), ms(0.1, 50), min_size=1),
    verify_ms=st.fixed_dictionaries({1: ms(1, 100), 4: ms(1, 100), 8: ms(1, 100)}),
    draft_ms=ms(0, 100),
    overhead_ms=ms(0, 100),
)


def test_terms_make_the_decode_rate() -> None:
    assert OLD.mean_verify_ms == pytest.approx(0.9 * 40 + 0.1 * 20)
    assert OLD.tokens_per_s == pytest.approx(1000 * 3 / (38 + 12 + 2))


@given(terms, terms, st.floats(0.1, 10))
def test_shares_add_up_to_the_change(old: Terms, new: Terms, ratio: float) -> None:
    found = attribute(old, new, ratio)
    parts = [getattr(found, name) for name in TERMS]
    assert math.fsum(parts) == pytest.approx(math.log(new.tokens_per_s / old.tokens_per_s), abs=1e-9)
    assert math.fsum(parts) + found.unexplained == pytest.approx(math.log(ratio), abs=1e-9)
    assert found.predicted == pytest.approx(new.tokens_per_s / old.tokens_per_s)
    assert found.measured == pytest.approx(ratio)
    if abs(math.log(ratio)) > 1e-3:
        assert math.fsum(found.shares().values()) == pytest.approx(1.0)


@given(terms, terms)
def test_the_way_back_has_opposite_shares(old: Terms, new: Terms) -> None:
    there, back = attribute(old, new, 1.5), attribute(new, old, 1 / 1.5)
    for name in (*TERMS, "unexplained"):
        assert getattr(there, name) == pytest.approx(-getattr(back, name), abs=1e-9)


@given(terms, terms, st.sampled_from(TERMS))
def test_a_term_that_alone_moved_has_all_of_it(old: Terms, other: Terms, name: str) -> None:
    moved = {
        "curve": replace(old, verify_ms=other.verify_ms),
        "draft": replace(old, draft_ms=other.draft_ms),
        "acceptance": replace(old, tokens_per_round=other.tokens_per_round, widths=other.widths),
        "overhead": replace(old, overhead_ms=other.overhead_ms),
    }[name]
    ratio = moved.tokens_per_s / old.tokens_per_s
    found = attribute(old, moved, ratio)
    assert getattr(found, name) == pytest.approx(math.log(ratio), abs=1e-9)
    assert all(abs(getattr(found, rest)) < 1e-9 for rest in (*TERMS, "unexplained") if rest != name)


def test_terms_that_do_the_same_share_alike_whatever_the_order() -> None:
    # Drafting and overhead are both times of a round: 10 ms more of either is the same.
    new = replace(OLD, draft_ms=OLD.draft_ms + 10, overhead_ms=OLD.overhead_ms + 10)
    found = attribute(OLD, new, new.tokens_per_s / OLD.tokens_per_s)
    assert found.draft == pytest.approx(found.overhead)
    assert found.draft < 0
    assert found.shares() == pytest.approx(
        {"curve": 0, "draft": 0.5, "acceptance": 0, "overhead": 0.5, "unexplained": 0}, abs=1e-12
    )


def test_wider_rounds_belong_to_acceptance_and_a_dearer_width_to_the_curve() -> None:
    wider = replace(OLD, widths={8: 10})
    found = attribute(OLD, wider, wider.tokens_per_s / OLD.tokens_per_s)
    assert found.acceptance == pytest.approx(math.log(52 / 74))
    assert found.curve == pytest.approx(0.0)
    dearer = replace(OLD, verify_ms={**OLD.verify_ms, 8: 90.0})
    # No round of either arm verified 8.
    assert attribute(OLD, dearer, 1.0) == Attribution(0.0, 0.0, 0.0, 0.0, 0.0)


def test_what_the_terms_do_not_make_is_unexplained() -> None:
    found = attribute(OLD, OLD, 0.9)
    assert found.unexplained == pytest.approx(math.log(0.9))
    assert found.shares()["unexplained"] == pytest.approx(1.0)


def test_no_change_has_no_shares() -> None:
    with pytest.raises(ValueError, match="did not change, so there is nothing to attribute"):
        attribute(OLD, OLD, 1.0).shares()


@pytest.mark.parametrize(
    ("new", "ratio", "told"),
    [
        (OLD, 0.0, "measured_ratio must be greater than 0"),
        (replace(OLD, widths={6: 1, 4: 1}), 1.0, "not measured at N = 6, which rounds verified"),
        (replace(OLD, widths={}), 1.0, "widths must not be empty"),
        (replace(OLD, widths={4: 0}), 1.0, "widths must be greater than 0"),
        (replace(OLD, draft_ms=-1.0), 1.0, "draft_ms must be at least 0"),
        (replace(OLD, overhead_ms=math.nan), 1.0, "overhead_ms must be finite"),
        (replace(OLD, tokens_per_round=-2.0), 1.0, "tokens_per_round must be at least 0"),
        (replace(OLD, verify_ms={1: 20.0, 4: 0.0}), 1.0, "verify_ms must be greater than 0"),
    ],
)
def test_bad_terms_are_refused_by_name(new: Terms, ratio: float, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        attribute(OLD, new, ratio)
