"""Two arms side by side: what one setting, fault or build changes is found, and said of the right term."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.cli import main
from tests import tiny_models


OLD = os.environ.get("SPECDEC_OLD_PYTHON", "")


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """A model of two blocks, two short prompts, and a grid that takes seconds."""
    model = tiny_models.write("llama", tmp_path / "llama.gguf")
    prompts = tmp_path / "prompts.jsonl"
    texts = ("one two three one two three one two", "a b c a b c a b c a b")
    prompts.write_text("".join(json.dumps({"text": text, "template": "raw"}) + "\n" for text in texts))
    return [
        *("--target", str(model), "--prompts", str(prompts), "--threads", "1", "--n-ctx", "256"),
        *(
            "--sizes",
            "1-5",
            "--map-sizes",
            "1-8",
            "--map-depths",
            "0,64",
            "--n-predict",
            "16",
            "--pairs",
            "8",
        ),
    ]


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `specdec upgrade`."""
    code = main(["upgrade", "--json", *arguments])
    told = capsys.readouterr()
    assert told.out, told.err
    return code, json.loads(told.out)


def aspects(report: dict[str, Any]) -> dict[str, str]:
    return {one["metric"]: one["word"] for one in report["aspects"]}


def test_bits_and_counts_of_one_build_are_the_same(
    capsys: pytest.CaptureFixture[str], tiny: list[str]
) -> None:
    _, report = compared(capsys, "--to-env", "SPECDEC_NOTHING=1", *tiny)
    found = aspects(report)
    assert {found[name] for name in ("kernel map", "acceptance", "texts")} == {"same"}


def test_a_sleep_per_round_is_overhead(capsys: pytest.CaptureFixture[str], tiny: list[str]) -> None:
    code, report = compared(capsys, "--to-env", "SPECDEC_FAULTS=sleep_round_ms=20", *tiny)
    assert code == 1
    assert aspects(report)["overhead"] == "regression"
    assert report["attribution"]["shares"]["overhead"] > 0.8
    assert aspects(report)["acceptance"] == "same"


def test_where_memory_holds_one_arm_they_take_turns_and_say_so(
    capsys: pytest.CaptureFixture[str], tiny: list[str]
) -> None:
    _, report = compared(capsys, "--to-param", "n_ubatch=4", "--memory", "0.07", *tiny)
    assert report["comparison"]["turns"]
    assert all(report["comparison"][arm]["facts"]["peak_bytes"] > 0 for arm in ("old", "new"))
    assert aspects(report)["texts"] in ("same", "changed")


def test_nothing_to_compare_is_said(capsys: pytest.CaptureFixture[str], tiny: list[str]) -> None:
    assert main(["upgrade", *tiny]) == 3
    assert "nothing tells the arms apart" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--to-param", "n_ubatch=no"), "n_ubatch must be a whole number"),
        (("--to-param", "colour=red"), "unknown setting 'colour'"),
        (("--from", "/nowhere/python"), "/nowhere/python could not be started"),
        (("--to-env", "A"), "A"),
    ],
)
def test_what_does_not_fit_is_refused(
    capsys: pytest.CaptureFixture[str], tiny: list[str], arguments: tuple[str, ...], told: str
) -> None:
    assert main(["upgrade", *arguments, *tiny]) == 3
    assert told in capsys.readouterr().err


SHORT = ("--map-sizes", "1-9", "--map-depths", "0", "--sizes", "1-8", "--calls", "1", "--pairs", "8")
FEW = ("--n-predict", "24", "--prompts", "default::repeat,code")


in_upgrade = pytest.mark.skipif(
    not OLD, reason="needs two builds: tox run -e upgrade has both, SPECDEC_OLD_PYTHON names the old one"
)


@in_upgrade
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("gemma-3-270m", "threshold 8 is new; bit-identical for N = 1-7, other bits at N = 8-9"),
        ("smollm2-135m", "the thresholds are the same"),
    ],
)
def test_an_upgrade_shows_which_kernels_moved(
    capsys: pytest.CaptureFixture[str], target: str, told: str
) -> None:
    _, report = compared(capsys, "--from", OLD, "--target", target, "--method", "ngram", *SHORT, *FEW)
    kernels = next(one for one in report["aspects"] if one["metric"] == "kernel map")
    assert kernels["because"].startswith(told)
    assert aspects(report)["acceptance"] in ("same", "changed")
    assert aspects(report)["texts"] in ("same", "changed")


@in_upgrade
def test_a_kernel_threshold_that_is_gone_is_no_regression_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("--target", "gemma-3-270m", "--method", "ngram", *SHORT, "--n-predict", "8")
    _, report = compared(
        capsys, "--to-env", "GGML_CPU_TILED_MM=0", *arguments, "--prompts", "default::repeat"
    )
    kernels = next(one for one in report["aspects"] if one["metric"] == "kernel map")
    assert kernels["word"] == "changed"
    assert "threshold 8 is gone" in kernels["because"]
    assert aspects(report)["acceptance"] in ("same", "changed")
