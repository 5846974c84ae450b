"""Ctrl-C while measuring ends the run as usual, closes the bench, and records nothing of that test."""

from __future__ import annotations

import pytest

from .project import Project


def test_the_bench_is_closed(project: Project) -> None:
    project.conftest(
        """
        class Interrupted(Bench):
            def exactness(self, k=None):
                raise KeyboardInterrupt

        Session.bench = lambda self, settings: Interrupted(self, settings)
        """
    )
    project.test(
        "@cliff_at(9)\ndef test_one():\n    pass\n\n@lossless()\n@cliff_at(9)\ndef test_two():\n    pass\n"
    )
    result = project.pytester.runpytest_subprocess("-p", "no:hypothesispytest", "--specdec-update=new")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert project.asked[-1] == "close"
