"""Does speculation pay? Paired decode rates, judged on exact signed-rank bounds at a few planned looks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_specdec.checks.conditions import disturbed
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.reports import text
from pytest_specdec.theory.stats import hodges_lehmann
from pytest_specdec.theory.stats import signed_rank_bounds
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import SpeedPair
    from pytest_specdec.measurements import SpeedRun


# (pairs, one-sided error spent there): looking again costs a share of the error, 0.01 in all.
LOOKS = ((8, 0.004), (16, 0.003), (24, 0.003))


@dataclass(frozen=True, slots=True)
class Speedup:
    """Speculative ÷ plain decode rate: the Hodges-Lehmann estimate of the pairs and its one-sided bounds.

    With too few pairs for any bound, `low` is 0 and `high` infinite. `look` counts from 1. Published rates
    have no interval: no pairs, no look, and both bounds are the value.
    """

    value: float
    low: float
    high: float
    pairs: int
    look: int
    left_out: int
    plain_tokens_per_s: float
    speculative_tokens_per_s: float


def speedup(run: SpeedRun, *, alpha: float | None = None) -> Speedup | None:
    """Estimate the speedup; None when no pair decoded anything after its first token.

    Looks come after every 8 pairs, or after every prompt once where there are more of them. `alpha` is the
    one-sided error spent at each look, default by `LOOKS`. A run that ends between two looks is judged with
    the error of the one it was on its way to.
    """
    if run.published is not None:
        plain, speculative = run.plain_tokens_per_s(), run.speculative_tokens_per_s()
        value = speculative / plain
        return Speedup(value, value, value, 0, 0, 0, plain, speculative)
    pairs = [pair for pair in run.pairs if has_rate(pair)]
    if not pairs:
        return None
    logs = [math.log(pair.ratio) for pair in pairs]
    per_look = max(LOOKS[0][0], len({pair.prompt for pair in run.pairs}))
    look = min(len(LOOKS), math.ceil(len(run.pairs) / per_look))
    low, high = signed_rank_bounds(logs, LOOKS[look - 1][1] if alpha is None else alpha, sides=1)
    plain_ms = sum(pair.plain_ms for pair in pairs)
    speculative_ms = sum(pair.speculative_ms for pair in pairs)
    return Speedup(
        value=math.exp(hodges_lehmann(logs)),
        low=math.exp(low),
        high=math.exp(high),
        pairs=len(pairs),
        look=look,
        left_out=len(run.pairs) - len(pairs),
        plain_tokens_per_s=1000 * sum(pair.plain_tokens - 1 for pair in pairs) / plain_ms,
        speculative_tokens_per_s=1000 * sum(pair.speculative_tokens - 1 for pair in pairs) / speculative_ms,
    )


def decided(run: SpeedRun, *, x: float, prove: bool = False, alpha: float | None = None) -> bool:
    """Say whether more pairs could not turn the verdict on `min_speedup(x)`: a bound is clear of x.

    `prove` changes what an open end means, not when it is closed. Pairs that were disturbed spoil those to
    come, so that more of them decide nothing either.
    """
    seen = speedup(run, alpha=alpha)
    return seen is not None and (seen.low >= x or seen.high < x or bool(disturbed(run)))


def min_speedup(
    run: SpeedRun, *, x: float, prove: bool = False, limit: str = "", alpha: float | None = None
) -> Verdict:
    """Hold the speedup against x.

    With `prove` it passes only when the lower bound reaches x; without, it fails only when the upper bound is
    under x. A speedup that is below x, but not confidently, is inconclusive either way.
    """
    limit = limit or f"min_speedup({x:g}{', prove=True' if prove else ''})"
    metric = f"speedup k={run.k}"
    seen = speedup(run, alpha=alpha)
    if seen is None:
        because = f"no pair of {len(run.pairs)} decoded anything after the first token: give it other prompts"
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because)
    told = describe(run, seen, x)
    if run.published is not None:
        return _published(seen, x, prove, Verdict(Outcome.PASS, metric, seen.value, None, None, limit, told))
    if seen.high < x:
        outcome, because = Outcome.FAIL, f"{told}, confidently below {x:g}"
    elif seen.low >= x:
        outcome, because = Outcome.PASS, f"{told}, confidently at least {x:g}"
    elif seen.value >= x and not prove:
        outcome, because = Outcome.PASS, f"{told}, at least {x:g} (not proven: prove=True asks for that)"
    elif seen.value >= x:
        outcome = Outcome.INCONCLUSIVE
        because = f"{told}, at least {x:g}, but the lower bound does not prove it{_more(seen)}"
    else:
        outcome, because = Outcome.INCONCLUSIVE, f"{told}, below {x:g}, not confidently{_more(seen)}"
    # Bounds that don't exist are no numbers: JSON has none for infinity.
    low = seen.low if seen.low > 0 else None
    high = seen.high if math.isfinite(seen.high) else None
    verdict = Verdict(outcome, metric, seen.value, low, high, limit, because, pairs_section(run))
    return under_conditions(verdict, run)


def answer(run: SpeedRun, *, alpha: float | None = None, replayed: bool = False) -> str:
    """Say in one sentence whether speculation pays here, on the bounds of the speedup."""
    seen = speedup(run, alpha=alpha)
    if seen is None:
        return "whether speculation pays was not measured: no text went past its first token"
    here = "where these numbers are from" if replayed or run.source != "measured" else "here"
    if why := disturbed(run):
        measured = describe(run, seen, 1.0)
        return f"whether speculation pays {here} is not decided: {why}. As measured: {measured}"
    if seen.low > 1:
        verdict = f"speculation pays {here}"
    elif seen.high < 1:
        verdict = f"speculation does not pay {here}: do not speculate"
    else:
        verdict = f"whether speculation pays {here} is not decided"
    return f"{verdict}: {describe(run, seen, 1.0)}"


def describe(run: SpeedRun, seen: Speedup, x: float) -> str:
    """Say both rates, their ratio, its bounds, and on how much evidence."""
    bounds = "no bounds yet"
    if math.isfinite(seen.high):
        bounds = f"bounds {text.against(seen.low, x)}-{text.against(seen.high, x)}"
    left = f", {seen.left_out} without a second token left out" if seen.left_out else ""
    evidence = f"{bounds}, {text.plural(seen.pairs, 'pair')}{left}, look {seen.look} of {len(LOOKS)}"
    if run.published is not None:
        evidence = "published, a point value without an interval"
    return (
        f"speculation (k = {run.k}, {run.method}) decodes {text.number(seen.speculative_tokens_per_s, 1)} "
        f"tokens/s, plain decoding {text.number(seen.plain_tokens_per_s, 1)}: {text.against(seen.value, x)}x "
        f"({evidence})"
    )


def pairs_section(run: SpeedRun) -> str:
    """Return the rates of every prompt over its pairs, and the ratios in the order they were measured."""
    if run.published is not None:
        plain, speculative = run.plain_tokens_per_s(), run.speculative_tokens_per_s()
        return f"published: plain {text.number(plain)}, speculative {text.number(speculative)} tokens/s"
    by_prompt: dict[str, list[SpeedPair]] = {}
    pairs = [pair for pair in run.pairs if has_rate(pair)]
    for pair in pairs:
        by_prompt.setdefault(pair.prompt, []).append(pair)
    rows = [
        [
            prompt,
            str(len(mine)),
            str(mine[0].plain_tokens),
            text.number(_rate([(p.plain_tokens, p.plain_ms) for p in mine]), 1),
            text.number(_rate([(p.speculative_tokens, p.speculative_ms) for p in mine]), 1),
            text.number(math.exp(hodges_lehmann([math.log(p.ratio) for p in mine]))),
        ]
        for prompt, mine in by_prompt.items()
    ]
    header = ["prompt", "pairs", "tokens", "plain t/s", "speculative t/s", "ratio"]
    ratios = [pair.ratio for pair in pairs]
    span = text.interval(min(ratios), max(ratios))
    return "\n".join([*text.table(header, rows, left=(0,)), f"pair ratios: {text.sparkline(ratios)}  {span}"])


def _published(seen: Speedup, x: float, prove: bool, verdict: Verdict) -> Verdict:
    """Judge a point value as it stands; nothing is proven without an interval."""
    if seen.value < x:
        return replace(verdict, outcome=Outcome.FAIL, because=f"{verdict.because}, below {x:g}")
    if prove:
        because = f"{verdict.because}, at least {x:g}, but prove=True needs an interval"
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, because=because)
    return replace(verdict, because=f"{verdict.because}, at least {x:g}")


def _rate(runs: list[tuple[int, float]]) -> float:
    return 1000 * sum(tokens - 1 for tokens, _ in runs) / sum(ms for _, ms in runs)


def has_rate(pair: SpeedPair) -> bool:
    """Say whether both sides of a pair decoded anything after their first token."""
    return min(pair.plain_tokens, pair.speculative_tokens) > 1 and min(pair.plain_ms, pair.speculative_ms) > 0


def _more(seen: Speedup) -> str:
    if seen.pairs < LOOKS[0][0]:
        return f": {LOOKS[0][0]} pairs are the fewest that can tell (specdec(prompts=...), --specdec-budget)"
    return ": measure on a quieter machine, or with longer texts (specdec(n_predict=...))"
