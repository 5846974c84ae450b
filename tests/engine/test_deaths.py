"""Every way in which a worker ends or falls silent is one error with its last words; the next request works.

The worker is a stand-in of a few lines, so that each death is exactly the one meant.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
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
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.engine.protocol import WorkerTimeout
from pytest_specdec.engine.protocol import WorkerUnavailable


pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and scripts of POSIX")

LINUX = sys.platform == "linux"
WORDS = "GGML_ASSERT(n < 8) failed"
STAND_IN = """
import ctypes, json, os, signal, subprocess, sys, time

def read():
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return json.loads(line)

def answer(request, **result):
    print(json.dumps({"id": request["id"], "result": {"pid": os.getpid(), **result}}), flush=True)

def write(data):
    os.write(1, data)

def serve():
    while True:
        answer(read())

first = not os.path.exists(MARK)
open(MARK, "w").close()
os.write(2, b"WORDS\\n")
if first:
    THEN
serve()
"""

Make = Callable[..., ProcessEngine]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Maker of engines whose first worker runs some lines, and whose next ones only answer."""
    made: list[ProcessEngine] = []
    monkeypatch.setattr(child, "GRACE_S", 0.3)
    monkeypatch.setattr(process, "DEATH_S", 1.0)

    def engine(then: str, **options: Any) -> ProcessEngine:
        stem = tmp_path / f"worker{len(made)}"
        program = STAND_IN.replace("MARK", repr(str(stem.with_suffix(".mark")))).replace("WORDS", WORDS)
        body = textwrap.indent(textwrap.dedent(then).strip(), "    ").strip()
        stem.with_suffix(".py").write_text(program.replace("THEN", body), encoding="utf-8")
        stem.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{stem}.py" "$@"\n', encoding="utf-8")
        stem.chmod(0o755)
        made.append(ProcessEngine(python=str(stem), **options))
        return made[-1]

    yield engine
    for one in made:
        one.close()


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether a process ends in time; one that nobody waited for is no process any more."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if LINUX and state(pid) == "Z":
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)


