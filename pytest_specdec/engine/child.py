"""A child process behind its pipes: threads read and write them, so that no wait is without an end."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import IO
from typing import Final


LOG_LINES: Final = 12
RING_LINES: Final = 400
# Longer lines are cut in pieces: a stream without line ends must not take all memory.
LONGEST_ANSWER: Final = 2**28
LONGEST_LOG_LINE: Final = 2**16
# How long a child whose pipe is closed may take to end by itself.
GRACE_S: Final = 2.0
# How long to wait for what follows a child's end at once: a kill, the last words.
END_S: Final = 5.0
_RUNNING: Final[set[int]] = set()


class Child:
    """A process that takes lines on its standard input and answers with lines on its standard output.

    The last lines of its standard error are kept here, where they outlive it. It leads a process group.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            OSError: it can't be started.
        """
        self._parent = os.getpid()
        self._suspended = False
        # An interrupted join takes a thread for ended that is not.
        self._ended = threading.Event()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ring: collections.deque[str] = collections.deque(maxlen=RING_LINES)
        self._process = self._born(command, env)
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._writer = _thread(self._write, self._process.stdin)
        self._logger = _thread(self._read_log, self._process.stderr)

    @property
    def inherited(self) -> bool:
        """Whether a fork brought it here: it is the child of another process."""
        return self._parent != os.getpid()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    def send(self, line: bytes) -> None:
        """Hand over a line to write; the child may take its time, or never read it."""
        self._lines.put(line)

    def answer(self, timeout_s: float) -> bytes | None:
        """Return the next line, or None where the pipe is closed.

        Raises:
            queue.Empty: none came in time.
        """
        return self._answers.get(timeout=max(0.0, timeout_s))

    def last_lines(self, count: int = LOG_LINES) -> tuple[str, ...]:
        """Return the last lines it wrote to its standard error."""
        return tuple(list(self._ring)[-count:])

    def status(self, within_s: float) -> int | None:
        """Return how it ended, as `subprocess` counts (a signal is negative); None where it lives on."""
        if not self._ended.wait(within_s):
            return None
        # The last words are still on their way.
        self._logger.join(END_S)
        return self._process.returncode

    def suspend(self) -> None:
        """Stop it where the platform can."""
        if hasattr(signal, "SIGSTOP") and not self._suspended:
            self._suspended = self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self._suspended:
            self._signal(signal.SIGCONT)
        self._suspended = False

    def end(self) -> None:
        """End it: by closing its pipe, by force where that doesn't help."""
        # A stopped process can't end by itself.
        self.resume()
        self._lines.put(None)
        try:
            self._ended.wait(GRACE_S)
        finally:
            self._kill()
        for thread in (self._keeper, self._writer, self._logger):
            thread.join(END_S)

    def _born(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        born: queue.SimpleQueue[subprocess.Popen[bytes] | Exception] = queue.SimpleQueue()

        def keep() -> None:
            # To Linux a process's parent is the thread that started it; its end would end the process.
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=env,
                    process_group=0 if os.name == "posix" else None,
                )
            except Exception as error:
                born.put(error)
                return
            _RUNNING.add(process.pid)
            born.put(process)
            self._read_answers(process)
            _wait(process)
            _RUNNING.discard(process.pid)
            self._ended.set()

        self._keeper = _thread(keep)
        try:
            found = born.get()
        except BaseException:
            if not isinstance(late := born.get(), Exception):
                late.kill()
            raise
        if isinstance(found, Exception):
            raise found
        return found

    def _read_answers(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            with process.stdout as stream:
                line = stream.readline(LONGEST_ANSWER)
                # What a death cut off is no answer.
                while line.endswith(b"\n") or len(line) == LONGEST_ANSWER:
                    self._answers.put(line)
                    line = stream.readline(LONGEST_ANSWER)
        finally:
            self._answers.put(None)

    def _read_log(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(LONGEST_LOG_LINE):
                self._ring.append(line.decode("utf-8", "replace").rstrip())

    def _write(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError), stream:
            while (line := self._lines.get()) is not None:
                stream.write(line)
                stream.flush()
        # It may have closed this pipe alone.
        self._answers.put(None)

    def _signal(self, number: int) -> bool:
        """Send a signal to it and what it started; say whether it was there to get it."""
        # Until it is known to have ended, its number is no other process's.
        if self.alive:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)
                return True
        return False

    def _kill(self) -> None:
        if not self.alive:
            return
        if os.name == "posix":
            self._signal(signal.SIGKILL)
        else:
            with contextlib.suppress(OSError):
                self._process.kill()


def running() -> tuple[int, ...]:
    """Return the process ids of the children that this process has running."""
    return tuple(sorted(_RUNNING))


def _thread(target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True, name="specdec-worker")
    thread.start()
    return thread


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process, and leave nothing that it started."""
    if sys.platform == "linux":
        # Until it is waited for, its number stays its group's.
        with contextlib.suppress(OSError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
