"""Copies with some of the blocks, as drafts: llama.cpp loads them, and speculation stays the target's own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.bench.session import Bench
from pytest_specdec.checks.exactness import lossless
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.models.layers import write_layers
from pytest_specdec.theory.stats import hodges_lehmann
from pytest_specdec.verdict import Outcome
from tests import tiny_models
from tests.real.test_worker import CONTEXT


Make = Callable[..., Bench]

PROMPTS = {
    "rota": "Anna washes the cups.\nBen sweeps the floor.\nAnna washes the cups.\nBen sweeps",
    "sea": "The sea is",
}


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"id": name, "text": text, "template": "raw"}) for name, text in PROMPTS.items()]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "moe-q4_k", "qwen2vl", "mamba", "lfm2"])
def test_llama_cpp_loads_a_copy(kind: str, bench: Make, tmp_path: Path) -> None:
    source = tiny_models.write(kind, tmp_path / "m.gguf", blocks=6)
    copy = tmp_path / "copy.gguf"
    write_layers(source, copy, (0, 1, 3, 4))
    engine = bench(target=str(source)).session.rig.engine
    facts = engine.request("load", path=str(copy), **CONTEXT)
    assert facts["model"]["n_layer"] == 4
    said = engine.request("decode", context=facts["context"], tokens=[1, 40, 50], n_predict=8)["tokens"]
    assert len(said) == 8


@pytest.mark.parametrize("draft", ["layerskip:2", "layerskip:skip=0,3", "layerskip:4"])
def test_speculation_with_a_copy_is_lossless(draft: str, bench: Make, prompts: str, tmp_path: Path) -> None:
    target = tiny_models.write("llama", tmp_path / "m.gguf", blocks=4)
    made = bench(target=str(target), draft=draft, prompts=f"{prompts}::rota", n_predict=24, k=3)
    exact = made.exactness()
    assert exact.method == "two-model"
    verdict = lossless(exact)
    assert verdict.outcome is Outcome.PASS, verdict.because
    facts = made.facts()["draft"]
    assert facts is not None
    assert facts.layers == {"layerskip:2": 2, "layerskip:skip=0,3": 2, "layerskip:4": 4}[draft]
    if draft == "layerskip:4":
        # All blocks: the target itself, whose drafts are all accepted.
        assert all(
            d == a for s in made.speculate().speculations for d, a in zip(s.drafted, s.accepted, strict=True)
        )


def test_agreement_is_what_one_token_passes_say(bench: Make, tmp_path: Path) -> None:
    target = tiny_models.write("llama", tmp_path / "m.gguf", blocks=4)
    engine = bench(target=str(target)).session.rig.engine
    handle = engine.request("load", path=str(target), **CONTEXT)["context"]
    prompt = [1, *range(40, 180)]
    text = [(7 * n) % 300 + 5 for n in range(90)]
    best = engine.request("agreement", context=handle, tokens=prompt, text=text)["best"]
    assert best == engine.request("forced", context=handle, tokens=prompt, text=text, candidates=None)["best"]
    assert len(set(best)) > 10
    # Batches no wider than the context takes, and one of a single token.
    narrow = engine.request("load", path=str(target), **{**CONTEXT, "n_batch": 8, "n_ubatch": 8})["context"]
    assert (
        engine.request("agreement", context=narrow, tokens=prompt[:1], text=text[:1])["best"]
        == (engine.request("agreement", context=handle, tokens=prompt[:1], text=text[:1])["best"])
    )
    assert engine.request("agreement", context=narrow, tokens=prompt, text=text)["best"] == best


@pytest.mark.parametrize(
    ("tokens", "text", "words"),
    [([], [1], "one token or more"), ([1], [], "one token or more"), ([1], [5] * 256, "raise n_ctx")],
)
def test_agreement_refuses(
    tokens: list[int], text: list[int], words: str, bench: Make, tmp_path: Path
) -> None:
    target = tiny_models.write("llama", tmp_path / "m.gguf")
    engine = bench(target=str(target)).session.rig.engine
    handle = engine.request("load", path=str(target), **CONTEXT)["context"]
    with pytest.raises(RequestRefused, match=words):
        engine.request("agreement", context=handle, tokens=tokens, text=text)


def test_a_search_leaves_nothing_loaded(
    bench: Make, prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    target = tiny_models.write("llama", tmp_path / "m.gguf", blocks=5)
    made = bench(target=str(target), prompts=prompts, n_predict=24)
    requests: list[str] = []
    engine = made.session.rig.engine
    plain = engine.request

    def request(op: str, /, **params: Any) -> dict[str, Any]:
        requests.append(op)
        return plain(op, **params)

    monkeypatch.setattr(engine, "request", request)
    found = made.search_layers(2, 60)
    assert len(found.skipped) == 2
    assert found.itself == 1.0
    assert found.copies == 5 + 4 + 2
    # The target stays.
    assert requests.count("load") - requests.count("unload") == 1
    assert list(temporary.iterdir()) == []


def test_the_first_twenty_blocks_of_smollm2_cost_less(bench: Make, prompts: str) -> None:
    made = bench(target="smollm2-135m", draft="layerskip:20", prompts=prompts)
    assert math.exp(hodges_lehmann(made.draft_cost().log_ratios())) < 1
