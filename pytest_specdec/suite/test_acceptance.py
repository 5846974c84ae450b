"""What the target makes of the drafts."""

from __future__ import annotations

from pytest_specdec import accept_rate
from pytest_specdec import within_baseline


@accept_rate(0.01)
@within_baseline("acceptance")
def test_drafts_are_accepted_as_before() -> None:
    """Every prompt's drafted and accepted counts are the stored ones, and drafts are not all refused."""
