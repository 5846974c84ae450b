"""One measurement at a time on this machine, across processes and users."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


_POLL_S = 0.1


def default_path() -> Path:
    """Return the lock's file, the same for every user of this machine."""
    return Path(tempfile.gettempdir()) / "pytest-specdec.lock"


@contextmanager
def exclusive(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on a file; `waiting` is called once when another process has it.

    The lock ends with the process that holds it, however that ends.
    """
    descriptor = _open(path)
    try:
        if not _taken(descriptor):
            waiting()
            while not _taken(descriptor):
                time.sleep(_POLL_S)
        try:
            yield
        finally:
            _release(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    # Another user's file in a sticky folder can be read and locked, but not opened with O_CREAT.
    try:
        return os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    except FileNotFoundError:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


if sys.platform == "win32":
    import msvcrt

    def _taken(descriptor: int) -> bool:
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _release(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _taken(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _release(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
