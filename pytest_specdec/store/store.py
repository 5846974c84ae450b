"""The folder of baselines: one file per machine and pair of models, written entry by entry."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from typing import Literal

from pytest_specdec.store.baseline import Baseline
from pytest_specdec.store.baseline import Facts
from pytest_specdec.store.baseline import Recordable
from pytest_specdec.store.baseline import load_file
from pytest_specdec.store.baseline import model_differences
from pytest_specdec.store.baseline import new_document
from pytest_specdec.store.baseline import successor
from pytest_specdec.store.baseline import with_entries
from pytest_specdec.store.document import read
from pytest_specdec.store.errors import BaselineError
from pytest_specdec.store.errors import NoBaseline
from pytest_specdec.store.machine import Machine
from pytest_specdec.store.machine import differences
from pytest_specdec.store.migrate import Document
from pytest_specdec.store.writing import keep_from_git
from pytest_specdec.store.writing import put
from pytest_specdec.store.writing import writing


CANDIDATES = ".candidates"
HISTORY = "history.jsonl"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_NAME_LENGTH = {"machine": 100, "pair": 120}
_LISTED = 20


@dataclass(frozen=True, slots=True)
class SaveReport:
    """What became of the given keys; all others are as they were.

    ``anchored`` are those of the replaced ones that stay held against their first measurement too.
    """

    path: Path
    added: tuple[str, ...]
    replaced: tuple[str, ...]
    kept: tuple[str, ...]
    anchored: tuple[str, ...] = ()


Update = Literal["new", "all"]


class Store:
    """Baselines under ``root``: ``<machine>/<pair>.json``, and candidates of failed runs in ``.candidates``.

    Names are file names: letters, digits, and ``._+-`` after the first character. Everything here raises
    `BaselineError` for what can't be read, written or used.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def machines(self) -> tuple[str, ...]:
        """Names of the machines that have baselines."""
        return tuple(folder.name for folder in _listed(self.root) if self.pairs(folder.name))

    def pairs(self, machine_name: str) -> tuple[str, ...]:
        """Names of a machine's pairs of models."""
        if not _NAME.fullmatch(machine_name):
            return ()
        return tuple(file.stem for file in _listed(self.root / machine_name) if file.suffix == ".json")

    def candidates(self) -> tuple[Path, ...]:
        """Files that failed runs left to be accepted."""
        return tuple(file for file in _listed(self.root / CANDIDATES) if file.suffix == ".json")

    def path(self, machine_name: str, pair: str) -> Path:
        """Where this machine's baseline of this pair is, or would be."""
        return self.root / self._name("machine", machine_name) / f"{self._name('pair', pair)}.json"

    def candidate_path(self, machine_name: str, pair: str) -> Path:
        """Where the candidate of a failed run is, or would be."""
        name = f"{self._name('machine', machine_name)}--{self._name('pair', pair)}.json"
        return self.root / CANDIDATES / name

    def history_path(self, machine_name: str) -> Path:
        """Where the history of this machine's green runs is, or would be."""
        return self.root / self._name("machine", machine_name) / HISTORY

    def histories(self) -> tuple[str, ...]:
        """Names of the machines that have a history of green runs."""
        return tuple(folder.name for folder in _listed(self.root) if (folder / HISTORY).is_file())

    def load(self, machine_name: str, pair: str, machine: Machine | None = None) -> Baseline | None:
        """The baseline of a pair on a machine; None where there is none.

        Given ``machine``, the one under this process, a baseline recorded on other hardware is refused: its
        times say nothing here.
        """
        path = self.path(machine_name, pair)
        try:
            baseline = load_file(path)
        except FileNotFoundError:
            return None
        if baseline.pair != pair:
            raise BaselineError(path, f"holds the pair {baseline.pair}", f"rename it to {baseline.pair}.json")
        if machine is not None:
            self._same_machine(path, baseline.machine, machine)
        return baseline

    def require(self, machine_name: str, pair: str, machine: Machine | None = None) -> Baseline:
        """As `load`, but a missing baseline raises `NoBaseline`."""
        baseline = self.load(machine_name, pair, machine)
        if baseline is None:
            raise self.missing(machine_name, pair)
        return baseline

    def missing(self, machine_name: str, pair: str) -> NoBaseline:
        """Why there is no baseline, with the machines or pairs that have one."""
        record = "record with --specdec-update=new"
        machines = self.machines()
        if machine_name in machines:
            known = _some(self.pairs(machine_name))
            problem = f"no baseline for the pair {pair} on machine {machine_name} (known pairs: {known})"
            return NoBaseline(self.root, problem, record)
        if not machines:
            return NoBaseline(self.root, f"no baselines for machine {machine_name}, nor any other", record)
        problem = f"no baselines for machine {machine_name} (known machines: {_some(machines)})"
        return NoBaseline(self.root, problem, f"{record}, or name a known machine with --specdec-machine")

    def save(
        self,
        machine_name: str,
        machine: Machine,
        pair: str,
        models: Mapping[str, Facts],
        build: Mapping[str, Any],
        entries: Iterable[Recordable],
        update: Update = "new",
        *,
        day: date | None = None,
    ) -> SaveReport:
        """Write entries into a machine's baseline of a pair, which is made when there is none.

        ``update`` "new" writes keys that the file doesn't have, "all" every given one; other keys stay as
        they are, and so does what another process writes meanwhile. What an entry held first stays beside
        what takes its place, as its anchor. ``models`` has the facts of "target" and
        "draft", ``build`` is a build identity, ``day`` the day of recording (default: today, UTC).
        """
        if update not in ("new", "all"):
            raise ValueError(f"update is {update!r}, expected 'new' or 'all'")
        path = self.path(machine_name, pair)
        return self._merge(
            path, new_document(machine_name, machine, pair, models, build, entries, day), update
        )

    def write_candidate(
        self,
        machine_name: str,
        machine: Machine,
        pair: str,
        models: Mapping[str, Facts],
        build: Mapping[str, Any],
        entries: Iterable[Recordable],
        *,
        day: date | None = None,
    ) -> Path:
        """Leave what a failed run measured, for `accept`, in the place of an earlier candidate.

        Arguments as for `save`.
        """
        path = self.candidate_path(machine_name, pair)
        document = new_document(machine_name, machine, pair, models, build, entries, day)
        with writing(path):
            keep_from_git(path.parent)
            put(path, document)
        return path

    def accept(self, candidate: Path, *, anchor: bool = False) -> SaveReport:
        """Write a candidate's entries into its baseline, over older ones, and remove it from its folder.

        With ``anchor`` its entries become their own anchors: nothing is held against earlier ones any more.
        """
        try:
            document = read(candidate)
        except FileNotFoundError:
            known = _some([str(path) for path in self.candidates()])
            raise NoBaseline(candidate, "no such candidate", f"known candidates: {known}") from None
        path = self.path(document["machine"]["name"], document["pair"])
        report = self._merge(path, document, "all", move_anchor=anchor)
        if candidate in self.candidates():
            with contextlib.suppress(OSError):
                candidate.unlink()
        return report

    def _merge(self, path: Path, fresh: Document, update: Update, *, move_anchor: bool = False) -> SaveReport:
        if update == "new" or not fresh["entries"]:
            # Nothing new needs no lock: the folder may be read-only.
            _, report = self._merged(path, fresh, update, move_anchor)
            if not report.added:
                return report
        with writing(path):
            document, report = self._merged(path, fresh, update, move_anchor)
            if report.added or report.replaced:
                put(path, document)
        return report

    def _merged(
        self, path: Path, fresh: Document, update: Update, move_anchor: bool
    ) -> tuple[Document, SaveReport]:
        """The file's document with the fresh entries in it, and what that changed."""
        try:
            old = read(path)
        except FileNotFoundError:
            return fresh, SaveReport(path, tuple(sorted(fresh["entries"])), (), ())
        self._same_machine(path, Machine.from_json(old["machine"]), Machine.from_json(fresh["machine"]))
        keys = sorted(fresh["entries"])
        added = tuple(key for key in keys if key not in old["entries"])
        present = tuple(key for key in keys if key in old["entries"])
        replaced, kept = (present, ()) if update == "all" else ((), present)
        changed = model_differences(old["models"], fresh["models"])
        if added and update == "new" and changed:
            raise BaselineError(
                path,
                f"was recorded with other model files ({'; '.join(changed)})",
                "record it anew with --specdec-update=all, or give the new model another name",
            )
        entries = dict(old["entries"])
        for key in added:
            entries[key] = fresh["entries"][key]
        for key in replaced:
            entries[key] = successor(entries[key], fresh["entries"][key], move_anchor=move_anchor)
        anchored = tuple(key for key in replaced if "anchor" in entries[key])
        document = with_entries({**fresh, "builds": {**old["builds"], **fresh["builds"]}}, entries)
        return document, SaveReport(path, added, replaced, kept, anchored)

    def _same_machine(self, path: Path, recorded: Machine, here: Machine) -> None:
        found = differences(recorded, here)
        if found:
            raise BaselineError(
                path,
                f"was recorded on another machine ({'; '.join(found)} here)",
                "record this one under a name of its own: --specdec-machine=NAME --specdec-update=new "
                f"(known machines: {_some(self.machines())})",
            )

    def _name(self, what: str, name: str) -> str:
        if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH[what]:
            raise BaselineError(
                self.root,
                f"{what} name {name!r} can't be a file's name here",
                f"use up to {_NAME_LENGTH[what]} letters, digits and . _ + -, a letter or digit first",
            )
        return name


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BaselineError(
            folder, f"can't be read ({error.strerror or error})", "check its permissions"
        ) from None


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more if listed else "none"
