"""Variants of drafting as one table, and what each lives on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Final

from pytest_specdec.reports import text
from pytest_specdec.reports.misses import miss_lines


if TYPE_CHECKING:
    from pytest_specdec.measurements import Variant
    from pytest_specdec.theory.acceptance import Acceptance


#: What takes the gain away, by method.
BREAKS: Final = {
    "ngram": "text that does not repeat itself: nothing is found, or what is found is wrong",
    "two-model": "a draft too dear for its target (c), another vocabulary, text the draft was not made for",
    "layerskip": "blocks that matter: agreement falls faster than the draft gets cheaper",
    "medusa": "text that later tokens decide: heads don't see the tokens before their place",
    "eagle": "its own features: each place leans on the one before, and errors add up",
    "oracle": "nothing: it is told what is right, and shows what its acceptance would be worth",
}


@dataclass(frozen=True, slots=True)
class Account:
    """One variant's terms.

    `draft_ms` is per drafted token, None where nothing was drafted; `c` that over T(1); `verify_ms` the mean
    of T(N) over the rounds' widths N; `predicted` the speedup by yield, drafting and verifying alone, `free`
    the same with drafts for nothing, `shared` with those of blocks that the target shares, None for others;
    `measured` is the speedup and its one-sided bounds. What it lacks of `predicted` is overhead.
    """

    acceptance: Acceptance | None
    draft_ms: float | None
    c: float | None
    plain_ms: float
    verify_ms: float
    predicted: float
    free: float
    shared: float | None
    measured: tuple[float, float, float] | None


def variant_lines(
    found: Sequence[tuple[Variant, Account]], failed: Sequence[tuple[str, str]] = (), *, drawn: bool = False
) -> list[str]:
    """Return the table, and below it what breaks each variant and how near its rejections were.

    `failed` are names of variants that could not be measured, and why; `drawn` says that tokens were drawn.
    """
    header = [
        "variant",
        "k",
        "draft ms/token",
        "c",
        "tokens/round",
        "T(1) ms",
        "T(N) ms",
        "predicted",
        "measured",
        "if drafts were free",
        "memory",
        "lossless",
    ]
    rows = [_row(variant, account) for variant, account in found]
    lines = text.table(header, rows, left=(0, 11)) if rows else []
    for variant, account in found:
        lines += ["", f"{variant.name}:", f"  accepted by position: {_positions(account)}"]
        lines.append(f"  breaks on: {BREAKS.get(_source(variant), '-')}")
        longest = max((n for one in variant.run.speculations for n in one.drafted), default=0)
        if longest < variant.k:
            lines.append(
                f"  drafts were at most {text.plural(longest, 'token')} long, of the {variant.k} asked for"
            )
        if account.shared is not None and variant.shared is not None:
            lines.append(
                "  computed, not measured: with weights and cache shared with the target, c ≈ "
                f"{text.number(variant.shared)} and a speedup of {text.number(account.shared)}x"
            )
        # What the oracle drafts wrongly is made up.
        if variant.method != "oracle":
            lines += [f"  {line}" for line in miss_lines(variant.run, drawn=drawn)]
        if variant.lossless == "fail":
            lines.append(f"  not lossless: {variant.lossless_because}")
    for name, because in failed:
        lines += ["", f"{name}: not measured: {because}"]
    return lines[1:] if lines and not lines[0] else lines


def _row(variant: Variant, account: Account) -> list[str]:
    measured = account.measured
    memory = variant.memory
    return [
        variant.name,
        str(variant.k),
        "-" if account.draft_ms is None else text.number(account.draft_ms),
        "-" if account.c is None else text.number(account.c),
        "-" if variant.run.tokens_per_round is None else text.number(variant.run.tokens_per_round),
        text.number(account.plain_ms),
        text.number(account.verify_ms),
        f"{text.number(account.predicted)}x",
        "-" if measured is None else f"{text.number(measured[0])}x ({text.interval(*measured[1:])})",
        f"{text.number(account.free)}x",
        "-" if memory is None else f"{memory.peak / 2**20:.0f} MiB",
        variant.lossless,
    ]


def _source(variant: Variant) -> str:
    return "layerskip" if variant.name.startswith("layerskip:") else variant.method


def _positions(account: Account) -> str:
    seen = account.acceptance
    if seen is None or not seen.drafted:
        return "nothing was drafted"
    told = [
        f"{place}: {text.number(share)} ({text.interval(low, high)}, {text.plural(rounds, 'round')})"
        for place, (share, (low, high), rounds) in enumerate(
            zip(seen.positions, seen.position_intervals, seen.position_rounds, strict=True), 1
        )
        if not math.isnan(share)
    ]
    return "; ".join(told)
