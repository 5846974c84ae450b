"""Each parameter is a gate of its own, with its own settings and limits."""

from __future__ import annotations

from .project import Project


def test_settings_by_parameter(project: Project) -> None:
    project.test(
        """
        @accept_rate(0.5)
        @pytest.mark.parametrize("k", [pytest.param(k, marks=specdec(k=k)) for k in (1, 2, 4, 5)])
        def test_it(k, specdec):
            assert specdec.settings.k == k
        """
    )
    result = project.run("-v", passed=3, failed=1)
    result.stdout.fnmatch_lines(["*test_it[[]1] PASSED*", "*test_it[[]4] PASSED*", "*test_it[[]5] FAILED*"])
    assert [line.rpartition("k=")[2] for line in project.asked if "speculative" in line] == [
        "1",
        "2",
        "4",
        "5",
    ]


def test_xfail_of_one_parameter(project: Project) -> None:
    project.test(
        """
        @pytest.mark.parametrize(
            "n", [pytest.param(9, marks=cliff_at(9)), pytest.param(5, marks=[cliff_at(5), pytest.mark.xfail])]
        )
        def test_it(n):
            pass
        """
    )
    project.run(passed=1, xfailed=1)
