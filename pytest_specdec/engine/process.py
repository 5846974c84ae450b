"""The client of the worker process: requests over private pipes, and every way in which they can fail."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_specdec.engine.child import LOG_LINES
from pytest_specdec.engine.child import Child
from pytest_specdec.engine.child import running
from pytest_specdec.engine.protocol import EngineError
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.engine.protocol import WorkerTimeout
from pytest_specdec.engine.protocol import WorkerUnavailable


WORKER = Path(__file__).resolve().parent.parent / "worker"
# Long enough for a loaded machine to import numpy and llama_cpp.
START_TIMEOUT_S = 180.0
# How long after its pipe a process may take to end.
DEATH_S = 5.0
# The kernel's count of processes that it ended for want of memory.
VMSTAT = Path("/proc/vmstat")
HINTS = {
    "SIGABRT": "llama.cpp aborted, its last lines say where",
    "SIGSEGV": "a memory fault in native code",
    "SIGBUS": "a memory fault in native code, or a model file that was cut short while in use",
    "SIGILL": "its llama.cpp was built for processors with instructions that this one lacks",
    "SIGTERM": "from outside",
}
NATIVE = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE")
NO_MEMORY = "memory ran out"
SIGKILL_UNCOUNTED = "from outside, or by the system because memory ran out"


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
        self._child: Child | None = None
        self._last_lines: tuple[str, ...] = ()
        self._oom_kills: int | None = None
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
        child = self._own_child()
        fresh = child is None
        if child is None:
            child = self._start()
        self._id += 1
        what = _summary(op, params)
        line = json.dumps({"id": self._id, "op": op, "params": params}).encode() + b"\n"
        try:
            if not fresh and not child.alive:
                raise self._death(child, what, "between two requests")
            child.resume()
            child.send(line)
            return self._answer(child, fresh, what)
        except RequestRefused:
            raise
        except BaseException:
            # Ctrl-C, a test's time-out, a death: an answer still to come would be taken for the next one's.
            self.close()
            raise

    def close(self) -> None:
        """End the process and forget it."""
        child, self._child = self._own_child(), None
        if child is not None:
            child.end()
            self._last_lines = child.last_lines()

    @property
    def started(self) -> bool:
        """Whether there is a process, with what was loaded into it."""
        return self._own_child() is not None

    def suspend(self) -> None:
        """Stop the process where the platform can: idle threads of llama.cpp spin. A request resumes it."""
        if (child := self._own_child()) is not None:
            child.suspend()

    def resume(self) -> None:
        """Let a suspended process go on."""
        if (child := self._own_child()) is not None:
            child.resume()

    def last_lines(self, count: int = LOG_LINES) -> tuple[str, ...]:
        """The last lines the worker wrote to its standard error; after its end, the last of those."""
        child = self._own_child()
        return self._last_lines[-count:] if child is None else child.last_lines(count)

    def _own_child(self) -> Child | None:
        # A forked process has the parent's pipes, and none of the threads that read them.
        if self._child is not None and self._child.inherited:
            self._child = None
        return self._child

    def _start(self) -> Child:
        env = {**os.environ, "GGML_NO_BACKTRACE": "1", **self._env}
        self._oom_kills = _oom_kills()
        try:
            self._child = Child([self._python, str(WORKER)], env)
        except OSError as error:
            raise WorkerUnavailable(
                f"the interpreter {self._python} could not be started: {error}; check --specdec-python"
            ) from None
        self.generation += 1
        return self._child

    def _answer(self, child: Child, fresh: bool, what: str) -> dict[str, Any]:
        timeout_s = max(self._timeout_s, START_TIMEOUT_S) if fresh else self._timeout_s
        try:
            raw = child.answer(timeout_s)
        except queue.Empty:
            late = f"{self._python} did not start a worker" if fresh else "no answer"
            raise WorkerTimeout(
                f"{late} within {timeout_s:g} s: the worker was ended. A machine under load needs "
                "a larger --specdec-timeout",
                request=what,
                log=child.last_lines(),
            ) from None
        if raw is None:
            raise self._death(child, what, "before its first answer" if fresh else "")
        answer = self._read(raw)
        if answer is None:
            # Its last words would be late otherwise.
            child.end()
            raise WorkerDied(
                f"the worker wrote {raw[:80]!r} where an answer was due: it was ended",
                request=what,
                log=child.last_lines(),
            )
        if "result" in answer:
            result: dict[str, Any] = answer["result"]
            return result
        if answer["code"] == "import":
            raise WorkerUnavailable(answer["error"], request=what)
        raise RequestRefused(answer["error"], code=answer["code"], request=what, log=child.last_lines(6))

    def _read(self, raw: bytes) -> dict[str, Any] | None:
        """The answer to the request under way; None where it isn't one."""
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            return None
        if not isinstance(answer, dict) or answer.get("id") != self._id:
            return None
        refusal = isinstance(answer.get("code"), str) and isinstance(answer.get("error"), str)
        return answer if isinstance(answer.get("result"), dict) or refusal else None

    def _death(self, child: Child, what: str, when: str) -> EngineError:
        status = child.status(DEATH_S)
        log = child.last_lines()
        native = False
        if status is None:
            how, why = "closed its pipe and lived on: it was ended", ""
        elif status < 0:
            name = _signal_name(-status)
            how, why = f"was ended by {name}", self._why(name, log)
            native = name in NATIVE and why != NO_MEMORY
        else:
            how = f"exited with status {status}"
            why = f"check the interpreter {self._python}, --specdec-python" if when and not log else ""
        told = " ".join(filter(None, ("the worker", how, when)))
        return WorkerDied(": ".join(filter(None, (told, why))), native=native, request=what, log=log)

    def _why(self, name: str, log: Sequence[str]) -> str:
        if name == "SIGABRT" and any("std::bad_alloc" in line for line in log):
            return NO_MEMORY
        if name == "SIGKILL":
            before, after = self._oom_kills, _oom_kills()
            if before is None or after is None:
                return SIGKILL_UNCOUNTED
            return "the system ended it because memory ran out" if after > before else "from outside"
        return HINTS.get(name, "")


def workers() -> tuple[int, ...]:
    """Return the process ids of all workers that this process has running."""
    return running()


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


def _oom_kills() -> int | None:
    with contextlib.suppress(OSError):
        if found := re.search(r"^oom_kill (\d+)$", VMSTAT.read_text(encoding="ascii"), re.MULTILINE):
            return int(found[1])
    return None
