"""How the rig settles the way a context rolls back."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.rig import Loaded
from pytest_specdec.bench.rig import Rig
from pytest_specdec.settings import Settings


class Engine:
    """Answers proofs of rollback, by mode, with whether they hold."""

    def __init__(self, **proven: bool) -> None:
        self.proven = proven
        self.asked: list[str] = []

    def request(self, op: str, /, **params: Any) -> dict[str, Any]:
        assert (op, params["context"], len(params["tokens"])) == ("rollback", 7, 64)
        mode = params.get("mode", "seq_rm")
        self.asked.append(mode)
        case = {"name": "whole", "holds": self.proven[mode], "refused": None, "difference": 0.5}
        return {"mode": mode, "cases": [case], "proven": self.proven[mode]}


def rig(engine: Engine) -> tuple[Rig, list[str]]:
    told: list[str] = []
    made = Rig(Settings(), told.append)
    made.engine = engine  # type: ignore[assignment]
    return made, told


CONTEXT = Loaded(7, {})
TEXT = list(range(100))


def test_removing_tokens_is_enough_where_it_is_proven() -> None:
    engine = Engine(seq_rm=True)
    made, told = rig(engine)
    for _ in range(2):
        made.prove_rollback(CONTEXT, TEXT, "m.gguf")
    assert engine.asked == ["seq_rm"]
    assert made.rollback(CONTEXT, TEXT, "m.gguf").mode == "seq_rm"
    assert told == []


def test_snapshots_take_over_where_it_is_not_and_that_is_said_once() -> None:
    engine = Engine(seq_rm=False, snapshot=True)
    made, told = rig(engine)
    for _ in range(2):
        made.prove_rollback(CONTEXT, TEXT, "m.gguf")
    assert engine.asked == ["seq_rm", "snapshot"]
    assert made.rollback(CONTEXT, TEXT, "m.gguf").mode == "snapshot"
    assert told == ["m.gguf can't remove tokens from its state: rolled back by snapshots"]


def test_nothing_is_measured_on_a_cache_that_neither_restores() -> None:
    made, _ = rig(Engine(seq_rm=False, snapshot=False))
    words = r"m\.gguf: .*said True, and .*0\.5 .*; nor .*: the state was taken back.*unsound"
    for _ in range(2):
        with pytest.raises(BenchError, match=words):
            made.prove_rollback(CONTEXT, TEXT, "m.gguf")
