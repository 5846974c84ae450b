"""The worker program: JSON lines in on its standard input, JSON lines out on its standard output.

Both pipes are moved to private descriptors before anything native is loaded; afterwards whatever prints to
standard output lands on standard error, where the plugin keeps the last lines.
"""

import os
import sys
from typing import BinaryIO


OLDEST = (3, 9)
# linux/prctl.h
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the request pipe closes."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.version_info < OLDEST:
        _refuse(requests, answers)
        return
    _end_with_parent()
    # numpy's own threads would wait for each other beside llama.cpp's, which spin between two passes.
    for library in ("OPENBLAS", "MKL", "BLIS"):
        os.environ.setdefault("%s_NUM_THREADS" % library, "1")
    os.environ.setdefault("VECLIB_MAXIMUM_THREADS", "1")

    from specdec_worker import server

    server.serve(requests, answers)


def _refuse(requests: BinaryIO, answers: BinaryIO) -> None:
    """Say that this Python is too old, in words that it understands."""
    import json

    error = "the worker needs Python %d.%d or newer, and %s is %d.%d" % (
        *OLDEST,
        sys.executable,
        *sys.version_info[:2],
    )
    answer = {"id": json.loads(requests.readline().decode())["id"], "code": "import", "error": error}
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _end_with_parent() -> None:
    """Let Linux end this process with the plugin's: the closed pipe reaches nobody in one that is stopped."""
    if sys.platform == "linux":
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
