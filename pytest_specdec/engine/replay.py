"""Answers from a machine's baselines in the place of llama.cpp: nothing is measured, no process starts."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final
from typing import Protocol

from pytest_specdec.measurements import Measurement


# Settings that make another measurement of it, wherever an entry states them. All others are taken as they
# come: published numbers state few, and the machine is another one anyway.
STRICT: Final = ("method", "k", "depth", "rows")
_WORDS: Final = {"speculative": "speculative run", "speed": "speed run"}


class NotReplayed(LookupError):
    """The baselines have no answer; the message says what they have."""


class Entry(Protocol):
    """A kept measurement, and what it was taken with."""

    @property
    def key(self) -> str:
        """Names it in its file."""
        ...

    @property
    def kind(self) -> str:
        """Its kind of measurement."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What its source states of the settings it was taken with."""
        ...

    @property
    def measurement(self) -> Measurement:
        """What was measured."""
        ...

    @property
    def build(self) -> Mapping[str, Any]:
        """The build identity it was taken with."""
        ...

    @property
    def recorded(self) -> str:
        """The day, ISO."""
        ...


class Replay:
    """The baselines of one machine, asked as llama.cpp would be.

    `name` is the machine's, `pairs` has the entries by the pair's name, "<target>--<draft>", where "none"
    stands for no draft.
    """

    def __init__(self, name: str, pairs: Mapping[str, Iterable[Entry]]) -> None:
        self.name = name
        self._pairs = {pair: tuple(entries) for pair, entries in pairs.items()}

    @property
    def pairs(self) -> tuple[str, ...]:
        """Names of the pairs."""
        return tuple(self._pairs)

    @property
    def told(self) -> str:
        """Say what every report has to say of a replay."""
        sources = {entry.measurement.source for entries in self._pairs.values() for entry in entries}
        where = "published numbers" if sources == {"published"} else f"the baselines of {self.name}"
        return f"replayed from {where}, not measured here"

    def hello(self) -> dict[str, Any]:
        """The newest build that the baselines know, as a worker would tell it; no devices."""
        entries = [entry for entries in self._pairs.values() for entry in entries]
        newest = max(entries, key=lambda entry: entry.recorded, default=None)
        return {**(newest.build if newest else {}), "devices": [], "replay": self.name}

    def matching(self, target: str | None, draft: str | None) -> tuple[str, ...]:
        """Names of the pairs with this target and this draft; None leaves it open."""
        wanted = (target, draft)
        return tuple(
            pair
            for pair in self._pairs
            if all(name in (None, part) for name, part in zip(wanted, models(pair), strict=True))
        )

    def entry(self, pair: str, kind: str, settings: Mapping[str, Any]) -> Entry:
        """Return the pair's entry of a kind: what it states of `STRICT` settings is what `settings` asks for.

        Of several, the one that shares most of the other settings, then the newest one.

        Raises:
            NotReplayed: there is none.
        """
        if pair not in self._pairs:
            choose = ", choose with --specdec-target and --specdec-draft" if len(self._pairs) > 1 else ""
            raise NotReplayed(
                f"the replay of {self.name} has no pair {pair}; it has {', '.join(self._pairs)}{choose}"
            )
        known = [entry for entry in self._pairs[pair] if entry.kind == kind]
        fitting = [entry for entry in known if not _misfits(entry, settings)]
        if not fitting:
            raise NotReplayed(
                f"the replay of {self.name} has no {_words(kind)}{self._instead(pair, known, settings)}"
            )
        return max(fitting, key=lambda entry: (_shared(entry, settings), entry.recorded, entry.key))

    def _instead(self, pair: str, known: Sequence[Entry], settings: Mapping[str, Any]) -> str:
        """Say which settings are in the way and what there is instead."""
        if not known:
            kinds = sorted({_words(entry.kind) for entry in self._pairs[pair]})
            return f"; it has {', '.join(kinds)}"
        # In the way is what no entry fits; where each is fit by some, all are, together.
        names = [name for name in STRICT if all(name in _misfits(entry, settings) for entry in known)]
        names = names or [
            name for name in STRICT if any(name in _misfits(entry, settings) for entry in known)
        ]
        asked = " and ".join(f"{name} = {settings[name]}" for name in names)
        there = sorted({tuple(entry.settings.get(name) for name in names) for entry in known}, key=_order)
        if len(names) == 1:
            return f" at {asked}; it has {names[0]} = {', '.join(str(value) for (value,) in there)}"
        listed = "; ".join(
            ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
            for values in there
        )
        return f" at {asked}; it has {listed}"


def models(pair: str) -> tuple[str, str | None]:
    """Return the names of target and draft in a pair's name; None without a draft."""
    target, _, draft = pair.partition("--")
    return target, None if draft in ("", "none") else draft


def _misfits(entry: Entry, settings: Mapping[str, Any]) -> list[str]:
    """Names of the strict settings that the entry states and that are asked for otherwise."""
    return [
        name
        for name in STRICT
        if name in entry.settings and name in settings and entry.settings[name] != settings[name]
    ]


def _shared(entry: Entry, settings: Mapping[str, Any]) -> int:
    return sum(entry.settings.get(name) == value for name, value in settings.items())


def _words(kind: str) -> str:
    return _WORDS.get(kind, kind.replace("_", " "))


def _order(values: tuple[Any, ...]) -> list[tuple[bool, float, str]]:
    """Numbers by size, before text."""
    return [
        (False, value, "") if isinstance(value, (int, float)) else (True, 0.0, str(value)) for value in values
    ]
