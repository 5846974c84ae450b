"""Rollback is proven by bits before anything is measured; what can't remove tokens restores snapshots."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.bench.rig import PLACES
from pytest_specdec.bench.session import Bench
from pytest_specdec.engine.process import WORKER
from tests import tiny_models
from tests.real.conftest import GEMMA
from tests.real.conftest import SMOLLM2


SOUND = ["llama", "gemma3", "moe-f32", "moe-q4_k", "qwen2vl"]
SMALL = {"n_ctx": 512, "n_batch": 64, "n_ubatch": 64, "sizes": "1-4", "threads": 1}


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
    found = rig.rollback(loaded, tokens, model.name)
    assert (found.mode, found.restoring) == ("seq_rm", None)
    assert {case["name"] for case in found.removing["cases"]} == set(PLACES) - {"far"}


@pytest.mark.parametrize("kind", [*SOUND, "mamba", "lfm2"])
def test_what_cannot_remove_tokens_restores_snapshots(
    bench: Callable[..., Bench], tmp_path: Path, kind: str
) -> None:
    told: list[str] = []
    path = tiny_models.write(kind, tmp_path / f"{kind}.gguf")
    made = bench(target=str(path), **SMALL, prompts=_short(tmp_path))
    made.session.progress = told.append
    assert made.verify_curve().n == (1, 2, 3, 4)
    noted = [line for line in told if "rolled back by snapshots" in line]
    assert len(noted) == (0 if kind in SOUND else 1)


@pytest.mark.parametrize(
    ("kind", "swa_full"),
    [("mamba", True), ("lfm2", True), ("gemma3", False)],
    ids=["mamba", "lfm2", "window"],
)
@pytest.mark.parametrize("k", [1, 4])
def test_speculation_with_snapshots_says_what_plain_decoding_says(
    bench: Callable[..., Bench], tmp_path: Path, kind: str, swa_full: bool, k: int
) -> None:
    """Also behind the window, and with drafts that are often rejected; rollback has a cost of its own."""
    pair = {
        "target": str(tiny_models.write(kind, tmp_path / "target.gguf")),
        "draft": str(tiny_models.write(kind, tmp_path / "draft.gguf", noise=0.1)),
    }
    made = bench(**pair, **SMALL, swa_full=swa_full, k=k, n_predict=100, prompts=_short(tmp_path))
    plain = [run.tokens for run in made.decode().generations]
    run = made.speculate()
    assert [one.tokens for one in run.speculations] == plain
    assert 0 < run.accepted < run.drafted
    stages = made.timeline().requests
    assert all(stage.rollback_ms > 0 for stage in stages if stage.speculating)
    off = [stage.rollback_ms for stage in stages if not stage.speculating]
    assert max(off) == 0


def test_states_that_were_dropped_come_back_by_decoding_again(tmp_path: Path) -> None:
    """With room for one snapshot a draft that decoded k tokens has to go back behind it."""
    paths = [tiny_models.write("mamba", tmp_path / f"{n}.gguf", noise=0.1 * n) for n in range(2)]
    context: dict[str, Any] = {
        "n_ctx": 256,
        "n_batch": 32,
        "n_ubatch": 32,
        "n_threads": 1,
        "n_outputs_max": 32,
    }
    context |= {"type_k": "f16", "type_v": "f16", "embeddings": False, "flash_attn": "auto", "swa_full": True}
    program = f"""
import json
from specdec_worker import binding, drafts, faults, generate, model
binding.start()
made = []
for path in {[str(path) for path in paths]!r}:
    loaded = model.Model(path, gpu_layers=0, backend="cpu", use_extra_bufts=True)
    made.append(model.Context(loaded, {context!r}, faults.read("")))
    made[-1].roll_back_with(model.SNAPSHOT)
target, draft = made
prompt = list(range(10, 50))
plain = generate.plain(target, prompt, 80)["tokens"]
answers = []
for room in (model.SNAPSHOT_BYTES, 0):
    model.SNAPSHOT_BYTES = room
    run = generate.speculate(target, drafts.TwoModel(draft), prompt, 4, 80)
    answers.append([run["tokens"] == plain, run["accepted"], max(draft.replayed, default=0)])
print(json.dumps(answers))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(WORKER)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (kept, accepted, short), (dropped, again, long) = json.loads(done.stdout)
    assert kept
    assert dropped
    assert accepted == again
    assert short <= 2
    assert long == 32


def _short(folder: Path) -> str:
    path = folder / "prompts.jsonl"
    path.write_text('{"text": "one two three one two three one two", "template": "raw"}\n')
    return str(path)
