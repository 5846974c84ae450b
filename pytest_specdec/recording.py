"""The end of a run: baselines recorded, candidates left, the JSON file written, by the controller alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import from_json
from pytest_specdec.reports.text import plural
from pytest_specdec.run import Run
from pytest_specdec.store import BaselineError
from pytest_specdec.store import Machine
from pytest_specdec.store import SaveReport
from pytest_specdec.store import build_id
from pytest_specdec.store import build_identity
from pytest_specdec.store import history
from pytest_specdec.store.store import Update
from pytest_specdec.store.summary import summary
from pytest_specdec.store.upkeep import note_path
from pytest_specdec.store.upkeep import note_unused
from pytest_specdec.store.upkeep import note_used


JSON_VERSION = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """A measurement that tests relied on; `models` has the facts of "target" and "draft" as JSON."""

    key: str
    kind: str
    settings: Mapping[str, Any]
    measurement: Measurement
    pair: str
    models: Mapping[str, Any]
    used_by: frozenset[str]

    def to_json(self) -> dict[str, Any]:
        """Builtin types only."""
        return {
            "key": self.key,
            "kind": self.kind,
            "settings": dict(self.settings),
            "measurement": self.measurement.to_json(),
            "pair": self.pair,
            "models": dict(self.models),
            "used_by": sorted(self.used_by),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Kept:
        """The inverse of `to_json`."""
        measured = from_json(data["measurement"])
        return cls(**{**data, "measurement": measured, "used_by": frozenset(data["used_by"])})


@dataclass(frozen=True, slots=True)
class Haul:
    """What one process measured, and with what."""

    machine_name: str
    machine: Machine
    hello: Mapping[str, Any]
    kept: tuple[Kept, ...]

    def to_json(self) -> dict[str, Any]:
        """Builtin types only."""
        return {
            "machine_name": self.machine_name,
            "machine": self.machine.to_json(),
            "hello": dict(self.hello),
            "kept": [kept.to_json() for kept in self.kept],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Haul:
        """The inverse of `to_json`."""
        kept = tuple(Kept.from_json(entry) for entry in data["kept"])
        return cls(data["machine_name"], Machine.from_json(data["machine"]), data["hello"], kept)


def haul(run: Run) -> Haul | None:
    """Collect what tests of this process relied on; None without any."""
    if not run.measured:
        return None
    kept = tuple(
        Kept(
            recorded.key,
            recorded.kind,
            dict(recorded.settings),
            recorded.measurement,
            recorded.pair,
            {role: facts and facts.to_json() for role, facts in recorded.models.items()},
            frozenset(recorded.used_by),
        )
        for recorded in run.session.recorded.values()
        if recorded.used_by
    )
    return Haul(run.machine_name, run.machine, run.session.hello(), kept) if kept else None


def ship(run: Run) -> str:
    """Write what this pytest-xdist worker measured as text for the controller; empty without any."""
    own = haul(run)
    return "" if own is None else json.dumps(own.to_json())


def finish(run: Run, *, green: bool = False) -> None:
    """Record, leave candidates and write the JSON file; what there is to say goes to the run's notes.

    After a `green` run, its history is kept where that is asked for, and entries that went unused are named.
    """
    own = haul(run)
    hauls = [own] if own is not None else []
    hauls += [Haul.from_json(json.loads(text)) for text in run.shipped]
    run.notes += [line for one in hauls for line in _answers(one, replayed=run.replay is not None)]
    if run.replay is not None:
        run.notes.append(f"{run.replay.told}: {run.replay.name}")
    # What one step can't write is no reason for the next not to.
    for one in hauls if run.replay is None else ():
        with _faults_of(run):
            if run.settings.update == "none":
                _leave_candidates(run, one)
            else:
                _record(run, one)
    if green and not run.faults and run.replay is None:
        for one in hauls:
            with _faults_of(run):
                _look_after(run, one)
    if run.settings.json is not None:
        with _faults_of(run):
            _write_json(run, hauls)


@contextmanager
def _faults_of(run: Run) -> Iterator[None]:
    try:
        yield
    except (BaselineError, OSError) as error:
        run.faults.append(str(error))


def _answers(one: Haul, *, replayed: bool) -> list[str]:
    """Say of every pair whose speed was measured whether speculation pays."""
    runs = [(kept.pair, kept.measurement) for kept in one.kept if isinstance(kept.measurement, SpeedRun)]
    if not runs:
        return []
    # A run that measured nothing ends well without numpy.
    from pytest_specdec.checks.speed import answer

    return [f"{pair}: {answer(run, replayed=replayed)}" for pair, run in runs]


def _record(run: Run, one: Haul) -> None:
    """Save the entries of tests that passed; one that a failed test relied on stays as it was."""
    sound = [kept for kept in one.kept if all(_passed(run, nodeid) for nodeid in kept.used_by)]
    for pair, models, entries in _by_pair(sound):
        update: Update = "all" if run.settings.update == "all" else "new"
        build = build_identity(one.hello)
        report = run.store.save(one.machine_name, one.machine, pair, models, build, entries, update)
        run.notes.append(_told(run, report))
        if report.anchored:
            place = f"{one.machine_name}/{pair}"
            run.notes.append(
                f"{plural(len(report.anchored), 'measurement')} of {place} still held against what was "
                f"recorded first; to let that go: {_command(run, 'anchor', place)}"
            )
    if left := [kept for kept in one.kept if kept not in sound]:
        tests = sorted({nodeid for kept in left for nodeid in kept.used_by if not _passed(run, nodeid)})
        named = ", ".join(tests[:3]) + (", ..." if len(tests) > 3 else "")
        run.notes.append(f"{plural(len(left), 'measurement')} not recorded, for these did not pass: {named}")


def _leave_candidates(run: Run, one: Haul) -> None:
    """Leave what tests measured that their baseline failed, and say how to accept it."""
    failed = [kept for kept in one.kept if any(_regressed(run, nodeid) for nodeid in kept.used_by)]
    for pair, models, entries in _by_pair(failed):
        path = run.store.write_candidate(
            one.machine_name, one.machine, pair, models, build_identity(one.hello), entries
        )
        run.notes.append(f"to accept what its baseline failed: {_accepting(run, path)}")


def _accepting(run: Run, candidate: Path) -> str:
    """Return the command that accepts a candidate, fit for the folder that pytest was started in."""
    # Without its anchor the new state would still be held against the old one.
    return _command(run, "accept", "--anchor", run.seen(candidate))


def _command(run: Run, action: str, *words: str) -> str:
    """Return a `specdec baseline` command, fit for the folder that pytest was started in."""
    folder = run.seen(run.settings.baseline_dir)
    where = [] if folder == "baselines" else ["--baseline-dir", folder]
    return shlex.join(["specdec", "baseline", action, *where, *words])


def _look_after(run: Run, one: Haul) -> None:
    """Keep the history of a green run, and say which entries of its baselines no test used."""
    pairs = _by_pair(one.kept)
    if run.settings.history:
        path = run.store.history_path(one.machine_name)
        build, at = build_id(build_identity(one.hello)), history.moment()
        history.append(path, [_green(at, pair, build, entries) for pair, _, entries in pairs])
        run.notes.append(f"history {run.seen(path)}: {plural(len(pairs), 'line')} added")
    for pair, _, entries in pairs:
        used = {entry.key for entry in entries} | {key for of, key in run.consulted if of == pair}
        _note_unused(run, one, pair, used)


def _green(at: str, pair: str, build: str, entries: Iterable[Kept]) -> history.Green:
    figures = {entry.key: summary(entry.measurement) for entry in entries}
    return history.Green(at, pair, build, version("pytest-specdec"), figures)


def _note_unused(run: Run, one: Haul, pair: str, used: Collection[str]) -> None:
    baseline = run.store.load(one.machine_name, pair, one.machine)
    if baseline is None:
        return
    place = f"{one.machine_name}/{pair}"
    idle = [
        key
        for key, entry in baseline.entries.items()
        if key not in used and not any(_may_use(run, nodeid) for nodeid in entry.used_by)
    ]
    try:
        if run.collected:
            if idle or note_path(run.store, one.machine_name, pair).exists():
                note_unused(run.store, one.machine_name, pair, idle)
        else:
            note_used(run.store, one.machine_name, pair, used)
    except BaselineError as error:
        # A green run stays green: what is lost is a hint.
        run.notes.append(str(error))
    if run.collected and idle:
        prune = _command(run, "prune", place)
        run.notes.append(f"not used by any test of this run: {', '.join(idle)}; remove with {prune}")


def _may_use(run: Run, nodeid: str) -> bool:
    """Whether a test could use an entry that it did not use in this run."""
    if nodeid in run.collected:
        result = run.results.get(nodeid)
        return nodeid in run.skipped or (result is not None and not all(v.measured for v in result.verdicts))
    file = nodeid.partition("::")[0]
    if any(other.partition("::")[0] == file for other in run.collected):
        return False
    return (run.settings.rootdir / file).exists()


def _by_pair(kept: Iterable[Kept]) -> list[tuple[str, Mapping[str, Any], list[Kept]]]:
    groups: dict[tuple[str, str], list[Kept]] = {}
    for entry in kept:
        groups.setdefault((entry.pair, json.dumps(entry.models, sort_keys=True)), []).append(entry)
    return [(pair, entries[0].models, _once(entries)) for (pair, _), entries in groups.items()]


def _once(entries: Iterable[Kept]) -> list[Kept]:
    found: dict[str, Kept] = {}
    for entry in entries:
        before = found.get(entry.key)
        found[entry.key] = replace(before, used_by=before.used_by | entry.used_by) if before else entry
    return list(found.values())


def _passed(run: Run, nodeid: str) -> bool:
    return nodeid in run.results and run.results[nodeid].outcome == "passed"


def _regressed(run: Run, nodeid: str) -> bool:
    result = run.results.get(nodeid)
    return result is not None and result.failed_against_baseline


def _told(run: Run, report: SaveReport) -> str:
    parts = [
        f"{plural(len(keys), 'measurement')} {what}"
        for what, keys in (("added", report.added), ("replaced", report.replaced), ("kept", report.kept))
        if keys
    ]
    return f"baseline {run.seen(report.path)}: {', '.join(parts)}"


def _write_json(run: Run, hauls: Iterable[Haul]) -> None:
    assert run.settings.json is not None
    told = {
        "version": JSON_VERSION,
        "tests": [
            {
                "nodeid": result.nodeid,
                "outcome": result.outcome,
                "pair": result.pair,
                "verdicts": [verdict.to_json() for verdict in result.verdicts],
            }
            for result in run.results.values()
        ],
        "measured": [],
        "replayed": [],
        "measured" if run.replay is None else "replayed": [one.to_json() for one in hauls],
    }
    run.settings.json.parent.mkdir(parents=True, exist_ok=True)
    run.settings.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    run.notes.append(f"verdicts and measurements: {run.seen(run.settings.json)}")
