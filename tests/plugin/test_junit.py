"""JUnit has a failed gate as that test's failure, and the verdicts as one property of it."""

from __future__ import annotations

import json

from pytest_specdec.verdict import Verdict

from .project import Project


def test_a_failed_gate_is_the_tests_own_failure(project: Project) -> None:
    project.test("@cliff_at(5)\ndef test_fails():\n    pass\n\n@cliff_at(9)\ndef test_holds():\n    pass\n")
    suite = project.junit()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    fails, holds = suite.findall("testcase")
    failure = fails.find("failure")
    assert failure is not None
    assert (failure.text or "").startswith("cliff_at(5): fail: ")
    assert holds.find("failure") is None
    for case, outcome in ((fails, "fail"), (holds, "pass")):
        (entry,) = case.findall("properties/property")
        assert entry.get("name") == "specdec"
        told = json.loads(entry.get("value") or "")
        (verdict,) = map(Verdict.from_json, told["verdicts"])
        assert (verdict.outcome.value, told["pair"]) == (outcome, f"{project.path}/toy.gguf + auto")


def test_a_gate_skipped_by_policy_is_skipped_with_the_reason(project: Project) -> None:
    project.pretend(missing=["verify_curve"])
    project.test(
        "@cliff_at(9)\ndef test_gone():\n    pass\n\n@accept_rate(0.5)\ndef test_holds():\n    pass\n"
    )
    suite = project.junit("--specdec-missing=skip")
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "0")
    skipped = suite.find("testcase/skipped")
    assert skipped is not None
    assert "no model for verify_curve" in (skipped.get("message") or "")


def test_a_collection_error_is_an_error(project: Project) -> None:
    project.test("@pytest.mark.cliff_at(1)\ndef test_it():\n    pass\n")
    suite = project.junit()
    assert suite.get("errors") == "1"
    error = suite.find("testcase/error")
    assert error is not None
    assert "test_it: cliff_at(1): n must be at least 2" in (error.text or "")


def test_a_test_without_limits_has_no_property(project: Project) -> None:
    project.test("def test_it():\n    pass\n")
    assert project.junit().find("testcase/properties") is None
