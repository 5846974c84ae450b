"""Requests by name: what each takes, and what it answers."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from typing import Any
from typing import BinaryIO
from typing import NoReturn

from specdec_worker import deaths
from specdec_worker import faults
from specdec_worker.errors import Refused


def serve(requests: BinaryIO, answers: BinaryIO) -> NoReturn:
    """Answer JSON lines until the request pipe closes; each answer carries its request's id.

    The pipe is read in a thread of its own, so that a closed pipe (the plugin is done, or dead) ends the
    process at once, also in the middle of a native call.
    """
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    session: Any = None
    try:
        while True:
            request = json.loads(lines.get())
            answer: dict[str, Any] = {"id": request["id"]}
            try:
                if session is None:
                    deaths.begin(faults.read(), answers)
                    session = _start()
                answer["result"] = session.answer(request["op"], request["params"])
                line = json.dumps(answer)
            except Exception as error:
                line = json.dumps({"id": request["id"], **_refusal(error)})
            answers.write(line.encode() + b"\n")
            answers.flush()
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
        # Native teardown can hang or abort, and there is nothing left to save.
        os._exit(1)


def _read(requests: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    for line in requests:
        lines.put(line)
    os._exit(0)


def _start() -> Any:
    from specdec_worker.session import Session

    return Session()


def _refusal(error: Exception) -> dict[str, str]:
    """Say why a request has no result: in words of its own, or with a traceback in the log."""
    if isinstance(error, Refused):
        return {"code": error.code, "error": error.message}
    traceback.print_exc(file=sys.stderr)
    sys.stderr.flush()
    if isinstance(error, MemoryError):
        return {
            "code": "memory",
            "error": "memory ran out in the worker: a smaller n_ctx or model needs less",
        }
    return {"code": "internal", "error": f"{type(error).__name__}: {error}"}
