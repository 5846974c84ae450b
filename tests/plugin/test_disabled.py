"""With `-p no:specdec` tests with our marks run as plain tests."""

from __future__ import annotations

import pytest

from .project import Project


def test_gates_run_as_plain_tests(project: Project) -> None:
    project.pytester.makeini("[pytest]\n")
    project.test("@cliff_at(5)\n@specdec(k=4)\ndef test_it():\n    pass\n")
    project.run("-p", "no:specdec", "-W", "ignore::pytest.PytestUnknownMarkWarning", passed=1)
    assert project.asked == []


def test_our_options_are_unknown_then(project: Project) -> None:
    assert project.run("-p", "no:specdec", "--specdec-k=3").ret == pytest.ExitCode.USAGE_ERROR
