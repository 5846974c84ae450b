"""What the new arm's times are against the old one's: paired, judged on bounds, red only beyond doubt."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from pytest_specdec.checks.conditions import too_few
from pytest_specdec.checks.upgrade.pairs import drafting_ms
from pytest_specdec.checks.upgrade.pairs import overhead_ms
from pytest_specdec.checks.upgrade.pairs import pooled_rate
from pytest_specdec.reports import text
from pytest_specdec.reports.upgrade import Aspect
from pytest_specdec.theory.change import Change
from pytest_specdec.theory.change import difference
from pytest_specdec.theory.change import ratio
from pytest_specdec.theory.stats import hodges_lehmann
from pytest_specdec.theory.stats import pairs_needed
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_specdec.checks.upgrade.pairs import Run
    from pytest_specdec.checks.upgrade.pairs import SpeculativePairs
    from pytest_specdec.measurements import ArmResult
    from pytest_specdec.measurements import Comparison
    from pytest_specdec.measurements import Speculation


# Sizes named in one sentence.
SHOWN = 3
QUIETER = "run it again on a quiet machine, or longer"
# What is neither drafting nor verifying, as the timeline has it.
OVERHEADS = {"host_ms": "host", "sampling_ms": "sampling", "rollback_ms": "rollback", "wait_ms": "waits"}


def verify_changes(comparison: Comparison, alpha: float) -> dict[int, Change]:
    """Return new ÷ old T(N) for each N that both arms measured alike, paired by block."""
    old, new = comparison.old.curve, comparison.new.curve
    if (old.depth, old.rows) != (new.depth, new.rows):
        return {}
    before, here = old.blocks_ms(), new.blocks_ms()
    blocks = min(before.shape[1], here.shape[1])
    return {
        n: ratio(here[new.n.index(n)][:blocks], before[old.n.index(n)][:blocks], alpha)
        for n in new.n
        if n in old.n
    }


def verify_cost(
    comparison: Comparison, changes: Mapping[int, Change], tolerance: float, alpha: float
) -> Aspect:
    """Hold T(N) of the new arm against the old one's, N by N.

    It fails where T(N) is dearer by more than the tolerance beyond doubt. It is inconclusive where it may be,
    or where it is not known to be within the tolerance and the bounds of most N are wider than that.
    """
    limit = _limit(tolerance)
    if not changes:
        why = "the arms have no T(N) in common: measure both at one depth, for the same N"
        return Aspect(Verdict(Outcome.NOT_MEASURED, "T(N)", None, None, None, limit, why))
    allowed = 1 + tolerance
    dearer = [n for n, change in changes.items() if change.low > allowed]
    maybe = [n for n, change in changes.items() if change.value > allowed >= change.low]
    cheaper = [n for n, change in changes.items() if change.high < 1 / allowed]
    rest = sorted(set(changes) - {*dearer, *maybe, *cheaper})
    told = [
        f"{word} at N = {text.sizes(sizes)}: {_sizes_told(comparison, changes, sizes, near)}"
        for word, sizes, near in (
            ("dearer", dearer, allowed),
            ("bounds not clear, may be dearer", maybe, allowed),
            ("cheaper", cheaper, 1 / allowed),
        )
        if sizes
    ]
    if rest:
        span = _span([changes[n].value for n in rest])
        told.append(f"no difference within {_share(tolerance)} at N = {text.sizes(rest)} ({span})")
    outcome = Outcome.FAIL if dearer else Outcome.INCONCLUSIVE if maybe else Outcome.PASS
    width = median(change.high / change.value for change in changes.values())
    known = all(change.high <= allowed for change in changes.values())
    if why := too_few(min(change.pairs for change in changes.values()), alpha):
        outcome = Outcome.INCONCLUSIVE
        told = [f"{why}. As measured: {'; '.join(told)}"]
    elif outcome is Outcome.PASS and width > allowed and not known:
        outcome = Outcome.INCONCLUSIVE
        told.insert(0, _too_wide(width - 1, tolerance))
    n = max(changes, key=lambda size: (changes[size].low > allowed, changes[size].value))
    words = dict.fromkeys(dearer, "dearer") | dict.fromkeys(maybe, "?") | dict.fromkeys(cheaper, "cheaper")
    section = _verify_section(comparison, changes, words)
    verdict = _verdict(outcome, "T(N)", changes[n], limit, "; ".join(told), section)
    return Aspect(verdict, changed=bool(cheaper))


def decode_rate(
    metric: str, pairs: Sequence[tuple[Run, Run]], tolerance: float, alpha: float
) -> tuple[Aspect, Change | None]:
    """Hold the new arm's decode rate against the old one's; the change is that of the rate."""
    rated = [(a, b) for a, b in pairs if a.tokens_per_s > 0 and b.tokens_per_s > 0]
    limit = _limit(tolerance)
    if not rated:
        why = "no text went past its first token on both arms: give it other prompts"
        return Aspect(Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, why)), None
    cost = ratio([1 / b.tokens_per_s for _, b in rated], [1 / a.tokens_per_s for a, _ in rated], alpha)
    before, now = (pooled_rate([pair[i] for pair in rated]) for i in (0, 1))
    rate = cost.inverse
    shown = f"{text.number(now, 1)} tokens/s, was {text.number(before, 1)} ({_told(rate)})"
    outcome, word = _judge(cost, tolerance, alpha, "slower", "faster")
    verdict = _verdict(outcome, metric, rate, limit, f"{shown}, {word}")
    return Aspect(verdict, changed=cost.high < 1 / (1 + tolerance)), rate


def draft_cost(comparison: Comparison, pairs: SpeculativePairs, tolerance: float, alpha: float) -> Aspect:
    """Hold what drafting takes against the old arm's.

    Per drafted token for a draft model. A source without one costs next to nothing, so its change is judged
    as a share of the old arm's round.
    """
    limit = _limit(tolerance)
    drafted = [(a, b) for a, b in pairs if sum(a.drafted) and sum(b.drafted)]
    drafted = [(a, b) for a, b in drafted if sum(a.draft_ms) > 0 and sum(b.draft_ms) > 0]
    if not drafted:
        why = "nothing was drafted on both arms: give it other prompts"
        return Aspect(Verdict(Outcome.NOT_MEASURED, "draft cost", None, None, None, limit, why))
    if comparison.old.draft is None or comparison.new.draft is None:
        return _as_share("draft cost", drafted, drafting_ms, tolerance, alpha, "")
    before, now = (
        [sum(run.draft_ms) / sum(run.drafted) for run in (pair[i] for pair in drafted)] for i in (0, 1)
    )
    change = ratio(now, before, alpha)
    shown = f"{text.number(median(now))} ms per drafted token, was {text.number(median(before))}"
    outcome, word = _judge(change, tolerance, alpha, "dearer", "cheaper")
    now_c, then_c = (
        text.number(math.exp(hodges_lehmann(cost.log_ratios())))
        for cost in (comparison.new.draft, comparison.old.draft)
    )
    because = f"{shown} ({_told(change)}), {word}; draft cost c = {now_c}, was {then_c}"
    verdict = _verdict(outcome, "draft cost", change, limit, because)
    return Aspect(verdict, changed=change.high < 1 / (1 + tolerance))


def overhead(comparison: Comparison, pairs: SpeculativePairs, tolerance: float, alpha: float) -> Aspect:
    """Hold what a round takes beside drafting and verifying, as a share of the old arm's round."""
    rounds = [(a, b) for a, b in pairs if a.drafted and b.drafted and a.decode_ms > 0]
    if not rounds:
        why = "no rounds were run on both arms: give it other prompts"
        return Aspect(Verdict(Outcome.NOT_MEASURED, "overhead", None, None, None, _limit(tolerance), why))
    return _as_share("overhead", rounds, overhead_ms, tolerance, alpha, _overhead_section(comparison))


