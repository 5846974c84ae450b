"""`within_baseline` on every metric: recorded, held, and failed where it got worse."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_specdec.marks import METRICS
from pytest_specdec.verdict import Outcome

from .project import Project


WORSE: dict[str, tuple[dict[str, Any], str]] = {
    "kernels": ({"thresholds": [4, 9]}, "the kernel map is not the baseline's"),
    "curve": ({"curve": {"5": 14.5}}, "verify cost rose: T(5)/T(1)"),
    "acceptance": ({"accepted": 1}, "acceptance is not the baseline's on 7 of 7 prompts"),
    "draft_cost": ({"draft": 0.3}, "costs 0.30 of a target pass"),
    "forward_share": ({"share": 0.6}, "60.0% of the request time is decode forwards, was 70.0%"),
    "overhead": ({"overhead": 1.5}, "takes 1.50 ms beside drafting and verifying, took 1.00"),
    "speedup": ({"speedup": 1.1}, "lower by more than 5% beyond doubt"),
}
BETTER: dict[str, dict[str, Any]] = {
    "curve": {"curve": dict.fromkeys(("9", "10", "11", "12", "16"), 11)},
    "acceptance": {"accepted": 3},
    "draft_cost": {"draft": 0.1},
    "forward_share": {"share": 0.9},
    "overhead": {"overhead": 0.5},
    "speedup": {"speedup": 1.6},
}


def test_no_metric_is_left_out() -> None:
    assert tuple(WORSE) == METRICS


@pytest.mark.parametrize("metric", METRICS)
def test_worse_fails(project: Project, metric: str) -> None:
    project.test(f"@within_baseline({metric!r})\ndef test_it():\n    pass\n")
    project.run("--specdec-update=new", passed=1)
    project.run("-W", "error", passed=1)
    worse, told = WORSE[metric]
    project.pretend(**worse)
    project.run(failed=1)
    (verdict,) = project.verdicts()["test_it"]
    assert verdict.outcome is Outcome.FAIL
    assert told in verdict.because


@pytest.mark.parametrize("metric", BETTER)
def test_better_is_reported_and_holds(project: Project, metric: str) -> None:
    project.test(f"@within_baseline({metric!r})\ndef test_it():\n    pass\n")
    project.run("--specdec-update=new", passed=1)
    project.pretend(**BETTER[metric])
    project.run("-W", "error", passed=1)
    (verdict,) = project.verdicts()["test_it"]
    assert verdict.outcome is Outcome.PASS
    assert "better: " in verdict.because


def test_one_run_serves_acceptance_and_overhead(project: Project) -> None:
    project.test("@within_baseline('acceptance', 'overhead')\ndef test_it():\n    pass\n")
    project.run("--specdec-update=new", passed=1)
    project.pretend(overhead=9)
    project.run(failed=1)
    acceptance, overhead = project.verdicts()["test_it"]
    assert (acceptance.outcome, overhead.outcome) == (Outcome.PASS, Outcome.FAIL)
