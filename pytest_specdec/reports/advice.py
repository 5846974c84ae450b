"""The ledger and the advice on the draft length as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_specdec.reports import text


if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_specdec.theory.ledger import Advice


def ledger_lines(advice: Advice, fitted: Collection[int] = ()) -> list[str]:
    """Return one line per draft length: cost, yield, predicted and measured rate, residual, speedup.

    The residual is predicted ÷ measured − 1. A star stands at draft lengths that the terms were fitted on: no
    test of them. A tilde stands at T(N) that was not measured but read off a plateau.
    """
    header = ["k", "N", "T(N) ms", "tokens/round", "round ms", "predicted t/s", "measured t/s", "residual"]
    best = advice.best_k
    rows = [
        [
            f"{row.k}*" if row.k in fitted else str(row.k),
            str(row.verify.n),
            f"{'~' if row.verify.plateau else ''}{text.number(row.verify.ms)}",
            text.number(row.tokens_per_round),
            text.number(row.round_ms),
            text.number(row.predicted),
            "-" if row.measured is None else text.number(row.measured),
            "-" if row.measured is None else percent(row.predicted / row.measured - 1.0),
            f"{row.speedup:.2f}x",
            "best" if row.k == best else "",
        ]
        for row in advice.table
    ]
    return text.table([*header, "speedup", ""], rows, left=(9,))


def percent(share: float) -> str:
    """Write a signed share: "+2.2%"; what rounds to nothing has no minus."""
    written = f"{share:+.1%}"
    return "+0.0%" if written == "-0.0%" else written


def advice_lines(advice: Advice) -> list[str]:
    """Return the advice, and its reasons one a line."""
    reasons = advice.reason.split("; ")
    if advice.speculate:
        reasons.insert(0, f"best draft length: k = {advice.best_k}, worth {advice.speedup:.2f}x")
    return [reasons[0], *(f"  {part}" for part in reasons[1:])]
