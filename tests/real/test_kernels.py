"""The kernel map against a script that shares no code with it, and against switches of known effect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_specdec.bench.session import Bench
from pytest_specdec.measurements import DepthMap
from pytest_specdec.models.find import resolve
from pytest_specdec.theory.classes import find_classes
from tests import tiny_models
from tests.real.conftest import GEMMA


SIZES = (1, 2, 3, 4, 5, 7, 8, 9)
LIST = ",".join(map(str, SIZES))

# Where the bits of the first row's hidden state change; nothing of the package in it.
SCRIPT = """
import sys, json, ctypes, llama_cpp.llama_cpp as l
path, depth, threads, sizes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
l.llama_log_set(quiet := l.llama_log_callback(lambda level, text, data: None), None)
model = l.llama_model_load_from_file(path.encode(), l.llama_model_default_params())
p = l.llama_context_default_params()
p.n_ctx, p.n_threads, p.n_threads_batch, p.embeddings, p.pooling_type = 1024, threads, threads, True, 0
context, seen = l.llama_init_from_model(model, p), []
for n in [depth, *sizes] if depth else sizes:
    l.llama_set_embeddings(context, n != depth)
    tokens = (ctypes.c_int32 * n)(*(300 + 7 * i % 1000 for i in range(n)))
    assert l.llama_decode(context, l.llama_batch_get_one(tokens, n)) == 0
    if n == depth:
        continue
    l.llama_memory_seq_rm(l.llama_get_memory(context), 0, depth, -1)
    seen.append(ctypes.string_at(l.llama_get_embeddings_ith(context, 0), 4 * l.llama_model_n_embd(model)))
