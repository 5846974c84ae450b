"""One item's way: its limits become tasks, measurements and verdicts; it passes, fails or is not measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import Final
from typing import NoReturn
from typing import TypeVar

import pytest

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.prompts import PromptError
from pytest_specdec.engine.protocol import EngineError
from pytest_specdec.limits import Limit
from pytest_specdec.limits import measures
from pytest_specdec.limits import stack
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.errors import ModelNotFound
from pytest_specdec.run import NOTHING
from pytest_specdec.run import PROPERTY
from pytest_specdec.run import RUN
from pytest_specdec.run import VERDICTS
from pytest_specdec.run import Run
from pytest_specdec.run import SpecdecWarning
from pytest_specdec.run import forget
from pytest_specdec.settings import Settings
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict
from pytest_specdec.verdict import worst


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench
    from pytest_specdec.probe import Probe
    from pytest_specdec.probe import Task
    from pytest_specdec.store import Entry
    from pytest_specdec.store import Machine

T = TypeVar("T")

INSTALL: Final = 'pip install "pytest-specdec[llama]"'


def judge(item: pytest.Item) -> None:
    """Hold an item against the limits of its marks, after its body has passed."""
    run = item.config.stash[RUN]
    try:
        stacked = stack(item)
        settings = run.settings.merged(**stacked.settings)
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
    hold(run, item, stacked.limits, settings)


def hold(run: Run, item: pytest.Item, limits: Sequence[Limit], settings: Settings) -> tuple[Verdict, ...]:
    """Measure what the limits need and hold them against it.

    Fails or skips the running test, or warns, as the verdicts demand; else returns them.
    """
    verdicts = tuple(_decide(run, item, limits, settings))
    _record(item, settings, verdicts)
    _settle(run, item, verdicts)
    return verdicts


def measure(run: Run, item: pytest.Item, what: str, settings: Settings, take: Callable[[Bench], T]) -> T:
    """Let a test measure by itself; what can't be measured fails or skips it like a limit of its own.

    Raises:
        EngineError, ModelError, PromptError, BenchError: measuring failed.
    """
    try:
        if run.refusal:
            raise NotMeasured(run.refusal)
        with run.measuring():
            return take(run.bench(settings))
    except (ImportError, NotMeasured, ModelNotFound) as error:
        verdict = _absent(run, error, limit=what, metric=what)
    _record(item, settings, [verdict])
    _settle(run, item, [verdict])
    raise AssertionError("unreachable: a verdict without measurement ends the test")


def machine(run: Run) -> Machine:
    """Return the machine; without a usable llama.cpp, fail or skip as `--specdec-missing` says."""
    try:
        return run.machine
    except (ImportError, NotMeasured) as error:
        verdict = _absent(run, error, limit="specdec_machine", metric="machine")
    if verdict.policy_skip:
        pytest.skip(verdict.because)
    pytest.fail(_short(verdict), pytrace=False)


def header(run: Run, items: Sequence[pytest.Item] = ()) -> str:
    """Return one line on build, device, machine and baselines, those of the tests in `items` above all."""
    from pytest_specdec.reports.terminal import device_name
    from pytest_specdec.reports.terminal import header_line
    from pytest_specdec.reports.text import plural
    from pytest_specdec.store import build_digest
    from pytest_specdec.store import build_identity

    if run.replay is not None:
        return f"specdec: {run.replay.told}: machine {run.replay.name}, {', '.join(run.replay.pairs)}"
    try:
        hello = run.session.hello()
        name, pairs = run.machine_name, run.store.pairs(run.machine_name)
    except (ImportError, NotMeasured) as error:
        return f"specdec: {_absent(run, error, limit='', metric='').because}"
    except EngineError as error:
        return f"specdec: {error.message}"
    build = build_identity(hello)
    told = "; ".join([plural(len(pairs), "pair"), *_other_builds(run, items, build)])
    if run.settings.compares_live:
        return header_line(
            hello,
            device=device_name(hello, gpu_layers=run.settings.gpu_layers),
            machine=name,
            baseline=f"the old arm beside it: {_old_arm(run)}",
            digest=build_digest(build),
        )
    where = f"{run.seen(run.settings.baseline_dir / name)} ({told})" if pairs else None
    device = device_name(hello, gpu_layers=run.settings.gpu_layers)
    return header_line(hello, device=device, machine=name, baseline=where, digest=build_digest(build))


def _old_arm(run: Run) -> str:
    """Say in words what the old arm is."""
    from pytest_specdec.reports.terminal import build_name

    settings = run.settings
    try:
        told = [build_name(run.old_session.hello())]
    except (NotMeasured, EngineError) as error:
        # The tests that need it fail with the whole of it.
        told = [str(error).partition("\n")[0]]
    told += [f"{name}={value}" for name, value in (*settings.against_env, *settings.against_param)]
    return ", ".join(told)


def _other_builds(run: Run, items: Sequence[pytest.Item], build: Mapping[str, Any]) -> list[str]:
    """Say what tells the build under test from those that the baselines of these tests were recorded with."""
    from pytest_specdec.store import BaselineError
    from pytest_specdec.store import build_differences

    found = []
    for settings in filter(None, (_settings(run, item) for item in items)):
        try:
            baseline = run.baseline(run.bench(settings).pair)
        except BaselineError:
            # The tests that need it say so.
            continue
        entries = () if baseline is None else baseline.entries.values()
        newest = max(entries, key=lambda entry: entry.recorded, default=None)
        if newest is not None:
            found.append("; ".join(build_differences(newest.build, build)))
    return [told for told in dict.fromkeys(found) if told]


def _settings(run: Run, item: pytest.Item) -> Settings | None:
    try:
        return run.settings.merged(**stack(item).settings)
    except ValueError:
        return None


def annotate(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put the table of an item's verdicts into its report, and the test's own place into a skip by policy.

    Into the report, because what is put into an item stays there when it runs again.
    """
    from pytest_specdec.reports.terminal import summary_table

    verdicts = item.stash.get(VERDICTS, [])
    report.sections.append(("specdec", "\n".join(summary_table((item.name, v) for v in verdicts))))
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[0] == __file__:
        path, line = item.reportinfo()[:2]
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])


