"""Verdicts on a bad day and on a good one: no false failure beside load, a real slowdown failed when quiet.

Each gate is made as a run makes it: pairs look by look, until the verdict on the second arm is clear. Both
tests print their counts; SPECDEC_SOAK_GATES and SPECDEC_SOAK_SLOWED shorten them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.bench.environment import Conditions
from pytest_specdec.bench.noise import Arm
from pytest_specdec.bench.noise import Prompts
from pytest_specdec.bench.noise import arm_of
from pytest_specdec.bench.noise import pairs
from pytest_specdec.bench.procedures import LOOKS
from pytest_specdec.bench.procedures import PAIRS_PER_LOOK
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.checks.speed import decided
from pytest_specdec.checks.speed import min_speedup
from pytest_specdec.measurements import ArmPair
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.settings import Settings
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


GATES = int(os.environ.get("SPECDEC_SOAK_GATES", "30"))
SLOWED = int(os.environ.get("SPECDEC_SOAK_SLOWED", "20"))
SETTINGS = {"target": "smollm2-135m", "n_predict": 32, "prompts": "default::code,list"}
# The second arm may be a twentieth slower.
AT_LEAST = 0.95
SLOWDOWN = "sleep_forward=0.1"
# A second and a half of work on every core, then a pause of one to three seconds.
BURSTS = """
import random, time
rest = random.Random({seed})
while True:
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        pass
    time.sleep(rest.uniform(1.0, 3.0))
"""

MakeArm = Callable[..., tuple[Arm, Prompts]]
Say = Callable[[str], None]


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[MakeArm]:
    """Maker of arms, SmolLM2 in a worker of its own, with the faults given."""
    sessions: list[BenchSession] = []

    def make(faults: str = "") -> tuple[Arm, Prompts]:
        env = (("SPECDEC_FAULTS", faults),) if faults else ()
        session = BenchSession(Settings(env=env, rootdir=tmp_path))
        sessions.append(session)
        decode, prompts = arm_of(session.bench(session.settings.merged(**SETTINGS)))

        def alone(tokens: list[int]) -> dict[str, Any]:
            answer = decode(tokens)
            # Its idle threads would spin beside the other arm.
            session.rig.engine.suspend()
            return answer

        return alone, prompts

    yield make
    for session in sessions:
        session.close()


@contextmanager
def bursts() -> Iterator[None]:
    """Load every core in bursts."""
    loads = [
        subprocess.Popen([sys.executable, "-c", BURSTS.format(seed=seed)])
        for seed in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


def gate(first: Arm, second: Arm, prompts: Prompts) -> tuple[Verdict, Verdict]:
    """Hold the second arm against the first; what is said with and without a look at the conditions."""
    conditions = Conditions()
    per_look = max(PAIRS_PER_LOOK, len(prompts))
    run = SpeedRun(1, "arms", ())
    for look in range(LOOKS):
        before = run

        def more(before: SpeedRun = before, look: int = look) -> SpeedRun:
            found = pairs(first, second, prompts, range(look * per_look, (look + 1) * per_look))
            kept = (*before.pairs, *map(_speed_pair, found))
            return SpeedRun(1, "arms", kept, environment=before.environment)

        run = conditions.during(look, more)
        if decided(_anywhere(run), x=AT_LEAST):
            break
    return min_speedup(run, x=AT_LEAST), min_speedup(_anywhere(run), x=AT_LEAST)


def gates(count: int, what: str, first: Arm, second: Arm, prompts: Prompts, say: Say) -> list[list[Outcome]]:
    """Make so many gates and tell each; the outcomes with and without a look at the conditions."""
    told, alone = [], []
    for _ in range(count):
        with_conditions, without = gate(first, second, prompts)
        told.append(with_conditions.outcome)
        alone.append(without.outcome)
        say(f"{with_conditions.outcome}: {with_conditions.because}")
    say(f"{count} gates {what}: {_counts(told)}; by the pairs alone: {_counts(alone)}")
    return [told, alone]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print a line at once."""

    def line(content: str) -> None:
        with capsys.disabled():
            print(f"\n{content}", end="", flush=True)

    return line


def test_a_gate_between_equal_arms_never_fails_beside_load(arm: MakeArm, say: Say) -> None:
    own, prompts = arm()
    with bursts():
        told, alone = gates(GATES, "beside load", own, own, prompts, say)
    assert Outcome.FAIL not in told
    assert Outcome.FAIL not in alone


def test_a_tenth_slower_is_failed_on_a_quiet_machine(arm: MakeArm, say: Say) -> None:
    own, prompts = arm()
    slow, _ = arm(SLOWDOWN)
    told, _ = gates(SLOWED, f"on an arm with {SLOWDOWN}", own, slow, prompts, say)
    assert told.count(Outcome.FAIL) >= SLOWED - SLOWED // 20


def _speed_pair(pair: ArmPair) -> SpeedPair:
    return SpeedPair(pair.prompt, pair.first_tokens, pair.first_ms, pair.second_tokens, pair.second_ms)


def _anywhere(run: SpeedRun) -> SpeedRun:
    return SpeedRun(run.k, run.method, run.pairs)


def _counts(outcomes: list[Outcome]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in Counter(outcomes).most_common())
