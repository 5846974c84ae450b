"""Whether target and draft source fit each other at all."""

from __future__ import annotations

from pytest_specdec import structurally_sound


@structurally_sound()
def test_pair_is_structurally_sound() -> None:
    """Rollback, batches, vocabulary, self-draft, positions, context end and end of generation."""