def speedup(comparison: Comparison, alpha: float) -> Aspect:
    """Report speculative ÷ plain decode rate of both arms.

    Never red: a faster plain decoding lowers it, and nothing has become worse.
    """
    changes = [_speedup(arm, alpha) for arm in (comparison.old, comparison.new)]
    old, new = changes
    if old is None or new is None:
        return _reported("speedup", None, "not measured: no text went past its first token")
    words = [f"{text.number(one.value)}x ({_bounds(one)})" for one in (new, old)]
    because = f"{words[0]}, was {words[1]}"
    if old.low > 1 and new.high < 1:
        because = f"{because}: speculation paid, and does not pay any more"
    elif old.high < 1 and new.low > 1:
        because = f"{because}: speculation did not pay, and pays"
    return _reported("speedup", new, because)


def load_time(comparison: Comparison) -> Aspect:
    """Report how long loading took."""
    old, new = comparison.old.facts.load_ms, comparison.new.facts.load_ms
    if old is None or new is None:
        return _reported("load time", None, "not known on both arms")
    return _reported("load time", None, f"{new:.0f} ms, was {old:.0f}")


def peak_memory(comparison: Comparison) -> Aspect:
    """Report the peak memory of both arms."""
    old, new = comparison.old.facts.peak_bytes, comparison.new.facts.peak_bytes
    if old is None or new is None:
        return _reported("peak memory", None, "not known on both arms")
    return _reported("peak memory", None, f"{new / 2**20:.0f} MiB, was {old / 2**20:.0f}")


