"""What the machine does beside a measurement is seen, spoils verdicts on times, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_specdec.bench.session import Bench
from pytest_specdec.checks import conditions
from pytest_specdec.checks.acceptance import accept_rate
from pytest_specdec.checks.curve import max_verify_cost
from pytest_specdec.checks.noise import noise_floor
from pytest_specdec.measurements import Environment
from pytest_specdec.verdict import Outcome
from tests.real.conftest import GEMMA
from tests.real.conftest import RULES
from tests.real.conftest import SMOLLM2


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Keep so many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_load_beside_it_spoils_times_and_no_counters(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "RULES", RULES)
    made = bench(**SMOLLM2, sizes="1-3", blocks=8, n_predict=8, prompts="default::code")
    counted = accept_rate(made.speculate(), low=0.0)
    with burning(os.cpu_count() or 1):
        curve = made.verify_curve()
        beside = accept_rate(made.with_settings(n_predict=9).speculate(), low=0.0)
    seen = curve.environment
    assert seen is not None
    assert seen.foreign_share is not None
    # Every core is busy; what the worker has of them is not foreign.
    assert 0.2 < seen.foreign_share < 0.95
    verdict = max_verify_cost(curve, n=3, ratio=100.0)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert f"other processes used {seen.foreign_share:.0%} of the cores" in verdict.because
    assert counted.outcome is beside.outcome is Outcome.PASS


def test_the_environment_is_told_and_survives_json(bench: Callable[..., Bench]) -> None:
    curve = bench(**GEMMA, sizes="1,2", blocks=8, calls=1).verify_curve()
    seen = curve.environment
    assert seen is not None
    assert seen.seconds > 0
    assert Environment.from_json(seen.to_json()) == seen
    assert type(curve).from_json(curve.to_json()) == curve
    if sys.platform == "linux":
        assert seen.load is not None


def test_noise_is_plain_decoding_against_itself(bench: Callable[..., Bench]) -> None:
    run = bench(**GEMMA, n_predict=4, prompts="default::list").noise()
    assert len(run.pairs) == 24
    assert all(pair.first_tokens == pair.second_tokens for pair in run.pairs)
    floor = noise_floor(run)
    assert floor is not None
    assert floor.value > 0
