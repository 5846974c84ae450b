"""Whether it pays: prompt lookup on text that repeats does, a draft as dear as its target does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def test_lookup_on_text_that_repeats_pays(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @min_speedup(1.2)
        @specdec(target="gemma-3-270m", k=3, n_predict=96, prompts="default::repeat")
        def test_pays(): pass
        """
    )
    result.assert_outcomes(passed=1)


def test_a_draft_as_dear_as_its_target_does_not(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @min_speedup(1.5, k=3)
        @specdec(target="smollm2-135m", draft="requantize:Q2_K", n_predict=32)
        def test_pays(): pass
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*min_speedup\(1\.5, k=3\).*tokens/s.*"])
