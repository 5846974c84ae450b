"""Speculation is lossless on real models, and a sabotaged verification is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest


PAIRS = {
    "smollm2": 'target="smollm2-135m", draft="requantize:Q2_K"',
    "gemma": 'target="gemma-3-270m"',
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_every_shipped_prompt_at_every_draft_length(gate: Callable[..., pytest.RunResult], pair: str) -> None:
    result = gate(
        f"""
        @lossless()
        @specdec({pair}, n_predict=12)
        @pytest.mark.parametrize("k", [pytest.param(k, marks=specdec(k=k)) for k in range(1, 9)])
        def test_text(k): pass
        """
    )
    result.assert_outcomes(passed=8)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("fault", ["accept_extra=1", "wrong_bonus=1"])
def test_sabotaged_verification_fails(gate: Callable[..., pytest.RunResult], pair: str, fault: str) -> None:
    result = gate(
        f"""
        @lossless()
        @specdec({pair}, n_predict=24, prompts="default::code,prose", k=3)
        def test_text(): pass
        """,
        f"--specdec-env=SPECDEC_FAULTS={fault}",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*lossless()*not the target's own*"])
