"""Two arms on real models: twenty times the same build, and changes whose term is known.

On a quiet machine. Every comparison prints its verdict; SPECDEC_SOAK_SAME shortens the twenty.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pytest_specdec.cli import main


SAME = int(os.environ.get("SPECDEC_SOAK_SAME", "20"))
GEMMA = ("--target", "gemma-3-270m", "--method", "ngram")
SMOLLM2 = ("--target", "smollm2-135m", "--draft", "requantize:Q2_K")
SHORT = ("--map-sizes", "1-9", "--map-depths", "0", "--sizes", "1-8", "--calls", "1")
FEW = ("--n-predict", "24", "--prompts", "default::repeat,code")

Compared = Callable[..., dict[str, Any]]


@pytest.fixture
def compared(capsys: pytest.CaptureFixture[str]) -> Compared:
    """JSON of `specdec upgrade`; its verdict is printed at once."""

    def compare(*arguments: str) -> dict[str, Any]:
        code = main(["upgrade", "--json", *SHORT, *FEW, *arguments])
        told = capsys.readouterr()
        assert told.out, told.err
        report: dict[str, Any] = json.loads(told.out)
        with capsys.disabled():
            print(f"\nexit {code}: {report['conclusion']}: {report['because']}", flush=True)
        return report

    return compare


def words(report: dict[str, Any]) -> dict[str, str]:
    """What became of each aspect."""
    return {one["metric"]: one["word"] for one in report["aspects"]}


def shares(report: dict[str, Any]) -> dict[str, float]:
    """Each term's share of the change in tokens/s."""
    assert report["attribution"] is not None, report["attribution_because"]
    found: dict[str, float] = report["attribution"]["shares"]
    print(json.dumps(found))
    return found


@pytest.mark.parametrize("run", range(SAME))
def test_the_same_build_is_no_difference(compared: Compared, run: int) -> None:
    report = compared("--from", sys.executable, *(GEMMA, SMOLLM2)[run % 2], "--pairs", "8")
    assert report["conclusion"] == "no difference"


@pytest.mark.parametrize(
    ("arguments", "gone"),
    [(("--to-env", "GGML_CPU_TILED_MM=0"), 8), (("--to-param", "use_extra_bufts=false"), 4)],
    ids=["tiled", "repack"],
)
def test_a_threshold_that_is_gone_is_named(compared: Compared, arguments: tuple[str, ...], gone: int) -> None:
    report = compared(*arguments, *GEMMA, "--pairs", "16")
    (kernels,) = [one for one in report["aspects"] if one["metric"] == "kernel map"]
    assert kernels["word"] == "changed"
    assert f"threshold {gone} is gone" in kernels["because"]
    assert words(report)["texts"] in ("same", "changed")
    if gone == 8:
        assert report["conclusion"] in ("a change worth knowing and no regression", "could not tell")


def test_a_split_batch_is_verify_cost(compared: Compared) -> None:
    """Rounds of four tokens and fewer cost what they did: k = 7 verifies eight.

    By prompt lookup: a draft model's prompt would be split too, which is no change of T(N).
    """
    lookup = (*SMOLLM2[:2], "--method", "ngram", "--k", "7", "--prompts", "default::repeat")
    report = compared("--to-param", "n_ubatch=4", *lookup, "--n-predict", "64", "--pairs", "16")
    assert words(report)["T(N)"] == "regression"
    dearer = {one["n"] for one in report["verify_cost"] if one["low"] is not None and one["low"] > 1.05}
    assert dearer <= {5, 6, 7, 8}
    assert dearer
    assert words(report)["acceptance"] == "same"
    assert shares(report)["curve"] > 0.8


def test_a_worse_draft_is_acceptance_and_draft_cost(compared: Compared) -> None:
    arguments = ("--from-param", "draft=requantize:Q8_0", "--to-param", "draft=requantize:Q2_K")
    texts = ("--prompts", "default::question,summary,prose", "--n-predict", "48")
    report = compared(*arguments, *SMOLLM2[:2], *texts, "--pairs", "15")
    assert words(report)["acceptance"] == "regression"
    assert words(report)["T(N)"] in ("same", "unclear")
    comparison = report["attribution"]
    assert comparison is None or abs(comparison["log"]["acceptance"]) > abs(comparison["log"]["curve"])
    assert comparison is None or abs(comparison["log"]["draft"]) > abs(comparison["log"]["curve"])


def test_a_sleep_per_round_is_overhead(compared: Compared) -> None:
    report = compared("--to-env", "SPECDEC_FAULTS=sleep_round_ms=20", *SMOLLM2, "--pairs", "16")
    assert words(report)["overhead"] == "regression"
    assert words(report)["acceptance"] == "same"
    assert shares(report)["overhead"] > 0.8