print(json.dumps([n for n, before, own in zip(sizes[1:], seen, seen[1:]) if own != before]))
"""


def independent(name: str, depth: int, threads: int) -> tuple[int, ...]:
    arguments = [str(resolve(name).path), str(depth), str(threads), json.dumps(SIZES)]
    script = [sys.executable, "-c", SCRIPT, *arguments]
    run = subprocess.run(script, capture_output=True, text=True, check=True)
    return tuple(json.loads(run.stdout))


_MAPS: dict[str, DepthMap] = {}


def gemma_map(bench: Callable[..., Bench], **settings: object) -> DepthMap:
    """The map of one build and model, with some settings; each is taken once."""
    key = repr(sorted(settings.items()))
    if key not in _MAPS:
        _MAPS[key] = bench(**GEMMA, map_sizes="1-9,12", threads=1, **settings).kernel_map().maps[0]
    return _MAPS[key]


def thresholds(one: DepthMap) -> tuple[int, ...]:
    return find_classes(one.n, [one.hidden, one.logits], one.remainder).thresholds


@pytest.mark.parametrize(
    ("target", "depth"),
    [("gemma-3-270m", 0), ("gemma-3-270m", 512), ("smollm2-135m", 512)],
)
def test_thresholds_are_those_an_independent_script_sees(
    bench: Callable[..., Bench], target: str, depth: int
) -> None:
    made = bench(target=target, depth=depth, map_sizes=LIST, threads=2)
    (one,), (alone,) = (measured := made.kernel_map()).maps, measured.one_thread
    assert (one.depth, one.threads, alone.threads) == (depth, 2, 1)
    assert thresholds(one) == independent(target, depth, threads=2)
    assert thresholds(alone) == independent(target, depth, threads=1)
    if depth == 512:
        # With two threads the attention of one-token passes is split between them.
        assert thresholds(one) == (2, *thresholds(alone))
    assert one.deterministic
    assert one.content == ()
    assert 0 < measured.forward_ms < measured.wall_ms


@pytest.mark.parametrize(
    ("removed", "env", "settings"),
    [
        (8, (("GGML_CPU_TILED_MM", "0"),), {}),
        (4, (), {"use_extra_bufts": False}),
    ],
    ids=["no tiles", "no repacking"],
)
def test_a_switch_removes_its_own_threshold_and_moves_no_other(
    bench: Callable[..., Bench],
    removed: int,
    env: tuple[tuple[str, str], ...],
    settings: dict[str, object],
) -> None:
    usual = gemma_map(bench)
    if removed not in thresholds(usual):
        pytest.skip(f"this CPU has no threshold at {removed} to remove")
    changed = gemma_map(bench, env=env, **settings)
    assert thresholds(changed) == tuple(n for n in thresholds(usual) if n != removed)
    if removed == 8:
        below = usual.n.index(8)
        assert changed.digests[:below] == usual.digests[:below]
        assert set(changed.digests[below:]).isdisjoint(usual.digests)


def test_rows_that_do_not_fill_a_block_are_told_from_thresholds(bench: Callable[..., Bench]) -> None:
    """Repacked matrices are multiplied in fours; with it off no row is left over."""
    usual, plain = gemma_map(bench), gemma_map(bench, use_extra_bufts=False)
    assert set(plain.remainder) == {0}
    if 4 not in thresholds(usual):
        pytest.skip("this CPU does not repack matrices of this model")
    assert usual.remainder == (0, 0, 0, 0, 1, 2, 3, 0, 1, 0)
    # What the proof is for: without it, row 8 of a batch of 12 would show a threshold.
    unproven = find_classes(usual.n, [usual.hidden, usual.logits], [0] * len(usual.n)).thresholds
    assert unproven == (*thresholds(usual), 12)


def test_a_quantised_mixture_depends_on_content_from_eight_on(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    found = {}
    for kind in ("moe-q4_k", "moe-f32"):
        path = tiny_models.write(kind, tmp_path / f"{kind}.gguf")
        made = bench(target=str(path), n_ctx=128, n_batch=64, map_sizes="1-16", threads=1)
        found[kind] = made.kernel_map().maps[0]
    assert found["moe-f32"].content == ()
    assert found["moe-q4_k"].content == (*range(8, 17),)


@pytest.mark.parametrize("kind", ["mamba", "lfm2", "gemma3"])
def test_models_that_can_not_remove_tokens_are_mapped_too(
    bench: Callable[..., Bench], tmp_path: Path, kind: str
) -> None:
    path = tiny_models.write(kind, tmp_path / f"{kind}.gguf")
    settings = {"target": str(path), "n_ctx": 256, "n_batch": 64, "map_sizes": "1-6", "threads": 1}
    first, again = (bench(**settings, depth=40, swa_full=False).kernel_map().maps[0] for _ in range(2))
    assert first == again
    assert first.deterministic
    assert len({rows[0] for rows in first.hidden}) == len(thresholds(first)) + 1


@pytest.mark.parametrize("kind", ["llama", "lfm2"])
def test_logits_are_those_of_a_context_without_hidden_states(
    bench: Callable[..., Bench], tmp_path: Path, kind: str
) -> None:
    """A context that gives lfm2's hidden states leaves the logits of an earlier pass where these belong."""
    path = tiny_models.write(kind, tmp_path / f"{kind}.gguf")
    made = bench(target=str(path), n_ctx=128, n_batch=64, map_sizes="1-4", threads=1)
    rig, settings, rows = made.session.rig, made.settings, []
    for embeddings in (True, False):
        loaded = rig.context(rig.target(settings), settings, "target", embeddings=embeddings)
        rig.prove_rollback(loaded, [*range(261, 325)], kind)
        answer = rig.engine.request(
            "kernel_map",
            context=loaded.handle,
            tokens=[*range(261, 281)],
            sizes=[3, 4],
            depth=2,
            followers=[],
            repeat=True,
            remainder=[],
            fresh=True,
        )
        assert answer["repeated"] == [True, True]
        rows.append(answer["rows"][1])
    both, alone = rows
    assert both["logits"] == alone["logits"]
    assert len(set(both["logits"])) == len(set(both["hidden"])) == 4
    assert alone["hidden"] == [""] * 4
