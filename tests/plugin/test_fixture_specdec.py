"""The fixture `specdec` measures with the test's settings, and holds limits as marks do."""

from __future__ import annotations

import pytest

from .project import Project


def test_it_measures_with_the_tests_settings(project: Project) -> None:
    project.test(
        """
        pytestmark = specdec(k=2)

        @specdec(n_ubatch=4)
        def test_it(specdec):
            assert (specdec.settings.k, specdec.settings.n_ubatch) == (2, 4)
            assert specdec.speculate().k == 2
            assert specdec.speculate(k=5).k == 5
            assert sorted(specdec.sweep([1, 3])) == [1, 3]
            assert specdec.verify_curve(rows="last").rows == "last"
            assert specdec.speed(k=4, until=lambda run: len(run.pairs) > 8).k == 4
            assert specdec.exactness().k == 2
            assert specdec.draft_cost().draft_ms[0] == 2
            assert specdec.decode().generations == ()
            assert specdec.facts()["target"].name == "toy"
            assert specdec.with_settings(k=7).speculate().k == 7
        """
    )
    project.run(passed=1)
    assert "pairs=16" in project.asked


def test_check_holds_limits_and_returns_verdicts(project: Project) -> None:
    project.test(
        """
        def test_it(specdec):
            first, second = specdec.check(cliff_at(9), min_speedup(1.05, k=4))
            assert {first.limit, second.limit} == {"cliff_at(9)", "min_speedup(1.05, k=4)"}
            assert first.outcome is second.outcome is Outcome.PASS
        """
    )
    project.run(passed=1)
    assert [verdict.limit for verdict in project.verdicts()["test_it"]] == [
        "cliff_at(9)",
        "min_speedup(1.05, k=4)",
    ]


def test_check_raises_the_marks_own_failure(project: Project) -> None:
    project.test(
        """
        def test_it(specdec):
            specdec.check(cliff_at(9))
            specdec.check(cliff_at(5))

        def test_caught(specdec):
            with pytest.raises(pytest.fail.Exception, match="accept_rate"):
                specdec.check(accept_rate(0.9))
        """
    )
    result = project.run(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["*___ test_it ___*", "cliff_at(5): fail: *", "*cliff_at(9)*pass", "*cliff_at(5)*fail"]
    )
    result.stdout.no_fnmatch_line("*gate.py*")


def test_its_verdicts_and_those_of_marks_are_one_list(project: Project) -> None:
    project.test("@lossless()\ndef test_it(specdec):\n    specdec.check(cliff_at(9))\n")
    project.run(passed=1)
    assert [verdict.limit for verdict in project.verdicts()["test_it"]] == ["cliff_at(9)", "lossless()"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("check()", "TypeError: check takes limits such as cliff_at(9), not ()"),
        ("check(9)", "TypeError: check takes limits such as cliff_at(9), not (9,)"),
        ("check(pytest.mark.skip)", "ValueError: skip is no limit; limits: cliff_at, *"),
        ("check(pytest.mark.cliff_at(1))", "ValueError: cliff_at(1): n must be at least 2, not 1"),
        ("with_settings(kk=1)", "ValueError: unknown setting 'kk'; known: *"),
    ],
)
def test_bad_arguments(project: Project, call: str, told: str) -> None:
    project.test(f"def test_it(specdec):\n    specdec.{call}\n")
    project.run(failed=1).stdout.fnmatch_lines([f"E *{told}"])


def test_what_is_missing_fails_or_skips_the_test(project: Project) -> None:
    project.pretend(missing=["verify_curve"])
    project.test(
        "def test_gone(specdec):\n    specdec.verify_curve()\n\n@lossless()\ndef test_holds():\n    pass\n"
    )
    told = "specdec.verify_curve(): not measured: no model for verify_curve"
    project.run(failed=1, passed=1).stdout.fnmatch_lines([told])
    project.run("--specdec-missing=skip", skipped=1, passed=1)


def test_what_fails_to_measure_is_raised(project: Project) -> None:
    project.pretend(broken=["decode"], crash=["speculative"])
    project.test(
        """
        from pytest_specdec.engine.protocol import WorkerDied
        from pytest_specdec.models.errors import ModelError

        def test_it(specdec):
            with pytest.raises(ModelError, match="truncated"):
                specdec.decode()
            with pytest.raises(WorkerDied, match="SIGABRT"):
                specdec.speculate()
        """
    )
    project.run(passed=1)


def test_it_is_listed_with_its_meaning(project: Project) -> None:
    project.test("def test_it():\n    pass\n")
    listed = project.run("--fixtures").stdout
    listed.fnmatch_lines_random(["specdec -- *", "*Bench bound to this test's settings*", "specdec_factory*"])
