"""Heads: gradients against differences, planted blocks found again, and early ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from pytest_specdec.theory import heads
from pytest_specdec.theory.heads import Block
from pytest_specdec.theory.heads import accuracy
from pytest_specdec.theory.heads import fit_eagle
from pytest_specdec.theory.heads import fit_medusa


WIDTH, ROWS, SAMPLES = 12, 20, 1500


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(7)


def normal(draw: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return draw.standard_normal(shape).astype(np.float32)


def test_a_planted_block_is_found_again(draw: np.random.Generator) -> None:
    rows, states = normal(draw, ROWS, WIDTH), normal(draw, SAMPLES, WIDTH)
    planted = Block(2 * normal(draw, WIDTH, WIDTH), normal(draw, WIDTH))
    targets = (planted(states) @ rows.T).argmax(axis=1)
    held_out = np.arange(SAMPLES) % 5 == 0
    found = fit_medusa(states, targets, held_out, rows)
    before = accuracy(states[held_out], targets[held_out], rows)
    after = accuracy(found(states[held_out]), targets[held_out], rows)
    assert before < 0.5 < 0.75 < after


def test_a_target_outside_the_rows_is_left_out(draw: np.random.Generator) -> None:
    rows, states = normal(draw, ROWS, WIDTH), normal(draw, SAMPLES, WIDTH)
    targets = (states @ rows.T).argmax(axis=1)
    spoiled = np.where(np.arange(SAMPLES) % 3 == 0, -1, targets)
    held_out = np.arange(SAMPLES) % 5 == 0
    found = fit_medusa(states, spoiled, held_out, rows)
    assert accuracy(found(states), targets, rows) > 0.95
    assert accuracy(states, spoiled, rows) == pytest.approx(2 / 3, abs=0.01)


def test_noise_ends_where_it_began(draw: np.random.Generator) -> None:
    """Targets that states say nothing about: what generalises no better than the start is not taken."""
    rows, states = normal(draw, ROWS, WIDTH), normal(draw, SAMPLES, WIDTH)
    targets = draw.integers(0, ROWS, SAMPLES)
    held_out = np.arange(SAMPLES) % 5 == 0
    found = fit_medusa(states, targets, held_out, rows)
    assert accuracy(found(states[held_out]), targets[held_out], rows) < 0.15


def test_the_next_state_is_found_from_state_and_token(draw: np.random.Generator) -> None:
    rows, states, embedded = (normal(draw, n, WIDTH) for n in (ROWS, SAMPLES, SAMPLES))
    embedded *= np.float32(0.01)
    one, other = normal(draw, WIDTH, WIDTH), normal(draw, WIDTH, WIDTH)
    following = (states @ one.T + 100 * embedded @ other.T + 0.5).astype(np.float32)
    targets = (following @ rows.T).argmax(axis=1)
    held_out = np.arange(SAMPLES) % 5 == 0
    linear, block = fit_eagle(states, embedded, following, targets, held_out, rows)
    found = block(linear(np.concatenate([embedded, states], axis=1)))
    assert accuracy(found[held_out], targets[held_out], rows) > 0.95
    assert np.abs(found - following).mean() < 0.1 * np.abs(following).mean()


@pytest.mark.parametrize("fitted", ["medusa", "eagle"])
def test_gradients_are_those_of_the_loss(
    fitted: str, draw: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    width, count = 3, 40
    rows, states, embedded, following = (normal(draw, n, width) for n in (5, count, count, count))
    targets = draw.integers(0, 5, count)
    held_out = np.arange(count) % 5 == 0
    seen: list[tuple[Any, int]] = []

    def keep(loss: Any, start: NDArray[Any], score: Any) -> NDArray[Any]:
        seen.append((loss, start.size))
        return start

    monkeypatch.setattr(heads, "_minimised", keep)
    if fitted == "medusa":
        fit_medusa(states, targets, held_out, rows)
    else:
        fit_eagle(states, embedded, following, targets, held_out, rows)
    ((loss, size),) = seen
    place = 0.3 * draw.standard_normal(size)
    own = loss(place)[1]
    # Single precision inside: differences need wide steps.
    expected = approx_fprime(place, lambda flat: loss(flat)[0], 1e-2)
    assert np.allclose(own, expected, atol=0.02 * np.abs(expected).max())


def test_parts_change_nothing(draw: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, states = normal(draw, ROWS, WIDTH), normal(draw, 100, WIDTH)
    targets = draw.integers(-1, ROWS, 100)
    whole = accuracy(states, targets, rows, within=3)
    monkeypatch.setattr(heads, "_PART", 7)
    assert accuracy(states, targets, rows, within=3) == whole > accuracy(states, targets, rows)
