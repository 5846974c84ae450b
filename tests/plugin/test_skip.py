"""A test that its author skips is not measured, and doesn't count as a gate that measured nothing."""

from __future__ import annotations

import pytest

from .project import Project


@pytest.mark.parametrize("mark", ["skip(reason='no')", "skipif(True, reason='no')"])
def test_nothing_is_measured(project: Project, mark: str) -> None:
    project.test(f"@pytest.mark.{mark}\n@cliff_at(9)\ndef test_it():\n    pass\n")
    assert project.run("--specdec-missing=skip", skipped=1).ret == 0
    assert project.measured == []


def test_a_false_condition_lets_it_run(project: Project) -> None:
    project.test("@pytest.mark.skipif(False, reason='no')\n@cliff_at(9)\ndef test_it():\n    pass\n")
    project.run(passed=1)
    assert project.measured == ["verify_curve"]


def test_a_module_that_skips_itself(project: Project) -> None:
    project.test("pytest.skip('no', allow_module_level=True)\n\n@cliff_at(9)\ndef test_it():\n    pass\n")
    project.run(skipped=1)
    assert project.measured == []