def state(pid: int) -> str:
    """The letter that Linux gives a process's state; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def held() -> tuple[int, int, tuple[int, ...]]:
    """Open files, threads and workers of this process."""
    files = len(os.listdir("/dev/fd"))
    return files, threading.active_count(), workers()


DEATHS: dict[str, tuple[str, type[EngineError], str]] = {
    "abort": (
        "read(); os.abort()",
        WorkerDied,
        "the worker was ended by SIGABRT before its first answer: llama.cpp aborted, its last lines say "
        "where",
    ),
    "segfault": (
        "answer(read()); read(); ctypes.string_at(0)",
        WorkerDied,
        "the worker was ended by SIGSEGV: a memory fault in native code",
    ),
    "bus": (
        "answer(read()); read(); os.kill(os.getpid(), signal.SIGBUS)",
        WorkerDied,
        "the worker was ended by SIGBUS: a memory fault in native code, or a model file that was cut short "
        "while in use",
    ),
    "illegal instruction": (
        "os.kill(os.getpid(), signal.SIGILL)",
        WorkerDied,
        "the worker was ended by SIGILL before its first answer: its llama.cpp was built for processors with "
        "instructions that this one lacks",
    ),
    "terminated": (
        "answer(read()); read(); os.kill(os.getpid(), signal.SIGTERM)",
        WorkerDied,
        "the worker was ended by SIGTERM: from outside",
    ),
    "bad_alloc": (
        'answer(read()); read(); os.write(2, b"  what():  std::bad_alloc\\n"); os.abort()',
        WorkerDied,
        "the worker was ended by SIGABRT: memory ran out",
    ),
    "exit": ("answer(read()); read(); os._exit(3)", WorkerDied, "the worker exited with status 3"),
    "closed answers": (
        "answer(read()); read(); os.close(1); time.sleep(60)",
        WorkerDied,
        "the worker closed its pipe and lived on: it was ended",
    ),
    "closed requests": (
        "last = read(); os.close(0); answer(last); time.sleep(60)",
        WorkerDied,
        "the worker closed its pipe and lived on: it was ended",
    ),
    "cut off": (
        'answer(read()); read(); write(b\'{"id": 2, "resu\'); os.kill(os.getpid(), signal.SIGSEGV)',
        WorkerDied,
        "the worker was ended by SIGSEGV: a memory fault in native code",
    ),
    "hang": (
        "answer(read()); time.sleep(60)",
        WorkerTimeout,
        "no answer within 0.5 s: the worker was ended. A machine under load needs a larger --specdec-timeout",
    ),
    "hang that ignores signals": (
        """
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        answer(read())
        ctypes.PyDLL(None).sleep(60)
        """,
        WorkerTimeout,
        "no answer within 0.5 s: the worker was ended. A machine under load needs a larger --specdec-timeout",
    ),
    "stopped from outside": (
        "answer(read()); read(); os.kill(os.getpid(), signal.SIGSTOP)",
        WorkerTimeout,
        "no answer within 0.5 s: the worker was ended. A machine under load needs a larger --specdec-timeout",
    ),
}


@pytest.mark.parametrize(("then", "kind", "told"), DEATHS.values(), ids=DEATHS)
def test_a_death_is_one_error_and_the_next_request_works(
    make: Make, then: str, kind: type[EngineError], told: str
) -> None:
    before = held()
    engine = make(then, timeout_s=0.5 if kind is WorkerTimeout else 30.0)
    pids: list[int] = []

    def ask() -> None:
        pids.append(engine.hello()["pid"])
        pids.extend(workers())
        engine.request("forward", tokens=list(range(99)), rows="all")

    with pytest.raises(kind) as caught:
        ask()
    error = caught.value
    assert error.message == told
    assert getattr(error, "native", False) == ("native code" in told or "llama.cpp aborted" in told)
    assert error.request == ("forward(tokens=[99 values], rows='all')" if pids else "hello()")
    assert WORDS in error.log
    assert not engine.started
    assert all(gone(pid, 0.0) for pid in pids)
    assert held() == before
    assert engine.hello()["pid"] not in pids
    assert engine.generation == 2
    engine.close()
    assert held() == before


GARBAGE: dict[str, bytes] = {
    "text": b"llama_decode: failed\n",
    "bytes": b"\x00\xff\xfe\n",
    "empty": b"\n",
    "null": b"null\n",
    "number": b"5\n",
    "list": b"[]\n",
    "deep": b"[" * 100_000 + b"\n",
    "object": b"{}\n",
    "another request's": b'{"id": 7, "result": {}}\n',
    "no result": b'{"id": 1}\n',
    "result of another type": b'{"id": 1, "result": [1]}\n',
    "half an error": b'{"id": 1, "code": "load"}\n',
    "no text": b'{"id": 1, "code": "load", "error": null}\n',
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_answer_ends_the_worker(make: Make, data: bytes) -> None:
    engine = make(f"read(); data = {data!r}; write(data); time.sleep(60)")
    with pytest.raises(WorkerDied) as caught:
        engine.hello()
    assert caught.value.message == f"the worker wrote {data[:80]!r} where an answer was due: it was ended"
    assert caught.value.log == (WORDS,)
    assert engine.hello()["pid"]


def test_a_line_without_end_does_not_take_all_memory(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LONGEST_ANSWER", 1000)
    engine = make("read()\nwhile True: write(b'x' * 4096)")
    with pytest.raises(WorkerDied, match="where an answer was due"):
        engine.hello()
    assert engine.hello()["pid"]


def test_a_request_longer_than_the_pipe_waits_for_no_reader(make: Make) -> None:
    engine = make("answer(read()); time.sleep(60)", timeout_s=0.5)
    engine.hello()
    with pytest.raises(WorkerTimeout, match=r"^no answer within 0\.5 s"):
        engine.request("forward", tokens=list(range(200_000)))
    assert engine.request("forward", tokens=list(range(200_000)))["pid"]


def test_a_slow_start_has_a_limit_of_its_own(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make("time.sleep(1.0)", timeout_s=0.2).hello()["pid"]
    monkeypatch.setattr(process, "START_TIMEOUT_S", 0.3)
    engine = make("time.sleep(60)", timeout_s=0.2)
    with pytest.raises(WorkerTimeout) as caught:
        engine.hello()
    assert caught.value.message.startswith(f"{engine._python} did not start a worker within 0.3 s")
    monkeypatch.setattr(process, "START_TIMEOUT_S", 60.0)
    assert engine.hello()["pid"]


@pytest.mark.parametrize("suspended", [False, True])
def test_a_death_between_requests_is_told_as_such(make: Make, suspended: bool) -> None:
    engine = make("pass")
    pid = engine.hello()["pid"]
    if suspended:
        engine.suspend()
    os.kill(pid, signal.SIGSEGV if not suspended else signal.SIGKILL)
    wait_for(lambda: not workers())
    with pytest.raises(WorkerDied, match=r"^the worker was ended by SIG\w+ between two requests"):
        engine.request("forward")
    assert engine.hello()["pid"] != pid


@pytest.mark.parametrize(
    ("count", "told"),
    [
        ("oom_kill 3\n", "from outside"),
        ("oom_kill 4\n", "the system ended it because memory ran out"),
        ("", "from outside, or by the system because memory ran out"),
    ],
)
def test_a_kill_by_the_system_is_told_from_one_by_others(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: str, told: str
) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text("nr_free_pages 1\noom_kill 3\n", encoding="ascii")
    monkeypatch.setattr(process, "VMSTAT", counters)
    engine = make("answer(read()); read(); os.kill(os.getpid(), signal.SIGKILL)")
    engine.hello()
    counters.write_text("nr_free_pages 1\n" + count, encoding="ascii")
    with pytest.raises(WorkerDied) as caught:
        engine.request("forward")
    assert caught.value.message == f"the worker was ended by SIGKILL: {told}"


def test_the_newest_lines_are_kept(make: Make) -> None:
    engine = make("read()\nfor n in range(20_000): os.write(2, b'line %d\\n' % n)\nos.abort()")
    with pytest.raises(WorkerDied) as caught:
        engine.hello()
    assert caught.value.log == tuple(f"line {n}" for n in range(20_000 - child.LOG_LINES, 20_000))
    assert engine.last_lines(1) == ("line 19999",)


@pytest.mark.skipif(not LINUX, reason="elsewhere what a worker started lives on")
def test_what_a_worker_started_ends_with_it(make: Make) -> None:
    engine = make(
        """
        other = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        answer(read(), other=other.pid)
        read()
        os._exit(1)
        """
    )
    other = engine.hello()["other"]
    with pytest.raises(WorkerDied, match="status 1"):
        engine.request("forward")
    assert gone(other)


def test_an_interpreter_that_is_none_names_the_option() -> None:
    with pytest.raises(WorkerDied) as caught:
        ProcessEngine(python="/bin/true" if os.path.exists("/bin/true") else "/usr/bin/true").hello()
    assert "exited with status 0 before its first answer: check the interpreter" in caught.value.message
    assert "--specdec-python" in caught.value.message


def test_an_environment_that_no_process_takes_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="null byte"):
        ProcessEngine(env={"NAME": "a\0b"}).hello()


def test_an_interrupt_while_it_ends_leaves_no_process(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "GRACE_S", 30.0)
    engine = make("answer(read()); ctypes.PyDLL(None).sleep(60)")
    pid = engine.hello()["pid"]
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert gone(pid)
    assert not engine.started


def test_a_suspended_worker_uses_no_processor_and_a_request_resumes_it(make: Make) -> None:
    psutil = pytest.importorskip("psutil")
    engine = make(
        """
        import threading
        threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
        """
    )
    pid = engine.hello()["pid"]
    one = psutil.Process(pid)

    def spent() -> float:
        start = sum(one.cpu_times()[:2])
        time.sleep(0.5)
        return float(sum(one.cpu_times()[:2]) - start)

    assert spent() > 0
    engine.suspend()
    wait_for(lambda: one.status() == psutil.STATUS_STOPPED)
    assert spent() == 0
    assert engine.request("forward")["pid"] == pid
    assert one.status() != psutil.STATUS_STOPPED
    engine.suspend()
    engine.suspend()
    engine.resume()
    wait_for(lambda: one.status() != psutil.STATUS_STOPPED)
    engine.suspend()
    engine.close()
    assert gone(pid, 0.0)


def test_another_thread_may_have_started_the_worker(make: Make) -> None:
    engine = make("pass")
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(engine.hello()["pid"]))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert [engine.request("forward")["pid"]] == pids


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# What a pytest does with a worker, told in a line; with `forks`, a process that holds its pipes outlives it.
PLUGIN = """
import json, os, sys, time
from pytest_specdec.engine.process import ProcessEngine
engine = ProcessEngine(python=sys.argv[1])
pid = engine.hello()["pid"]
if "suspended" in sys.argv:
    engine.suspend()