def _decide(run: Run, item: pytest.Item, limits: Sequence[Limit], settings: Settings) -> Iterable[Verdict]:
    if run.refusal:
        refused = NotMeasured(run.refusal)
        return [_absent(run, refused, limit=limit.text, metric=limit.name) for limit in limits]
    try:
        from pytest_specdec.plans import tasks
        from pytest_specdec.probe import Probe

        bench = run.bench(settings)
    except ImportError as error:
        return [_absent(run, error, limit=limit.text, metric=limit.name) for limit in limits]

    started = time.monotonic()

    def stored(asked: Bench, kind: str, k: int | None) -> Entry | None:
        return run.entry(asked.pair, asked.key(kind, k))

    def spent() -> bool:
        return settings.budget is not None and time.monotonic() - started > settings.budget

    def used(asked: Bench, kind: str, k: int | None) -> None:
        run.use(asked, kind, k, item.nodeid)

    probe = Probe(
        bench, stored, lambda: run.no_baseline(bench.pair), used, spent, run.beside(bench, settings)
    )
    planned = sorted((task for limit in limits for task in tasks(limit)), key=lambda task: task.turn)
    verdicts: list[Verdict] = []
    with run.measuring():
        for task in planned:
            verdicts.append(_over_budget(task, settings) if verdicts and spent() else _one(run, task, probe))
    return [run.told(verdict, bench.pair) for verdict in verdicts]


def _one(run: Run, task: Task, probe: Probe) -> Verdict:
    from pytest_specdec.store.errors import BaselineError

    try:
        return task.decide(probe)
    except (ImportError, NotMeasured, ModelNotFound) as error:
        return _absent(run, error, limit=task.limit, metric=task.metric)
    except EngineError as error:
        told = str(error).partition("\n")
        because, log = f"measuring failed: {told[0]}", told[2]
    except (ModelError, PromptError, BenchError, BaselineError) as error:
        because, log = str(error), ""
    return Verdict(Outcome.FAIL, task.metric, None, None, None, task.limit, because, log)


