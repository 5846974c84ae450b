"""Pairs of two arms: in which order, and what is taken down of them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.noise import Arm
from pytest_specdec.bench.noise import pairs


PROMPTS = [("a", [1]), ("b", [2]), ("c", [3])]


def arms(log: list[str], tokens: int = 5) -> tuple[Arm, Arm]:
    """An arm that takes 10 ms, and one that takes 20; both write down whom they were asked for."""

    def arm(name: str, ms: float) -> Arm:
        def decode(prompt: list[int]) -> dict[str, Any]:
            log.append(f"{name}{prompt[0]}")
            return {"tokens": [7] * tokens, "decode_ms": ms}

        return decode

    return arm("x", 10.0), arm("y", 20.0)


def test_consecutive_pairs_of_a_prompt_are_abba() -> None:
    log: list[str] = []
    found = pairs(*arms(log), PROMPTS, range(6))
    assert log == ["x1", "y1", "y2", "x2", "x3", "y3", "y1", "x1", "x2", "y2", "y3", "x3"]
    assert [pair.prompt for pair in found] == ["a", "b", "c", "a", "b", "c"]
    assert {(pair.first_ms, pair.second_ms) for pair in found} == {(10.0, 20.0)}
    assert found[0].ratio == pytest.approx(0.5)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_arm_begins_as_often_with_every_prompt(count: int) -> None:
    log: list[str] = []
    pairs(*arms(log), PROMPTS[:count], range(4 * count))
    begun = log[::2]
    assert {name: begun.count(name) for name in begun} == {
        f"{arm}{prompt}": 2 for arm in "xy" for prompt in range(1, count + 1)
    }


def test_later_pairs_go_on_where_earlier_ones_ended() -> None:
    whole: list[str] = []
    parts: list[str] = []
    pairs(*arms(whole), PROMPTS, range(8))
    pairs(*arms(parts), PROMPTS, range(3))
    pairs(*arms(parts), PROMPTS, range(3, 8))
    assert parts == whole


def test_a_text_without_a_second_token_has_no_rate() -> None:
    with pytest.raises(BenchError, match=r"prompt 'a' ends after its first token.*--specdec-prompts"):
        pairs(*arms([], tokens=1), PROMPTS, range(1))
