"""Bad input, end to end: each a failed test whose text names the file or option and says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_models


@pytest.fixture
def files(tmp_path: Path, smollm2: Path) -> dict[str, Path]:
    made = {kind: tiny_models.write(kind, tmp_path / f"{kind}.gguf") for kind in ("llama", "llama-b", "clip")}
    made["text"] = tmp_path / "text.gguf"
    made["text"].write_text("once upon a time\n" * 100)
    made["truncated"] = tmp_path / "truncated.gguf"
    made["truncated"].write_bytes(smollm2.read_bytes()[:1_000_000])
    made["missing"] = tmp_path / "missing.gguf"
    return made


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "no model file"),
        ("text", "text.gguf*not a GGUF"),
        ("truncated", "truncated.gguf*truncated"),
        ("clip", "clip.gguf*vision projector"),
    ],
)
def test_a_target_that_cannot_be_used(
    gate: Callable[..., pytest.RunResult], files: dict[str, Path], name: str, words: str
) -> None:
    result = gate(_pair(files[name]), "--specdec-n-ctx=256", "--specdec-n-predict=8")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([f"*accept_rate(0*{words}*"])


def test_a_draft_with_another_vocabulary(
    gate: Callable[..., pytest.RunResult], files: dict[str, Path]
) -> None:
    result = gate(_pair(files["llama"], files["llama-b"]), "--specdec-n-ctx=256", "--specdec-n-predict=8")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*don't share a vocabulary*Choose a draft of the same family*"])


def test_a_batch_larger_than_the_context(
    gate: Callable[..., pytest.RunResult], files: dict[str, Path]
) -> None:
    source = _pair(files["llama"]).replace("accept_rate(0.0)", "no_cliff(4)")
    result = gate(source, "--specdec-sizes=1-4,600", "--specdec-n-batch=512")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*N = 600*n_batch is 512*raise n_batch or lower sizes*"])
    result = gate(source, "--specdec-sizes=1-4,200", "--specdec-n-ctx=128")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*N = 200*n_ctx = *raise n_ctx*"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:200], "*truncated*"),
        (lambda text: text.replace('"schema_version": 2', '"schema_version": 99'), "*schema*99*"),
    ],
    ids=["truncated", "newer schema"],
)
def test_a_baseline_that_cannot_be_read(
    gate: Callable[..., pytest.RunResult],
    pytester: pytest.Pytester,
    files: dict[str, Path],
    change: Callable[[str], str],
    words: str,
) -> None:
    source = _pair(files["llama"]).replace("accept_rate(0.0)", 'within_baseline("acceptance")')
    quick = ("--specdec-n-ctx=256", "--specdec-n-predict=8")
    gate(source, "--specdec-update=new", *quick).assert_outcomes(passed=2)
    (baseline,) = pytester.path.glob("baselines/*/*.json")
    baseline.write_text(change(baseline.read_text()))
    spoiled = baseline.read_bytes()
    result = gate(source, *quick)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([f"*{baseline.name}{words}"])
    assert baseline.read_bytes() == spoiled


def test_an_unknown_machine_names_the_known_ones(
    gate: Callable[..., pytest.RunResult], files: dict[str, Path]
) -> None:
    source = _pair(files["llama"]).replace("accept_rate(0.0)", 'within_baseline("acceptance")')
    quick = ("--specdec-n-ctx=256", "--specdec-n-predict=8")
    gate(source, "--specdec-update=new", "--specdec-machine=lab-one", *quick).assert_outcomes(passed=2)
    result = gate(source, "--specdec-machine=elsewhere", *quick)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*no baselines for machine elsewhere*lab-one*"])
    result = gate(source, "--specdec-machine=elsewhere", "--specdec-missing=skip", *quick)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*no gate measured anything*"])


def _pair(target: Path, draft: Path | None = None) -> str:
    given = {"target": str(target), **({"draft": str(draft)} if draft else {}), "threads": 1}
    text = "one two three one two three one two three one two"
    prompts = target.parent / "prompts.jsonl"
    prompts.write_text(json.dumps({"text": text, "template": "raw"}) + "\n")
    given["prompts"] = str(prompts)
    return f"""
        def test_before(): pass

        @accept_rate(0.0)
        @specdec(**{given!r})
        def test_pair(): pass
        """
