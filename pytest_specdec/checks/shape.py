"""Limits on the finer shape of T(N): where it is flat, and where more tokens cost less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_specdec.checks.conditions import ALPHA
from pytest_specdec.checks.conditions import bounds_told
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.checks.curve import ratio_bounds
from pytest_specdec.reports import text
from pytest_specdec.reports.curve import curve_section
from pytest_specdec.theory.steps import find_steps
from pytest_specdec.theory.steps import flatness
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import VerifyCurve


def plateau(
    curve: VerifyCurve, *, start: int, stop: int, rel: float = 0.10, limit: str = "", alpha: float = ALPHA
) -> Verdict:
    """Hold T(N), from `start` to `stop`, against being flat: every ratio to T(start) within 1 ± `rel`.

    Judged on the bounds of the ratio that is farthest from 1.
    """
    limit = limit or f"plateau({start}, {stop})"
    metric = f"T({start}-{stop}) flatness"
    blocks = curve.blocks_ms()
    steps = find_steps(curve.n, blocks, alpha=2 * alpha)
    section = curve_section(curve, steps)
    if (missing := _missing(curve, start, stop)) is not None:
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, missing, section)
    logs = np.log(blocks)
    base = curve.n.index(start)
    inside = [i for i, n in enumerate(curve.n) if start < n <= stop]
    ratios = {curve.n[i]: ratio_bounds(logs[i] - logs[base], alpha) for i in inside}
    worst = max(ratios, key=lambda n: abs(np.log(ratios[n][0])))
    value, low, high = ratios[worst]
    spread = flatness(curve.n, blocks, start, stop)
    told = (
        f"from {start} to {stop} T varies by {spread:.1%}; farthest from T({start}) is "
        f"T({worst}) = {text.number(value)} of it ({bounds_told(low, high, curve.source, len(blocks[0]))})"
    )
    if all(1 - rel <= seen_low and seen_high <= 1 + rel for _, seen_low, seen_high in ratios.values()):
        outcome, because = Outcome.PASS, f"{told}, within {rel:.0%}"
    elif any(seen_low > 1 + rel or seen_high < 1 - rel for _, seen_low, seen_high in ratios.values()):
        found = ", ".join(f"{a}-{b}" for a, b in steps.plateaus) or "none"
        outcome, because = Outcome.FAIL, f"{told}, more than {rel:.0%}; plateaus here: {found}"
    else:
        outcome = Outcome.INCONCLUSIVE
        because = f"{told}: the bounds leave open whether that is within {rel:.0%}; measure more blocks"
    return under_conditions(Verdict(outcome, metric, value, low, high, limit, because, section), curve, alpha)


def dip_at(curve: VerifyCurve, *, n: int, limit: str = "", alpha: float = ALPHA) -> Verdict:
    """Hold T(n) against costing more than the next larger size that was measured, beyond noise."""
    limit = limit or f"dip_at({n})"
    blocks = curve.blocks_ms()
    steps = find_steps(curve.n, blocks, alpha=2 * alpha)
    section = curve_section(curve, steps)
    larger = [size for size in curve.n if size > n]
    if n not in curve.n or not larger:
        because = f"a dip at {n} needs T({n}) and a larger size measured: specdec(sizes=...)"
        return Verdict(Outcome.NOT_MEASURED, f"T({n})", None, None, None, limit, because, section)
    logs = np.log(blocks)
    after = larger[0]
    value, low, high = ratio_bounds(logs[curve.n.index(n)] - logs[curve.n.index(after)], alpha)
    metric = f"T({n})/T({after})"
    told = f"{metric} = {text.number(value)} ({bounds_told(low, high, curve.source, len(blocks[0]))})"
    if n in steps.dips:
        outcome, because = Outcome.PASS, f"{n} tokens cost more than {after}: {told}"
    elif high <= 1.0:
        found = ", ".join(map(str, steps.dips)) or "none"
        outcome, because = Outcome.FAIL, f"{n} tokens cost no more than {after}: {told}; dips here: {found}"
    elif low > 1.0:
        outcome, because = Outcome.FAIL, f"{n} tokens cost hardly more than {after}: {told}: no dip"
    else:
        outcome, because = Outcome.INCONCLUSIVE, f"whether {n} tokens cost more than {after} is open: {told}"
    return under_conditions(Verdict(outcome, metric, value, low, high, limit, because, section), curve, alpha)


def _missing(curve: VerifyCurve, start: int, stop: int) -> str | None:
    lacking = [n for n in (start, stop) if n not in curve.n]
    if not lacking:
        return None
    names = " and ".join(f"N = {n}" for n in lacking)
    wanted = text.sizes(sorted({*curve.n, *lacking}))
    return f'{names} not measured: specdec(sizes="{wanted}")'
