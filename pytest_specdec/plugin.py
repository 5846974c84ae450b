"""The hooks of the plugin, and nothing else: each hands over to the room that knows."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from typing import Final

import pytest

from pytest_specdec import configuration
from pytest_specdec import limits
from pytest_specdec.fixtures import specdec as specdec
from pytest_specdec.fixtures import specdec_factory as specdec_factory
from pytest_specdec.fixtures import specdec_machine as specdec_machine
from pytest_specdec.run import PROPERTY
from pytest_specdec.run import RUN
from pytest_specdec.run import Run


# Options of pytest under which no test runs.
DRY: Final = ("collectonly", "setuponly", "setupplan", "showfixtures", "show_fixtures_per_test")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare options and ini keys."""
    configuration.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, settle the settings."""
    for line in limits.help_lines():
        config.addinivalue_line("markers", line)
    run = Run(config, configuration.resolve(config))
    config.stash[RUN] = run
    config.pluginmanager.register(Ending(run), "specdec-ending")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what still runs."""
    if (run := config.stash.get(RUN, None)) is not None:
        run.close()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn gate marks that can't hold into a collection error."""
    report = yield
    if report.outcome != "passed":
        return report
    found = limits.problems(node for node in report.result or () if isinstance(node, pytest.Item))
    if not found:
        return report
    return pytest.CollectReport(collector.nodeid, "failed", "\n".join(found), [])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every gate the mark `specdec`, before -m selects."""
    for item in items:
        if limits.measures(item):
            item.add_marker(pytest.mark.specdec)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Say what is under test, where gates are about to run."""
    run = config.stash[RUN]
    if (
        any(config.getoption(name, False) for name in DRY)
        or run.refusal
        or not any(map(limits.measures, items))
    ):
        return []
    from pytest_specdec import gate

    return [gate.header(run, [item for item in items if limits.is_gated(item)])]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget an earlier attempt, and refuse marks that came too late for collection to see."""
    item.config.stash[RUN].begin(item)
    if found := limits.problems([item]):
        pytest.fail("\n".join(found), pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Hold a test against its limits once its body has passed."""
    result = yield
    if limits.is_gated(pyfuncitem):
        from pytest_specdec import gate

        gate.judge(pyfuncitem)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the verdicts under a test."""
    report = yield
    if call.when == "call" and any(name == PROPERTY for name, _ in item.user_properties):
        from pytest_specdec import gate

        gate.annotate(item, report)
    return report


class Ending:
    """The hooks that take in reports and end a run; an object, because reports don't say whose they are."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.partial = False

    def pytest_deselected(self) -> None:
        """Note that not every test will run."""
        self.partial = True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take down what was collected, unless it is a part of a file that has more."""
        if not self.partial and not any("::" in argument for argument in session.config.args):
            self.run.collected = tuple(item.nodeid for item in session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in a test's verdicts, from a worker of pytest-xdist too."""
        self.run.log(report)

    def pytest_runtest_logfinish(self) -> None:
        """Note that no test is running."""
        self.run.item = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take in what a worker of pytest-xdist measured."""
        if shipped := getattr(node, "workeroutput", {}).get(PROPERTY):
            self.run.shipped.append(shipped)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Record, and end red when nothing was measured or could be recorded."""
        run = self.run
        if run.measured or run.shipped or run.settings.json is not None:
            from pytest_specdec import recording

            if run.in_worker:
                session.config.workeroutput[PROPERTY] = recording.ship(run)  # type: ignore[attr-defined]
            else:
                recording.finish(run, green=session.exitstatus == pytest.ExitCode.OK)
        if run.in_worker:
            return
        if why := run.measured_nothing:
            run.faults.append(why)
        if run.faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show what was measured, and what ends the run red."""
        lines = self.run.summary() if self.run.results or self.run.notes else []
        if not lines and not self.run.faults:
            return
        terminalreporter.write_sep("=", "speculative decoding")
        for line in lines:
            terminalreporter.write_line(line)
        for fault in self.run.faults:
            terminalreporter.write_line(f"specdec: {fault}", red=True)
