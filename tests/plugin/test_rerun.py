"""Reruns start afresh: only the last attempt's verdicts stay, once."""

from __future__ import annotations

import pytest

from .project import Project


pytest.importorskip("pytest_rerunfailures")


def test_a_failing_gate_is_run_again(project: Project) -> None:
    project.test("@cliff_at(5)\ndef test_it():\n    pass\n")
    result = project.run("--reruns", "2", "-rR", failed=1)
    assert result.parseoutcomes()["rerun"] == 2
    assert project.measured == ["verify_curve"] * 3
    assert len(project.verdicts()["test_it"]) == 1
    assert result.stdout.str().count("- specdec -") == 1


def test_the_attempt_that_passes_counts(project: Project) -> None:
    project.test(
        """
        @cliff_at(5)
        def test_it(request):
            if getattr(request.config, "again", False):
                (request.config.rootpath / "double.json").write_text('{"curve": {"5": 16, "6": 16, "7": 16}}')
            request.config.again = True
        """
    )
    result = project.run("--reruns", "3", passed=1)
    assert result.parseoutcomes()["rerun"] == 1
    (verdict,) = project.verdicts()["test_it"]
    assert verdict.outcome.value == "pass"
    result.stdout.fnmatch_lines(["*= speculative decoding =*", "test *", "*cliff_at(5) *pass"])


def test_junit_has_one_property_for_each_attempt(project: Project) -> None:
    project.test("@cliff_at(5)\ndef test_it():\n    pass\n")
    suite = project.junit("--reruns", "2")
    cases = suite.findall("testcase")
    assert cases
    assert all(len(case.findall("properties/property")) == 1 for case in cases)


def test_a_policy_skip_is_not_run_again(project: Project) -> None:
    project.pretend(missing=["verify_curve"])
    project.test("@cliff_at(5)\ndef test_gone():\n    pass\n\n@lossless()\ndef test_holds():\n    pass\n")
    project.run("--reruns", "2", "--specdec-missing=skip", skipped=1, passed=1)
    assert project.measured == ["verify_curve", "exactness"]
