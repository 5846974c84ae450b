"""What a batch of N tokens costs."""

from __future__ import annotations

from pytest_specdec import within_baseline


@within_baseline("curve")
def test_verify_cost_keeps_its_shape() -> None:
    """T(N)/T(1) and the places of its steps are this machine's stored ones."""
