"""Is speculative output the target's own: equal tokens, or differences that rounding explains?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_specdec.reports import text
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import Exactness
    from pytest_specdec.measurements import ExactnessCase


# Positions shown per prompt under a failure.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in one prompt's output that rounding between kernels does not explain."""

    prompt: str
    position: int
    what: str


def lossless(exactness: Exactness, *, limit: str = "") -> Verdict:
    """Hold speculative output against the target's own, greedy.

    A prompt holds when every token of the speculative text lies within 2δ of the maximum of a clean one-token
    pass at its position, δ being how far the clean passes themselves differ there, and when the speculative
    logits differ from that pass by no more than twice the largest δ on that text. Both compare exactly. The
    factor is the triangle inequality's: speculation mixes rows of several widths, so it and a clean pass may
    lie on opposite sides of the one-token pass's own rounding.
    Tokens that differ from plain decoding need such a near tie where they first differ.
    """
    limit = limit or "lossless()"
    metric = f"differing prompts k={exactness.k}"
    cases = exactness.cases
    if not any(case.tokens for case in cases):
        because = f"no token was generated on {text.plural(len(cases), 'prompt')}: give it other prompts"
        return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because)
    faults = [fault for case in cases for fault in case_faults(case)]
    differing = [case for case in cases if case.first_difference is not None]
    tokens = sum(case.tokens for case in cases)
    all_text = f"{text.plural(tokens, 'token')} on {text.plural(len(cases), 'prompt')}"
    how = f"k = {exactness.k}, {exactness.method}"
    if faults:
        outcome = Outcome.FAIL
        prompts = len({fault.prompt for fault in faults})
        because = (
            f"{prompts} of {text.plural(len(cases), 'prompt')} {'is' if prompts == 1 else 'are'} not the "
            f"target's own ({how}): "
            f"{faults[0].prompt!r} at token {faults[0].position}: {faults[0].what}. "
            "Rounding between kernels cannot do that: suspect rollback, positions or acceptance"
        )
    elif differing:
        outcome = Outcome.PASS
        because = (
            f"{all_text} are the target's own ({how}): "
            f"{text.plural(len(differing), 'text')} {'parts' if len(differing) == 1 else 'part'} from plain "
            f"decoding at a near tie between kernels ({_near_ties(differing)})"
        )
    else:
        outcome = Outcome.PASS
        because = f"{all_text} equal plain decoding ({how})"
    return Verdict(
        outcome, metric, float(len(differing)), None, None, limit, because, _section(exactness, faults)
    )


def case_faults(case: ExactnessCase) -> list[Fault]:
    """Return what no rounding explains in one prompt's output, by position."""
    faults = [
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
    return sorted(faults, key=lambda fault: fault.position)


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


def _section(exactness: Exactness, faults: list[Fault]) -> str:
    rows = [
        [
            case.prompt,
            str(case.tokens),
            "-" if case.first_difference is None else str(case.first_difference),
            str(len(case.margins)),
            text.number(case.difference, 3),
            text.number(case.noise, 3),
            text.sizes(case.widths) or "-",
        ]
        for case in exactness.cases
    ]
    header = ["prompt", "tokens", "first difference", "near ties", "max Δ logit", "noise", "N"]
    lines = text.table(header, rows, left=(0,))
    failed = {fault.prompt for fault in faults}
    for case in exactness.cases:
        if case.prompt in failed:
            lines += ["", *_case_lines(case)]
    return "\n".join(lines)


def _case_lines(case: ExactnessCase) -> list[str]:
    faults = case_faults(case)
    lines = [f"{case.prompt}:"]
    lines += [f"  token {fault.position}: {fault.what}" for fault in faults[:SHOWN]]
    if len(faults) > SHOWN:
        lines.append(f"  and {len(faults) - SHOWN} more")
    at = case.first_difference
    if at is not None:
        start = max(0, at - 3)
        for name, tokens in (("plain", case.plain), ("speculative", case.speculative)):
            shown = " ".join(str(token) for token in tokens[start : at + 4])
            lines.append(f"  {name + ':':<12} tokens {start}-: {shown}")
    return lines
