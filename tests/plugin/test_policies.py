"""`--specdec-missing` and `--specdec-inconclusive` say what becomes of gates that could not decide."""

from __future__ import annotations

import pytest

from .project import Project


GONE = """
@cliff_at(9)
def test_gone():
    pass

@accept_rate(0.5)
def test_holds():
    pass
"""
PARTLY = """
@cliff_at(9)
@accept_rate(0.5)
def test_it():
    pass
"""
# Bounds that straddle 1.3: neither proven nor refuted.
CLOSE = "@min_speedup(1.3, prove=True)\ndef test_it():\n    pass\n"


def test_missing_fails_by_default(project: Project) -> None:
    project.pretend(missing=["verify_curve"])
    project.test(GONE)
    project.run(failed=1, passed=1).stdout.fnmatch_lines(
        ["cliff_at(9): not measured: no model for verify_curve"]
    )


def test_missing_skips_when_asked_to(project: Project) -> None:
    project.pretend(missing=["verify_curve"])
    project.test(GONE)
    result = project.run("--specdec-missing=skip", "-rs", skipped=1, passed=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*test_gone*cliff_at(9)*not measured*", "SKIPPED [[]1] test_it.py:4: no model for verify_curve"]
    )


def test_partly_missing_passes_with_a_warning(project: Project) -> None:
    project.pretend(missing=["verify_curve"])
    project.test(PARTLY)
    result = project.run(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["test_it.py:*", "*SpecdecWarning: cliff_at(9): not measured: no model for verify_curve"]
    )


def test_inconclusive_passes_with_a_warning(project: Project) -> None:
    project.test(CLOSE)
    result = project.run(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*SpecdecWarning: min_speedup(1.3, prove=True): inconclusive: *"])


@pytest.mark.parametrize("source", [PARTLY, CLOSE])
def test_it_fails_when_asked_to(project: Project, source: str) -> None:
    project.pretend(missing=["verify_curve"])
    project.test(source)
    project.run("--specdec-inconclusive=fail", failed=1).stdout.fnmatch_lines(["* FAILURES *", "*: *: *"])


@pytest.mark.parametrize("category", ["", "::pytest_specdec.SpecdecWarning", "::pytest.PytestWarning"])
def test_warnings_as_errors_fail_it_without_a_traceback(project: Project, category: str) -> None:
    project.test(CLOSE)
    result = project.run("-W", f"error{category}", failed=1)
    result.stdout.fnmatch_lines(["*___ test_it ___*", "min_speedup(1.3, prove=True): inconclusive: *"])
    result.stdout.no_fnmatch_line("*gate.py*")


def test_warnings_can_be_ignored(project: Project) -> None:
    project.test(CLOSE)
    project.run("-W", "ignore::pytest_specdec.SpecdecWarning", passed=1, warnings=0)


def test_a_failure_beside_what_is_missing_tells_both(project: Project) -> None:
    project.pretend(missing=["verify_curve"])
    project.test("@cliff_at(9)\n@accept_rate(0.9)\ndef test_it():\n    pass\n")
    project.run("--specdec-missing=skip", failed=1).stdout.fnmatch_lines(
        ["accept_rate(0.9): fail: *", "cliff_at(9): not measured: no model for verify_curve"]
    )


def test_what_is_not_missing_is_no_matter_of_policy(project: Project) -> None:
    project.pretend(accepted=0)
    project.test("@accept_rate(0.5)\n@specdec(k=1)\ndef test_it():\n    pass\n")
    project.pretend(broken=["speculative"])
    project.run("--specdec-missing=skip", failed=1)


def test_a_spent_budget_leaves_the_rest_unmeasured(project: Project) -> None:
    project.test("@cliff_at(9)\n@accept_rate(0.5)\n@lossless()\ndef test_it():\n    pass\n")
    result = project.run("--specdec-budget=1e-9", passed=1, warnings=2)
    assert project.measured == ["speculative"]
    result.stdout.fnmatch_lines(
        ["*cliff_at(9): not measured: the test's budget of 1e-09 s was spent before*"]
    )


def test_a_spent_budget_ends_the_pairs(project: Project) -> None:
    project.test("@min_speedup(1.3, prove=True)\ndef test_it():\n    pass\n")
    project.run("--specdec-budget=1e-9", passed=1, warnings=1)
    assert "pairs=8" in project.asked
