"""Against the anchor of a baseline's entry, what it held first: drift can't creep in by small steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pytest_specdec.checks.remedies import ACCEPT
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


ON_PURPOSE: Final = "accept the new state with specdec baseline accept --anchor"

_GRAVITY: Final = (Outcome.PASS, Outcome.NOT_MEASURED, Outcome.INCONCLUSIVE, Outcome.FAIL)


def anchored(verdict: Verdict, first: Verdict, day: str) -> Verdict:
    """Let a verdict against the latest baseline hold against the anchor too: the worse of the two counts.

    `first` is the same check's verdict against the anchor, `day` the ISO day of the anchor. An anchor that
    the measurement can't be compared with says nothing.
    """
    if first.outcome is Outcome.FAIL and verdict.outcome is Outcome.FAIL:
        return replace(verdict, because=f"{verdict.because}; nor is it what it was on {day}, at first")
    if first.outcome is Outcome.NOT_MEASURED or _gravity(first) <= _gravity(verdict):
        return verdict
    what = "drifted" if first.outcome is Outcome.FAIL else "may have drifted"
    return replace(
        first,
        because=f"{what} since {day}: {first.because}; against the latest baseline: {verdict.because}",
        section="\n".join(filter(None, [first.section, f"baseline of {day}, the anchor"])),
    )


def with_build(verdict: Verdict, other_build: str) -> Verdict:
    """Add what tells the build under test from the baseline's; `other_build` is empty for the same one.

    Always to the evidence, and to the reason where that is not that all is well.
    """
    if not other_build:
        return verdict
    section = "\n".join(filter(None, [verdict.section, f"build: {other_build}"]))
    if verdict.outcome is Outcome.PASS:
        return replace(verdict, section=section)
    return replace(verdict, because=f"{verdict.because}; build: {other_build}", section=section)


def on_purpose(verdict: Verdict) -> Verdict:
    """Return a failure that advises what makes the next run green: replacing a baseline keeps its anchor."""
    if verdict.outcome is not Outcome.FAIL:
        return verdict
    return replace(verdict, because=verdict.because.replace(ACCEPT, ON_PURPOSE))


def _gravity(verdict: Verdict) -> int:
    return _GRAVITY.index(verdict.outcome)
