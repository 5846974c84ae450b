"""What a file of baselines holds, as values: entries that were kept, and measurements to keep."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from datetime import UTC
from datetime import date
from datetime import datetime
from pathlib import Path
from typing import Any
from typing import Protocol

from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import from_json
from pytest_specdec.store.build import build_id
from pytest_specdec.store.document import read
from pytest_specdec.store.document import rounded
from pytest_specdec.store.machine import Machine
from pytest_specdec.store.migrate import SCHEMA_VERSION
from pytest_specdec.store.migrate import Document
from pytest_specdec.store.summary import summary


class HasJson(Protocol):
    """Anything with a JSON form, such as the facts of a model."""

    def to_json(self) -> dict[str, Any]:
        """Builtin types only."""
        ...


Facts = Mapping[str, Any] | HasJson | None


class Recordable(Protocol):
    """A measurement to keep, with the key that finds it again."""

    @property
    def key(self) -> str:
        """Names the measurement: its kind and the settings that affect it."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """The canonical settings that affect it: scalars, and lists of them."""
        ...

    @property
    def measurement(self) -> Measurement:
        """What was measured."""
        ...

    @property
    def used_by(self) -> Iterable[str]:
        """Names of the tests that asked for it."""
        ...


@dataclass(frozen=True, slots=True)
class Anchor:
    """What an entry held first, with the build identity and the ISO day of that."""

    measurement: Measurement = field(hash=False)
    build: Mapping[str, Any] = field(hash=False)
    recorded: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept measurement.

    ``build`` is the build identity it was taken with, ``models`` the SHA-256 of target and draft (None: no
    draft, or not known), ``recorded`` an ISO day, ``anchor`` what it replaced first (None: nothing).
    """

    key: str
    kind: str
    settings: Mapping[str, Any] = field(hash=False)
    measurement: Measurement = field(hash=False)
    used_by: tuple[str, ...]
    build: Mapping[str, Any] = field(hash=False)
    models: Mapping[str, str | None] = field(hash=False)
    recorded: str
    anchor: Anchor | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """A file of baselines: its machine and pair, what is known of the models, and the entries by key.

    Machine and models are those of the newest recording. ``models`` has "target" and "draft" (None: none).
    """

    path: Path
    machine_name: str
    machine: Machine
    pair: str
    models: Mapping[str, Mapping[str, Any] | None] = field(hash=False)
    entries: Mapping[str, Entry] = field(hash=False)

    def get(self, key: str) -> Entry | None:
        """The entry with this key."""
        return self.entries.get(key)

    @property
    def stale(self) -> tuple[str, ...]:
        """Keys of entries that were measured with other model files than the newest ones."""
        newest = _digests(self.models)
        return tuple(key for key, entry in sorted(self.entries.items()) if dict(entry.models) != newest)


def load_file(path: Path) -> Baseline:
    """The baseline or candidate in a file.

    Raises:
        BaselineError: it is no sound baseline.
        FileNotFoundError: there is no such file.
    """
    document = read(path)
    builds = document["builds"]
    entries = {
        key: Entry(
            key=key,
            kind=entry["kind"],
            settings=entry["settings"],
            measurement=from_json(entry["measurement"]),
            used_by=tuple(entry["used_by"]),
            build=builds[entry["build"]],
            models=entry["models"],
            recorded=entry["recorded"],
            anchor=_anchor(entry.get("anchor"), builds),
        )
        for key, entry in document["entries"].items()
    }
    machine = document["machine"]
    facts = Machine.from_json(machine)
    return Baseline(path, machine["name"], facts, document["pair"], document["models"], entries)


def model_differences(
    old: Mapping[str, Mapping[str, Any] | None], new: Mapping[str, Mapping[str, Any] | None]
) -> list[str]:
    """Which of target and draft are other files, old first; one of unknown SHA-256 is taken for the same."""
    found = []
    for role in ("target", "draft"):
        one, two = old[role], new[role]
        if one is None or two is None:
            same = one is two
        else:
            same = one["sha256"] == two["sha256"] or None in (one["sha256"], two["sha256"])
        if not same:
            found.append(f"{role} {_named(one)} → {_named(two)}")
    return found


def successor(old: Document, new: Document, *, move_anchor: bool = False) -> Document:
    """The entry that takes an older one's place, with what that one held first as its anchor.

    With ``move_anchor``, or measured with another model file, it starts anew: without an anchor.
    """
    entry = {name: value for name, value in new.items() if name != "anchor"}
    entry["used_by"] = sorted({*old["used_by"], *new["used_by"]})
    if move_anchor or _other_files(old["models"], new["models"]):
        return entry
    first = old.get("anchor") or {name: old[name] for name in ("build", "measurement", "recorded")}
    return {**entry, "anchor": first}


def with_entries(document: Document, entries: Mapping[str, Document]) -> Document:
    """The document with other entries, and of its builds those that they need."""
    needed = {entry["build"] for entry in entries.values()}
    needed |= {entry["anchor"]["build"] for entry in entries.values() if "anchor" in entry}
    builds = {name: build for name, build in document["builds"].items() if name in needed}
    return {**document, "builds": builds, "entries": dict(entries)}


def _anchor(first: Document | None, builds: Mapping[str, Any]) -> Anchor | None:
    if first is None:
        return None
    return Anchor(from_json(first["measurement"]), builds[first["build"]], first["recorded"])


def _other_files(old: Mapping[str, str | None], new: Mapping[str, str | None]) -> bool:
    return any(old[role] != new[role] and None not in (old[role], new[role]) for role in ("target", "draft"))


def _named(model: Mapping[str, Any] | None) -> str:
    return "none" if model is None else f"{model['name']} (SHA-256 {str(model['sha256'])[:12]})"


def _digests(models: Mapping[str, Mapping[str, Any] | None]) -> dict[str, str | None]:
    return {role: (models[role] or {}).get("sha256") for role in ("target", "draft")}


def new_document(
    machine_name: str,
    machine: Machine,
    pair: str,
    models: Mapping[str, Facts],
    build: Mapping[str, Any],
    entries: Iterable[Recordable],
    day: date | None,
) -> Document:
    """The document that holds just these entries; arguments as for `Store.save`."""
    facts = {role: _plain_facts(models.get(role)) for role in ("target", "draft")}
    name = build_id(build)
    recorded = (day or datetime.now(UTC).date()).isoformat()
    return {
        "schema_version": SCHEMA_VERSION,
        "pair": pair,
        "machine": {"name": machine_name, **machine.to_json()},
        "models": facts,
        "builds": {name: dict(build)},
        "entries": {
            entry.key: {
                "kind": entry.measurement.kind,
                "settings": {key: _plain_setting(value) for key, value in entry.settings.items()},
                "measurement": rounded(entry.measurement.to_json()),
                "summary": rounded(summary(entry.measurement)),
                "used_by": sorted(entry.used_by),
                "build": name,
                "models": _digests(facts),
                "recorded": recorded,
            }
            for entry in entries
        },
    }


def _plain_facts(facts: Facts) -> dict[str, Any] | None:
    if facts is None:
        return None
    return dict(facts) if isinstance(facts, Mapping) else facts.to_json()


def _plain_setting(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, frozenset)) else value
