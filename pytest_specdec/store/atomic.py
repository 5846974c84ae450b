"""Files that are whole at any moment: one writer at a time, and a rename at the end."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_POLL_S = 0.02
_RENAME_TRIES = 10


class Busy(OSError):
    """Another process holds the lock for longer than one waits."""


@contextlib.contextmanager
def exclusive(path: Path, *, timeout: float = 60.0) -> Iterator[None]:
    """Be the only process, and the only thread, that writes `path`; the folder must exist.

    The lock is on a hidden file beside `path`, which goes at the end; one left by a killed process locks
    nothing. Raises `Busy` after `timeout` seconds, other `OSError` where no lock can be had.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = _acquire(lock, timeout)
    try:
        yield
    finally:
        _release(lock, descriptor)


def write(path: Path, content: bytes) -> None:
    """Put `content` in the place of `path`, whole or not at all; call it inside `exclusive`.

    Raises:
        OSError: it can't be written; the old file is as it was.
    """
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        # Of a killed process: whoever writes holds the lock.
        with contextlib.suppress(OSError):
            leftover.unlink()
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666
        )
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _rename(temporary: Path, path: Path) -> None:
    for attempt in range(_RENAME_TRIES):
        try:
            os.replace(temporary, path)
            return
        except PermissionError:
            # Windows refuses while somebody reads the old file.
            if attempt == _RENAME_TRIES - 1:
                raise
            time.sleep(_POLL_S)


def _sync_folder(folder: Path) -> None:
    # The file is in its place; what can't sync a folder (Windows, some network shares) has no say.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _acquire(lock: Path, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # Its last holder may have removed it between the two calls.
            if _try_lock(descriptor) and _is(lock, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() >= deadline:
            raise Busy(errno.EBUSY, f"another process has held {lock.name} for {timeout:g} s")
        time.sleep(_POLL_S)


def _is(lock: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(lock.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


if sys.platform == "win32":

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _release(lock: Path, descriptor: int) -> None:
        os.close(descriptor)
        # Windows keeps a file that the next writer has open.
        with contextlib.suppress(OSError):
            lock.unlink()

else:

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _release(lock: Path, descriptor: int) -> None:
        # While still held, or it could be the next writer's that goes.
        with contextlib.suppress(OSError):
            lock.unlink()
        os.close(descriptor)
