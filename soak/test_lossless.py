"""Exactness over more text than the tests take: every shipped prompt, 64 tokens, every draft length."""

from __future__ import annotations

import pytest

from pytest_specdec import lossless
from pytest_specdec import specdec


LENGTHS = [pytest.param(k, marks=specdec(k=k)) for k in range(1, 9)]


@lossless()
@specdec(target="smollm2-135m", draft="requantize:Q2_K", n_predict=64)
@pytest.mark.parametrize("k", LENGTHS)
def test_smollm2_with_its_requantised_draft(k: int) -> None:
    """Held by the mark."""


@lossless()
@specdec(target="gemma-3-270m", n_predict=64)
@pytest.mark.parametrize("k", LENGTHS)
def test_gemma_with_prompt_lookup(k: int) -> None:
    """Held by the mark."""
