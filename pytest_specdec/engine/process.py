"""The client of the worker process: requests over private pipes, and every way in which they can fail."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_specdec.engine.protocol import EngineError
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.engine.protocol import WorkerTimeout
from pytest_specdec.engine.protocol import WorkerUnavailable


WORKER = Path(__file__).resolve().parent.parent / "worker"
LOG_LINES = 12
RING_LINES = 400
# Long enough for a loaded machine to import numpy and llama_cpp.
START_TIMEOUT_S = 180.0
_END = object()


class ProcessEngine:
    """One worker process, started at the first request and after each death."""

    def __init__(
        self,
        *,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        self._python = python or sys.executable
        self._env = dict(env or {})
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[Any] = queue.Queue()
        self._ring: collections.deque[str] = collections.deque(maxlen=RING_LINES)
        self._threads: list[threading.Thread] = []
        self._id = 0
        self.generation = 0

    def hello(self) -> dict[str, Any]:
        """Versions, build identity, system info and devices of the worker's llama.cpp."""
        return self.request("hello")

    def request(self, op: str, /, **params: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            RequestRefused: the worker says why not, and lives.
            WorkerDied: the process ended; the next request starts another.
            WorkerTimeout: no answer in time; the process was ended.
            WorkerUnavailable: it could not start.
        """
        fresh = self._process is None
        if fresh:
            self._start()
        self._id += 1
        what = _summary(op, params)
        line = json.dumps({"id": self._id, "op": op, "params": params}).encode() + b"\n"
        timeout = max(self._timeout_s, START_TIMEOUT_S) if fresh else self._timeout_s
        try:
            answer = self._exchange(line, timeout, what)
        except RequestRefused:
            raise
        except BaseException:
            # Ctrl-C, a test's time-out, a death: an answer still to come would be taken for the next one's.
            self.close()
            raise
        return answer

    def close(self) -> None:
        """End the process and forget it."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            # The closed pipe ends a worker that can still run a thread.
            process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
        for thread in self._threads:
            thread.join(timeout=5.0)
        for output in (process.stdout, process.stderr):
            if output is not None:
                output.close()
        self._threads = []

    def last_lines(self, count: int = LOG_LINES) -> tuple[str, ...]:
        """The last lines the worker wrote to its standard error."""
        return tuple(list(self._ring)[-count:])

    def _start(self) -> None:
        env = {**os.environ, "GGML_NO_BACKTRACE": "1", **self._env}
        options: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
        self._answers = queue.Queue()
        self._ring.clear()
        try:
            process = subprocess.Popen(
                [self._python, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                **options,
            )
        except OSError as error:
            raise WorkerUnavailable(
                f"the interpreter {self._python} could not be started: {error}; check --specdec-python"
            ) from None
        self._process = process
        self.generation += 1
        self._threads = [
            threading.Thread(target=_read_answers, args=(process.stdout, self._answers), daemon=True),
            threading.Thread(target=_read_log, args=(process.stderr, self._ring), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _exchange(self, line: bytes, timeout_s: float, what: str) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except OSError:
            raise self._death(process, what) from None
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                raw = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                log = self.last_lines()
                raise WorkerTimeout(
                    f"no answer within {timeout_s:g} s: the worker was ended. A machine under load needs "
                    "a larger --specdec-timeout",
                    request=what,
                    log=log,
                ) from None
            if raw is _END:
                raise self._death(process, what)
            try:
                answer = json.loads(raw)
            except ValueError:
                raise WorkerDied(
                    f"the worker wrote {raw[:80]!r} where an answer was due: it was ended",
                    request=what,
                    log=self.last_lines(),
                ) from None
            if answer.get("id") == self._id:
                break
        if "result" in answer:
            result: dict[str, Any] = answer["result"]
            return result
        if answer["code"] == "import":
            self.close()
            raise WorkerUnavailable(answer["error"], request=what)
        raise RequestRefused(answer["error"], code=answer["code"], request=what, log=self.last_lines(6))

    def _death(self, process: subprocess.Popen[bytes], what: str) -> EngineError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10.0)
        # The log thread ends with the pipe; the last words of an abort are the newest lines.
        self._threads[1].join(timeout=5.0)
        code = process.returncode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was ended by {_signal_name(-code)}"
        else:
            how = f"exited with status {code}"
        hint = ""
        if code == -signal.SIGABRT:
            hint = ": llama.cpp aborted, its last lines say where"
        elif os.name == "posix" and code == -signal.SIGKILL:
            hint = ": killed from outside, by the system when memory ran out"
        return WorkerDied(f"the worker {how}{hint}", request=what, log=self.last_lines())


def _summary(op: str, params: Mapping[str, Any]) -> str:
    shown = []
    for name, value in params.items():
        if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 8:
            shown.append(f"{name}=[{len(value)} values]")
        else:
            shown.append(f"{name}={value!r}")
    return f"{op}({', '.join(shown)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.kill()


def _read_answers(stream: Any, answers: queue.Queue[Any]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in stream:
            answers.put(line)
    answers.put(_END)


def _read_log(stream: Any, ring: collections.deque[str]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in stream:
            ring.append(line.decode("utf-8", "replace").rstrip())
