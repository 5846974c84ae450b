"""The body runs first: when it fails, errs or skips, nothing is measured."""

from __future__ import annotations

import pytest

from .project import Project


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("assert 1 == 2", "failed"),
        ("raise RuntimeError('no')", "failed"),
        ("pytest.skip('not now')", "skipped"),
        ("pytest.xfail('known')", "xfailed"),
    ],
)
def test_nothing_is_measured_when_the_body_ends_early(project: Project, body: str, outcome: str) -> None:
    project.test(f"@cliff_at(9)\ndef test_it():\n    {body}\n")
    result = project.run(**{outcome: 1})
    assert project.measured == []
    result.stdout.no_fnmatch_line("*speculative decoding*")


def test_a_failing_fixture_ends_it_too(project: Project) -> None:
    project.test(
        """
        @pytest.fixture
        def broken():
            raise OSError("no")

        @cliff_at(9)
        def test_it(broken):
            pass
        """
    )
    project.run(errors=1)
    assert project.measured == []


def test_the_body_has_run_when_measuring_begins(project: Project) -> None:
    project.test(
        """
        @cliff_at(9)
        def test_it(request):
            with open(request.config.rootpath / "asked.log", "a") as log:
                log.write("0 body\\n")
        """
    )
    project.run(passed=1)
    assert project.asked[:2] == ["hello", "body"]
    assert project.measured == ["body", "verify_curve"]


def test_an_async_body_runs_first_too(project: Project) -> None:
    project.conftest(
        """
        import asyncio
        import inspect

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(pyfuncitem):
            if inspect.iscoroutinefunction(pyfuncitem.obj):
                asyncio.run(pyfuncitem.obj())
                return True
        """
    )
    project.test(
        "@cliff_at(5)\nasync def test_it():\n    pass\n\n@cliff_at(5)\nasync def test_no():\n    assert 0\n"
    )
    project.run(failed=2).stdout.fnmatch_lines(["cliff_at(5): fail: *", "E*assert 0"])
    assert project.measured == ["verify_curve"]
