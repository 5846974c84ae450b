"""A bench's questions to a replay: settings filled in from it, answers or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.rig import short_name
from pytest_specdec.engine.replay import Entry
from pytest_specdec.engine.replay import NotReplayed
from pytest_specdec.engine.replay import Replay
from pytest_specdec.engine.replay import models
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.settings import Settings


def filled(settings: Settings, replay: Replay) -> Settings:
    """Return the settings with the replayed pair's target and draft where none are given.

    Where several pairs, or none, fit what is given, nothing is filled in: the first question says so.
    """
    target, draft = (None if name is None else short_name(name) for name in (settings.target, settings.draft))
    pairs = replay.matching(target, draft)
    if len(pairs) != 1:
        return settings
    known = models(pairs[0])
    return replace(settings, target=settings.target or known[0], draft=settings.draft or known[1])


def ledger_of(run: LedgerRun, fit_on: Sequence[int], held_out: Sequence[int]) -> LedgerRun:
    """Return a replayed ledger's draft lengths in the roles asked for.

    Raises:
        NotMeasured: it lacks one of them.
    """
    ks = (*fit_on, *held_out)
    if lacking := [k for k in ks if k not in run.ks]:
        has = ", ".join(map(str, sorted(run.ks)))
        raise NotMeasured(f"the replayed ledger has no k = {', '.join(map(str, lacking))}; it has k = {has}")
    at = [run.ks.index(k) for k in ks]

    def ordered(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(values[i] for i in at)

    return replace(
        run,
        ks=ks,
        fitted=len(fit_on),
        verify_ms=ordered(run.verify_ms),
        drafted=ordered(run.drafted),
        tokens_per_round=ordered(run.tokens_per_round),
        tokens_per_s=ordered(run.tokens_per_s),
    )


def answer(replay: Replay, pair: str, kind: str, settings: Mapping[str, Any]) -> Entry:
    """Return the entry that answers for a measurement.

    Raises:
        NotMeasured: the replay has none; the reason says what it has.
    """
    try:
        return replay.entry(pair, kind, settings)
    except NotReplayed as error:
        raise NotMeasured(str(error)) from None
