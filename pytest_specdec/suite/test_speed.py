"""Whether it pays."""

from __future__ import annotations

from pytest_specdec import within_baseline


@within_baseline("speedup")
def test_speedup_is_kept() -> None:
    """Speculative ÷ plain decode rate is not below the stored one; the summary says whether it pays."""
