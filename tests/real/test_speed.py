"""Whether it pays: prompt lookup on text that repeats does, a draft as dear as its target does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_specdec.bench.session import Bench
from pytest_specdec.checks.speed import min_speedup
from pytest_specdec.checks.speed import speedup
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.verdict import Outcome
from tests.real.conftest import GEMMA


def test_lookup_on_text_that_repeats_pays_most_between_the_cliffs(bench: Callable[..., Bench]) -> None:
    """Five tokens fall between the kernels that work in fours: k = 4 sags under k = 3 and k = 7."""
    made = bench(**GEMMA, n_predict=48, prompts="default::repeat")
    runs = {k: made.speed(k, until=_enough) for k in (3, 4, 7)}
    for k in (3, 7):
        verdict = min_speedup(runs[k], x=1.2)
        assert verdict.outcome is Outcome.PASS, verdict.long_repr()
    # A twentieth for the noise between runs; the distance is three times that and more.
    assert _ratio(runs[4]) < 1.05 * min(_ratio(runs[3]), _ratio(runs[7]))


def _enough(_run: SpeedRun) -> bool:
    return True


def _ratio(run: SpeedRun) -> float:
    seen = speedup(run)
    assert seen is not None
    return seen.value


def test_a_draft_as_dear_as_its_target_does_not(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @min_speedup(1.5, k=3)
        @specdec(target="smollm2-135m", draft="requantize:Q2_K", n_predict=32)
        def test_pays(): pass
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [r".*min_speedup\(1\.5, k=3\).* tokens/s, plain decoding .*x \(bounds .*confidently below 1\.5.*"]
    )
