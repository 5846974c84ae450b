"""The anchor's verdict beside the latest baseline's: the worse counts, and says since when."""

from __future__ import annotations

import pytest

from pytest_specdec.checks.anchor import ON_PURPOSE
from pytest_specdec.checks.anchor import anchored
from pytest_specdec.checks.anchor import on_purpose
from pytest_specdec.checks.anchor import with_build
from pytest_specdec.checks.remedies import ACCEPT
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


PASS, FAIL, OPEN, ABSENT = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_MEASURED


def verdict(outcome: Outcome, because: str = "latest", baseline: float = 1.0) -> Verdict:
    return Verdict(outcome, "T(5)/T(1)", 1.2, 1.1, 1.3, "within_baseline()", because, "table", baseline)


@pytest.mark.parametrize(
    ("latest", "first", "outcome", "told"),
    [
        (PASS, PASS, PASS, "latest"),
        (PASS, FAIL, FAIL, "drifted since 2026-03-14: first; against the latest baseline: latest"),
        (PASS, OPEN, OPEN, "may have drifted since 2026-03-14: first; against the latest baseline: latest"),
        (PASS, ABSENT, PASS, "latest"),
        (OPEN, FAIL, FAIL, "drifted since 2026-03-14: first; against the latest baseline: latest"),
        (OPEN, OPEN, OPEN, "latest"),
        (OPEN, ABSENT, OPEN, "latest"),
        (FAIL, PASS, FAIL, "latest"),
        (FAIL, FAIL, FAIL, "latest; nor is it what it was on 2026-03-14, at first"),
        (ABSENT, FAIL, FAIL, "drifted since 2026-03-14: first; against the latest baseline: latest"),
        (ABSENT, ABSENT, ABSENT, "latest"),
    ],
)
def test_the_worse_counts(latest: Outcome, first: Outcome, outcome: Outcome, told: str) -> None:
    found = anchored(verdict(latest), verdict(first, "first", baseline=0.9), "2026-03-14")
    assert (found.outcome, found.because) == (outcome, told)
    drifted = told.startswith(("drifted", "may have"))
    assert found.baseline == (0.9 if drifted else 1.0)
    assert ("baseline of 2026-03-14, the anchor" in found.section) is drifted


def test_another_build_is_named_with_every_verdict_and_in_the_reason_of_those_that_are_not_well() -> None:
    build = "same version 0.3.36, other build: system info differs: +AVX512 = 1"
    for outcome in Outcome:
        found = with_build(verdict(outcome), build)
        assert found.section == f"table\nbuild: {build}"
        assert found.because == ("latest" if outcome is PASS else f"latest; build: {build}")
        assert with_build(verdict(outcome), "") == verdict(outcome)


def test_a_failure_says_what_makes_the_next_run_green() -> None:
    told = f"counts differ, or {ACCEPT}"
    assert on_purpose(verdict(FAIL, told)).because == f"counts differ, or {ON_PURPOSE}"
    # What got better may roll on: it is held against its anchor still, and well.
    assert on_purpose(verdict(PASS, told)).because == told
