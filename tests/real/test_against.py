"""`within_baseline` against an old arm that is measured beside the build under test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_models


SOURCE = """
@specdec(target={target!r}, prompts={prompts!r}, threads=1, n_ctx=256, n_predict=12, sizes="1-4",
         map_sizes="1-8", map_depths="0")
@within_baseline({metrics})
def test_pair(): pass
"""


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str], str]:
    model = tiny_models.write("llama", tmp_path / "llama.gguf")
    prompts = tmp_path / "prompts.jsonl"
    text = {"text": "one two three one two three one two", "template": "raw"}
    prompts.write_text(json.dumps(text) + "\n")

    def make(metrics: str) -> str:
        return SOURCE.format(target=str(model), prompts=str(prompts), metrics=metrics)

    return make


def test_counters_of_the_same_build_hold(
    gate: Callable[..., pytest.RunResult], source: Callable[[str], str]
) -> None:
    result = gate(source("'kernels', 'acceptance'"), "--specdec-against-env=SPECDEC_NOTHING=1", "-rA")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["specdec: *baseline the old arm beside it: llama-cpp-python *, SPECDEC_NOTHING=1*"]
    )


def test_fewer_accepted_than_by_the_old_arm_fails(
    gate: Callable[..., pytest.RunResult], source: Callable[[str], str]
) -> None:
    faulty = ("--specdec-env=SPECDEC_FAULTS=wrong_bonus=1", "--specdec-against-env=SPECDEC_FAULTS=")
    result = gate(source("'acceptance'"), *faulty)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*acceptance is not the baseline's*the baseline is the old arm*"])


def test_waiting_rounds_are_overhead_against_an_arm_without(
    gate: Callable[..., pytest.RunResult], source: Callable[[str], str]
) -> None:
    result = gate(
        source("'speedup'"),
        "--specdec-env=SPECDEC_FAULTS=sleep_round_ms=20",
        "--specdec-against-env=SPECDEC_FAULTS=",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*speedup is*was*the baseline is the old arm*"])


def test_arms_with_other_draft_lengths_are_refused(
    gate: Callable[..., pytest.RunResult], source: Callable[[str], str]
) -> None:
    result = gate(source("'acceptance'"), "--specdec-against-param=k=5")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the arms must speculate alike*"])
