"""Where the time goes."""

from __future__ import annotations

from pytest_specdec import within_baseline


@within_baseline("draft_cost")
def test_drafting_costs_no_more() -> None:
    """A drafted token takes no larger part of a target pass than the stored one."""


@within_baseline("forward_share")
def test_forwards_keep_their_share() -> None:
    """With speculation off, decode forwards are no smaller part of the request time than stored."""


@within_baseline("overhead")
def test_rounds_have_no_more_overhead() -> None:
    """A round takes no longer beside drafting and verifying than the stored ones."""
