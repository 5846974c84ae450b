"""A gate that is expected to fail is an xfail, and one that then holds an xpass, strict or not."""

from __future__ import annotations

from .project import Project


SOURCE = """
@pytest.mark.xfail({how})
@cliff_at({n})
def test_it():
    pass
"""


def test_a_failing_gate_is_an_expected_failure(project: Project) -> None:
    for how in ("reason='moved'", "strict=True", "raises=pytest.fail.Exception"):
        project.test(SOURCE.format(how=how, n=5))
        assert project.run(xfailed=1).ret == 0


def test_a_gate_that_holds_is_an_unexpected_pass(project: Project) -> None:
    project.test(SOURCE.format(how="strict=False", n=9))
    assert project.run(xpassed=1).ret == 0


def test_a_strict_one_fails_then(project: Project) -> None:
    project.test(SOURCE.format(how="strict=True", n=9))
    project.run(failed=1).stdout.fnmatch_lines(["*XPASS(strict)*"])


def test_another_kind_of_failure_is_not_expected(project: Project) -> None:
    project.test(SOURCE.format(how="raises=ZeroDivisionError", n=5))
    project.run(failed=1)


def test_without_running_nothing_is_measured(project: Project) -> None:
    project.test(SOURCE.format(how="run=False", n=5))
    project.run(xfailed=1)
    assert project.measured == []


def test_runxfail_shows_the_failure(project: Project) -> None:
    project.test(SOURCE.format(how="strict=True", n=5))
    project.run("--runxfail", failed=1).stdout.fnmatch_lines(["cliff_at(5): fail: *"])
