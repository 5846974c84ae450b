"""Gates on times, held on simulated noise: few false alarms, and the power to find a tenth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks import false_alarms
from benchmarks.false_alarms import OTHER_GATES
from benchmarks.false_alarms import SPEED_GATES
from benchmarks.false_alarms import Answer
from benchmarks.false_alarms import Gate
from benchmarks.false_alarms import Machine
from benchmarks.false_alarms import Noise
from benchmarks.false_alarms import simulate
from pytest_specdec.checks import speed


OURS, MEANS = SPEED_GATES[:2], SPEED_GATES[2:]
SESSIONS = 200


@pytest.mark.parametrize("gate", OURS, ids=lambda gate: gate.name)
def test_gates_on_speed_are_right_on_a_bad_day(gate: Gate) -> None:
    rates = simulate(gate, SESSIONS, seed=1)
    assert rates.unchanged <= 0.01
    assert rates.beyond >= 0.95
    assert rates.pairs < speed.LOOKS[-1][0]


@pytest.mark.parametrize("gate", OTHER_GATES, ids=lambda gate: gate.name)
def test_other_gates_are_quiet_when_nothing_changed(gate: Gate) -> None:
    rates = simulate(gate, SESSIONS // 4, seed=1)
    assert rates.unchanged == 0
    assert rates.beyond > 0.6


def test_a_mean_of_five_is_not() -> None:
    for gate in MEANS:
        rates = simulate(gate, SESSIONS, seed=1)
        assert rates.unchanged > 0.01 or rates.beyond < 0.95, gate.name
        assert rates.beyond < 0.95, gate.name


def test_a_looser_rule_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation can fail: bounds that are wrong a tenth of the time alarm too often."""
    monkeypatch.setattr(speed, "LOOKS", tuple((pairs, 0.1) for pairs, _ in speed.LOOKS))
    assert simulate(OURS[0], SESSIONS, seed=1).unchanged > 0.05


def test_a_machine_without_noise_tells_the_truth() -> None:
    quiet = Noise(jitter=0.0, stalls=0.0, drift=0.0)

    def judged(judge: Callable[[Callable[[], Machine], float], Answer], change: float) -> bool:
        return judge(lambda: Machine(np.random.default_rng(0), quiet), change).failed

    for gate in (*OURS, *MEANS):
        assert judged(gate.judge, gate.beyond - 0.01), gate.name
        assert not judged(gate.judge, 1.0), gate.name


def test_the_tables_have_every_gate() -> None:
    rates = {gate: simulate(gate, 1) for gate in (*SPEED_GATES, *OTHER_GATES)}
    lines = false_alarms.tables(rates).splitlines()
    assert sum(line.startswith("| `") for line in lines) == len(OURS) + len(OTHER_GATES)
    assert sum(line.startswith("| mean of 5") for line in lines) == len(MEANS)