def _speedup(arm: ArmResult, alpha: float) -> Change | None:
    plain, speculative = [], []
    for decoded, run in zip(arm.plain, arm.speculative, strict=False):
        rates = {one.prompt: one.tokens_per_s for one in decoded.generations}
        for one in run.speculations:
            if one.tokens_per_s > 0 and rates.get(one.prompt, 0.0) > 0:
                plain.append(rates[one.prompt])
                speculative.append(one.tokens_per_s)
    return ratio(speculative, plain, alpha) if plain else None


def _as_share(
    metric: str,
    pairs: Sequence[tuple[Speculation, Speculation]],
    part: Callable[[Speculation], float],
    tolerance: float,
    alpha: float,
    section: str,
) -> Aspect:
    """Judge the change of a part of the round as a share of the old arm's round."""
    before = [part(a) / len(a.drafted) for a, _ in pairs]
    now = [part(b) / len(b.drafted) for _, b in pairs]
    rounds = [a.decode_ms / len(a.drafted) for a, _ in pairs]
    change = difference(
        [ms / whole for ms, whole in zip(now, rounds, strict=True)],
        [ms / whole for ms, whole in zip(before, rounds, strict=True)],
        alpha,
    )
    shown = f"{text.number(median(now))} ms per round, was {text.number(median(before))}"
    bounds = f", bounds {_signed(change.low)} to {_signed(change.high)}" if change.bounded else ""
    shown = f"{shown} ({_signed(change.value)} of a round{bounds}, {text.plural(change.pairs, 'pair')})"
    if not change.bounded:
        outcome, word = Outcome.INCONCLUSIVE, _few(change.pairs, alpha)
    elif change.low > tolerance:
        outcome, word = Outcome.FAIL, f"more than {_share(tolerance)} of a round dearer"
    elif change.value > tolerance:
        word = f"may be more than {_share(tolerance)} of a round dearer, bounds not clear: {QUIETER}"
        outcome = Outcome.INCONCLUSIVE
    elif change.high > tolerance and change.high - change.value > tolerance:
        outcome, word = Outcome.INCONCLUSIVE, _too_wide(change.high - change.value, tolerance)
    elif change.high < -tolerance:
        outcome, word = Outcome.PASS, f"more than {_share(tolerance)} of a round cheaper"
    else:
        outcome, word = Outcome.PASS, f"no difference of more than {_share(tolerance)} of a round"
    limit = f"no more than {_share(tolerance)} of a round dearer"
    verdict = _verdict(outcome, metric, change, limit, f"{shown}, {word}", section)
    return Aspect(verdict, changed=change.high < -tolerance)


def _judge(cost: Change, tolerance: float, alpha: float, worse: str, better: str) -> tuple[Outcome, str]:
    """Return the outcome of a cost's change and the words for it."""
    allowed = 1 + tolerance
    if not cost.bounded:
        return Outcome.INCONCLUSIVE, _few(cost.pairs, alpha)
    if cost.low > allowed:
        return Outcome.FAIL, f"{worse} by more than {_share(tolerance)}"
    if cost.value > allowed:
        told = f"may be {worse} by more than {_share(tolerance)}, bounds not clear: {QUIETER}"
        return Outcome.INCONCLUSIVE, told
    if cost.high > allowed and cost.high / cost.value > allowed:
        return Outcome.INCONCLUSIVE, _too_wide(cost.high / cost.value - 1, tolerance)
    if cost.high < 1 / allowed:
        return Outcome.PASS, f"{better} by more than {_share(tolerance)}"
    return Outcome.PASS, f"no difference within {_share(tolerance)}"


