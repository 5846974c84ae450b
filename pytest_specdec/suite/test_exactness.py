"""Whose text it is."""

from __future__ import annotations

from pytest_specdec import lossless


@lossless()
def test_text_is_the_targets_own() -> None:
    """Speculation gives the target's own greedy text; a difference is a near tie, proven so."""
