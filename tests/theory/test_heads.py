"""Heads: gradients against differences, planted blocks found again, and what no epoch makes better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_specdec.theory import heads
from pytest_specdec.theory.heads import Block
from pytest_specdec.theory.heads import accuracy
from pytest_specdec.theory.heads import constant_acceptance
from pytest_specdec.theory.heads import fit_eagle
from pytest_specdec.theory.heads import fit_medusa
from pytest_specdec.theory.heads import likeliest
from pytest_specdec.theory.heads import ranks_of


WIDTH, ROWS, SAMPLES = 12, 20, 12000
Array = NDArray[np.float32]


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def held_out() -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.arange(SAMPLES) % 5 == 0
    return found


def normal(draw: np.random.Generator, *shape: int) -> Array:
    return draw.standard_normal(shape).astype(np.float32)


def test_a_planted_block_is_found_again(draw: np.random.Generator, held_out: NDArray[np.bool_]) -> None:
    rows, states = normal(draw, ROWS, WIDTH), normal(draw, SAMPLES, WIDTH)
    later = Block(0.6 * normal(draw, WIDTH, WIDTH), normal(draw, WIDTH))(states)
    found, own = fit_medusa(states, later, held_out, rows)
    targets = likeliest(later, rows)
    before = accuracy(states[held_out], targets[held_out], rows)
    after = accuracy(found(states[held_out]), targets[held_out], own)
    # What a matrix alone can do.
    straight = np.linalg.lstsq(states, later, rcond=None)[0]
    linear = accuracy((states @ straight)[held_out], targets[held_out], rows)
    assert before < linear < 0.5 < 0.6 < after


def test_states_that_say_nothing_leave_the_best_start(
    draw: np.random.Generator, held_out: NDArray[np.bool_], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What generalises no better than the start is not taken."""
    rows, states, later = (
        normal(draw, ROWS, WIDTH),
        normal(draw, SAMPLES, WIDTH),
        normal(draw, SAMPLES, WIDTH),
    )
    scores: list[float] = []
    whole = heads.accuracy

    def noted(*given: Any) -> float:
        scores.append(whole(*given))
        return scores[-1]

    monkeypatch.setattr(heads, "accuracy", noted)
    found, own = fit_medusa(states, later, held_out, rows)
    wanted = likeliest(later[held_out], rows)
    assert whole(found(states[held_out]), wanted, own) == max(scores)
    assert max(scores) < 0.15


def test_the_next_state_is_found_from_state_and_token(
    draw: np.random.Generator, held_out: NDArray[np.bool_]
) -> None:
    rows, states, embedded = (normal(draw, n, WIDTH) for n in (ROWS, SAMPLES, SAMPLES))
    embedded *= np.float32(0.01)
    one, other = normal(draw, WIDTH, WIDTH), normal(draw, WIDTH, WIDTH)
    following = (states @ one.T + 100 * embedded @ other.T + 0.5).astype(np.float32)
    linear, block = fit_eagle(states, embedded, following, held_out, rows)
    found = block(linear(np.concatenate([embedded, states], axis=1)))
    targets = likeliest(following, rows)
    assert accuracy(found[held_out], targets[held_out], rows) > 0.95
    assert np.abs(found - following).mean() < 0.1 * np.abs(following).mean()


@pytest.mark.parametrize("fitted", ["medusa", "eagle"])
def test_gradients_are_those_of_the_loss(
    fitted: str, draw: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    width, count = 3, 40
    rows, states, embedded, later = (normal(draw, n, width) for n in (5, count, count, count))
    held_out = np.arange(count) % 5 == 0
    train = np.flatnonzero(~held_out)
    seen: list[Any] = []
    monkeypatch.setattr(heads, "_adam", lambda *given: seen.extend(given))
    monkeypatch.setattr(heads, "DROPPED", 0.0)
    if fitted == "medusa":
        block, own = fit_medusa(states, later, held_out, rows)
    else:
        linear, block = fit_eagle(states, embedded, later, held_out, rows)
        own = rows
        # Its weights were folded back after the (missing) steps.
        scale = np.sqrt(np.mean(states**2) / np.mean(embedded**2))
        linear.weight[:, :width] /= scale
        inputs = np.concatenate([embedded * scale, states], axis=1).astype(np.float32)

    def loss() -> float:
        given = states[train] if fitted == "medusa" else linear(inputs[train])
        found = block(given)
        odds = np.exp(later[train] @ rows.T).astype(np.float64)
        odds /= odds.sum(axis=1, keepdims=True)
        logits = (found @ own.T).astype(np.float64)
        entropy = -(odds * (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))).sum(axis=1).mean()
        if fitted == "medusa":
            return float(entropy)
        return float(entropy + np.mean((found - later[train]) ** 2) / np.var(later, axis=0).mean())

    parameters, gradient = seen[0], seen[1]
    for one in parameters:
        one += 0.3 * normal(draw, *one.shape)
    slopes = gradient(train)
    for one, slope in zip(parameters, slopes, strict=True):
        for place in np.ndindex(one.shape):
            before = one[place]
            one[place] = before + 1e-2
            above = loss()
            one[place] = before - 1e-2
            below = loss()
            one[place] = before
            assert slope[place] == pytest.approx(
                (above - below) / 2e-2, abs=0.01 * float(np.abs(slope).max()) + 1e-3
            )


def test_states_that_are_not_finite_have_no_rank(draw: np.random.Generator) -> None:
    """An epoch that ran away must not look like the best one."""
    rows, states = normal(draw, ROWS, WIDTH), np.full((5, WIDTH), np.nan, np.float32)
    targets = np.arange(5)
    assert ranks_of(states, targets, rows).tolist() == [0] * 5
    assert accuracy(states, targets, rows) == 0


def test_texts_too_short_for_a_place_leave_the_block_as_it_was(draw: np.random.Generator) -> None:
    nothing = np.empty((0, WIDTH), np.float32)
    block, _ = fit_medusa(nothing, nothing, np.empty(0, bool), normal(draw, ROWS, WIDTH))
    assert not block.weight.any()
    assert not block.bias.any()


def test_a_constant_is_judged_as_a_source_of_its_own() -> None:
    """7 is drafted: rounds at 7 (3 is the bonus) and 7, then at 5, 7 (7 is the bonus) and 1."""
    assert constant_acceptance([[7, 3, 7], [5, 7, 7, 1]]) == 3 / 5
    assert constant_acceptance([]) == constant_acceptance([[]]) == 0


def test_parts_change_nothing(draw: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, states = normal(draw, ROWS, WIDTH), normal(draw, 100, WIDTH)
    targets = draw.integers(-1, ROWS, 100)
    whole, first = accuracy(states, targets, rows, within=3), likeliest(states, rows)
    monkeypatch.setattr(heads, "_PART", 7)
    assert accuracy(states, targets, rows, within=3) == whole > accuracy(states, targets, rows)
    assert (likeliest(states, rows) == first).all()
