"""Limits on accounts: does the ledger close, what share can be sped up, how much memory is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.reports import text
from pytest_specdec.theory.ledger import Ledger
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import LedgerRun
    from pytest_specdec.measurements import MemoryUse
    from pytest_specdec.measurements import Timeline


STAGES = {
    "target_prefill_ms": "target prefill",
    "draft_prefill_ms": "draft prefill",
    "draft_forward_ms": "draft forward",
    "target_forward_ms": "target forward",
    "sampling_ms": "sampling",
    "rollback_ms": "rollback and cache",
    "wait_ms": "waits",
    "host_ms": "host",
    "wall_ms": "wall time",
}


def ledger_of(run: LedgerRun) -> Ledger:
    """Fit overhead and draft cost on the run's first draft lengths and predict the others."""
    curve = {1: run.plain_ms, **{k + 1: ms for k, ms in zip(run.ks, run.verify_ms, strict=True)}}
    return Ledger.fit(
        curve,
        dict(zip(run.ks, run.tokens_per_round, strict=True)),
        dict(zip(run.ks, run.tokens_per_s, strict=True)),
        run.ks[: run.fitted],
        plain_ms=run.plain_ms,
        plain_source=f"T(1) at depth {run.depth}",
    )


def ledger_table(ledger: Ledger) -> str:
    """Predicted against measured tokens per second by draft length, and the terms that were fitted."""
    rows = [
        [
            str(row.k),
            text.number(row.verify.ms),
            text.number(row.tokens_per_round),
            text.number(row.predicted, 1),
            text.number(row.measured, 1),
            f"{row.residual:+.1%}",
            "fitted" if row.fitted else "held out",
        ]
        for row in ledger.rows
    ]
    header = ["k", "T(k+1) ms", "tokens/round", "predicted t/s", "measured t/s", "residual", ""]
    return "\n".join(
        [
            *text.table(header, rows),
            f"overhead {text.number(ledger.overhead_ms)} ms per round, draft "
            f"{text.number(ledger.draft_ms)} ms per token, plain {text.number(ledger.plain_ms)} ms per token "
            f"({ledger.plain_source})",
        ]
    )


def ledger_closes(run: LedgerRun, *, within: float = 0.10, limit: str = "") -> Verdict:
    """Hold the ledger's predictions for the draft lengths it was not fitted on against what was measured."""
    limit = limit or f"ledger_closes({within:g})"
    ledger = ledger_of(run)
    held_out = [row for row in ledger.rows if not row.fitted]
    worst = max(held_out, key=lambda row: abs(row.residual))
    told = (
        f"fitted on k = {_listed(run.ks[: run.fitted])}, the ledger predicts "
        f"{text.number(worst.predicted, 1)} tokens/s at k = {worst.k}, where "
        f"{text.number(worst.measured, 1)} were measured ({worst.residual:+.1%})"
    )
    section = ledger_table(ledger)
    metric = "ledger residual"
    if ledger.closes(within):
        because = f"{told}, within {within:.0%}"
        closed = Verdict(Outcome.PASS, metric, worst.residual, None, None, limit, because, section)
        return under_conditions(closed, run)
    side = "dearer" if worst.residual > 0 else "cheaper"
    because = (
        f"{told}, more than {within:.0%} off: rounds at k = {worst.k} are {side} than T({worst.k + 1}), "
        "drafting and the overhead of the other draft lengths explain"
    )
    opened = Verdict(Outcome.FAIL, metric, worst.residual, None, None, limit, because, section)
    return under_conditions(opened, run)


def min_forward_share(timeline: Timeline, *, p: float, limit: str = "") -> Verdict:
    """Hold Amdahl's p, decode-forward time over request time with speculation off, against a lower limit."""
    limit = limit or f"min_forward_share({p:g})"
    share = timeline.forward_share
    told = f"with speculation off, {share:.1%} of the request time is decode forwards"
    ceiling = f"no draft can make requests more than {1 / (1 - share):.2f} times as fast" if share < 1 else ""
    outcome = Outcome.PASS if share >= p else Outcome.FAIL
    because = f"{told}, {'at least' if share >= p else 'less than'} {p:.0%}" + (
        f": {ceiling}" if ceiling else ""
    )
    verdict = Verdict(outcome, "forward share", share, None, None, limit, because, timeline_table(timeline))
    return under_conditions(verdict, timeline)


def memory_headroom(use: MemoryUse, *, share: float = 0.10, limit: str = "") -> Verdict:
    """Hold the share of memory that speculation's peak leaves free against a lower limit."""
    limit = limit or f"memory_headroom({share:g})"
    gib = 1 << 30
    told = (
        f"speculation peaks at {use.peak / gib:.2f} GiB of {use.total / gib:.2f} GiB ({use.where}): "
        f"{use.headroom:.1%} stay free"
    )
    # Room for the rounding of the division.
    holds = use.headroom >= share - 1e-9
    because = f"{told}, {'at least' if holds else 'less than'} {share:.0%}"
    outcome = Outcome.PASS if holds else Outcome.FAIL
    return Verdict(outcome, "memory headroom", use.headroom, None, None, limit, because)


def timeline_table(timeline: Timeline) -> str:
    """Every stage with speculation off and on: ms over all prompts, and its share of the wall time."""
    rows = []
    for part, name in STAGES.items():
        cells = [name]
        for speculating in (False, True):
            ms = timeline.total_ms(part, speculating=speculating)
            wall = timeline.total_ms("wall_ms", speculating=speculating)
            cells += [text.number(ms, 1), f"{ms / wall:.1%}"]
        rows.append(cells)
    header = ["stage", "off ms", "share", f"on (k = {timeline.k}) ms", "share"]
    return "\n".join(text.table(header, rows, left=(0,)))


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))
