"""When times decide nothing: the run was disturbed, or there are too few blocks for any bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports import text
from pytest_specdec.theory.stats import pairs_needed
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


# One-sided error of a bound: what the looks of `min_speedup` spend together.
ALPHA = 0.01
# A fixed forward that takes this much longer in half of the blocks than in the quietest one is no drift but a
# disturbance; pairing by block cancels less than that.
DISTURBED = 1.5


def under_conditions(verdict: Verdict, curve: VerifyCurve, alpha: float = ALPHA) -> Verdict:
    """Return the verdict on a curve, or the inconclusive one that the conditions of measuring leave of it."""
    if is_point(curve.source, len(curve.samples_ms[0])):
        verdict = replace(verdict, low=None, high=None)
    if verdict.outcome not in (Outcome.PASS, Outcome.FAIL):
        return verdict
    why = disturbance(curve.sentinel_ms)
    if not why and curve.source == "measured":
        why = too_few(len(curve.samples_ms[0]), alpha)
    if not why:
        return verdict
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, because=f"{why}. As measured: {verdict.because}")


def is_point(source: str, blocks: int) -> bool:
    """Say whether a measurement is a single value from elsewhere: without bounds, taken as it stands."""
    return source != "measured" and blocks == 1


def bounds_told(low: float, high: float, source: str, blocks: int) -> str:
    """Say what the bounds are: "bounds 1.41-1.47"; a single value from elsewhere has none."""
    if is_point(source, blocks):
        return f"a {source} value without bounds"
    return f"bounds {text.interval(low, high)}"


def disturbance(sentinel_ms: Sequence[float]) -> str:
    """Say that a run was disturbed, "" when it was not.

    `sentinel_ms` is one fixed forward, timed before each block and after the last.
    """
    if not sentinel_ms or median(sentinel_ms) <= DISTURBED * min(sentinel_ms):
        return ""
    return (
        f"the run was disturbed: one and the same forward took {text.number(min(sentinel_ms))} to "
        f"{text.number(max(sentinel_ms))} ms (median {text.number(median(sentinel_ms))}); "
        "run it again on a quiet machine"
    )


def too_few(blocks: int, alpha: float = ALPHA) -> str:
    """Say that no bound exists with so few paired blocks, "" when one does."""
    needed = pairs_needed(alpha, sides=1)
    if blocks >= needed:
        return ""
    measured = f"{text.plural(blocks, 'block')} {'was' if blocks == 1 else 'were'} measured"
    advice = f"allow more (specdec(blocks={needed}), --specdec-budget)"
    return f"only {measured}, {needed} are the fewest that can tell: {advice}"
