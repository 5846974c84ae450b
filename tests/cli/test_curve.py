from __future__ import annotations

import argparse
import io
import json
import re
import sys
from typing import Any

import pytest

from pytest_specdec import cli
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.cli import curve
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.models.errors import ModelError
from pytest_specdec.settings import Settings
from pytest_specdec.settings import usable_cores
from pytest_specdec.theory.steps import find_steps

from .double import Session
from .double import put


SAWTOOTH = {1: 21.0, 2: 30.4, 3: 35.1, 4: 40.2, 5: 58.5, 6: 63.2, 7: 68.8, 8: 60.8, 9: 77.6, 10: 82.0}
SMOOTH = {1: 10.3, 2: 15.7, 3: 20.0, 4: 23.5, 5: 29.2, 6: 33.3, 7: 37.4, 8: 39.7}
HELLO = {
    "llama_cpp_python": "0.3.36",
    "ggml_version": "0.9.4",
    "ggml_commit": "0c1e57098",
    "devices": [{"name": "CPU", "description": "Example CPU 9", "type": "cpu"}],
}


def made(ms: dict[int, float], *, rows: str = "all", factor: float = 1.0, **fields: Any) -> VerifyCurve:
    samples = tuple(
        tuple(tuple(t * factor * (1 + 0.001 * ((b + c + n) % 3)) for c in range(3)) for b in range(8))
        for n, t in ms.items()
    )
    return VerifyCurve(tuple(ms), samples, rows=rows, **fields)


class Double(Session):
    """A bench that measures the times it is told."""

    told = HELLO
    times: dict[int, float] = SAWTOOTH

    def verify_curve(self, *, rows: str = "all") -> VerifyCurve:
        self.measuring(f"verify curve: {rows}")
        return made(self.times, rows=rows, factor=1.0 if rows == "all" else 0.85)


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> type[Double]:
    return put(Double, monkeypatch, times=SAWTOOTH)


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["curve", "gemma-3-270m", *argv]) == 0
    return capsys.readouterr().out


def test_the_table_the_picture_and_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys)
    lines = out.splitlines()
    assert lines[0] == (
        "gemma-3-270m: T(N), one forward pass over N tokens, logits of all rows, median of 8 blocks of 3"
    )
    assert lines[1] == (
        f"llama-cpp-python 0.3.36 (ggml 0.9.4 0c1e57098); CPU Example CPU 9, "
        f"{usable_cores()} thread{'s' if usable_cores() > 1 else ''}, depth 0"
    )
    rows = {line.split()[0]: line.split() for line in lines[3:] if re.match(r" *\d+  +\d", line)}
    assert rows["5"][1] == "58.56"
    assert rows["5"][-2:] == ["49.77", "cliff"]
    assert rows["8"][-1] == "drop"
    assert any("▕" in line and "█" in line for line in lines)
    assert "cliffs: at 5 (T(5)/T(4) = 1.4" in out
    assert "drops: at 8 (T(8)/T(7) = 0.88" in out
    assert "dips: N = 7 cost more than the next larger size" in out
    assert "longest safe draft: k = 3, a batch of 4, the last before the first cliff" in out
    assert re.search(
        r"behind the cliff, k = 7 \(N = 8\) is better still: 7\.6\d ms per token, 10\.06 at N = 4$", out, re.M
    )
    assert ", every " not in out
    assert "cheapest per token: N = 8 (k = 7), 7.6" in out


