from __future__ import annotations

from typing import Any

import pytest

from pytest_specdec.reports import text
from pytest_specdec.reports.terminal import Progress
from pytest_specdec.reports.terminal import build_name
from pytest_specdec.reports.terminal import device_name
from pytest_specdec.reports.terminal import header_line
from pytest_specdec.reports.terminal import measured
from pytest_specdec.reports.terminal import summary_table
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


BUILD = {"llama_cpp_python": "0.3.36", "ggml_version": "0.9.4", "ggml_commit": "0c1e570981234567"}
CPU = {"name": "CPU", "description": "Example CPU 9", "type": "cpu"}
GPU = {"name": "CUDA0", "description": "Example GPU 7", "type": "gpu"}


def verdict(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "outcome": Outcome.PASS,
        "metric": "T(9)/T(8)",
        "value": 1.22,
        "low": 1.19,
        "high": 1.25,
        "limit": "cliff_at(9)",
        "because": "",
    }
    return Verdict(**{**values, **changes})


def test_the_header_names_build_device_machine_and_baseline() -> None:
    assert header_line(BUILD, "CPU Example CPU 9", "linux-example-2c", "baselines/linux-example-2c") == (
        "specdec: llama-cpp-python 0.3.36 (ggml 0.9.4 0c1e57098), CPU Example CPU 9, "
        "machine linux-example-2c, baseline baselines/linux-example-2c"
    )


def test_the_header_without_a_build_says_what_to_install() -> None:
    assert header_line(None) == (
        "specdec: no llama-cpp-python (pip install 'pytest-specdec[llama]'), no baseline"
    )


def test_a_build_that_knows_little_of_itself() -> None:
    assert build_name({"llama_cpp_python": "0.3.16"}) == "llama-cpp-python 0.3.16"
    assert build_name({"llama_cpp_python": "0.3.16", "ggml_commit": None, "ggml_version": "0.9"}) == (
        "llama-cpp-python 0.3.16 (ggml 0.9)"
    )
    assert build_name({"llama_cpp_python": "0.3.36", "ggml_commit": "0c1e570-dirty"}) == (
        "llama-cpp-python 0.3.36 (0c1e570-dirty)"
    )


@pytest.mark.parametrize(
    ("hello", "layers", "name"),
    [
        ({"devices": [CPU]}, -1, "CPU Example CPU 9"),
        ({"devices": [CPU, GPU], "gpu_offload": True}, -1, "CUDA0 Example GPU 7"),
        ({"devices": [CPU, GPU], "gpu_offload": True}, 0, "CPU Example CPU 9"),
        ({"devices": [CPU, GPU], "gpu_offload": False}, -1, "CPU Example CPU 9"),
        ({"devices": [GPU, {**GPU, "name": "CUDA1"}]}, -1, "CUDA0 Example GPU 7 + CUDA1 Example GPU 7"),
        ({"devices": [{"name": "CPU", "description": "CPU", "type": "cpu"}]}, -1, "CPU"),
        ({}, -1, "unknown device"),
    ],
)
def test_the_device_that_computes(hello: dict[str, Any], layers: int, name: str) -> None:
    assert device_name(hello, gpu_layers=layers) == name


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({}, "1.22 (1.19-1.25)"),
        ({"low": None, "high": None}, "1.22"),
        ({"low": None}, "1.22 (?-1.25)"),
        ({"high": None}, "1.22 (1.19-?)"),
        ({"value": 2.0, "high": None}, "2.00 (1.19-?)"),
        ({"value": 2.0, "low": None, "high": None}, "2"),
        ({"value": 2.0}, "2.00 (1.19-1.25)"),
        ({"value": None}, "-"),
    ],
)
def test_what_was_measured(changes: dict[str, Any], written: str) -> None:
    assert measured(verdict(**changes)) == written


def test_the_table_has_a_line_per_verdict() -> None:
    lines = summary_table(
        [("t.py::a", verdict()), ("t.py::b", verdict(outcome=Outcome.NOT_MEASURED))], width=200
    )
    assert [line.split() for line in lines] == [
        ["test", "metric", "measured", "limit", "verdict"],
        ["t.py::a", "T(9)/T(8)", "1.22", "(1.19-1.25)", "cliff_at(9)", "pass"],
        ["t.py::b", "T(9)/T(8)", "1.22", "(1.19-1.25)", "cliff_at(9)", "not", "measured"],
    ]


def test_a_baseline_brings_its_column() -> None:
    lines = summary_table([("a", verdict(baseline=1.5)), ("b", verdict())], width=200)
    assert lines[0].split()[-2:] == ["baseline", "verdict"]
    assert lines[1].split()[-2:] == ["1.50", "pass"]
    assert lines[2].split()[-2:] == ["cliff_at(9)", "pass"]


def test_no_verdicts_no_table() -> None:
    assert summary_table([]) == []


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_wide_table_is_cut_to_the_terminal(width: int) -> None:
    rows = [
        ("tests/speed/test_pairs.py::TestSmall::test_gate[k=3-requantized]", verdict(baseline=1.0)),
        ("t.py::b", verdict(metric="differing prompts k=3", outcome=Outcome.INCONCLUSIVE)),
        ("t.py::c", verdict(limit="within_baseline('curve', 'acceptance', tolerance=0.2)")),
    ]
    lines = summary_table(rows, width=width)
    assert max(map(text.width, lines)) <= width
    assert "equantized]" in lines[1]
    assert lines[2].endswith("inconclusive")
    assert all("1.22 (1.19-1.25)" in line for line in lines[1:])
    assert "within_base" in lines[3]


def test_the_terminals_width_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    lines = summary_table([("t.py::" + "x" * 200, verdict())])
    assert max(map(text.width, lines)) == 90


def test_a_table_too_wide_for_any_terminal_keeps_its_numbers() -> None:
    lines = summary_table([("t.py::" + "x" * 50, verdict())], width=20)
    assert "1.22 (1.19-1.25)" in lines[1]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_rewrites_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    written: list[str] = []
    progress = Progress(
        written.append, terminal=True, begin=lambda: written.append("<begin>"), columns=lambda: 30
    )
    progress("verify curve: block 1/8")
    progress("short")
    progress("x" * 50)
    progress.clear()
    progress.clear()
    progress("again")
    assert written == [
        "<begin>",
        "\rverify curve: block 1/8",
        "\rshort" + " " * 18,
        "\r" + "x" * 28 + "…",
        "\r" + " " * 29 + "\r",
        "<begin>",
        "\ragain",
    ]


def test_progress_elsewhere_is_a_line_now_and_then() -> None:
    clock = Clock()
    written: list[str] = []
    progress = Progress(written.append, terminal=False, every=30.0, clock=clock)
    for clock.now in range(0, 100, 10):
        progress(f"at {clock.now}")
    progress.clear()
    assert written == ["at 30\n", "at 60\n", "at 90\n"]


def test_a_dumb_terminal_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    written: list[str] = []
    Progress(written.append, terminal=True)("soon")
    assert written == []
