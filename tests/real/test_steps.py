"""Cliffs where a split batch puts them, and none where nothing splits: ratios within one run."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pytest_specdec.bench.session import Bench
from pytest_specdec.checks.curve import cliff_at
from pytest_specdec.verdict import Outcome
from tests.real.conftest import GEMMA


def test_a_batch_split_at_four_is_a_cliff_at_five(bench: Callable[..., Bench]) -> None:
    """On some CPUs the step hardly exceeds what a cliff needs: noise may leave it open, no more."""
    made = bench(target="smollm2-135m", n_ubatch=4, sizes="1-5,8-9", blocks=24)
    curve = made.verify_curve()
    there, elsewhere = (cliff_at(curve, n=n, ratio=1.25) for n in (5, 9))
    assert there.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE), there.long_repr()
    assert elsewhere.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE), elsewhere.long_repr()
    assert re.search(r"T\(5\)/T\(4\) = 1\.[2-9]", elsewhere.because)
    if there.outcome is Outcome.PASS:
        assert "the first cliff is at 5 (T(5)/T(4) = " in elsewhere.because
    medians = curve.medians_ms()
    assert medians[5] / medians[4] > 1.2


def test_a_batch_split_at_eight_is_a_cliff_at_nine(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @cliff_at(9, ratio=1.15)
        @specdec(target="smollm2-135m", n_ubatch=8, sizes="1-2,4,7-10", blocks=16)
        def test_split(): pass
        """
    )
    result.assert_outcomes(passed=1)


def test_without_a_split_there_is_no_cliff(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @no_cliff(upto=16)
        @specdec(target="smollm2-135m", sizes="1-5,8-9,16", blocks=16)
        def test_flat(): pass
        """
    )
    result.assert_outcomes(passed=1)


def test_a_sawtooth_makes_a_longer_draft_the_better_one(bench: Callable[..., Bench]) -> None:
    """Gemma's kernels work in even numbers or in fours, by the CPU: eight tokens cost less each than five."""
    curve = bench(**GEMMA, sizes="1,4-5,7-8", blocks=16).verify_curve()
    verdict = cliff_at(curve, n=5, ratio=1.25)
    # A disturbed run is inconclusive; that five is no cliff would be wrong.
    assert verdict.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE), verdict.long_repr()
    medians = curve.medians_ms()
    assert medians[8] < medians[7]
    assert medians[8] / 8 < medians[4] / 4 < medians[5] / 5
