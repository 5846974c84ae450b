"""Rollback is proven by bits before anything is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.session import Bench
from tests import tiny_models
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


SOUND = ["llama", "gemma3", "moe-f32", "moe-q4_k", "qwen2vl"]


@pytest.mark.parametrize("kind", [*SOUND, "mamba", "lfm2"])
def test_the_proof_tells_sound_architectures_from_those_that_keep_what_was_refused(
    bench: Callable[..., Bench], tmp_path: Path, kind: str
) -> None:
    path = tiny_models.write(kind, tmp_path / f"{kind}.gguf")
    made = bench(
        target=str(path), n_ctx=128, n_batch=64, sizes="1-4", n_predict=8, threads=1, prompts=_short(tmp_path)
    )
    if kind in SOUND:
        assert made.verify_curve().n == (1, 2, 3, 4)
        return
    with pytest.raises(BenchError, match=r"does not roll back.*refused to remove.*structurally unsound"):
        made.verify_curve()


def _short(folder: Path) -> str:
    path = folder / "prompts.jsonl"
    path.write_text('{"text": "one two three one two three one two", "template": "raw"}\n')
    return str(path)