other = os.fork() if "forks" in sys.argv else 0
if "forks" in sys.argv and other == 0:
    time.sleep(60)
print(json.dumps([os.getpid(), pid, other]), flush=True)
if "leaves" in sys.argv:
    sys.exit()
time.sleep(60)
"""
# A parent of that which takes in the children of its children and shares their session: to the kernel a
# stopped process group is no orphan then, so that it wakes nobody.
SUBREAPER = """
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)
subprocess.Popen([sys.executable, "-W", "ignore", "-c", *sys.argv[1:]])
time.sleep(60)
"""
# The worker's own way to end with its parent, before the stand-in.
BOUND = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("bound", sys.argv[1] + "/__main__.py")
bound = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bound)
bound._end_with_parent()
"""


def plugin(engine: ProcessEngine, *words: str, parent: bool = False) -> tuple[Any, int, int, int]:
    """Start a process that starts a worker; it, its number, the worker's, that of its fork."""
    script = Path(f"{engine._python}.py")
    script.write_text(BOUND + script.read_text(encoding="utf-8"), encoding="utf-8")
    told = [PLUGIN, engine._python, *words]
    command = ["-c", SUBREAPER, *told] if parent else ["-W", "ignore", "-c", *told]
    started = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE)
    assert started.stdout is not None
    own, worker, fork = json.loads(started.stdout.readline())
    return started, own, worker, fork


