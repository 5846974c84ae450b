"""Is speculative output the target's own: equal tokens, or differences that rounding explains?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_specdec.reports import text
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_specdec.measurements import Exactness
    from pytest_specdec.measurements import ExactnessCase
    from pytest_specdec.measurements import Parting


# Positions shown per prompt under a failure.
SHOWN = 5

STEPS = {
    1: "same class, same bits",
    2: "the same bits whatever the drafts",
    3: "near ties between classes",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in one prompt's output that rounding between kernels does not explain.

    ``step`` is the step that found it, 0 where llama.cpp itself refused to go on.
    """

    prompt: str
    position: int
    what: str
    step: int = 3


def lossless(exactness: Exactness, *, limit: str = "") -> Verdict:
    """Hold speculative output against the target's own, greedy, in three steps.

    Steps 1 and 2, where they apply, allow nothing: where every batch size of a run gives the bits of plain
    decoding, so must the run; where all rows of a batch of k + 1 are computed alike, the bits must not depend
    on the drafts.

    Step 3 always: every token of the speculative text lies within 2δ of the maximum of a clean one-token
    pass at its position, δ being how far the clean passes themselves differ there, and the speculative
    logits differ from that pass by no more than twice the largest δ on that text. Both compare exactly. The
    factor is the triangle inequality's: speculation mixes rows of several widths, so it and a clean pass may
    lie on opposite sides of the one-token pass's own rounding.
    Tokens that differ from plain decoding need such a near tie where they first differ.
    """
    limit = limit or "lossless()"
    metric = f"differing prompts k={exactness.k}"
    cases = exactness.cases
    if not any(case.tokens or case.refused for case in cases):
        because = f"no token was generated on {text.plural(len(cases), 'prompt')}: give it other prompts"
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because)
    by_prompt = [(case, case_faults(case)) for case in cases]
    faults = [fault for _, found in by_prompt for fault in found]
    differing = [case for case, found in by_prompt if found or case.first_difference is not None]
    tokens = sum(case.tokens for case in cases)
    all_text = f"{text.plural(tokens, 'token')} on {text.plural(len(cases), 'prompt')}"
    how = f"k = {exactness.k}, {exactness.method}"
    if faults:
        outcome = Outcome.FAIL
        prompts = len({fault.prompt for fault in faults})
        worst = min(faults, key=lambda fault: fault.step)
        because = (
            f"{prompts} of {text.plural(len(cases), 'prompt')} {'is' if prompts == 1 else 'are'} not the "
            f"target's own ({how}): {worst.prompt!r} at token {worst.position}: {_named(worst)}. "
            f"{_suspects(worst)}"
        )
    elif differing:
        outcome = Outcome.PASS
        because = (
            f"{all_text} are the target's own ({how}): "
            f"{text.plural(len(differing), 'text')} {'parts' if len(differing) == 1 else 'part'} from plain "
            f"decoding at a near tie between kernels ({_near_ties(differing)}){_decided(exactness)}"
        )
    else:
        outcome = Outcome.PASS
        because = f"{all_text} equal plain decoding ({how}){_decided(exactness)}"
    return Verdict(
        outcome, metric, float(len(differing)), None, None, limit, because, _section(exactness, faults)
    )


def case_faults(case: ExactnessCase) -> list[Fault]:
    """Return what no rounding explains in one prompt's output, the strictest step's first, by position."""
    faults = [Fault(case.prompt, one.position, _parted(one), one.step) for one in case.partings]
    if case.refused:
        what = f"a structural fault: llama.cpp refused to go on: {case.refused}"
        faults.append(Fault(case.prompt, case.tokens, what, 0))
    faults += [
        Fault(
            case.prompt,
            margin.position,
            f"token {margin.token} lies {text.against(margin.margin, 2 * margin.delta, 3)} under "
            f"{margin.best}, the choice of a clean one-token pass, more than "
            f"2δ = {text.number(2 * margin.delta, 3)}",
        )
        for margin in case.margins
        if margin.margin > 2 * margin.delta
    ]
    if case.first_difference is not None and case.first_difference not in {m.position for m in case.margins}:
        faults.append(Fault(case.prompt, case.first_difference, _unexplained(case)))
    # Without clean passes (no widths) there is nothing to hold the logits against.
    if case.widths and case.difference > 2 * case.noise:
        widths = text.sizes(case.widths)
        faults.append(
            Fault(
                case.prompt,
                case.difference_at,
                f"logits differ by {text.against(case.difference, 2 * case.noise, 3)} from a clean one-token "
                f"pass, where clean passes of N = {widths} differ by {text.number(case.noise, 3)} at most "
                "and twice that is allowed",
            )
        )
    return sorted(faults, key=lambda fault: (fault.step, fault.position))


