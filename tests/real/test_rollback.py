"""Rollback is proven by bits before anything is measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_specdec.bench.session import Bench
from tests.real.conftest import GEMMA
from tests.real.conftest import SMOLLM2


@pytest.mark.parametrize("pair", [SMOLLM2, GEMMA], ids=["smollm2", "gemma"])
@pytest.mark.parametrize("threads", [1, 2])
def test_removed_tokens_leave_no_trace(
    bench: Callable[..., Bench], pair: dict[str, str], threads: int
) -> None:
    made = bench(**pair, threads=threads)
    rig = made.session.rig
    model = rig.target(made.settings)
    loaded = rig.context(model, made.settings, "target")
    tokens = rig.tokens(loaded, model, made.prompts.prompts[0])
    proof = rig.engine.request("rollback", context=loaded.handle, tokens=tokens)
    assert proof == {"inside": True, "whole": True, "across": True, "proven": True}
