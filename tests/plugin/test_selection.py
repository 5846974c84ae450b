"""`-x`, `-k`, `-m`, `--collect-only` and `--setup-only` do what they do to any test."""

from __future__ import annotations

import pytest

from .project import Project


SOURCE = """
@cliff_at(5)
def test_fails():
    pass

@accept_rate(0.5)
def test_holds():
    pass

def test_plain():
    pass

def test_asks(specdec):
    specdec.decode()

class TestIt:
    @specdec(k=4)
    def test_settings_only(self):
        pass
"""


@pytest.fixture
def gates(project: Project) -> Project:
    project.test(SOURCE)
    return project


def test_x_stops_at_the_first_gate_that_fails(gates: Project) -> None:
    gates.run("-x", failed=1)
    assert gates.measured == ["verify_curve"]


def test_k_selects(gates: Project) -> None:
    gates.run("-k", "holds", passed=1, deselected=4)
    assert gates.measured == ["speculative"]


def test_k_to_nothing_is_no_gate_that_measured_nothing(gates: Project) -> None:
    result = gates.run("-k", "nothing", deselected=5)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.no_fnmatch_line("*specdec: *")


def test_m_specdec_selects_gates_and_users_of_measuring_fixtures(gates: Project) -> None:
    gates.run("-m", "specdec", passed=3, failed=1, deselected=1)


def test_m_not_specdec_leaves_them_out(gates: Project) -> None:
    gates.run("-m", "not specdec", passed=1, deselected=4)
    assert gates.asked == []


@pytest.mark.parametrize(
    "option", ["--collect-only", "--setup-only", "--setup-plan", "--fixtures", "--fixtures-per-test"]
)
def test_a_dry_run_measures_nothing_and_starts_nothing(gates: Project, option: str) -> None:
    result = gates.run(option)
    assert result.ret == 0
    assert gates.asked == []
    result.stdout.no_fnmatch_line("specdec: *")


def test_a_test_runs_alone_by_its_id(gates: Project) -> None:
    gates.run("test_it.py::test_holds", passed=1)


def test_last_failed_knows_gates(gates: Project) -> None:
    gates.run(failed=1, passed=4)
    gates.run("--lf", failed=1)
