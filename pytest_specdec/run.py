"""What one pytest process knows of its gates: the bench, the baselines, what was decided so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from typing import Final

import pytest

from pytest_specdec.settings import Settings
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.bench.beside import Beside
    from pytest_specdec.bench.session import Bench
    from pytest_specdec.bench.session import BenchSession
    from pytest_specdec.engine.replay import Replay
    from pytest_specdec.reports.terminal import Progress
    from pytest_specdec.store import Baseline
    from pytest_specdec.store import Entry
    from pytest_specdec.store import Machine
    from pytest_specdec.store import Store


PROPERTY: Final = "specdec"
REFUSED: Final = (
    "this is a pytest-xdist worker, and tests beside it would falsify what is measured: run gates without "
    "-n, or one at a time with --specdec-xdist=exclusive"
)

NOTHING: Final = (
    "no gate measured anything: all of them were skipped by policy, and a run of gates that measures nothing "
    "is not green"
)

RUN: Final = pytest.StashKey["Run"]()
VERDICTS: Final = pytest.StashKey[list[Verdict]]()
# Tests put another maker of bench sessions here.
BENCH: Final = pytest.StashKey["Callable[..., BenchSession]"]()


class SpecdecWarning(pytest.PytestWarning):
    """A gate that passed without a decision on every limit."""

    __module__ = "pytest_specdec"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one test that was held against limits."""

    nodeid: str
    outcome: str
    pair: str
    verdicts: tuple[Verdict, ...]

    @property
    def skipped_by_policy(self) -> bool:
        """Whether nothing was measured, and a policy said to skip."""
        return all(verdict.policy_skip for verdict in self.verdicts)

    @property
    def failed_against_baseline(self) -> bool:
        """Whether a baseline was not held."""
        return any(
            verdict.outcome is Outcome.FAIL and verdict.limit.startswith("within_baseline(")
            for verdict in self.verdicts
        )


