"""What was recorded first is held too: baselines that follow small changes can't drift away."""

from __future__ import annotations

import shlex

import pytest

from pytest_specdec.cli import main

from .project import Project


CURVE = "@within_baseline('curve')\ndef test_curve():\n    pass\n"


def command(result: pytest.RunResult, what: str) -> list[str]:
    """The arguments of the command that a line of the summary offers."""
    (line,) = [line for line in result.outlines if what in line and " specdec " in line]
    return shlex.split(line.partition(" specdec ")[2])


def creep(project: Project, ms: float) -> pytest.RunResult:
    """Record again, each time a little worse than the last."""
    project.pretend(curve={"5": ms})
    return project.run("--specdec-update=all", passed=1)


def test_steps_within_the_tolerance_add_up_to_a_failure(project: Project) -> None:
    project.test(CURVE)
    creep(project, 10)
    project.run("-W", "error", passed=1)
    creep(project, 11)
    project.run("-W", "error", passed=1)
    result = creep(project, 12.1)
    told = project.verdicts()["test_curve"][0].because
    assert "recorded over the old baseline, against which: fail: drifted since 20" in told
    result.stdout.fnmatch_lines(
        ["1 measurement of */toy--none still held against what was recorded first; *"]
    )
    result = project.run(failed=1)
    result.stdout.fnmatch_lines(
        [
            "within_baseline('curve'): fail: drifted since 20*: verify cost rose: "
            "T(5)/T(1) was 1.00, is 1.21*accept the new state with specdec baseline accept --anchor*"
            "against the latest baseline: T(N)/T(1) is within 15% of the baseline*",
            "baseline of 20*, the anchor",
        ]
    )


def test_the_candidate_of_a_drifted_run_is_accepted_with_its_anchor(project: Project) -> None:
    project.test(CURVE)
    for ms in (10, 11, 12.1):
        creep(project, ms)
    assert main(command(project.run(failed=1), "to accept ")) == 0
    project.run("-W", "error", passed=1)


def test_the_command_that_a_recording_offers_moves_the_anchor(project: Project) -> None:
    project.test(CURVE)
    creep(project, 10)
    result = creep(project, 12.1)
    project.run(failed=1)
    assert main(command(result, "held against what was recorded first")) == 0
    project.run("-W", "error", passed=1)


def test_accepting_without_the_anchor_is_not_the_last_word(project: Project) -> None:
    project.test(CURVE)
    creep(project, 10)
    project.pretend(curve={"5": 14.5})
    arguments = command(project.run(failed=1), "to accept ")
    assert main([argument for argument in arguments if argument != "--anchor"]) == 0
    project.run(failed=1).stdout.fnmatch_lines(["within_baseline('curve'): fail: drifted since *"])


def test_counts_are_held_against_it_exactly(project: Project) -> None:
    project.test("@within_baseline('acceptance')\ndef test_it():\n    pass\n")
    project.run("--specdec-update=all", passed=1)
    project.pretend(accepted=1)
    project.run("--specdec-update=all", passed=1)
    project.run(failed=1).stdout.fnmatch_lines(
        ["within_baseline('acceptance'): fail: drifted since *acceptance is not the baseline's*"]
    )
    # Back where it was is a change against the latest one, and none against the first.
    project.pretend(accepted=2)
    project.run(passed=1)


def test_a_speedup_that_got_better_and_back_again_is_no_drift(project: Project) -> None:
    project.test("@within_baseline('speedup')\ndef test_it():\n    pass\n")
    for speedup in (1.3, 1.6):
        project.pretend(speedup=speedup)
        project.run("--specdec-update=all", passed=1)
    project.run("-W", "error", passed=1)
    project.pretend(speedup=1.3)
    project.run(failed=1).stdout.no_fnmatch_line("*drifted since*")


def test_what_a_failed_test_moved_is_not_recorded_and_leaves_no_anchor(project: Project) -> None:
    project.test(CURVE + "\n@no_cliff(16)\ndef test_fails():\n    pass\n")
    project.run("--specdec-update=all", passed=1, failed=1)
    assert project.baselines() == []
