"""The worker process: what it says of itself, and every way in which a request can end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.engine.process import ProcessEngine
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.engine.protocol import WorkerTimeout
from pytest_specdec.engine.protocol import WorkerUnavailable


CONTEXT: dict[str, Any] = {
    "gpu_layers": -1,
    "backend": "auto",
    "use_extra_bufts": True,
    "n_ctx": 256,
    "n_batch": 64,
    "n_ubatch": 64,
    "n_threads": 1,
    "n_outputs_max": 64,
    "type_k": "f16",
    "type_v": "f16",
    "embeddings": False,
    "flash_attn": "auto",
    "swa_full": True,
}


@pytest.fixture
def engine() -> Iterator[ProcessEngine]:
    made = ProcessEngine()
    yield made
    made.close()


def _load(engine: ProcessEngine, path: Path, **changes: Any) -> int:
    context: int = engine.request("load", path=str(path), **{**CONTEXT, **changes})["context"]
    return context


def test_hello_identifies_the_build(engine: ProcessEngine) -> None:
    hello = engine.hello()
    assert hello["llama_cpp_python"]
    assert all(len(digest) == 64 for digest in hello["libraries"].values())
    assert any(name.startswith(("libllama", "llama")) for name in hello["libraries"])
    assert {device["type"] for device in hello["devices"]} >= {"cpu"}
    assert hello["faults"] == {}


def test_a_native_abort_is_one_clear_error_and_the_next_request_works(
    engine: ProcessEngine, smollm2: Path
) -> None:
    context = _load(engine, smollm2)
    too_large = {"tokens": [1] * 200, "order": [100], "calls": 1, "depth": 0, "rows": "all"}
    with pytest.raises(WorkerDied) as caught:
        engine.request("forward", context=context, **too_large)
    assert "SIGABRT" in str(caught.value)
    assert any("GGML_ASSERT" in line for line in caught.value.log)
    assert "forward(" in caught.value.request
    assert engine.hello()["llama_cpp_python"]


def test_a_killed_worker_says_so(engine: ProcessEngine, smollm2: Path) -> None:
    pid = engine.hello()["pid"]
    context = _load(engine, smollm2)
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        engine.request("decode", context=context, tokens=[1], n_predict=250)


def test_a_hang_ends_at_the_timeout(smollm2: Path) -> None:
    engine = ProcessEngine(env={"SPECDEC_FAULTS": "hang=1"}, timeout_s=1.5)
    context = _load(engine, smollm2)
    with pytest.raises(WorkerTimeout, match="--specdec-timeout"):
        engine.request("decode", context=context, tokens=[1], n_predict=4)
    pid = engine.hello()["pid"]
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_interrupt_ends_the_worker(engine: ProcessEngine, smollm2: Path) -> None:
    # A background job of a shell ignores the signal, and Python then leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    pid = engine.hello()["pid"]
    context = _load(engine, smollm2)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.request("decode", context=context, tokens=[1], n_predict=250)
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_worker_ends_with_its_parent_in_the_middle_of_a_native_call(smollm2: Path) -> None:
    program = (
        "import sys\n"
        "from pytest_specdec.engine.process import ProcessEngine\n"
        "e = ProcessEngine()\n"
        f"c = e.request('load', path={str(smollm2)!r}, **{CONTEXT!r})['context']\n"
        "print(e.hello()['pid'], flush=True)\n"
        "e.request('decode', context=c, tokens=[1], n_predict=10**9)\n"
    )
    parent = _spawn(program)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert _gone_within(pid, 10.0)


def _spawn(program: str) -> Any:
    import subprocess

    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)


def _gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such model file"),
        (b"not a model\n" * 50, "could not load"),
        (b"GGUF\x03\x00", "could not load"),
    ],
    ids=["missing", "text", "truncated"],
)
def test_a_bad_file_is_refused_and_the_worker_lives(
    engine: ProcessEngine, tmp_path: Path, content: bytes | None, words: str
) -> None:
    pid = engine.hello()["pid"]
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestRefused, match=words) as caught:
        _load(engine, path)
    assert str(path) in caught.value.message
    assert engine.hello()["pid"] == pid


def test_a_missing_interpreter_names_the_option() -> None:
    with pytest.raises(WorkerUnavailable, match="--specdec-python"):
        ProcessEngine(python="/nowhere/python").hello()


def test_an_interpreter_without_llama_cpp_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('not here')\n")
    engine = ProcessEngine(env={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(WorkerUnavailable, match="pip install"):
        engine.hello()


def test_a_backend_that_is_not_there_is_no_silent_fallback(engine: ProcessEngine, smollm2: Path) -> None:
    if any(device["backend"].lower().startswith("cuda") for device in engine.hello()["devices"]):
        pytest.skip("this machine has CUDA")
    with pytest.raises(RequestRefused, match=r"backend cuda was asked for.*devices here: CPU"):
        _load(engine, smollm2, backend="cuda")


def test_native_prints_do_not_reach_the_answers(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.write(2, b'noise\\n')\n")
    engine = ProcessEngine(env={"PYTHONPATH": str(tmp_path)})
    assert engine.hello()["llama_cpp_python"]
    assert "noise" in engine.last_lines()
    engine.close()


def test_garbage_where_an_answer_is_due_ends_the_worker(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.write(1, b'garbage\\n')\n")
    engine = ProcessEngine(env={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(WorkerDied, match="garbage"):
        engine.hello()


def test_an_unknown_fault_is_refused(smollm2: Path) -> None:
    engine = ProcessEngine(env={"SPECDEC_FAULTS": "nonsense=1"})
    with pytest.raises(RequestRefused, match="known: accept_extra"):
        engine.hello()
    engine.close()
