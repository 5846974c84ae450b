"""May I upgrade? An old arm and a new one, judged in every aspect, and the change in tokens/s explained."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from pytest_specdec.checks.conditions import ALPHA
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.checks.upgrade import counters
from pytest_specdec.checks.upgrade import kernels
from pytest_specdec.checks.upgrade import times
from pytest_specdec.checks.upgrade.pairs import by_prompt
from pytest_specdec.checks.upgrade.pairs import drafting_ms
from pytest_specdec.checks.upgrade.pairs import overhead_ms
from pytest_specdec.checks.upgrade.pairs import plain_pairs
from pytest_specdec.checks.upgrade.pairs import pooled_rate
from pytest_specdec.checks.upgrade.pairs import speculative_pairs
from pytest_specdec.reports import text
from pytest_specdec.reports.upgrade import Aspect
from pytest_specdec.reports.upgrade import Conclusion
from pytest_specdec.reports.upgrade import UpgradeReport
from pytest_specdec.theory import arguments
from pytest_specdec.theory.attribution import Attribution
from pytest_specdec.theory.attribution import Terms
from pytest_specdec.theory.attribution import attribute
from pytest_specdec.verdict import Outcome


if TYPE_CHECKING:
    from pytest_specdec.checks.upgrade.pairs import SpeculativePairs
    from pytest_specdec.measurements import Comparison
    from pytest_specdec.measurements import Measurement
    from pytest_specdec.measurements import Speculation
    from pytest_specdec.reports.kernels import Causes
    from pytest_specdec.theory.change import Change


def judge(
    comparison: Comparison,
    *,
    tolerance: float = 0.05,
    alpha: float | None = None,
    known: Causes | None = None,
) -> UpgradeReport:
    """Judge a new arm against an old one.

    It is a regression when a time is worse by more than `tolerance` beyond doubt, when a round yields fewer
    tokens, or when a text parts from the old one where rounding does not explain it. Otherwise it could not
    be told when a time is in doubt. A kernel threshold that moved, other bits, near ties and better times are
    a change worth knowing and no regression. Where both arms are the same in build, environment and
    parameters, times in doubt are noise, and whatever differs beyond doubt is the machine's doing.

    `alpha` is the one-sided error of a bound; `known` names causes of the kernel thresholds that moved.

    Raises:
        ValueError: `tolerance` or `alpha` is not in (0, 1).
    """
    tolerance = arguments.number("tolerance", tolerance, above=0.0, below=1.0)
    alpha = arguments.number("alpha", ALPHA if alpha is None else alpha, above=0.0, below=1.0)
    plain, speculative = plain_pairs(comparison), speculative_pairs(comparison)
    verify = times.verify_changes(comparison, alpha)
    plain_rate, _ = times.decode_rate("plain decoding", plain, tolerance, alpha)
    speed_rate, speed = times.decode_rate("speculative decoding", speculative, tolerance, alpha)
    old, new = comparison.old, comparison.new
    decoded, spoken = (*old.plain, *new.plain), (*old.speculative, *new.speculative)
    aspects = (
        counters.build(comparison),
        _under(times.verify_cost(comparison, verify, tolerance, alpha), (old.curve, new.curve), alpha),
        kernels.kernel_maps(comparison, known),
        _under(times.draft_cost(comparison, speculative, tolerance, alpha), spoken, alpha),
        counters.acceptance(comparison, tolerance),
        counters.texts(comparison),
        _under(times.overhead(comparison, speculative, tolerance, alpha), spoken, alpha),
        _under(plain_rate, decoded, alpha),
        _under(speed_rate, spoken, alpha),
        times.speedup(comparison, alpha),
        times.load_time(comparison),
        times.peak_memory(comparison),
    )
    conclusion, because = _conclude(aspects, counters.same_arms(comparison), tolerance)
    terms, found, why = _attribution(comparison, verify, speculative, speed)
    return UpgradeReport(
        comparison=comparison,
        conclusion=conclusion,
        because=because,
        aspects=aspects,
        tolerance=tolerance,
        verify=tuple(verify.items()),
        speed=speed,
        terms=terms,
        attribution=found,
        attribution_because=why,
    )


def _under(aspect: Aspect, measured: Iterable[Measurement], alpha: float) -> Aspect:
    """Return an aspect of times as the conditions of measuring on either arm leave it."""
    verdict = aspect.verdict
    for one in measured:
        verdict = under_conditions(verdict, one, alpha)
    return replace(aspect, verdict=verdict)


def _conclude(aspects: Sequence[Aspect], same: bool, tolerance: float) -> tuple[Conclusion, str]:
    judged = [one for one in aspects if one.judged]
    failed = [one for one in judged if one.verdict.outcome is Outcome.FAIL]
    missing = [one for one in judged if one.verdict.outcome is Outcome.NOT_MEASURED]
    doubtful = [one for one in judged if one.verdict.outcome is Outcome.INCONCLUSIVE]
    changed = [one for one in judged if one.verdict.outcome is Outcome.PASS and one.changed]
    nothing = f"{_names(judged)} are the same, times within {100 * tolerance:g}%"
    if same:
        if failed or changed:
            told = "the same build on both sides, yet beyond doubt"
            because = f"{told} {_told([*failed, *changed])}. That is this machine's doing, not the build's"
            return Conclusion.UNKNOWN, because
        if missing:
            return Conclusion.UNKNOWN, _told(missing)
        noise = f"; {_names(doubtful)}: in doubt, which is this machine's noise" if doubtful else ""
        return Conclusion.SAME, f"the same build on both sides{noise}"
    if failed:
        return Conclusion.REGRESSION, _told(failed)
    if doubtful or missing:
        beside = f". Beside that: {_told(changed)}" if changed else ""
        return Conclusion.UNKNOWN, f"{_told([*missing, *doubtful])}{beside}"
    if changed:
        return Conclusion.CHANGED, _told(changed, short=False)
    return Conclusion.SAME, nothing


def _attribution(
    comparison: Comparison, verify: Mapping[int, Change], pairs: SpeculativePairs, speed: Change | None
) -> tuple[tuple[Terms, Terms] | None, Attribution | None, str]:
    """Return both arms' terms, the change divided among them, and why it is not where it isn't."""
    if speed is None:
        return None, None, "no change to attribute: speculative decoding was not measured on both arms"
    medians = comparison.old.curve.medians_ms()
    old_ms = {n: medians[n] for n in verify}
    # By the paired ratio: drift between the blocks meets both arms alike.
    new_ms = {n: medians[n] * change.value for n, change in verify.items()}
    old = _terms([a for a, _ in pairs], old_ms)
    new = _terms([b for _, b in pairs], new_ms)
    if old is None or new is None:
        return None, None, "no change to attribute: no rounds were run on both arms"
    if not speed.bounded or speed.low <= 1 <= speed.high:
        noise = "too few pairs tell it from noise"
        if speed.bounded:
            noise = f"within noise (bounds {text.interval(speed.low, speed.high, 3)})"
        why = f"no change to attribute: speculative decoding x {text.number(speed.value, 3)}, {noise}"
        return (old, new), None, why
    rates = [pooled_rate([pair[i] for pair in pairs]) for i in (0, 1)]
    try:
        return (old, new), attribute(old, new, rates[1] / rates[0]), ""
    except ValueError as error:
        return None, None, f"the change in tokens/s cannot be attributed: {error}"


def _terms(runs: Iterable[Speculation], verify_ms: Mapping[int, float]) -> Terms | None:
    """Return the terms of one arm over all prompts, each with the median times of its repetitions."""
    found = by_prompt(runs).values()
    widths: dict[int, float] = {}
    for repeated in found:
        for drafted in repeated[0].drafted:
            widths[drafted + 1] = widths.get(drafted + 1, 0) + 1
    rounds = sum(widths.values())
    tokens = sum(max(len(repeated[0].tokens) - 1, 0) for repeated in found)
    if not rounds or not tokens:
        return None
    draft, over = (
        sum(median(part(run) for run in repeated) for repeated in found) / rounds
        for part in (drafting_ms, overhead_ms)
    )
    return Terms(tokens / rounds, widths, verify_ms, draft, over)


def _told(aspects: Sequence[Aspect], *, short: bool = True) -> str:
    """Name aspects with what was found; `short`: with the first of it."""
    told = []
    for one in aspects:
        because = one.verdict.because
        told.append(f"{one.verdict.metric}: {because.partition('; ')[0] if short else because}")
    return "; ".join(told)


def _names(aspects: Sequence[Aspect]) -> str:
    return ", ".join(one.verdict.metric for one in aspects)
