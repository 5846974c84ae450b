"""The speedup against the baseline's."""

from __future__ import annotations

import math

from pytest_specdec.checks.baseline.limits import ALLOWED
from pytest_specdec.checks.baseline.limits import not_measured
from pytest_specdec.checks.conditions import disturbed
from pytest_specdec.checks.remedies import ACCEPT
from pytest_specdec.checks.remedies import RECORD
from pytest_specdec.checks.speed import LOOKS
from pytest_specdec.checks.speed import Speedup
from pytest_specdec.checks.speed import has_rate
from pytest_specdec.checks.speed import pairs_section
from pytest_specdec.checks.speed import speedup
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.reports import text
from pytest_specdec.theory.stats import shift
from pytest_specdec.theory.stats import shift_bounds
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


# One-sided error spent at each look: of the 0.01 in all, most where there is most evidence.
SPENT = (0.001, 0.002, 0.007)


def compare_speed(
    live: SpeedRun, stored: SpeedRun, tolerance: float | None, limit: str, alpha: float | None = None
) -> Verdict:
    """Compare speedups: fails when it is lower by more than is allowed, the bounds of both included."""
    allowed = 1 - ALLOWED["speedup"].share(tolerance)
    metric = f"speedup k={live.k}"
    now, then = speedup(live, alpha=alpha), speedup(stored, alpha=alpha)
    if now is None:
        why = f"no pair of {len(live.pairs)} decoded anything after the first token: give it other prompts"
        return not_measured(metric, limit, why)
    if then is None or (live.k, live.method) != (stored.k, stored.method):
        return not_measured(metric, limit, f"the baseline's speedup is not comparable: {RECORD}")
    seen = _change(live, stored, now, then, alpha)
    if seen is None:
        return not_measured(metric, limit, f"the baseline was measured on other prompts: {RECORD}")
    change, low, high = seen
    told = (
        f"speedup is {_speed_told(now)}, was {_speed_told(then)}: {text.number(change)} of the baseline's"
        f"{_bounds_told(low, high)}"
    )
    if high < allowed and _dearer_ms(high, then) > ALLOWED["speedup"].absolute:
        outcome = Outcome.FAIL
        doubt = " beyond doubt" if now.pairs and then.pairs else ""
        because = f"{told}, lower by more than {1 - allowed:.0%}{doubt}; {_term_that_moved(now, then)}"
    elif change < allowed and _dearer_ms(change, then) > ALLOWED["speedup"].absolute:
        outcome = Outcome.INCONCLUSIVE
        few = f"{text.plural(now.pairs, 'pair')} against {then.pairs} can't tell"
        open_end = "the bounds are not clear of it" if math.isfinite(high) else few
        because = f"{told}, lower by more than {1 - allowed:.0%}, but {open_end}"
    elif change < allowed:
        outcome = Outcome.PASS
        floor = f"{ALLOWED['speedup'].absolute:g} {ALLOWED['speedup'].unit}"
        because = f"{told}, which is no more than {floor}"
    elif low > 1 / allowed:
        outcome, because = Outcome.PASS, f"better: {told}; {ACCEPT}"
    else:
        outcome, because = Outcome.PASS, f"{told}, within {1 - allowed:.0%}"
    return Verdict(
        outcome=outcome,
        metric=metric,
        value=now.value,
        low=now.low if now.low > 0 and now.pairs else None,
        high=now.high if math.isfinite(now.high) and now.pairs else None,
        limit=limit,
        because=because,
        section=f"{pairs_section(live)}\nbaseline:\n{pairs_section(stored)}",
        baseline=then.value,
    )


def settled(
    live: SpeedRun, stored: SpeedRun, *, tolerance: float | None = None, alpha: float | None = None
) -> bool:
    """Say whether more pairs could not turn the verdict: the bounds are clear of the limit on either side.

    An estimate on the good side alone is no end: what got slower would pass as soon as one look is lucky.
    """
    now, then = speedup(live, alpha=alpha), speedup(stored, alpha=alpha)
    if now is None or then is None or (live.k, live.method) != (stored.k, stored.method):
        return True
    seen = _change(live, stored, now, then, alpha)
    if seen is None:
        return True
    allowed = 1 - ALLOWED["speedup"].share(tolerance)
    _, low, high = seen
    return low >= allowed or high < allowed or bool(disturbed(live))


def _change(
    live: SpeedRun, stored: SpeedRun, now: Speedup, then: Speedup, alpha: float | None
) -> tuple[float, float, float] | None:
    """Return now ÷ then with its bounds, from the pairs of the same prompts; None without any.

    The error is what the look that the live pairs are on spends. Published speedups are single values.
    """
    if not now.pairs or not then.pairs:
        low = now.low / then.high if then.high > 0 else 0.0
        high = now.high / then.low if then.low > 0 else math.inf
        return now.value / then.value, low, high
    here, before = _by_prompt(live), _by_prompt(stored)
    common = [prompt for prompt in here if prompt in before]
    if not common:
        return None
    x, y = [here[prompt] for prompt in common], [before[prompt] for prompt in common]
    change = math.exp(shift(x, y))
    if now.pairs < LOOKS[0][0]:
        # One bad moment reaches over a few pairs, which then agree.
        return change, 0.0, math.inf
    low, high = shift_bounds(x, y, SPENT[now.look - 1] if alpha is None else alpha, sides=1)
    return change, math.exp(low), math.exp(high)


def _by_prompt(run: SpeedRun) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for pair in run.pairs:
        if has_rate(pair):
            found.setdefault(pair.prompt, []).append(math.log(pair.ratio))
    return found


def _dearer_ms(change: float, then: Speedup) -> float:
    """Return what a token takes longer at another speedup, at the baseline's rates."""
    return 1000.0 / then.plain_tokens_per_s / then.value * (1 / change - 1)


def _bounds_told(low: float, high: float) -> str:
    return f" (bounds {text.interval(low, high)})" if math.isfinite(high) and low < high else ""


def _speed_told(seen: Speedup) -> str:
    if not seen.pairs:
        return f"{text.number(seen.value)}x (published, no interval)"
    bounds = f"{text.interval(seen.low, seen.high)}, " if math.isfinite(seen.high) else ""
    return f"{text.number(seen.value)}x ({bounds}{text.plural(seen.pairs, 'pair')})"


def _term_that_moved(now: Speedup, then: Speedup) -> str:
    """Say which of the two rates moved more, as a share of the baseline's."""
    plain = now.plain_tokens_per_s / then.plain_tokens_per_s
    speculative = now.speculative_tokens_per_s / then.speculative_tokens_per_s
    return (
        f"speculative decoding has {text.number(now.speculative_tokens_per_s, 1)} tokens/s, had "
        f"{text.number(then.speculative_tokens_per_s, 1)} (x {text.number(speculative)}), plain decoding "
        f"{text.number(now.plain_tokens_per_s, 1)}, had {text.number(then.plain_tokens_per_s, 1)} "
        f"(x {text.number(plain)})"
    )
