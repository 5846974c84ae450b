"""Limits on what verification accepted; counters, so compared exactly, without statistics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_specdec.reports import text
from pytest_specdec.reports.misses import miss_lines
from pytest_specdec.theory.acceptance import Acceptance
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import PublishedAcceptance
    from pytest_specdec.measurements import Speculation
    from pytest_specdec.measurements import SpeculativeRun


# Below this share at the first position, over this many rounds, tuning the draft length is wasted.
HOPELESS = 0.05
HOPELESS_ROUNDS = 30


def accept_rate(run: SpeculativeRun, *, low: float, high: float = 1.0, limit: str = "") -> Verdict:
    """Hold accepted ÷ drafted tokens, over all prompts, against a range, both ends included.

    The rate falls with the draft length by construction: a limit means something at one k only.
    """
    limit = limit or f"accept_rate({low:g}, {high:g})"
    metric = f"acceptance k={run.k}"
    seen = acceptance_of(run)
    if run.published is not None:
        rate = run.published.rate
        counts = f"(published without counts, k = {run.k}, {run.method})"
    elif seen is None or not seen.drafted:
        return _nothing_drafted(run, metric, limit)
    else:
        rate = seen.accepted / seen.drafted
        counts = (
            f"({seen.accepted} of {text.plural(seen.drafted, 'drafted token')}, {_prompts(run)}, "
            f"k = {run.k}, {run.method})"
        )
    if rate < low:
        outcome = Outcome.FAIL
        because = f"acceptance rate {text.against(rate, low)} {counts} is below {low:g}"
        hint = "" if seen is None else _hopeless(seen)
        if hint:
            because = f"{because}; {hint}"
    elif rate > high:
        outcome = Outcome.FAIL
        because = (
            f"acceptance rate {text.against(rate, high)} {counts} is above {high:g}: a draft this right is "
            "the target itself, or the text repeats, or too much is accepted (lossless() tells)"
        )
    else:
        outcome = Outcome.PASS
        because = f"acceptance rate {text.number(rate)} {counts} is within {low:g}-{high:g}"
    section = "" if seen is None else _section(run, seen)
    return Verdict(outcome, metric, rate, None, None, limit, because, section)


def accept_length(run: SpeculativeRun, *, low: float, limit: str = "") -> Verdict:
    """Hold tokens per round, bonus included, over all prompts, against a lower limit."""
    limit = limit or f"accept_length({low:g})"
    metric = f"tokens/round k={run.k}"
    seen = acceptance_of(run)
    if run.published is not None:
        known = run.published.tokens_per_round
        if known is None:
            because = f"published without its rounds (k = {run.k}, {run.method}): accept_rate can be held"
            return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because)
        length = known
        counts = f"({_produced(run.published)}, published, k = {run.k}, {run.method})"
    elif seen is None or not seen.drafted:
        return _nothing_drafted(run, metric, limit)
    else:
        length = seen.tokens / seen.rounds
        counts = (
            f"({text.plural(seen.tokens, 'token')} in {text.plural(seen.rounds, 'round')}, {_prompts(run)}, "
            f"k = {run.k}, {run.method})"
        )
    if length < low:
        because = f"acceptance length {text.against(length, low)} {counts} is below {low:g}"
        if low > run.k + 1:
            because = f"{because}, which no draft of k = {run.k} can reach: a round gives {run.k + 1} at most"
        outcome = Outcome.FAIL
    else:
        outcome = Outcome.PASS
        because = f"acceptance length {text.number(length)} {counts} reaches {low:g}"
    section = "" if seen is None else _section(run, seen)
    return Verdict(outcome, metric, length, None, None, limit, because, section)


def accept_at(run: SpeculativeRun, *, position: int, low: float, limit: str = "") -> Verdict:
    """Hold the acceptance of a position in the draft against a lower limit.

    Unconditional: of the rounds that drafted the position and were not cut short before it, the share whose
    drafts up to it were all accepted.
    """
    limit = limit or f"accept_at({position}, {low:g})"
    metric = f"position {position} k={run.k}"
    if run.published is not None:
        because = f"published without its rounds (k = {run.k}, {run.method}): nothing is known of positions"
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because)
    seen = acceptance_of(run)
    if seen is None or not seen.drafted:
        return _nothing_drafted(run, metric, limit)
    if position > len(seen.positions) or not seen.position_rounds[position - 1]:
        because = f"no round drafted {text.plural(position, 'token')} (k = {run.k}, {run.method})"
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because, _section(run, seen))
    share = float(seen.positions[position - 1])
    rounds = int(seen.position_rounds[position - 1])
    told = f"position {position} is accepted in {text.against(share, low)} of {text.plural(rounds, 'round')}"
    outcome = Outcome.PASS if share >= low else Outcome.FAIL
    because = f"{told}, {'at least' if share >= low else 'less than'} {low:g} (k = {run.k}, {run.method})"
    return Verdict(outcome, metric, share, None, None, limit, because, _section(run, seen))


def acceptance_of(run: SpeculativeRun) -> Acceptance | None:
    """Return what a run's rounds say of acceptance; None without rounds."""
    drafted: list[int] = []
    accepted: list[int] = []
    prompt: list[int | str] = []
    cut: list[bool] = []
    for index, one in enumerate(run.speculations):
        last = len(one.drafted) - 1
        drafted += one.drafted
        accepted += one.accepted
        # By index: two prompts may share a name.
        prompt += [index] * len(one.drafted)
        cut += [one.cut and r == last for r in range(len(one.drafted))]
    return Acceptance.from_rounds(drafted, accepted, prompt, cut) if drafted else None