def _absent(run: Run, error: Exception, *, limit: str, metric: str) -> Verdict:
    """Return the verdict on a limit for which something is missing, or measuring is refused."""
    missing = True
    if isinstance(error, ImportError):
        if error.name is None:
            because = f"something can't be imported ({error}): {INSTALL}"
        elif error.name.startswith(__package__):
            raise error
        else:
            because = f"the package {error.name} is not installed: {INSTALL}"
    elif isinstance(error, NotMeasured):
        because, missing = error.reason, error.missing
    else:
        because = str(error)
    skip = bool(run.refusal) or (missing and run.settings.missing == "skip")
    return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because, policy_skip=skip)


def _over_budget(task: Task, settings: Settings) -> Verdict:
    because = f"the test's budget of {settings.budget:g} s was spent before: raise --specdec-budget"
    return Verdict(Outcome.NOT_MEASURED, task.metric, None, None, None, task.limit, because)


def _record(item: pytest.Item, settings: Settings, verdicts: Iterable[Verdict]) -> None:
    """Leave the verdicts where reports, JUnit and pytest-xdist's controller find them."""
    known = item.stash.setdefault(VERDICTS, [])
    known.extend(verdicts)
    told = {"pair": _pair(settings), "verdicts": [verdict.to_json() for verdict in known]}
    forget(item)
    item.user_properties.append((PROPERTY, json.dumps(told, separators=(",", ":"))))


def _pair(settings: Settings) -> str:
    return f"{settings.target or 'no target'} + {settings.draft or settings.method}"


def _settle(run: Run, item: pytest.Item, verdicts: Sequence[Verdict]) -> None:
    """Turn verdicts into the test's outcome."""
    outcome = worst(verdicts)
    if outcome is Outcome.PASS:
        return
    if outcome is Outcome.INCONCLUSIVE:
        _doubt(run, item, [v for v in verdicts if v.outcome is not Outcome.PASS])
        return
    if outcome is Outcome.NOT_MEASURED and all(verdict.policy_skip for verdict in verdicts):
        _skip(run, item, verdicts)
    bad = [v for v in verdicts if v.outcome is outcome]
    rest = [v for v in verdicts if v.outcome not in (Outcome.PASS, outcome)]
    pytest.fail("\n\n".join([*(v.long_repr() for v in bad), *map(_short, rest)]), pytrace=False)


def _doubt(run: Run, item: pytest.Item, doubtful: Sequence[Verdict]) -> None:
    if run.settings.inconclusive == "fail":
        pytest.fail("\n\n".join(verdict.long_repr() for verdict in doubtful), pytrace=False)
    made_errors = []
    for verdict in doubtful:
        try:
            item.warn(SpecdecWarning(_short(verdict)))
        except SpecdecWarning as warning:
            made_errors.append(str(warning))
    if made_errors:
        pytest.fail("\n\n".join(made_errors), pytrace=False)


def _skip(run: Run, item: pytest.Item, verdicts: Sequence[Verdict]) -> NoReturn:
    reasons = "; ".join(dict.fromkeys(verdict.because for verdict in verdicts))
    if _is_last_to_measure_nothing(run, item):
        pytest.fail(f"{NOTHING}\n{reasons}", pytrace=False)
    pytest.skip(reasons)


def _is_last_to_measure_nothing(run: Run, item: pytest.Item) -> bool:
    # A worker of pytest-xdist sees its share of the tests only; the controller judges at the end.
    if run.in_worker:
        return False
    others = [result for nodeid, result in run.results.items() if nodeid != item.nodeid]
    if not all(result.skipped_by_policy for result in others):
        return False
    if not all(verdict.policy_skip for verdict in item.stash.get(VERDICTS, [])):
        return False
    items = item.session.items
    after = items[items.index(item) + 1 :] if item in items else []
    return not any(measures(later) for later in after)


def _short(verdict: Verdict) -> str:
    return f"{verdict.limit}: {verdict.outcome}: {verdict.because}"
