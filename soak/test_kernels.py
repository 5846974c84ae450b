"""Kernel maps over and over, on a quiet machine and beside busy processes, and what a whole one costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_specdec.bench import kernels
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.checks.kernels import kernel_thresholds
from pytest_specdec.measurements import KernelMap
from pytest_specdec.settings import Settings
from pytest_specdec.theory.classes import find_classes
from pytest_specdec.verdict import Outcome


# As many as cores would be: llama.cpp's threads and these then wait for each other.
BUSY = 2
# A little nicer than what it disturbs: at equal rights a pass takes a hundred times as long.
SPIN = "import os, time\nos.nice(5)\nwhile os.getppid() == {parent} and time.monotonic() < {until}: pass"
MINUTES = 30

GEMMA = "gemma-3-270m"
SMOLLM2 = "smollm2-135m"
Taken = Callable[..., KernelMap]


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep cores busy; the processes end with this one and after half an hour."""
    program = SPIN.format(parent=os.getpid(), until=time.monotonic() + 60 * MINUTES)
    started = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(processes)]
    try:
        yield
        assert all(one.poll() is None for one in started), "the load ended before the measurement did"
    finally:
        for one in started:
            one.kill()
            one.wait()


@pytest.fixture
def taken() -> Iterator[Taken]:
    """Take a map anew, by a worker that lives as long as the test."""
    session = BenchSession(Settings())

    def take(target: str, sizes: str, depth: int = 0, threads: int = 2) -> KernelMap:
        settings = session.settings.merged(target=target, map_sizes=sizes, depth=depth, threads=threads)
        return kernels.kernel_map(session.bench(settings))

    yield take
    session.close()


@pytest.mark.parametrize("busy", [0, BUSY])
@pytest.mark.parametrize("depth", [0, 512])
@pytest.mark.parametrize("target", [GEMMA, SMOLLM2])
def test_ten_maps_are_one(taken: Taken, target: str, depth: int, busy: int) -> None:
    with load(busy):
        maps = [taken(target, "1-9,12,16", depth) for _ in range(10)]
    first = maps[0]
    assert all((one.maps, one.one_thread) == (first.maps, first.one_thread) for one in maps)
    assert all(one.deterministic for one in (*first.maps, *first.one_thread))


@pytest.mark.parametrize("busy", [0, BUSY])
@pytest.mark.parametrize("run", range(20))
def test_the_right_thresholds_hold_and_others_do_not(taken: Taken, run: int, busy: int) -> None:
    """The right set is that of a map of its own, by a worker of its own, on a quiet machine."""
    quiet = taken(GEMMA, "1-9").maps[0]
    right = find_classes(quiet.n, [quiet.hidden, quiet.logits], quiet.remainder).thresholds
    with load(busy):
        measured = taken(GEMMA, "1-9")
    assert kernel_thresholds(measured, ns=right).outcome is Outcome.PASS
    for n in (4, 9):
        wrong = sorted({*right} ^ {n})
        assert kernel_thresholds(measured, ns=wrong).outcome is Outcome.FAIL


@pytest.mark.parametrize("depth", [0, 512])
def test_a_whole_map_costs_little_more_than_its_passes(taken: Taken, depth: int) -> None:
    measured = taken(GEMMA, "1-64", depth)
    print(f"depth {depth}: {measured.wall_ms:.0f} ms, of them passes {measured.forward_ms:.0f} ms")
    assert measured.maps[0].n == (*range(1, 65),)
    assert measured.wall_ms < 1.5 * measured.forward_ms