def _produced(published: PublishedAcceptance) -> str:
    """Say what the rounds produced; the token from the prefill is not theirs."""
    tokens, rounds = (published.tokens or 1) - 1, published.rounds or 0
    return f"{text.plural(tokens, 'token')} in {text.plural(rounds, 'round')}"


def _nothing_drafted(run: SpeculativeRun, metric: str, limit: str) -> Verdict:
    if run.rounds:
        passes = text.plural(run.rounds, "round")
        why = f"the source ({run.method}) proposed nothing in {passes} on {_prompts(run)}"
        advice = "other prompts (specdec(prompts=...)), more text (specdec(n_predict=...)) or another draft"
    else:
        why = f"no round of speculation took place on {_prompts(run)}: generation ended at once"
        advice = "other prompts (specdec(prompts=...))"
    return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, f"{why}; give it {advice}")


def _hopeless(seen: Acceptance) -> str:
    if seen.position_rounds[0] < HOPELESS_ROUNDS or seen.positions[0] >= HOPELESS:
        return ""
    return (
        f"even the first drafted token was right in {text.number(seen.positions[0])} of "
        f"{seen.position_rounds[0]} rounds only: no draft length cures that, either this source does not fit "
        "this text or rollback, vocabulary or positions are broken"
    )


def _section(run: SpeculativeRun, seen: Acceptance) -> str:
    rows = [_prompt_row(one) for one in run.speculations]
    total = [
        "all",
        str(seen.rounds),
        str(seen.drafted),
        str(seen.accepted),
        _share(seen.accepted, seen.drafted),
        text.number(seen.length),
    ]
    header = ["prompt", "rounds", "drafted", "accepted", "rate", "tokens/round"]
    lines = text.table(header, [*rows, total], left=(0,))
    places = [
        [str(i), str(rounds), _nan(share), _nan(given)]
        for i, (rounds, share, given) in enumerate(
            zip(seen.position_rounds, seen.positions, seen.conditionals, strict=True), 1
        )
    ]
    lines.append("")
    lines += text.table(["position", "rounds", "accepted up to here", "given the ones before"], places)
    low, high = seen.rate_interval
    lines.append("")
    lines.append(
        f"per-token acceptance of the i.i.d. model: {_nan(seen.alpha)}; "
        f"the rate on other prompts like these: {text.interval(low, high)} (95 %, by prompt)"
    )
    if misses := miss_lines(run):
        lines += ["", *misses]
    return "\n".join(lines)


def _prompt_row(one: Speculation) -> list[str]:
    rounds, drafted, accepted = len(one.drafted), sum(one.drafted), sum(one.accepted)
    produced = accepted + rounds - (1 if one.cut else 0)
    return [
        one.prompt,
        str(rounds),
        str(drafted),
        str(accepted),
        _share(accepted, drafted),
        _share(produced, rounds),
    ]


def _prompts(run: SpeculativeRun) -> str:
    return text.plural(len(run.speculations), "prompt")


def _share(top: int, bottom: int) -> str:
    return text.number(top / bottom) if bottom else "-"


def _nan(value: float) -> str:
    return "-" if math.isnan(value) else text.number(value)
