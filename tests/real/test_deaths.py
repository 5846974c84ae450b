"""Every way in which a worker of a real llama.cpp dies is one failed test with its cause; the next passes.

`tests/engine/test_deaths.py` has the deaths that need no llama.cpp.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.engine import child
from pytest_specdec.engine import process
from pytest_specdec.engine.process import ProcessEngine
from pytest_specdec.engine.process import workers
from pytest_specdec.engine.protocol import EngineError
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.engine.protocol import WorkerTimeout
from tests import tiny_models
from tests.engine.test_deaths import SUBREAPER
from tests.engine.test_deaths import gone
from tests.engine.test_deaths import held
from tests.real.test_worker import CONTEXT


pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and scripts of POSIX")

LINUX = sys.platform == "linux"
ON_LINUX = pytest.mark.skipif(not LINUX, reason="limits and prctl of Linux")
LATE = "no answer within {} s: the worker was ended. A machine under load needs a larger --specdec-timeout"
# Where the kernel counts its kills, this one is none of them.
KILLED = "from outside" if process._oom_kills() is not None else process.SIGKILL_UNCOUNTED
# The fault, and what is said of it.
DEATHS = {
    "abort=1": "the worker was ended by SIGABRT: llama.cpp aborted, its last lines say where",
    "segfault=1": "the worker was ended by SIGSEGV: a memory fault in native code",
    "kill=1": f"the worker was ended by SIGKILL: {KILLED}",
    "oom=1": "the worker was ended by SIGABRT: memory ran out",
    "hang=1": LATE,
    "freeze=1,ignore_term=1": LATE,
    "close_pipe=1": "the worker closed its pipe and lived on: it was ended",
    "garbage=1": r"the worker wrote b'\x00\xff no answer\n' where an answer was due: it was ended",
}
TIMEOUT_S = 1.5

Gate = Callable[..., pytest.RunResult]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write("llama", tmp_path_factory.mktemp("tiny") / "llama.gguf")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "GRACE_S", 0.5)
    monkeypatch.setattr(process, "DEATH_S", 1.0)


@pytest.fixture
def make() -> Iterator[Callable[..., ProcessEngine]]:
    made: list[ProcessEngine] = []

    def engine(faults: str = "", **options: Any) -> ProcessEngine:
        env = {"SPECDEC_FAULTS": faults} if faults else {}
        made.append(ProcessEngine(env=env, **options))
        return made[-1]

    yield engine
    for one in made:
        one.close()


def load(engine: ProcessEngine, path: Path, **changes: Any) -> int:
    context: int = engine.request("load", path=str(path), **{**CONTEXT, **changes})["context"]
    return context


def decode(engine: ProcessEngine, context: int, n_predict: int = 8) -> list[int]:
    tokens: list[int] = engine.request("decode", context=context, tokens=[1], n_predict=n_predict)["tokens"]
    return tokens


@pytest.mark.parametrize("faults", DEATHS)
def test_a_death_in_a_pass_is_one_error_with_llama_cpps_last_lines(
    make: Callable[..., ProcessEngine], tiny: Path, faults: str
) -> None:
    before = held()
    engine = make(faults, timeout_s=TIMEOUT_S)
    context = load(engine, tiny)
    (pid,) = workers()
    with pytest.raises(EngineError) as caught:
        decode(engine, context)
    error = caught.value
    assert isinstance(error, WorkerTimeout if DEATHS[faults] is LATE else WorkerDied)
    assert error.message == DEATHS[faults].format(f"{TIMEOUT_S:g}")
    assert error.request == f"decode(context={context}, tokens=[1], n_predict=8)"
    assert any(line.startswith("llama_") for line in error.log)
    assert gone(pid, 0.0)
    assert held() == before


@pytest.mark.parametrize("faults", DEATHS)
def test_a_death_is_one_failed_test_and_the_next_one_passes(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, tiny: Path, faults: str
) -> None:
    monkeypatch.setenv("SPECDEC_FAULTS", faults)
    before = held()
    result = gate(
        f"""
        pytestmark = specdec(
            target={str(tiny)!r}, draft={str(tiny)!r}, threads=1, n_predict=4, prompts="default::code"
        )

        @accept_rate(0.5)
        @specdec(k=2)
        def test_it_dies(): pass

        @accept_rate(0.5)
        @specdec(k=2)
        def test_the_same_is_not_tried_again(): pass

        @accept_rate(0.5)
        @specdec(k=3)
        def test_the_next_passes(monkeypatch):
            monkeypatch.delenv("SPECDEC_FAULTS")
        """,
        f"--specdec-timeout={TIMEOUT_S:g}",
    )
    result.assert_outcomes(failed=2, passed=1)
    told = "accept_rate(0.5): fail: measuring failed: " + DEATHS[faults].format(f"{TIMEOUT_S:g}")
    text = result.stdout.str()
    assert text.count(f"\n{told}\nrequest: ") == 2
    asked = re.findall(r"^request: (\w+)\(.*\)\nlast lines of the worker:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert [op for op, _ in asked] == ["rollback", "rollback"]
    assert asked[0] == asked[1]
    assert re.search(r"^  llama_\w+: ", asked[0][1], re.MULTILINE)
    assert held() == before


def test_a_slow_start_is_waited_for_and_has_an_end(
    make: Callable[..., ProcessEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = make("slow_start=1", timeout_s=0.5)
    assert patient.hello()["faults"] == {"slow_start": 1.0}
    patient.close()
    monkeypatch.setattr(process, "START_TIMEOUT_S", 0.5)
    engine = make("slow_start=60", timeout_s=0.5)
    with pytest.raises(WorkerTimeout) as caught:
        engine.hello()
    assert caught.value.message.startswith(
        f"{sys.executable} did not start a worker within 0.5 s: the worker"
    )
    assert not workers()


def test_a_worker_that_ignores_sigterm_ends_when_it_is_closed(
    make: Callable[..., ProcessEngine], tiny: Path
) -> None:
    engine = make("ignore_term=1")
    tokens = decode(engine, load(engine, tiny))
    (pid,) = workers()
    os.kill(pid, signal.SIGTERM)
    assert decode(engine, 1) == tokens
    engine.close()
    assert gone(pid, 0.0)


@ON_LINUX
def test_memory_that_runs_out_at_loading_is_a_refusal_and_the_worker_lives(
    make: Callable[..., ProcessEngine], tiny: Path, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nulimit -v 4194304\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    engine = make(python=str(script))
    with pytest.raises(RequestRefused, match="could not make a context") as caught:
        load(engine, tiny, n_ctx=2**25)
    assert any("failed to allocate" in line for line in caught.value.log)
    assert len(decode(engine, load(engine, tiny))) == 8
    assert engine.generation == 1


def test_a_suspended_worker_uses_no_processor_and_goes_on_where_it_was(
    make: Callable[..., ProcessEngine], tiny: Path
) -> None:
    psutil = pytest.importorskip("psutil")
    engine = make()
    context = load(engine, tiny, n_threads=2)
    tokens = decode(engine, context)
    engine.suspend()
    (pid,) = workers()
    worker = psutil.Process(pid)
    deadline = time.monotonic() + 10.0
    while worker.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
    spent = worker.cpu_times()
    time.sleep(0.3)
    assert worker.cpu_times() == spent
    assert decode(engine, context) == tokens
    assert (engine.generation, workers()) == (1, (pid,))
    engine.suspend()
    last = engine._child
    engine.close()
    # By itself, not by force.
    assert last is not None
    assert last.status(0.0) == 0


@pytest.mark.parametrize("kept", [False, pytest.param(True, marks=ON_LINUX)], ids=["orphan", "kept"])
def test_a_suspended_worker_ends_with_a_killed_plugin(tiny: Path, kept: bool) -> None:
    program = (
        "import os, time\n"
        "from pytest_specdec.engine.process import ProcessEngine, workers\n"
        "engine = ProcessEngine()\n"
        f"context = engine.request('load', path={str(tiny)!r}, **{CONTEXT!r})['context']\n"
        "engine.suspend()\n"
        "print(os.getpid(), *workers(), flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", *([SUBREAPER] if kept else []), program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        own, worker = map(int, started.stdout.readline().split())
        os.kill(own, signal.SIGKILL)
        ended = gone(worker)
        started.kill()
    if not ended:
        os.kill(worker, signal.SIGKILL)
    assert ended


def test_an_incompatible_llama_cpp_is_not_measured_and_says_why(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, tiny: Path, tmp_path: Path
) -> None:
    package = tmp_path / "stand_in" / "llama_cpp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '0.3.1'\n", encoding="utf-8")
    (package / "llama_cpp.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    result = gate(
        f"""
        @accept_rate(0.5)
        @specdec(target={str(tiny)!r})
        def test_pair(): pass

        def test_other(): pass
        """
    )
    result.assert_outcomes(failed=1, passed=1)
    told = "llama-cpp-python 0.3.1 lacks llama_backend_init, *; 0.3.16 or newer is needed"
    result.stdout.fnmatch_lines([f"specdec: {told}", f"accept_rate(0.5): not measured: {told}"])
