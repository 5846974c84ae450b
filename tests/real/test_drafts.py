"""Where drafts come from: the oracle's known answer, prompt lookup's lengths, how near rejections were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.session import Bench
from pytest_specdec.checks.exactness import lossless
from pytest_specdec.cli import main
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.theory.acceptance import Acceptance
from pytest_specdec.verdict import Outcome
from tests import tiny_models


Make = Callable[..., Bench]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.write("llama", tmp_path / "llama.gguf")


@pytest.fixture
def tiny(bench: Make, model: Path, prompts: Path) -> Make:
    """A bench over a tiny model, one thread, a few prompts."""

    def make(**settings: object) -> Bench:
        base = {"target": str(model), "prompts": str(prompts), "threads": 1, "n_ctx": 1024}
        return bench(**{**base, "n_predict": 400, "method": "oracle", **settings})

    return make


def seen(run: SpeculativeRun) -> Acceptance:
    """The oracle draws every token on its own: each round is a cluster, and 32 intervals are to hold."""
    rounds = [
        (drafted, accepted)
        for one in run.speculations
        for drafted, accepted in zip(one.drafted, one.accepted, strict=True)
        if drafted
    ]
    drafted, accepted = zip(*rounds, strict=True)
    return Acceptance.from_rounds(drafted, accepted, list(range(len(rounds))), confidence=0.999)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7, 0.9])
def test_what_is_put_into_the_oracle_comes_out(tiny: Make, alpha: float) -> None:
    made = tiny(oracle_alpha=alpha)
    for k in range(1, 9):
        found = seen(made.speculate(k))
        low, high = found.interval
        assert low <= alpha <= high, (k, found.alpha)
        assert high - low < 0.2


def test_an_oracle_that_knows_is_always_right_and_one_that_does_not_never(tiny: Make) -> None:
    right, wrong = (tiny(oracle_alpha=alpha).speculate(4) for alpha in (1.0, 0.0))
    assert right.accepted == right.drafted > 0
    assert wrong.accepted == 0 < wrong.drafted
    assert [one.tokens for one in right.speculations] == [one.tokens for one in wrong.speculations]
    assert all(not one.misses for one in right.speculations)


def test_the_oracle_takes_the_time_it_is_told_to(tiny: Make) -> None:
    run = tiny(oracle_ms=2.0, n_predict=60).speculate(3)
    for one in run.speculations:
        assert sum(one.draft_ms) >= 2.0 * sum(one.drafted)
        assert one.forward_ms >= sum(one.draft_ms) * 0.9


def test_another_seed_draws_other_drafts(tiny: Make) -> None:
    first, again, other = (tiny(seed=seed, n_predict=60).speculate(3) for seed in (1, 1, 2))
    accepted = [[one.accepted for one in run.speculations] for run in (first, again, other)]
    assert accepted[0] == accepted[1] != accepted[2]


def test_the_oracles_text_is_the_targets_own(tiny: Make) -> None:
    assert lossless(tiny(n_predict=24).exactness(4)).outcome is Outcome.PASS


def test_rejections_say_how_near_they_were(tiny: Make) -> None:
    run = tiny(oracle_alpha=0.5, n_predict=100).speculate(3)
    for one in run.speculations:
        rejecting = [r for r in range(len(one.drafted)) if one.accepted[r] < one.drafted[r]]
        assert one.misses is not None
        told = [miss.round for miss in one.misses]
        # The end of the text cuts a draft short without a rejection.
        assert set(rejecting) - set(told) <= {len(one.drafted) - 1}
        assert all(miss.rank >= 2 and miss.gap > 0 for miss in one.misses)
    assert SpeculativeRun.from_json(run.to_json()) == run


def test_prompt_lookup_searches_for_suffixes_of_the_lengths_it_is_told(tiny: Make) -> None:
    """A longer minimum finds fewer places, and what it finds is what the longest one found before."""
    drafted = [
        sum(len([n for n in one.drafted if n]) for one in run.speculations)
        for run in (tiny(method="ngram", ngram_min=n, ngram_max=3).speculate(3) for n in (1, 2, 3))
    ]
    assert drafted[0] >= drafted[1] >= drafted[2]
    assert drafted[0] > drafted[2]
    with pytest.raises(BenchError, match="ngram_min = 4 exceeds ngram_max = 3"):
        tiny(method="ngram", ngram_min=4).speculate(3)


def test_variants_are_told_side_by_side(
    tmp_path: Path, model: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = tiny_models.write("llama", tmp_path / "draft.gguf", noise=0.05)
    arguments = [
        *("variants", "--target", str(model), "--draft", str(draft), "--oracle", "--oracle-alpha", "1"),
        *("--prompts", str(prompts), "--threads", "1", "--n-predict", "12", "--n-ctx", "512"),
    ]
    assert main([*arguments, "--json"]) == 0
    found = {one["method"]: one for one in json.loads(capsys.readouterr().out)["variants"]}
    assert set(found) == {"ngram", "two-model", "oracle"}
    for one in found.values():
        account = one["account"]
        assert one["lossless"] == "pass"
        assert account["free"] >= account["predicted"] > 0
        assert account["measured"]["low"] <= account["measured"]["value"]
        assert one["memory"]["peak"] > 0
    assert found["oracle"]["account"]["acceptance"]["alpha"] == 1
    assert found["oracle"]["account"]["acceptance"]["position_intervals"][0][1] == 1
    # A draft of the target's size costs what the target does; looking something up next to nothing.
    assert found["two-model"]["account"]["c"] > 0.5 > found["oracle"]["account"]["c"]
    assert main([*arguments, "--no-lossless"]) == 0
    told = capsys.readouterr().out
    assert "accepted by position: 1: " in told
    assert "breaks on: " in told
    assert "not measured" in told


def test_variants_without_a_target_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["variants"]) == 3
    assert "--target is missing" in capsys.readouterr().err


def test_a_variant_that_cannot_be_measured_ends_only_itself(
    tmp_path: Path, model: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing draft and one with too many blocks; prompt lookup that finds nothing is measured too."""
    arguments = [
        *("variants", "--target", str(model), "--draft", str(tmp_path / "absent.gguf")),
        *("--draft", "layerskip:99", "--draft", "layerskip:1", "--ngram-min", "9", "--ngram-max", "9"),
        *("--prompts", str(prompts), "--threads", "1", "--n-predict", "12", "--n-ctx", "512"),
    ]
    assert main([*arguments, "--json", "--no-lossless"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["variants"]] == ["prompt lookup", "layerskip:1"]
    assert [one["name"] for one in told["failed"]] == [str(tmp_path / "absent.gguf"), "layerskip:99"]
    assert told["variants"][0]["account"]["c"] is None
    assert 0 < told["variants"][1]["shared"] < 1
    assert told["variants"][1]["account"]["shared"] > 0
    assert main([*arguments, "--no-lossless"]) == 2
    words = capsys.readouterr().out
    assert "nothing was drafted" in words
    assert "layerskip:99: not measured: " in words
    assert "computed, not measured: with weights and cache shared with the target, c ≈ " in words
    broken = ["variants", "--target", str(model), "--prompts", str(prompts), "--n-ctx", "32"]
    assert main(broken) == 3
    assert "prompt lookup: not measured: prompt " in capsys.readouterr().out


def test_variants_are_measured_with_draws_too(
    model: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        *("variants", "--target", str(model), "--draft", "layerskip:1", "--temperature", "0.8"),
        *("--prompts", str(prompts), "--threads", "1", "--n-predict", "12", "--n-ctx", "512"),
    ]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["variants"]
    assert {one["method"]: one["lossless"] for one in found} == {
        "ngram": "not measured",
        "two-model": "not measured",
    }
