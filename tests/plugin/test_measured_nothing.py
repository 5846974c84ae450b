"""A run whose gates were all skipped by policy is not green; users' own skips are another matter."""

from __future__ import annotations

import pytest

from .project import Project


TWO = """
@cliff_at(9)
def test_one():
    pass

@no_cliff(8)
def test_two():
    pass

def test_plain():
    pass
"""


@pytest.fixture
def gone(project: Project) -> Project:
    project.pretend(missing=["verify_curve"])
    return project


def test_the_last_gate_fails(gone: Project) -> None:
    gone.test(TWO)
    result = gone.run("--specdec-missing=skip", "-v", skipped=1, failed=1, passed=1)
    result.stdout.fnmatch_lines(["*test_one SKIPPED*", "*test_two FAILED*", "no gate measured anything: *"])


def test_one_gate_that_measures_is_enough(gone: Project) -> None:
    gone.test(TWO + "\n@lossless()\ndef test_three():\n    pass\n")
    assert gone.run("--specdec-missing=skip", skipped=2, passed=2).ret == 0


def test_one_that_fails_is_enough(gone: Project) -> None:
    gone.test("@accept_rate(0.9)\ndef test_zero():\n    pass\n" + TWO)
    gone.run("--specdec-missing=skip", skipped=2, failed=1, passed=1)


def test_a_gate_measured_in_part_is_enough(gone: Project) -> None:
    gone.test(TWO.replace("@no_cliff(8)", "@no_cliff(8)\n@lossless()"))
    assert gone.run("--specdec-missing=skip", skipped=1, passed=2, warnings=1).ret == 0


def test_deselected_gates_do_not_wait(gone: Project) -> None:
    gone.test(TWO)
    gone.run("--specdec-missing=skip", "-k", "one or plain", failed=1, passed=1, deselected=1)


def test_when_the_last_gate_is_skipped_by_its_author_the_run_ends_red(gone: Project) -> None:
    gone.test(TWO.replace("@no_cliff(8)", "@pytest.mark.skip\n@no_cliff(8)"))
    result = gone.run("--specdec-missing=skip", skipped=2, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["specdec: no gate measured anything: *no model for verify_curve"])


def test_an_expected_failure_does_not_hide_it(gone: Project) -> None:
    gone.test(TWO.replace("@no_cliff(8)", "@pytest.mark.xfail\n@no_cliff(8)"))
    result = gone.run("--specdec-missing=skip", skipped=1, xfailed=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["specdec: no gate measured anything: *"])


def test_a_gate_that_uses_the_fixture_counts(gone: Project) -> None:
    gone.test(TWO.replace("def test_plain():\n    pass", "def test_plain(specdec):\n    specdec.decode()"))
    result = gone.run("--specdec-missing=skip", skipped=2, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_gates_skipped_in_their_own_body_do_not_count(gone: Project) -> None:
    gone.test("@cliff_at(9)\ndef test_one():\n    pytest.skip('mine')\n")
    assert gone.run("--specdec-missing=skip", skipped=1).ret == 0
