"""A bench's questions to a replay: settings filled in from it, answers or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.rig import short_name
from pytest_specdec.engine.replay import Entry
from pytest_specdec.engine.replay import NotReplayed
from pytest_specdec.engine.replay import Replay
from pytest_specdec.engine.replay import models
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


def answer(replay: Replay, pair: str, kind: str, settings: Mapping[str, Any]) -> Entry:
    """Return the entry that answers for a measurement.

    Raises:
        NotMeasured: the replay has none; the reason says what it has.
    """
    try:
        return replay.entry(pair, kind, settings)
    except NotReplayed as error:
        raise NotMeasured(str(error)) from None
