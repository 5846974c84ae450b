"""Cliffs where a split batch puts them, and none where nothing splits: ratios within one run."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def test_a_batch_split_at_four_is_a_cliff_at_five(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @specdec(target="smollm2-135m", n_ubatch=4, sizes="1-10")
        class TestSplit:
            @cliff_at(5, ratio=1.25)
            def test_there(self): pass

            @cliff_at(9, ratio=1.25)
            def test_elsewhere(self): pass
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines(
        [r".*cliff_at\(9, ratio=1\.25\).*first cliff is at 5 \(T\(5\)/T\(4\) = \d\.\d+.*"]
    )


def test_a_batch_split_at_eight_is_a_cliff_at_nine(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @cliff_at(9, ratio=1.15)
        @specdec(target="smollm2-135m", n_ubatch=8, sizes="1-10")
        def test_split(): pass
        """
    )
    result.assert_outcomes(passed=1)


def test_without_a_split_there_is_no_cliff(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @no_cliff(upto=16)
        @specdec(target="smollm2-135m")
        def test_flat(): pass
        """
    )
    result.assert_outcomes(passed=1)
