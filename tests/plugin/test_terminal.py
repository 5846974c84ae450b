"""What a run shows: one line on what is under test, a table at the end, progress on a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from .project import Project


GATES = """
@cliff_at(9)
@accept_rate(0.9)
def test_one():
    pass

@lossless()
def test_two():
    print("from the test")
    assert True
"""


def test_the_line_under_the_collection(project: Project) -> None:
    project.test(GATES)
    result = project.run()
    lines = result.outlines
    (at,) = [i for i, line in enumerate(lines) if line.startswith("specdec: ")]
    assert lines[at - 1] == "collected 2 items"
    assert re.fullmatch(
        r"specdec: llama-cpp-python 0.0.1 \(ggml 0.0.2 012345678\), build [0-9a-f]{8}, CPU Abacus 1, "
        r"machine \S+, no baseline",
        lines[at],
    )


def test_it_names_the_baselines_of_this_machine(project: Project) -> None:
    project.test(GATES)
    project.run("--specdec-update=new", "--specdec-machine=bench")
    project.run("--specdec-machine=bench").stdout.fnmatch_lines(
        ["specdec: *, machine bench, baseline baselines/bench (1 pair)"]
    )


def test_it_says_when_llama_cpp_is_missing(project: Project) -> None:
    project.pretend(missing=["hello"])
    project.test(GATES)
    project.run().stdout.fnmatch_lines(["specdec: no llama-cpp-python in the double"])


def test_without_gates_there_is_neither_line_nor_table(project: Project) -> None:
    project.test("def test_it():\n    pass\n")
    result = project.run(passed=1)
    assert "specdec: " not in result.stdout.str()
    assert "speculative decoding" not in result.stdout.str()


def test_the_table_has_every_verdict_in_the_order_of_the_tests(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    project.test(GATES)
    result = project.run(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*= speculative decoding =*",
            "test *metric *measured *limit *verdict",
            "test_it.py::test_one *0.67 *accept_rate(0.9) *fail",
            "test_it.py::test_one *1.60 (*) *cliff_at(9) *pass",
            "test_it.py::test_two *lossless() *pass",
        ],
        consecutive=True,
    )


def test_the_table_fits_a_narrow_terminal(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    project.test(GATES)
    lines = project.run().outlines
    start = next(i for i, line in enumerate(lines) if "speculative decoding" in line)
    assert all(len(line) <= 70 for line in lines[start : start + 5])


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_shown_on_a_terminal_and_taken_away(project: Project, quiet: bool) -> None:
    project.test(GATES)
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", *(["-q"] if quiet else [])]
    with subprocess.Popen(command, stdout=theirs, stdin=theirs, stderr=theirs, cwd=project.path) as process:
        os.close(theirs)
        told = ""
        while True:
            try:
                told += os.read(ours, 4096).decode()
            except OSError:
                break
    os.close(ours)
    assert process.returncode == 1
    assert ("\rmeasuring verify_curve" in told) is not quiet
    shown = [line.rsplit("\r", 1)[-1] for line in told.replace("\r\n", "\n").split("\n")]
    assert not any("measuring" in line for line in shown)


def test_progress_does_not_mix_with_captured_output(project: Project) -> None:
    project.test("@accept_rate(0.9)\ndef test_it(capsys):\n    print('from the test')\n")
    result = project.run("-rA", failed=1)
    assert "measuring" not in result.stdout.str()
