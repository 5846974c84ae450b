"""What a variant of drafting costs, brings and should bring by the ledger."""

from __future__ import annotations

from statistics import mean
from statistics import median

from pytest_specdec.checks.acceptance import acceptance_of
from pytest_specdec.checks.speed import speedup
from pytest_specdec.measurements import Variant
from pytest_specdec.reports.variants import Account
from pytest_specdec.theory.ledger import free_draft


def account(variant: Variant) -> Account:
    """Do the arithmetic of one variant.

    predicted = tokens per round x T(1) / (drafting per round + mean T(N)); ``shared`` is the same with
    drafted tokens at the variant's ``shared`` part of T(1).
    """
    run = variant.run
    times = variant.curve.medians_ms()
    widths = [drafted + 1 for one in run.speculations for drafted in one.drafted]
    drafting = [ms for one in run.speculations for ms in one.draft_ms]
    costs = [ms for one in run.speculations if (ms := one.drafted_token_ms) is not None]
    per_token = median(costs) if costs else None
    plain_ms, verify_ms = times[1], mean(times[n] for n in widths)
    timed = speedup(variant.speed)
    produced = run.tokens_per_round or 1.0
    shared = None
    if variant.shared is not None and per_token:
        cost = mean(drafting) * variant.shared * plain_ms / per_token
        shared = produced * plain_ms / (cost + verify_ms)
    return Account(
        acceptance=acceptance_of(run),
        draft_ms=per_token,
        c=None if per_token is None else per_token / plain_ms,
        plain_ms=plain_ms,
        verify_ms=verify_ms,
        predicted=produced * plain_ms / (mean(drafting) + verify_ms),
        shared=shared,
        free=free_draft(verify_ms, produced, plain_ms).speedup,
        measured=None if timed is None else (timed.value, timed.low, timed.high),
    )
