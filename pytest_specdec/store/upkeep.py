"""What keeps baselines small and held to a fixed point: what goes unused, pruning, moving anchors."""

from __future__ import annotations

import json
from collections.abc import Collection
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import timedelta
from pathlib import Path
from typing import Any

from pytest_specdec.store import atomic
from pytest_specdec.store.baseline import Baseline
from pytest_specdec.store.baseline import with_entries
from pytest_specdec.store.document import parse
from pytest_specdec.store.document import read
from pytest_specdec.store.errors import BaselineError
from pytest_specdec.store.store import Store
from pytest_specdec.store.writing import keep_from_git
from pytest_specdec.store.writing import put
from pytest_specdec.store.writing import writing


#: Beside the machines' folders; git ignores it.
NOTES = ".unused"
_RUN_AGAIN = "delete it; the next full run writes it anew"


@dataclass(frozen=True, slots=True)
class Unused:
    """Keys that no test of the last full run used, and the ISO day of that run (None: none is known)."""

    keys: tuple[str, ...] = ()
    day: str | None = None


def note_path(store: Store, machine_name: str, pair: str) -> Path:
    """Where the last full run's note on a pair is, or would be."""
    path = store.path(machine_name, pair)
    return store.root / NOTES / f"{path.parent.name}--{path.name}"


def note_unused(
    store: Store, machine_name: str, pair: str, keys: Collection[str], *, day: date | None = None
) -> None:
    """Note for `unused` what a full run did not use, in place of an older note; `day` defaults to today, UTC.

    Raises:
        BaselineError: it can't be written.
    """
    path = note_path(store, machine_name, pair)
    told = {"day": _day(day).isoformat(), "unused": sorted(keys)}
    with writing(path):
        keep_from_git(path.parent)
        atomic.write(path, (json.dumps(told, ensure_ascii=False, indent=1) + "\n").encode())


def note_used(store: Store, machine_name: str, pair: str, keys: Collection[str]) -> None:
    """Take keys out of a note: a run that was not full used them.

    Raises:
        BaselineError: the note can't be read or written.
    """
    known = unused(store, machine_name, pair)
    if known.day is not None and not set(keys).isdisjoint(known.keys):
        rest = [key for key in known.keys if key not in keys]
        note_unused(store, machine_name, pair, rest, day=date.fromisoformat(known.day))


def unused(store: Store, machine_name: str, pair: str) -> Unused:
    """What the last full run noted of a pair.

    Raises:
        BaselineError: the note can't be read.
    """
    path = note_path(store, machine_name, pair)
    try:
        told = parse(path.read_bytes(), path)
        keys, day = told["unused"], told["day"]
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise TypeError(f"unused is {type(keys).__name__}, expected a list of keys")
        return Unused(tuple(keys), date.fromisoformat(day).isoformat())
    except FileNotFoundError:
        return Unused()
    except BaselineError as error:
        raise BaselineError(path, error.problem, _RUN_AGAIN) from None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BaselineError(
            path, f"is no note of a run ({type(error).__name__}: {error})", _RUN_AGAIN
        ) from None


def reasons(
    baseline: Baseline,
    *,
    last_run: Unused | None = None,
    stale: bool = False,
    older_than: int | None = None,
    today: date | None = None,
) -> dict[str, str]:
    """Keys of entries to remove, and why: unused, measured with other model files, or too old in days."""
    found: dict[str, list[str]] = {}
    for key in last_run.keys if last_run else ():
        if key in baseline.entries:
            found.setdefault(key, []).append("not used by any test of the last full run")
    for key in baseline.stale if stale else ():
        found.setdefault(key, []).append("measured with another model file")
    if older_than is not None:
        limit = (_day(today) - timedelta(days=older_than)).isoformat()
        for key, entry in baseline.entries.items():
            if entry.recorded < limit:
                found.setdefault(key, []).append(f"recorded {entry.recorded}")
    return {key: ", ".join(found[key]) for key in sorted(found)}


def remove(store: Store, machine_name: str, pair: str, keys: Collection[str]) -> tuple[str, ...]:
    """Take entries out of a baseline; the file goes with its last entry. Returns the keys that were there.

    Raises:
        BaselineError: the baseline can't be read or written.
    """
    path = store.path(machine_name, pair)
    with writing(path):
        try:
            document = read(path)
        except FileNotFoundError:
            return ()
        gone = tuple(key for key in sorted(document["entries"]) if key in keys)
        rest = {key: entry for key, entry in document["entries"].items() if key not in keys}
        if gone and rest:
            put(path, with_entries(document, rest))
        elif gone:
            path.unlink()
    return gone


def move_anchors(
    store: Store, machine_name: str, pair: str, keys: Collection[str] | None = None
) -> Mapping[str, str]:
    """Let entries (default: all) be held against what they hold now only.

    Returns the keys that had an anchor, and the ISO day of it.

    Raises:
        BaselineError: the baseline can't be read or written, or there is none.
    """
    path = store.path(machine_name, pair)
    if not path.exists():
        raise store.missing(machine_name, pair)
    with writing(path):
        document = read(path)
        entries: dict[str, Any] = document["entries"]
        moved = {
            key: str(entry["anchor"]["recorded"])
            for key, entry in sorted(entries.items())
            if "anchor" in entry and (keys is None or key in keys)
        }
        if moved:
            left = {
                key: {name: value for name, value in entry.items() if name != "anchor" or key not in moved}
                for key, entry in entries.items()
            }
            put(path, with_entries(document, left))
    return moved


def _day(given: date | None) -> date:
    return given or datetime.now(UTC).date()
