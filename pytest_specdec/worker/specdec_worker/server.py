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

from specdec_worker.errors import Refused


def serve(requests: BinaryIO, answers: BinaryIO) -> NoReturn:
    """Answer JSON lines until the request pipe closes; each answer carries its request's id.

    The pipe is read in a thread of its own, so that a closed pipe (the plugin is done, or dead) ends the
    process at once, also in the middle of a native call.
    """
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    session: Any = None
    while True:
        request = json.loads(lines.get())
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            if session is None:
                session = _start()
            answer["result"] = session.answer(request["op"], request["params"])
        except Refused as refused:
            answer.update(code=refused.code, error=refused.message)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            answer.update(code="internal", error=f"{type(error).__name__}: {error}")
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _read(requests: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    for line in requests:
        lines.put(line)
    # Native teardown can hang or abort, and there is nothing left to save.
    os._exit(0)


def _start() -> Any:
    from specdec_worker.session import Session

    return Session()
