"""A run that fails against its baseline leaves a candidate, and prints the command that accepts it."""

from __future__ import annotations

import shlex

import pytest

from pytest_specdec.cli import main

from .project import Project


CURVE = "@within_baseline('curve')\ndef test_curve():\n    pass\n"


def accepting(result: pytest.RunResult) -> list[str]:
    (line,) = [line for line in result.outlines if line.startswith("to accept ")]
    return shlex.split(line.partition(": ")[2])


@pytest.mark.parametrize("args", [(), ("--specdec-baseline-dir=kept here",)])
def test_the_printed_command_accepts_it(project: Project, args: tuple[str, ...]) -> None:
    project.test(CURVE)
    project.run("--specdec-update=new", *args, passed=1)
    project.pretend(curve={"5": 14.5})
    result = project.run(*args, failed=1)
    result.stdout.fnmatch_lines(["within_baseline('curve'): fail: *"])
    program, *arguments = accepting(result)
    assert program == "specdec"
    assert main(arguments) == 0
    project.run(*args, passed=1)


def test_accepting_leaves_other_entries(project: Project) -> None:
    project.test(CURVE + "\n@within_baseline('acceptance')\ndef test_counts():\n    pass\n")
    project.run("--specdec-update=new", passed=2)
    project.pretend(curve={"5": 14.5}, accepted=1)
    _, *arguments = accepting(project.run("-k", "curve", failed=1, deselected=1))
    assert main(arguments) == 0
    project.run(passed=1, failed=1).stdout.fnmatch_lines(["within_baseline('acceptance'): fail: *"])


def test_other_failures_leave_none(project: Project) -> None:
    project.test(CURVE + "\n@lossless()\n@accept_rate(0.9)\ndef test_fails():\n    pass\n")
    project.run("--specdec-update=new", passed=1, failed=1)
    result = project.run(passed=1, failed=1)
    result.stdout.no_fnmatch_line("to accept *")


def test_a_baseline_that_is_missing_leaves_none(project: Project) -> None:
    project.test(CURVE)
    project.run(failed=1).stdout.no_fnmatch_line("to accept *")