def test_the_llama_bench_way_stands_beside(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [line for line in shown(capsys).splitlines() if line.startswith("the llama-bench way")]
    assert "-p N asks for the last row's logits only" in line
    assert line.endswith("(-15%)")


def test_no_cliff_rules_out_nothing(capsys: pytest.CaptureFixture[str], double: type[Double]) -> None:
    double.times = SMOOTH
    out = shown(capsys)
    assert "no cliff up to N = 8; the nearest to one is the step at 5 (T(5)/T(4) = 1.2" in out
    assert "verify cost rules out none of the measured lengths" in out
    assert "behind the cliff" not in out
    assert "drops" not in out


def test_the_ratio_is_the_users(capsys: pytest.CaptureFixture[str], double: type[Double]) -> None:
    double.times = {**SMOOTH, 5: 31.5}
    assert "no cliff" in shown(capsys)
    assert "cliffs: at 5" in shown(capsys, "--ratio", "1.3")


def test_a_flat_stretch_is_a_plateau(capsys: pytest.CaptureFixture[str], double: type[Double]) -> None:
    double.times = {1: 10.0, 2: 20.0, 3: 20.1, 4: 20.2, 5: 50.0, 6: 50.5}
    assert "plateaus: N = 2-4: further tokens are free there" in shown(capsys)


def result_of(verify: VerifyCurve) -> curve.Result:
    return curve.Result("m", Settings(), HELLO, verify, verify, find_steps(verify.n, verify.blocks_ms()))


def test_a_doubtful_step_asks_for_more_blocks() -> None:
    quiet = tuple((10.0,) for _ in range(8))
    noisy = tuple((14.0 + 0.4 * (b % 3 - 1),) for b in range(8))
    found = curve.findings(result_of(VerifyCurve((4, 5), (quiet, noisy))))
    (line,) = [line for line in found if line.startswith("perhaps a cliff")]
    assert "at 5 (T(5)/T(4) = 1.4" in line
    assert "measure more --blocks" in line
    assert found[0].startswith("no cliff beyond doubt up to N = 5")
    assert (
        "longest safe draft: verify cost rules out none of the measured lengths; "
        "k = 3 if there is one at 5 already"
    ) in found


def test_a_doubt_behind_the_cliff_does_not_shorten_the_draft() -> None:
    rows = [tuple((t,) for _ in range(8)) for t in (10.0, 10.0, 30.0)]
    doubtful = tuple((30.0 * (1.45 + 0.1 * (b % 3 - 1)),) for b in range(8))
    found = curve.findings(result_of(VerifyCurve((3, 4, 5, 6), (*rows, doubtful))))
    assert found[1].startswith("perhaps a cliff: at 6")
    assert "longest safe draft: k = 3, a batch of 4, the last before the first cliff" in found


def test_a_doubt_before_the_cliff_may_shorten_the_draft() -> None:
    rows = [tuple((t,) for _ in range(8)) for t in (10.0, 10.0)]
    doubtful = tuple((10.0 * (1.45 + 0.1 * (b % 3 - 1)),) for b in range(8))
    cliff = tuple((60.0,) for _ in range(8))
    found = curve.findings(result_of(VerifyCurve((3, 4, 5, 6), (*rows, doubtful, cliff))))
    assert (
        "longest safe draft: k = 4, a batch of 5, the last before the first cliff; "
        "k = 3 if there is one at 5 already"
    ) in found


def test_no_size_behind_the_cliff_is_better(double: type[Double]) -> None:
    # 7 costs less per token than its neighbours, but more than 4.
    times = {1: 20.0, 2: 25.0, 3: 30.0, 4: 35.0, 5: 62.0, 6: 70.0, 7: 73.0, 8: 96.0}
    found = curve.findings(result_of(made(times)))
    assert any(line.startswith("longest safe draft: k = 3") for line in found)
    assert not any(line.startswith("behind the cliff") for line in found)


def test_a_sawtooth_has_a_period() -> None:
    times = {1: 10.0, 2: 15.0, 3: 20.0, 4: 16.0, 5: 24.0, 6: 28.0, 7: 24.0, 8: 30.0, 9: 36.0, 10: 32.0}
    (line,) = [line for line in curve.findings(result_of(made(times))) if line.startswith("drops")]
    assert line.endswith("every 3 tokens: the larger batch is the cheaper one")


def test_the_llama_bench_way_is_told_where_it_misleads_most() -> None:
    verify = made({1: 10.0, 2: 20.0, 3: 30.0})
    last = made({1: 10.0, 2: 12.0, 3: 27.0}, rows="last")
    result = curve.Result("m", Settings(), HELLO, verify, last, find_steps(verify.n, verify.blocks_ms()))
    assert (
        "12.01 ms at N = 2, where verifying, with all rows, takes 20.02 (-40%)" in curve.findings(result)[-1]
    )


def test_a_disturbed_run_is_pointed_out() -> None:
    found = curve.findings(result_of(made(SMOOTH, sentinel_ms=(10.0, 30.0, 30.0))))
    assert "the run was disturbed: one and the same forward took 10.00 to 30" in found[-1]


def test_json_has_measurements_and_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(shown(capsys, "--json", "--depth", "256"))
    assert data["model"] == "gemma-3-270m"
    assert data["device"] == "CPU Example CPU 9"
    assert data["build"]["ggml_commit"] == "0c1e57098"
    assert data["settings"]["depth"] == 256
    assert data["settings"]["threads"] == usable_cores()
    assert VerifyCurve.from_json(data["verify_curve"]) == made(SAWTOOTH)
    assert VerifyCurve.from_json(data["llama_bench_curve"]) == made(SAWTOOTH, rows="last", factor=0.85)
    assert data["medians_ms"]["5"] == pytest.approx(58.5, rel=0.01)
    assert [step["n"] for step in data["steps"]["cliffs"]] == [5]
    assert [step["n"] for step in data["steps"]["drops"]] == [8]
    assert data["safe_draft_length"] == 3
    assert data["cheapest_per_token"] == 8


def test_options_become_settings(capsys: pytest.CaptureFixture[str], double: type[Double]) -> None:
    out = shown(
        capsys,
        "--sizes",
        "1-4,9",
        "--depth=64",
        "--threads",
        "1",
        "--n-ubatch",
        "4",
        "--backend",
        "cpu",
        "--blocks=9",
    )
    asked = double.asked
    assert asked.target == "gemma-3-270m"
    assert asked.sizes == (1, 2, 3, 4, 9)
    assert (asked.depth, asked.threads, asked.n_ubatch, asked.backend, asked.blocks) == (64, 1, 4, "cpu", 9)
    assert "1 thread, depth 64, n_ubatch 4" in out


def test_options_not_given_are_the_plugins_defaults(
    capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    shown(capsys)
    assert double.asked == Settings(target="gemma-3-270m")


def test_context_and_batch_grow_with_the_sizes(
    capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    shown(capsys, "--sizes", "1,2,1024", "--depth", "4096")
    assert double.asked.n_batch == 1024
    assert double.asked.n_ctx == 5120


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--sizes", "0-3"], "argument --sizes: must be sizes such as '1-12,16', not '0-3'"),
        (["--blocks", "2"], "argument --blocks: must be at least 8, not 2"),
        (["--backend", "abacus"], "argument --backend: must be one of auto, cpu"),
        (["--ratio", "0.9"], "argument --ratio: must be above 1, not 0.9"),
        (["--ratio", "1"], "argument --ratio: must be above 1, not 1"),
        (["--ratio", "inf"], "argument --ratio: must be a finite number, not inf"),
        (["--ratio", "much"], "argument --ratio: must be a number, not 'much'"),
    ],
)
def test_bad_values_name_their_option(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["curve", "m", *argv])
    assert ended.value.code == 3
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "trouble",
    [
        ModelError("no model file /there.gguf"),
        NotMeasured("no llama-cpp-python here", missing=True),
        BenchError("sizes asks for N = 600"),
        RequestRefused("the file ends early", code="load", log=("tensor data out of bounds",)),
    ],
)
def test_trouble_is_told_without_a_traceback(
    trouble: Exception, capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    double.trouble = trouble
    assert cli.main(["curve", "m"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"specdec curve: {trouble}\n"
    assert double.closed == 1


def test_the_worker_ends_also_after_success(capsys: pytest.CaptureFixture[str], double: type[Double]) -> None:
    shown(capsys)
    assert double.closed == 1


def test_progress_goes_to_a_terminals_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli.main(["curve", "m", "--json"])
    out, err = capsys.readouterr()
    assert "\rverify curve: all" in err
    assert err.endswith(" \r")
    json.loads(out)


def test_a_terminal_without_block_characters_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert cli.main(["curve", "m"]) == 0
    out = raw.getvalue().decode("ascii")
    assert "|##" in out
    assert "~MAD" in out
    assert "cliffs: at 5" in out


def test_arguments_have_the_plugins_help() -> None:
    parser = argparse.ArgumentParser()
    curve.add_arguments(parser)
    told = " ".join(parser.format_help().split())
    assert "model under test: a path or a model's name" in told
    assert "batch sizes N of the verify cost curve, such as 1-12,16 (default: 1-12,16)" in told
