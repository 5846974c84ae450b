"""What holds passes; what doesn't fails the test with limit, reason and evidence, and without a traceback."""

from __future__ import annotations

import pytest

from pytest_specdec.verdict import Outcome

from .project import Project


def test_every_limit_can_hold(project: Project) -> None:
    project.test(
        """
        @cliff_at(9)
        @no_cliff(8)
        @max_verify_cost(8, 1.1)
        @max_draft_cost(0.3)
        @accept_rate(0.5, 0.8)
        @accept_length(2.9)
        @lossless()
        @min_speedup(1.2)
        def test_it():
            pass
        """
    )
    project.run("-W", "error", passed=1)


@pytest.mark.parametrize(
    "limit",
    [
        "cliff_at(5)",
        "no_cliff(12)",
        "max_verify_cost(12, 1.3)",
        "max_draft_cost(0.1)",
        "accept_rate(0.99)",
        "accept_length(3.5)",
        "min_speedup(1.5)",
        "min_speedup(1.5, k=7)",
    ],
)
def test_every_limit_can_fail(project: Project, limit: str) -> None:
    project.test(f"@{limit}\ndef test_it():\n    pass\n")
    result = project.run(failed=1)
    result.stdout.fnmatch_lines(["*FAILURES*", f"{limit}: fail: *", "*- specdec -*", f"*{limit}*fail"])
    result.stdout.no_fnmatch_line("*pytest_specdec?gate.py*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (verdict,) = project.verdicts()["test_it"]
    assert (verdict.outcome, verdict.limit) == (Outcome.FAIL, limit)


def test_all_failures_are_told_and_what_held_is_in_the_table(project: Project) -> None:
    project.test("@cliff_at(5)\n@accept_rate(0.99)\n@lossless()\ndef test_it():\n    pass\n")
    result = project.run(failed=1)
    result.stdout.fnmatch_lines(["accept_rate(0.99): fail: *", "cliff_at(5): fail: *", "*lossless()*pass"])
    assert [verdict.outcome.value for verdict in project.verdicts()["test_it"]] == ["fail", "pass", "fail"]


def test_counters_are_measured_before_times(project: Project) -> None:
    project.test(
        """
        @min_speedup(1.2)
        @max_draft_cost(0.3)
        @cliff_at(9)
        @lossless()
        @accept_rate(0.5)
        def test_it():
            pass
        """
    )
    project.run(passed=1)
    assert project.measured == ["speculative", "exactness", "verify_curve", "draft_cost", "speed"]


def test_pairs_are_added_until_the_limit_is_decided(project: Project) -> None:
    project.test("@min_speedup(1.2)\ndef test_it():\n    pass\n")
    project.run(passed=1)
    project.test("@min_speedup(1.3)\ndef test_it():\n    pass\n")
    project.run()
    assert [line for line in project.asked if line.startswith("pairs")] == ["pairs=8", "pairs=24"]


def test_what_fails_to_measure_fails_the_test_with_its_words(project: Project) -> None:
    project.pretend(crash=["verify_curve"], broken=["speculative"])
    project.test("@cliff_at(9)\n@accept_rate(0.5)\n@lossless()\ndef test_it():\n    pass\n")
    result = project.run(failed=1)
    result.stdout.fnmatch_lines(
        [
            "accept_rate(0.5): fail: speculative: toy.gguf is truncated",
            "cliff_at(9): fail: measuring failed: the worker died of SIGABRT",
            "request: verify_curve",
            "*GGML_ASSERT(n < 8) failed",
        ]
    )


def test_a_test_without_limits_is_left_alone(project: Project) -> None:
    project.test("@specdec(k=4)\ndef test_it():\n    pass\n")
    result = project.run("-v", passed=1)
    assert project.asked == []
    result.stdout.no_fnmatch_line("specdec:*")


def test_the_bench_is_closed_at_the_end(project: Project) -> None:
    project.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    project.run(passed=1)
    assert project.asked[-1] == "close"
