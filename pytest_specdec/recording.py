"""The end of a run: baselines recorded, candidates left, the JSON file written, by the controller alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace
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
from pytest_specdec.store import build_identity
from pytest_specdec.store.store import Update


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


def finish(run: Run) -> None:
    """Record, leave candidates and write the JSON file; what there is to say goes to the run's notes."""
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
    words = ["specdec", "baseline", "accept"]
    if (folder := run.seen(run.settings.baseline_dir)) != "baselines":
        words += ["--baseline-dir", folder]
    return shlex.join([*words, run.seen(candidate)])


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
