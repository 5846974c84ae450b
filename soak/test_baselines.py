"""Baselines outlive what ends a run: 50 deaths by each signal, of the store alone and of pytest itself."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_specdec.store import Store
from pytest_specdec.store.history import Damaged
from pytest_specdec.store.history import read
from tests.plugin.project import DOUBLE
from tests.plugin.project import HEAD
from tests.plugin.project import INI
from tests.store.test_safety import assert_whole
from tests.store.test_safety import deaths


DEATHS = 50
GATES = """
@pytest.mark.parametrize("k", [pytest.param(k, marks=specdec(k=k)) for k in range(1, 9)])
@within_baseline("curve", "acceptance")
def test_it(k):
    pass
"""
RUN = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "-p", "no:cacheprovider"),
    *("--specdec-update=all", "--specdec-machine=lab"),
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_the_store_outlives_every_death(name: str, tmp_path: Path) -> None:
    told = deaths(tmp_path / "baselines", DEATHS, name)
    print(f"{name}: {told[-1]} after {len(told)} deaths")
    assert_whole(told, tmp_path / "baselines")


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT, and so would what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def project(folder: Path) -> None:
    """Tests with eight entries of each of two kinds, measured by the double."""
    (folder / "conftest.py").write_text(DOUBLE, encoding="utf-8")
    (folder / "test_it.py").write_text(HEAD + GATES, encoding="utf-8")
    (folder / "pytest.ini").write_text(INI, encoding="utf-8")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_a_recording_run_outlives_none_of_its_files(name: str, tmp_path: Path) -> None:
    project(tmp_path)
    began = time.monotonic()
    first = subprocess.run([*RUN, "--specdec-history=true"], cwd=tmp_path, check=False, capture_output=True)
    took = time.monotonic() - began
    assert first.returncode == 0, first.stdout.decode()
    store = Store(tmp_path / "baselines")
    (pair,) = store.pairs("lab")
    keys = set(store.require("lab", pair).entries)
    dice = random.Random(name)
    ends: dict[int, int] = {}
    for _ in range(DEATHS):
        with subprocess.Popen(
            [*RUN, "--specdec-history=true"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            # Half of them near the end, where files are written.
            time.sleep(dice.choice([dice.uniform(0.0, took), dice.uniform(0.7, 1.0) * took]))
            process.send_signal(signal.Signals[name])
        ends[process.returncode] = ends.get(process.returncode, 0) + 1
        assert set(store.require("lab", pair).entries) == keys
    lines = [isinstance(line, Damaged) for line in read(store.history_path("lab"))]
    print(f"{name}: exit codes {ends}, history {lines.count(False)} lines whole, {lines.count(True)} damaged")
    assert sum(count for code, count in ends.items() if code != 0) > DEATHS / 4
    assert lines.count(True) <= (DEATHS if name == "SIGKILL" else 0)
    # What the dead left is in nobody's way.
    last = subprocess.run(RUN, cwd=tmp_path, check=False, capture_output=True)
    assert last.returncode == 0, last.stdout.decode()
    assert {entry.anchor is not None for entry in store.require("lab", pair).entries.values()} == {True}
    json.loads(store.path("lab", pair).read_text(encoding="utf-8"))