def _named(fault: Fault) -> str:
    return f"step {fault.step}: {fault.what}" if fault.step else fault.what


def _suspects(fault: Fault) -> str:
    """Say why it had to be otherwise, and what can cause it."""
    why = {
        0: "Cache and host disagree about what is in the cache",
        1: "Every batch size of this run has the bits of plain decoding, and so must the run",
        2: "All rows of a batch of k + 1 are computed alike, so the drafts must not matter",
        3: "Rounding between kernels cannot do that",
    }[fault.step]
    return f"{why}: suspect rollback, positions or acceptance"


def _parted(parting: Parting) -> str:
    """Say who gave what."""
    ours = f"{parting.drafts} drafts (round {parting.round})"
    theirs = {"plain": "plain decoding", "clean": "clean passes"}.get(
        parting.against, f"{parting.against} drafts (round {parting.other_round})"
    )
    if parting.token is None:
        return f"the text of {ours} has ended, that of {theirs} goes on with {parting.other}"
    if parting.other is None:
        return f"the text of {ours} goes on with {parting.token}, that of {theirs} has ended"
    if parting.token != parting.other:
        return f"{ours} give {parting.token}, {theirs} {parting.other}"
    return f"the logits that choose {parting.token} differ in bits between {ours} and {theirs}"


def _decided(exactness: Exactness) -> str:
    """Say which step decided on how many prompts, and why no stricter one did."""
    told = []
    for step, what in STEPS.items():
        cases = [case for case in exactness.cases if case.decided == step]
        if not cases:
            continue
        where = "" if len(cases) == len(exactness.cases) else f" on {text.plural(len(cases), 'prompt')}"
        why = f" ({cases[0].prompt!r} without {'; '.join(cases[0].reasons)})" if step > 1 else ""
        told.append(f"step {step} decided k = {exactness.k}{where}: {what}{why}")
    return "".join(f"; {line}" for line in told)


def _unexplained(case: ExactnessCase) -> str:
    at = case.first_difference
    pair = ""
    if at is not None and at < min(len(case.plain), len(case.speculative)):
        pair = f" ({case.speculative[at]} instead of {case.plain[at]})"
    elif at is not None:
        pair = f" (one text ends: {len(case.speculative)} instead of {len(case.plain)} tokens)"
    if not case.widths:
        return f"it differs from plain decoding{pair}, and no clean pass was made to tell why"
    return f"it differs from plain decoding{pair}, though clean passes show no near tie there"


def _near_ties(cases: list[ExactnessCase]) -> str:
    told = []
    for case in cases[:SHOWN]:
        tie = next(margin for margin in case.margins if margin.position == case.first_difference)
        told.append(
            f"{case.prompt!r} at {tie.position}, margin {text.number(tie.margin, 3)} "
            f"<= 2δ = {text.number(2 * tie.delta, 3)}"
        )
    return "; ".join(told + (["..."] if len(cases) > SHOWN else []))


def _section(exactness: Exactness, faults: Sequence[Fault]) -> str:
    rows = [
        [
            case.prompt,
            str(case.tokens),
            "-" if case.decided is None else str(case.decided),
            "-" if case.first_difference is None else str(case.first_difference),
            str(len(case.margins)),
            text.number(case.difference, 3),
            text.number(case.noise, 3),
            text.sizes(case.widths) or "-",
        ]
        for case in exactness.cases
    ]
    header = ["prompt", "tokens", "step", "first difference", "near ties", "max Δ logit", "noise", "N"]
    lines = text.table(header, rows, left=(0,))
    failed = {fault.prompt for fault in faults}
    for case in exactness.cases:
        if case.prompt in failed or case.reasons:
            lines += ["", *_case_lines(case)]
    return "\n".join(lines)


def _case_lines(case: ExactnessCase) -> list[str]:
    faults = case_faults(case)
    lines = [f"{case.prompt}:"]
    lines += [f"  token {fault.position}: {_named(fault)}" for fault in faults[:SHOWN]]
    if len(faults) > SHOWN:
        lines.append(f"  and {len(faults) - SHOWN} more")
    lines += [f"  without {reason}" for reason in case.reasons]
    at = case.first_difference
    if faults and at is not None:
        start = max(0, at - 3)
        for name, tokens in (("plain", case.plain), ("speculative", case.speculative)):
            shown = " ".join(str(token) for token in tokens[start : at + 4])
            lines.append(f"  {name + ':':<12} tokens {start}-: {shown}")
    return lines
