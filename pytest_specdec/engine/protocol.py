"""The interface of an engine: named requests in, plain dictionaries out, and the errors in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import Protocol


class EngineError(Exception):
    """A request that brought no result.

    ``request`` names the request, ``log`` holds the last lines that llama.cpp wrote.
    """

    def __init__(self, message: str, *, request: str = "", log: Sequence[str] = ()) -> None:
        self.message = message
        self.request = request
        self.log = tuple(log)
        super().__init__(message)

    def __str__(self) -> str:
        parts = [self.message]
        if self.request:
            parts.append(f"request: {self.request}")
        if self.log:
            parts.append("last lines of the worker:")
            parts.extend(f"  {line}" for line in self.log)
        return "\n".join(parts)


class WorkerUnavailable(EngineError):
    """The worker could not start: no llama-cpp-python in that interpreter, or an incompatible one."""


class WorkerDied(EngineError):
    """The process ended while it worked: an abort, a signal, an out-of-memory kill.

    ``native`` says that its own code brought it down, an abort or a memory fault; memory that ran out, and
    what came from outside, say nothing of that code.
    """

    def __init__(
        self, message: str, *, native: bool = False, request: str = "", log: Sequence[str] = ()
    ) -> None:
        self.native = native
        super().__init__(message, request=request, log=log)


class WorkerTimeout(EngineError):
    """No answer within the time-out; the process was ended."""


class RequestRefused(EngineError):
    """The worker lives and says why it can't: a bad file, a full context, a refused decode.

    ``code`` is a stable word for the reason ("load", "decode", "rollback", "vocabulary", "request").
    """

    def __init__(self, message: str, *, code: str, request: str = "", log: Sequence[str] = ()) -> None:
        self.code = code
        super().__init__(message, request=request, log=log)


class Engine(Protocol):
    """Something that answers requests about llama.cpp."""

    def hello(self) -> dict[str, Any]:
        """Versions, build identity, system info and devices."""
        ...

    def request(self, op: str, /, **params: Any) -> dict[str, Any]:
        """Answer one request.

        Raises:
            EngineError: no result; the subclass says how.
        """
        ...

    def close(self) -> None:
        """End the engine; may be called twice."""
        ...