class Run:
    """The plugin's state in one process: the only one, or a worker or the controller of pytest-xdist."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.results: dict[str, Result] = {}
        # What was collected, and which tests did not run to their end; for a part of all tests, nothing.
        self.collected: tuple[str, ...] = ()
        self.skipped: set[str] = set()
        # Baseline entries that tests were held against, by pair and key.
        self.consulted: set[tuple[str, str]] = set()
        # The test that is running.
        self.item: pytest.Item | None = None
        # One JSON text from each pytest-xdist worker that measured.
        self.shipped: list[str] = []
        # What the end of the run has to say, and whether that ends it red.
        self.notes: list[str] = []
        self.faults: list[str] = []
        self._session: BenchSession | None = None
        self._old_session: BenchSession | None = None
        self._beside: dict[Settings, Beside] = {}
        self._progress: Progress | None = None
        self._machine: Machine | None = None
        self._baselines: dict[str, Baseline | None] = {}
        # Baselines that answer in llama.cpp's place, by pair; None where something is measured.
        self.replay: Replay | None = None
        self._replayed: dict[str, Baseline] = {}
        if settings.replay is not None:
            self._load_replay(settings.replay)

    @property
    def in_worker(self) -> bool:
        """Whether this is a worker of pytest-xdist."""
        return hasattr(self.config, "workerinput")

    def seen(self, path: Path) -> str:
        """Write a path as seen from the folder that pytest was started in."""
        here = self.config.invocation_params.dir
        return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

    @property
    def refusal(self) -> str:
        """Why nothing may be measured in this process; empty where it may."""
        measures = self.in_worker and self.replay is None
        return REFUSED if measures and self.settings.xdist == "refuse" else ""

    @property
    def measured(self) -> bool:
        """Whether anything was asked of a bench in this process."""
        return self._session is not None

    @property
    def session(self) -> BenchSession:
        """The bench session of this process, made at first use."""
        if self._session is None:
            replay = {} if self.replay is None else {"replay": self.replay}
            self._session = self._make_session()(self.settings, progress=self._say, **replay)
        return self._session

    def bench(self, settings: Settings) -> Bench:
        """Return the bench bound to one test's settings."""
        return self.session.bench(settings)

    def beside(self, bench: Bench, settings: Settings) -> Beside | None:
        """Return both arms of a test's settings; None where baselines are stored ones."""
        if not settings.compares_live or self.replay is not None:
            return None
        from pytest_specdec.bench.beside import Beside

        if settings not in self._beside:
            self._beside[settings] = Beside(self.old_session.bench(settings.old_arm()), bench)
        return self._beside[settings]

    @property
    def old_session(self) -> BenchSession:
        """The bench session of the old arm, made at first use."""
        if self._old_session is None:
            self._old_session = self._make_session()(self.settings.old_arm(), progress=self._say)
        return self._old_session

    @property
    def store(self) -> Store:
        """The folder of baselines."""
        from pytest_specdec.store import Store

        return Store(self.settings.baseline_dir)

    @property
    def machine(self) -> Machine:
        """The machine that the worker runs on."""
        if self._machine is None:
            from pytest_specdec.store import identify

            self._machine = identify(self.session.hello())
        return self._machine

    @property
    def machine_name(self) -> str:
        """The name of this machine's baselines."""
        return self.settings.machine or (self.machine.slug if self.replay is None else self.replay.name)

    def baseline(self, pair: str) -> Baseline | None:
        """Return this machine's baseline of a pair, None where there is none.

        A replay without another baseline is held against what it replays.

        Raises:
            BaselineError: it can't be read.
        """
        if pair not in self._baselines:
            found = self.store.load(self.machine_name, pair, self.machine)
            self._baselines[pair] = self._replayed.get(pair) if found is None else found
        return self._baselines[pair]

    def entry(self, pair: str, key: str) -> Entry | None:
        """Return what this machine's baseline of a pair holds under a key, which is of use with that.

        Raises:
            BaselineError: the baseline can't be read.
        """
        baseline = self.baseline(pair)
        found = None if baseline is None else baseline.get(key)
        if found is not None:
            self.consulted.add((pair, key))
        return found

    def told(self, verdict: Verdict, pair: str) -> Verdict:
        """Return a verdict that doesn't claim to have measured what was replayed."""
        if self.replay is None or not verdict.measured:
            return verdict
        compared = verdict.limit.startswith("within_baseline(") and pair in self._replayed
        itself = compared and self._baselines.get(pair) is self._replayed[pair]
        told = f"{self.replay.told}, and held against itself" if itself else self.replay.told
        return replace(verdict, because=f"{verdict.because} [{told}]")

    def no_baseline(self, pair: str) -> str:
        """Say that there is no baseline of a pair, and which there are; empty where there is one."""
        return "" if self.baseline(pair) is not None else str(self.store.missing(self.machine_name, pair))

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure inside: alone on this machine where the user asks for that; no progress line stays."""
        try:
            if self.settings.xdist == "exclusive" and self.replay is None:
                from pytest_specdec.lock import default_path
                from pytest_specdec.lock import exclusive

                with exclusive(default_path(), lambda: self._say("waiting for another measurement to end")):
                    yield
            else:
                yield
        finally:
            if self._progress is not None:
                self._progress.clear()

    def use(self, bench: Bench, kind: str, k: int | None, nodeid: str) -> None:
        """Note that a test relies on a measurement."""
        key = bench.key(kind, k)
        for recorded in self.session.recorded.values():
            if recorded.key == key and recorded.pair == bench.pair:
                recorded.used_by.add(nodeid)

    def begin(self, item: pytest.Item) -> None:
        """Start an attempt at a test with nothing of an earlier one."""
        self.item = item
        item.stash[VERDICTS] = []
        forget(item)

    def log(self, report: pytest.TestReport) -> None:
        """Take the verdicts out of a test's report; a later attempt replaces an earlier one."""
        if report.skipped:
            self.skipped.add(report.nodeid)
        text = dict(report.user_properties).get(PROPERTY)
        if not isinstance(text, str):
            return
        if report.when == "call":
            told = json.loads(text)
            verdicts = tuple(Verdict.from_json(verdict) for verdict in told["verdicts"])
            self.results[report.nodeid] = Result(report.nodeid, _outcome(report), told["pair"], verdicts)
        elif report.when == "teardown" and report.failed and report.nodeid in self.results:
            before = self.results[report.nodeid]
            self.results[report.nodeid] = Result(before.nodeid, "failed", before.pair, before.verdicts)

    @property
    def measured_nothing(self) -> str:
        """Why a run with gates measured nothing; empty where it measured, or had none."""
        if not self.results or not all(result.skipped_by_policy for result in self.results.values()):
            return ""
        reasons = (verdict.because for result in self.results.values() for verdict in result.verdicts)
        return f"{NOTHING}: {'; '.join(dict.fromkeys(reasons))}"

    def summary(self) -> list[str]:
        """Return the lines that end a run: the table of verdicts, ledgers, and what became of baselines."""
        from pytest_specdec.reports.terminal import summary_table

        rows = [(result.nodeid, verdict) for result in self.results.values() for verdict in result.verdicts]
        ledgers = [
            line
            for nodeid, verdict in rows
            if verdict.limit.startswith("ledger_closes") and verdict.section
            for line in ("", f"{nodeid}: {verdict.because}", *verdict.section.splitlines())
        ]
        return [*summary_table(rows), *ledgers, *self.notes]

    def close(self) -> None:
        """End the worker of the bench."""
        for session in (self._session, self._old_session):
            if session is not None:
                session.close()
        self._session = self._old_session = None

    def _load_replay(self, name: str) -> None:
        from pytest_specdec.bench.replayed import filled
        from pytest_specdec.engine.replay import Replay
        from pytest_specdec.store import BaselineError
        from pytest_specdec.store.published import machine_baselines

        try:
            machine, baselines = machine_baselines(name)
        except BaselineError as error:
            raise pytest.UsageError(f"--specdec-replay: {error}") from None
        self._replayed = {baseline.pair: baseline for baseline in baselines}
        self._machine = baselines[0].machine
        self.replay = Replay(machine, {pair: b.entries.values() for pair, b in self._replayed.items()})
        self.settings = filled(self.settings, self.replay)

    def _make_session(self) -> Callable[..., BenchSession]:
        given = self.config.stash.get(BENCH, None)
        if given is not None:
            return given
        from pytest_specdec.bench.session import BenchSession

        return BenchSession

    def _say(self, line: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self.in_worker or self.config.get_verbosity() < 0:
            return
        if self._progress is None:
            from pytest_specdec.reports.terminal import Progress

            self._progress = Progress(
                lambda text: self._uncaptured(lambda: reporter.write(text, flush=True)),
                terminal=reporter.isatty,
                begin=lambda: self._uncaptured(reporter.ensure_newline),
            )
        self._progress(line)

    def _uncaptured(self, write: Callable[[], Any]) -> None:
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            write()


def forget(item: pytest.Item) -> None:
    """Take the verdicts off an item's properties, before new ones or another attempt."""
    item.user_properties[:] = [entry for entry in item.user_properties if entry[0] != PROPERTY]


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return report.outcome
