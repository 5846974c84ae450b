"""A project to run pytest in, with a double in the bench's place."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema as jsonschema
import pytest

# A run in this process forgets what it was the first to import, and numpy can't be imported twice.
from pytest_specdec import plans as plans
from pytest_specdec import recording as recording
from pytest_specdec.verdict import Verdict


# Three lines: a test's own source begins at line 4.
HEAD = "import unittest\nimport pytest\nfrom pytest_specdec import *\n"
# The filters of the run around it would make errors of warnings in it.
INI = "[pytest]\nfilterwarnings = default\nspecdec_target = toy.gguf\n"
DOUBLE = Path(__file__).with_name("double.py").read_text(encoding="utf-8")


class Seen:
    """Keeps the reports of a run."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report."""
        self.reports.append(report)


class Project:
    """A directory with tests, the double as its conftest, and what came of running pytest there."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.reports: list[pytest.TestReport] = []
        pytester.makeconftest(DOUBLE)
        pytester.makeini(INI)

    def pretend(self, **plan: Any) -> None:
        """Tell the double what to measure."""
        (self.path / "double.json").write_text(json.dumps(plan))

    def test(self, source: str, **files: str) -> None:
        """Write a test module `test_it.py`, all of the package's names imported, and others by name."""
        for name, text in {"test_it": source, **files}.items():
            body = textwrap.dedent(text).lstrip("\n")
            (self.path / f"{name}.py").write_text(HEAD + body, encoding="utf-8")

    def conftest(self, source: str) -> None:
        """Add to the conftest."""
        with (self.path / "conftest.py").open("a", encoding="utf-8") as file:
            file.write("\n" + textwrap.dedent(source))

    def run(self, *args: str, **outcomes: int) -> pytest.RunResult:
        """Run pytest in this process and hold the outcomes against those given."""
        seen = Seen()
        result = self.pytester.runpytest_inprocess(*args, plugins=[seen])
        self.reports = seen.reports
        if outcomes:
            result.assert_outcomes(**outcomes)
        return result

    def verdicts(self) -> dict[str, list[Verdict]]:
        """Read the verdicts of the last run out of the tests' final reports, by the test's name."""
        return {
            report.nodeid.partition("::")[2]: verdicts(report)
            for report in self.reports
            if report.when == "teardown" and report.user_properties
        }

    @property
    def asked(self) -> list[str]:
        """What the double was asked to measure, in order."""
        log = self.path / "asked.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.partition(" ")[2] for line in lines]

    @property
    def measured(self) -> list[str]:
        """The kinds of what the double measured, in order."""
        aside = ("close", "facts", "hello", "pairs=")
        return [line.split()[0] for line in self.asked if not line.startswith(aside)]

    def baselines(self) -> list[Path]:
        """The baseline files, candidates and notes aside."""
        found = self.path.glob("baselines/*/*.json")
        return sorted(path for path in found if not path.parent.name.startswith("."))

    def junit(self, *args: str) -> ElementTree.Element:
        """Run pytest and return the only test suite of its JUnit file."""
        self.run("--junit-xml=junit.xml", *args)
        suite = ElementTree.parse(self.path / "junit.xml").getroot().find("testsuite")
        assert suite is not None
        return suite


def verdicts(report: pytest.TestReport) -> list[Verdict]:
    """Read the verdicts out of a report's only property of ours."""
    (text,) = [value for name, value in report.user_properties if name == "specdec"]
    assert type(text) is str
    return [Verdict.from_json(verdict) for verdict in json.loads(text)["verdicts"]]
