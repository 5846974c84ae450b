"""In workers of pytest-xdist gates are skipped by policy, and a run that so measured nothing is red."""

from __future__ import annotations

import pytest

from .project import Project


pytest.importorskip("xdist")

SOURCE = """
@cliff_at(9)
def test_one():
    pass

@lossless()
def test_two():
    pass

def test_three(specdec):
    specdec.decode()

def test_plain():
    pass
"""


def test_gates_are_skipped_with_the_reason_and_the_run_is_red(project: Project) -> None:
    project.test(SOURCE)
    result = project.run("-n2", "-rs", passed=1, skipped=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*test_three*specdec.decode()*not measured",
            "specdec: no gate measured anything: *run gates without -n, or one at a time with "
            "--specdec-xdist=exclusive",
        ]
    )
    assert project.asked == []


def test_plain_tests_stay_green(project: Project) -> None:
    project.test(SOURCE)
    assert project.run("-n2", "-k", "plain", passed=1).ret == 0


def test_a_gate_that_fails_in_its_body_is_a_failure(project: Project) -> None:
    project.test("@lossless()\ndef test_it():\n    assert 0\n")
    project.run("-n1", failed=1)


def test_n0_measures(project: Project) -> None:
    project.test(SOURCE)
    assert project.run("-n0", passed=4).ret == 0


def test_without_xdist_it_works(project: Project) -> None:
    project.test(SOURCE)
    assert project.run("-p", "no:xdist", passed=4).ret == 0


def test_junit_of_the_controller_has_the_verdicts(project: Project) -> None:
    project.test(SOURCE)
    suite = project.junit("-n1")
    assert suite.get("skipped") == "3"
    assert len(suite.findall("testcase/properties/property")) == 3