def _few(pairs: int, alpha: float) -> str:
    needed = pairs_needed(alpha, sides=1)
    return f"only {text.plural(pairs, 'pair')}, {needed} are the fewest that can tell: give it more prompts"


def _too_wide(width: float, tolerance: float) -> str:
    # No machine can hold a gate that is tighter than its noise.
    reach = f"{text.against(100 * width, 100 * tolerance, 0)}% beyond the estimate"
    return f"the bounds reach {reach}, more than the tolerance of {_share(tolerance)}: {QUIETER}"


def _sizes_told(
    comparison: Comparison, changes: Mapping[int, Change], sizes: Sequence[int], limit: float
) -> str:
    old, new = comparison.old.curve.medians_ms(), comparison.new.curve.medians_ms()
    ranked = sorted(sizes, key=lambda n: abs(math.log(changes[n].value)), reverse=True)
    shown = ", ".join(
        f"T({n}) was {text.number(old[n])}, is {text.number(new[n])} ms "
        f"(x {text.against(changes[n].value, limit)}, {_bounds(changes[n])})"
        for n in ranked[:SHOWN]
    )
    return f"{shown}{', ...' if len(ranked) > SHOWN else ''}"


def _verify_section(comparison: Comparison, changes: Mapping[int, Change], words: Mapping[int, str]) -> str:
    old, new = comparison.old.curve.medians_ms(), comparison.new.curve.medians_ms()
    rows = [
        [
            str(n),
            text.number(old[n]),
            text.number(new[n]),
            text.number(change.value, 3),
            text.interval(change.low, change.high, 3) if change.bounded else "?",
            words.get(n, ""),
        ]
        for n, change in changes.items()
    ]
    header = ["N", "old ms", "new ms", "new/old", "bounds", ""]
    return "\n".join(text.table(header, rows, left=(5,)))


def _overhead_section(comparison: Comparison) -> str:
    """Return what overhead consists of on both arms, ms per request, where timelines were taken."""
    arms = (comparison.old, comparison.new)
    found = [
        [request for timeline in arm.timelines for request in timeline.requests if request.speculating]
        for arm in arms
    ]
    if not all(found):
        return ""
    rows = [
        [label, *(text.number(median(getattr(request, part) for request in requests)) for requests in found)]
        for part, label in OVERHEADS.items()
    ]
    return "\n".join(text.table(["ms per request", "old", "new"], rows, left=(0,)))


def _reported(metric: str, change: Change | None, because: str) -> Aspect:
    limit = "reported, never red"
    if change is None:
        return Aspect(Verdict(Outcome.PASS, metric, None, None, None, limit, because), judged=False)
    return Aspect(_verdict(Outcome.PASS, metric, change, limit, because), judged=False)


def _verdict(
    outcome: Outcome, metric: str, change: Change, limit: str, because: str, section: str = ""
) -> Verdict:
    low, high = (change.low, change.high) if change.bounded else (None, None)
    return Verdict(outcome, metric, change.value, low, high, limit, because, section)


def _limit(tolerance: float) -> str:
    return f"no more than {_share(tolerance)} worse"


def _share(tolerance: float) -> str:
    return f"{100 * tolerance:g}%"


def _signed(share: float) -> str:
    # Adding 0 makes -0.0% a plain one.
    return f"{round(share, 3) + 0.0:+.1%}"


def _told(change: Change) -> str:
    return f"x {text.number(change.value)}, {_bounds(change)}, {text.plural(change.pairs, 'pair')}"


def _bounds(change: Change) -> str:
    return f"bounds {text.interval(change.low, change.high)}" if change.bounded else "no bounds"


def _span(values: Sequence[float]) -> str:
    low, high = text.number(min(values)), text.number(max(values))
    return f"x {low}" if low == high else f"x {low}-{high}"
