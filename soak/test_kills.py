"""Workers killed at random in suite runs: no process stays, no baseline is partial, each cause is named."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_specdec.engine.process import NATIVE
from pytest_specdec.engine.process import WORKER
from pytest_specdec.engine.process import ProcessEngine
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.store import Store
from tests import tiny_models
from tests.engine.test_deaths import gone
from tests.real.test_worker import CONTEXT


KILLS = int(os.environ.get("SPECDEC_SOAK_KILLS", "100"))
# Every so many kills pytest itself is killed, its worker stopped or not.
PYTEST_TOO = 10
SIGNALS = ("SIGKILL", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTERM")
OUTCOMES = ("pass", "inconclusive", "not measured")
CGROUP = Path("/sys/fs/cgroup/memory")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")


class SuiteRun:
    """A suite run in a process of its own, and the workers seen under it."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.told = folder / "told.json"
        self.told.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "pytest", "-q", "--pyargs", "pytest_specdec.suite"),
            *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "default"),
            *("--specdec-target=target.gguf", "--specdec-draft=draft.gguf", "--specdec-machine=lab"),
            *("--specdec-prompts=default::code", "--specdec-threads=1", f"--specdec-json={self.told}"),
            *more,
        ]
        self.log = folder / "log.txt"
        with self.log.open("wb") as log:
            self.process = psutil.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        self.workers: set[int] = set()

    def worker(self) -> int | None:
        """The worker that lives now; the suite's package may be another copy than the one imported here."""
        try:
            for one in self.process.children():
                if any(Path(word).parts[-2:] == WORKER.parts[-2:] for word in one.cmdline()):
                    self.workers.add(one.pid)
                    return int(one.pid)
        except psutil.Error:
            pass
        return None

    def after(self, seconds: float) -> int | None:
        """The worker that has lived for some time; None where the run ends before."""
        found, since = None, 0.0
        while self.process.poll() is None:
            now = self.worker()
            if now is None or now != found:
                found, since = now, time.monotonic()
            elif time.monotonic() - since >= seconds:
                return found
            time.sleep(0.01)
        return None

    def failed_tests(self) -> set[str]:
        """The tests that failed."""
        tests = json.loads(self.told.read_text(encoding="utf-8"))["tests"]
        return {test["nodeid"] for test in tests if test["outcome"] == "failed"}

    def verdicts(self) -> Iterator[dict[str, Any]]:
        """What became of the limits."""
        for test in json.loads(self.told.read_text(encoding="utf-8"))["tests"]:
            yield from test["verdicts"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two relatives and the baseline of a run that nothing disturbed."""
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    tiny_models.write("llama", tmp_path / "target.gguf")
    tiny_models.write("llama", tmp_path / "draft.gguf", noise=0.05)
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    run = SuiteRun(tmp_path, "--specdec-update=new")
    assert run.process.wait() == 0, run.log.read_text(encoding="utf-8")
    return tmp_path


def test_kills_at_random_moments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(folder / "baselines")
    (pair,) = store.pairs("lab")
    dice = random.Random(1)
    sent: Counter[str] = Counter()
    named: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    replaced = 0
    while sent.total() < KILLS:
        before = store.require("lab", pair).entries
        run = SuiteRun(folder, "--specdec-update=all")
        here: Counter[str] = Counter()
        while (pid := run.after(dice.expovariate(1.0))) is not None and (sent + here).total() < KILLS:
            if (sent + here).total() % PYTEST_TOO == PYTEST_TOO - 1:
                here["pytest"] += 1
                if dice.random() < 0.5:
                    os.kill(pid, signal.SIGSTOP)
                run.process.kill()
                break
            name = dice.choice(SIGNALS)
            os.kill(pid, signal.Signals[name])
            here[name] += 1
        code = run.process.wait()
        assert run.workers, "no worker was seen to kill"
        sent += here
        ends[str(code)] += 1
        assert all(gone(one) for one in run.workers)
        after = store.require("lab", pair).entries
        changed = {key for key in before if after[key] != before[key]}
        assert set(after) == set(before)
        if here["pytest"]:
            assert not changed
            continue
        bad = run.failed_tests()
        assert not [key for key in changed if bad & set(after[key].used_by)]
        replaced += len(changed)
        failed = [one for one in run.verdicts() if one["outcome"] not in OUTCOMES]
        deaths = {(one["because"], one["section"]) for one in failed}
        for because, section in deaths:
            # A probe of structure takes an abort or a memory fault for a finding, and goes on to the next.
            found = re.findall(r"^measuring failed: the worker was ended by (SIG\w+)", because)
            probed = re.findall(r"[a-z-]+: the worker was ended by (SIG\w+)", because)
            assert found or set(probed) <= set(NATIVE), because
            found = found or probed
            assert found, f"{because}\n{section}"
            assert set(found) <= set(here), (because, here)
            assert re.search(r"^(request: | +)\w+\(", section, re.MULTILINE), section
            named.update(found)
        assert code == (1 if failed else 0), run.log.read_text(encoding="utf-8")
    with capsys.disabled():
        print(f"\n{sent.total()} kills in {ends.total()} suite runs: {told(sent)}")
        print(f"baseline entries replaced by tests that passed: {replaced}, by others: 0")
        print(f"failures that name their cause: {named.total()} ({told(named)}); exit codes {told(ends)}")
    assert named.total() > sent.total() / 2
    last = SuiteRun(folder)
    assert last.process.wait() == 0, last.log.read_text(encoding="utf-8")


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def test_a_real_kill_for_want_of_memory_is_told_as_one(tmp_path: Path) -> None:
    group = CGROUP / f"specdec-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(200 * 2**20), encoding="ascii")
    except OSError as error:
        pytest.skip(f"no control group of memory can be made here: {error}")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\necho $$ > {group}/tasks\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    target = tiny_models.write("llama", tmp_path / "target.gguf")
    engine = ProcessEngine(python=str(script))
    try:
        with pytest.raises(WorkerDied) as caught:
            engine.request("load", path=str(target), **{**CONTEXT, "n_ctx": 2**22})
        cause = "the system ended it because memory ran out"
        assert caught.value.message == f"the worker was ended by SIGKILL before its first answer: {cause}"
        assert any(line.startswith("llama_") for line in caught.value.log)
        assert engine.request("load", path=str(target), **CONTEXT)["context"] == 1
    finally:
        engine.close()
        group.rmdir()