@pytest.mark.parametrize("frozen", [False, True], ids=["answers", "frozen"])
@pytest.mark.parametrize("words", [("suspended",), (), ("suspended", "leaves")], ids=" ".join)
@pytest.mark.parametrize(
    "parent",
    [
        False,
        pytest.param(True, marks=pytest.mark.skipif(not LINUX, reason="prctl of Linux")),
    ],
    ids=["orphan", "kept"],
)
def test_a_worker_ends_with_its_plugin(
    make: Make, words: tuple[str, ...], frozen: bool, parent: bool
) -> None:
    if frozen and not LINUX:
        pytest.skip("a process that runs nothing any more only Linux ends")
    engine = make("answer(read()); ctypes.PyDLL(None).sleep(60)" if frozen else "pass")
    started, own, worker, _ = plugin(engine, *words, parent=parent)
    try:
        if "leaves" not in words:
            os.kill(own, signal.SIGKILL)
        assert gone(worker)
    finally:
        end(started, worker)


@pytest.mark.skipif(not LINUX, reason="prctl of Linux")
def test_a_pipe_that_a_fork_holds_keeps_no_worker(make: Make) -> None:
    started, own, worker, fork = plugin(make("pass"), "forks")
    try:
        os.kill(own, signal.SIGKILL)
        assert gone(worker)
        assert state(fork) != ""
    finally:
        end(started, worker, fork)


def end(started: Any, *pids: int) -> None:
    for pid in pids:
        if not gone(pid, 0.05):
            os.kill(pid, signal.SIGKILL)
    started.kill()
    started.wait()
    started.stdout.close()


def test_a_forked_process_starts_a_worker_of_its_own(make: Make) -> None:
    engine = make("pass")
    program = """
import json, os, sys
from pytest_specdec.engine.process import ProcessEngine
engine = ProcessEngine(python=sys.argv[1], timeout_s=20.0)
first = engine.hello()["pid"]
read, write = os.pipe()
if os.fork() == 0:
    other = engine.request("forward")["pid"]
    engine.close()
    os.write(write, b"%d" % other)
    os._exit(0)
os.close(write)
other = int(os.read(read, 20))
os.wait()
print(json.dumps([first, other, engine.request("forward")["pid"]]))
engine.close()
"""
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, engine._python], check=True, capture_output=True
    )
    first, other, again = json.loads(told.stdout)
    assert first == again
    assert other not in (first, 0)
    assert gone(other)


def test_a_refusal_at_the_start_ends_the_worker(make: Make) -> None:
    engine = make(
        """
        told = {"id": read()["id"], "code": "import", "error": "nothing to import"}
        print(json.dumps(told), flush=True)
        """
    )
    with pytest.raises(WorkerUnavailable) as caught:
        engine.hello()
    assert caught.value.message == "nothing to import"
    assert not engine.started
