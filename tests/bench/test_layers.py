"""The search for blocks to leave out, on an engine that is made of a rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from typing import cast

import pytest

from pytest_specdec.bench import layers
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.layers import Piece
from pytest_specdec.bench.layers import agreement
from pytest_specdec.bench.layers import halves
from pytest_specdec.bench.layers import search
from pytest_specdec.bench.session import Bench
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.models.find import ModelRef


BLOCKS = 6
TEXT = list(range(20))
# Tokens that a copy without the block gets wrong.
HARM = {0: 20, 1: 6, 2: 3, 3: 5, 4: 2, 5: 20}


class Rig:
    """Contexts that get as many tokens wrong as their missing blocks do harm; 2 and 4 together do more."""

    def __init__(self, refused: Sequence[int] = ()) -> None:
        self.engine = SimpleNamespace(request=self.request)
        self.refused = refused
        self.loaded: list[tuple[int, ...]] = []
        self.asked: list[tuple[tuple[int, ...], list[int]]] = []

    def context(self, model: ModelRef, settings: object, role: str) -> SimpleNamespace:
        kept = tuple(map(int, model.path.read_text().split()))
        gone = set(range(BLOCKS)) - set(kept)
        if gone & set(self.refused):
            raise RequestRefused("llama.cpp could not load it", code="load")
        self.loaded.append(tuple(sorted(gone)))
        return SimpleNamespace(handle=len(self.loaded))

    def release(self, loaded: SimpleNamespace) -> None:
        pass

    def request(self, op: str, *, context: int, tokens: list[int], text: list[int]) -> dict[str, list[int]]:
        assert op == "agreement"
        gone = self.loaded[context - 1] if context else ()
        self.asked.append((gone, tokens))
        wrong = min(sum(HARM[one] for one in gone) + 10 * ({2, 4} <= set(gone)), len(text))
        return {"best": [-1] * wrong + text[wrong:]}


def made(monkeypatch: pytest.MonkeyPatch, rig: Rig, prompts: int = 2) -> Bench:
    def write(source: Path, destination: Path, kept: Sequence[int]) -> None:
        destination.write_text(" ".join(map(str, kept)))

    class Pair:
        def __init__(self, bench: Bench, *, drafting: bool) -> None:
            self.prompts = [(f"p{n}", [n]) for n in range(prompts)]
            self.model = ModelRef("m", Path("m.gguf"))
            self.target = SimpleNamespace(handle=0)
            self.engine = rig.engine

        def plain(self, tokens: list[int], n_predict: int) -> dict[str, Any]:
            return {"tokens": TEXT}

    monkeypatch.setattr(layers, "write_layers", write)
    monkeypatch.setattr(layers, "Pair", Pair)
    session = SimpleNamespace(rig=rig, progress=lambda line: None)
    facts = {"target": SimpleNamespace(layers=BLOCKS), "draft": None}
    bench = SimpleNamespace(session=session, settings=SimpleNamespace(n_predict=20), facts=lambda: facts)
    return cast(Bench, bench)


def test_greedy_one_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    found = search(made(monkeypatch, rig), 2, 60)
    # 4 alone is best; then 3, not 2, which does more harm beside it.
    assert [(step.block, step.agreement) for step in found.chosen] == [(4, 0.9), (3, 0.65)]
    assert (found.skipped, found.kept) == ((3, 4), (0, 1, 2, 5))
    assert (found.held_out, found.first, found.itself) == (0.65, 0.0, 1.0)
    assert (found.searched_tokens, found.held_out_tokens) == (20, 20)
    assert (found.stopped, found.tried, found.candidates) == (False, 5, 5)
    assert found.copies == 6 + 5 + 2
    # From the middle outwards, then the best of the round before first.
    assert rig.loaded[:6] == [(2,), (3,), (1,), (4,), (0,), (5,)]
    assert rig.loaded[6] == (2, 4)
    # The target on what is held out, the rounds on the rest, then the two copies on what is held out.
    assert rig.asked[0] == ((), [1])
    assert [prompt for _, prompt in rig.asked[1:-2]] == [[0]] * 11
    assert rig.asked[-2:] == [((3, 4), [1]), ((4, 5), [1])]


def test_the_budget_ends_it_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    clock = iter(range(1000))
    monkeypatch.setattr(f"{layers.__name__}.monotonic", lambda: next(clock))
    found = search(made(monkeypatch, rig), 3, 9)
    assert [step.block for step in found.chosen] == [4, 3]
    assert (found.stopped, found.wanted, found.tried, found.candidates) == (True, 3, 2, 5)
    assert found.copies == 6 + 2 + 2


def test_a_budget_too_short_for_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(f"{layers.__name__}.monotonic", lambda: next(clock))
    with pytest.raises(BenchError, match=r"the budget of 1 s was over before one was tried; raise it"):
        search(made(monkeypatch, Rig()), 2, 1)


def test_a_copy_that_does_not_load_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    found = search(made(monkeypatch, Rig(refused=(4, 5))), 2, 60)
    assert [step.block for step in found.chosen] == [2, 3]
    assert found.first is None
    with pytest.raises(BenchError, match=r"m: no copy with 5 blocks: llama\.cpp could not load it"):
        search(made(monkeypatch, Rig(refused=range(BLOCKS))), 2, 60)


@pytest.mark.parametrize("wanted", [0, 6])
def test_a_number_of_blocks_that_leaves_none(wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchError, match=f"has 6 blocks: search for 1 to 5 to skip, not {wanted}"):
        search(made(monkeypatch, Rig()), wanted, 60)


def test_what_is_held_out() -> None:
    texts = [([n], [10 * n, 10 * n + 1]) for n in range(1, 4)]
    searched, held_out, how = halves([*texts, ([9], [])])
    assert searched == [Piece([1], [10, 11]), Piece([3], [30, 31])]
    assert (held_out, how) == ([Piece([2], [20, 21])], "every other prompt")

    searched, held_out, how = halves([([1, 2], [3, 4, 5])])
    assert (searched, held_out) == ([Piece([1, 2], [3])], [Piece([1, 2, 3], [4, 5])])
    assert how == "the second half of its text"


@pytest.mark.parametrize("texts", [[], [([1], [])], [([1], [2])]])
def test_too_little_text(texts: list[tuple[list[int], list[int]]]) -> None:
    with pytest.raises(BenchError, match="too little text to hold half of it out"):
        halves(texts)


def test_agreement_stops_where_it_cannot_win() -> None:
    asked: list[list[int]] = []

    def request(op: str, *, context: int, tokens: list[int], text: list[int]) -> dict[str, list[int]]:
        asked.append(tokens)
        return {"best": [0, *text[1:]]}

    pieces = [Piece([n], [1, 2]) for n in range(4)]
    assert agreement(request, 1, pieces) == 0.5
    assert agreement(request, 1, pieces, 0.49) == 0.5
    assert len(asked) == 8
    # After two of four pieces 6 of 8 tokens can still be right.
    assert agreement(request, 1, pieces, 0.75) == 0.75
    assert len(asked) == 10
