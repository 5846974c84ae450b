"""Sampling: what speculation draws is the target's own distribution, and a planted bug is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.session import Bench
from pytest_specdec.checks.sampling import same_distribution
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.verdict import Outcome
from tests import tiny_models


Make = Callable[..., Bench]
DRAWS = 600
# Whatever is drawn occurred before, so that prompt lookup drafts.
TEXT = "".join(map(chr, range(32, 127)))


@pytest.fixture
def tiny(bench: Make, tmp_path: Path) -> Make:
    """A tiny model and a relative of it, one thread, at temperature 1 over the two likeliest tokens."""
    target = tiny_models.write("llama", tmp_path / "target.gguf")
    draft = tiny_models.write("llama", tmp_path / "draft.gguf", noise=0.3)
    prompts = tmp_path / "prompts.jsonl"
    texts = [{"id": "all", "text": TEXT}, {"id": "dog", "text": "the dog bit the dog bit the"}]
    prompts.write_text("".join(json.dumps({**text, "template": "raw"}) + "\n" for text in texts))

    def make(method: str = "two-model", **settings: Any) -> Bench:
        base = {
            "target": str(target),
            "prompts": f"{prompts}::all",
            "threads": 1,
            "n_ctx": 512,
            "method": method,
        }
        base |= {"draft": str(draft)} if method == "two-model" else {}
        drawn = {"temperature": 1.0, "top_k": 2, "n_predict": 5, "k": 2}
        return bench(**{**base, **drawn, **settings})

    return make


@pytest.mark.parametrize("method", ["two-model", "ngram"])
def test_draws_are_the_targets_own(tiny: Make, method: str) -> None:
    drawn = tiny(method).distribution(DRAWS)
    assert drawn.draws == DRAWS
    assert 20 <= len(drawn.texts) <= 32
    assert sum(drawn.odds) == pytest.approx(1.0)
    verdict = same_distribution(drawn)
    assert verdict.outcome is Outcome.PASS, verdict.long_repr()


@pytest.mark.parametrize("method", ["two-model", "ngram"])
def test_drafts_that_are_taken_without_the_ratio_test_are_found(tiny: Make, method: str) -> None:
    made = tiny(method, env=(("SPECDEC_FAULTS", "no_ratio=1"),))
    verdict = same_distribution(made.distribution(DRAWS))
    assert verdict.outcome is Outcome.FAIL
    assert "of them the target never says" in verdict.because or "own distribution" in verdict.because


def test_every_transform_is_the_drafts_too(tiny: Make) -> None:
    """With the same transforms a model drafting for itself is accepted whatever is drawn."""
    made = tiny(temperature=1.5, top_k=0, top_p=0.9, min_p=0.01, repeat_penalty=1.3, n_predict=40, k=4)
    own = made.with_settings(draft=made.settings.target, prompts=made.settings.prompts.replace("all", "dog"))
    run = own.speculate()
    assert run.accepted == run.drafted > 20


def test_a_seed_draws_one_text_and_another_seed_another(tiny: Make) -> None:
    runs = [tiny("ngram", seed=seed, n_predict=24, top_k=0).decode() for seed in (1, 1, 2)]
    texts = [run.generations[0].tokens for run in runs]
    assert texts[0] == texts[1] != texts[2]


def test_temperature_zero_is_greedy(tiny: Make) -> None:
    greedy, cold = (tiny(n_predict=24, temperature=value).decode() for value in (0.0, 0.001))
    assert greedy.generations[0].tokens == cold.generations[0].tokens


def test_acceptance_is_swept_over_a_setting(tiny: Make) -> None:
    runs = tiny(n_predict=60).sweep_over("temperature", [0.0, 2.0])
    assert set(runs) == {0.0, 2.0}
    assert all(run.drafted for run in runs.values())
    with pytest.raises(ValueError, match="unknown setting"):
        tiny().sweep_over("warmth", [1])


def test_what_can_not_be_drawn_is_said(tiny: Make) -> None:
    with pytest.raises(BenchError, match="set temperature above 0"):
        tiny(temperature=0.0).distribution(10)
    with pytest.raises(RequestRefused, match="lower n_predict or top_k"):
        tiny(top_k=0, n_predict=8).distribution(10)
    with pytest.raises(BenchError, match="holds greedy decoding"):
        tiny().exactness()
    with pytest.raises(BenchError, match="the oracle knows what greedy decoding says"):
        tiny("oracle").speculate()
