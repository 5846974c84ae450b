"""When times decide nothing: the run was disturbed, or there are too few blocks for any bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from statistics import median
from typing import Final

from pytest_specdec.measurements import PRESSURES
from pytest_specdec.measurements import Environment
from pytest_specdec.measurements import Measurement
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
QUIET = "run it again on a quiet machine"


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that disturbs: beyond `limit`, `fact` of an environment is told in `words`.

    Beyond is above, and for a speed limit below; thermal pressures count from 0 as in `PRESSURES`. `remedy`
    is what to do about it, `reason` why the limit lies there.
    """

    fact: str
    limit: float
    words: str
    remedy: str
    reason: str


#: Beyond these, times decide nothing; counters hold under any of them.
RULES: Final = (
    Rule(
        "foreign_share",
        0.10,
        "other processes used {:.0%} of the cores",
        QUIET,
        "a pass waits for its slowest thread, so that load on a tenth of the cores costs it about as much as "
        "the smallest regression that a gate must find",
    ),
    Rule(
        "steal_share",
        0.05,
        "the hypervisor took {:.0%} of the cores' time for other machines",
        "run it again on a quiet host",
        "as other processes, but what is stolen is stolen from whole cores at once",
    ),
    Rule(
        "quota_throttled",
        0.02,
        "the CPU quota stopped the run in {:.0%} of its periods",
        "raise the container's CPU quota, or use fewer threads",
        "one stop lasts up to a period, usually 100 ms: as long as several passes",
    ),
    Rule(
        "throttled",
        0,
        "the processor slowed down for heat {:.0f} times",
        "let it cool down",
        "the clock changed between passes that are compared with each other",
    ),
    Rule(
        "speed_limit",
        100,
        "heat limited the processor's speed to {:.0f}%",
        "let it cool down",
        "as above; macOS names the limit instead of counting",
    ),
    Rule(
        "thermal_pressure",
        0,
        "thermal pressure was {}",
        "let it cool down",
        "from moderate on, macOS slows GPU and cores down as it sees fit",
    ),
    Rule(
        "low_power",
        0,
        "the machine was in a low-power mode",
        "switch it off",
        "the mode decides the clock then, pass by pass, and not the work",
    ),
)


def under_conditions(verdict: Verdict, measured: Measurement, alpha: float = ALPHA) -> Verdict:
    """Return a verdict on times, or the inconclusive one that the conditions of measuring leave of it.

    A curve of too few blocks for any bound decides nothing either.
    """
    if isinstance(measured, VerifyCurve) and is_point(measured.source, len(measured.samples_ms[0])):
        verdict = replace(verdict, low=None, high=None)
    if verdict.outcome not in (Outcome.PASS, Outcome.FAIL):
        return verdict
    why = disturbed(measured)
    if not why and isinstance(measured, VerifyCurve) and measured.source == "measured":
        why = too_few(len(measured.samples_ms[0]), alpha)
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


def disturbed(measured: Measurement) -> str:
    """Say what disturbed a run and what to do about it, "" when nothing did that anybody knows of."""
    found = []
    if isinstance(measured, VerifyCurve) and (drift := _drift(measured.sentinel_ms)):
        found.append((drift, QUIET))
    environment: Environment | None = getattr(measured, "environment", None)
    if environment is not None:
        found += _broken(environment)
    return _told(found)


def disturbance(sentinel_ms: Sequence[float]) -> str:
    """Say that a run was disturbed, by one fixed forward timed around the blocks; "" when not."""
    drift = _drift(sentinel_ms)
    return _told([(drift, QUIET)] if drift else [])


def too_few(blocks: int, alpha: float = ALPHA) -> str:
    """Say that no bound exists with so few paired blocks, "" when one does."""
    needed = pairs_needed(alpha, sides=1)
    if blocks >= needed:
        return ""
    measured = f"{text.plural(blocks, 'block')} {'was' if blocks == 1 else 'were'} measured"
    advice = f"allow more (specdec(blocks={needed}), --specdec-budget)"
    return f"only {measured}, {needed} are the fewest that can tell: {advice}"


def _told(found: Sequence[tuple[str, str]]) -> str:
    facts = "; ".join(fact for fact, _ in found)
    remedies = ", ".join(dict.fromkeys(remedy for _, remedy in found))
    return f"the run was disturbed: {facts}; {remedies}" if found else ""


def _drift(sentinel_ms: Sequence[float]) -> str:
    if not sentinel_ms or median(sentinel_ms) <= DISTURBED * min(sentinel_ms):
        return ""
    return (
        f"one and the same forward took {text.number(min(sentinel_ms))} to "
        f"{text.number(max(sentinel_ms))} ms (median {text.number(median(sentinel_ms))})"
    )


def _broken(environment: Environment) -> list[tuple[str, str]]:
    """Return what each rule that does not hold says, and what to do about it."""
    found = []
    for rule in RULES:
        value = getattr(environment, rule.fact)
        if value is None:
            continue
        if rule.fact == "thermal_pressure":
            beyond = PRESSURES.index(value) > rule.limit
        elif rule.fact == "speed_limit":
            beyond = value < rule.limit
        else:
            beyond = value > rule.limit
        if beyond:
            found.append((rule.words.format(value), rule.remedy))
    return found
