"""`--specdec-json` writes verdicts and raw measurements of the run."""

from __future__ import annotations

import json

import pytest

from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.measurements import from_json

from .project import Project


def test_it_has_tests_and_measurements(project: Project) -> None:
    project.test("@cliff_at(9)\ndef test_it():\n    pass\n\n@accept_rate(0.9)\ndef test_no():\n    pass\n")
    project.run("--specdec-json=out/run.json", passed=1, failed=1)
    told = json.loads((project.path / "out" / "run.json").read_text())
    assert told["version"] == 1
    assert [(test["nodeid"], test["outcome"]) for test in told["tests"]] == [
        ("test_it.py::test_it", "passed"),
        ("test_it.py::test_no", "failed"),
    ]
    assert told["tests"][1]["verdicts"][0]["limit"] == "accept_rate(0.9)"
    (measured,) = told["measured"]
    assert measured["hello"]["ggml_commit"] == "0123456789"
    curve, _ = measured["kept"]
    assert curve["used_by"] == ["test_it.py::test_it"]
    assert isinstance(from_json(curve["measurement"]), VerifyCurve)


def test_it_is_written_without_gates_too(project: Project) -> None:
    project.test("def test_it():\n    pass\n")
    project.run("--specdec-json=run.json", passed=1)
    assert json.loads((project.path / "run.json").read_text())["tests"] == []


def test_a_file_that_cannot_be_written_ends_the_run_red(project: Project) -> None:
    (project.path / "out").write_text("in the way")
    project.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    result = project.run("--specdec-json=out/run.json", passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["specdec: *out*"])
