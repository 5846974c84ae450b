"""One writer at a time, whole files, and the system's errors in our words."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from pytest_specdec.store import atomic
from pytest_specdec.store.document import check
from pytest_specdec.store.document import render
from pytest_specdec.store.errors import BaselineError
from pytest_specdec.store.migrate import Document


_NOT_WRITTEN = "nothing was written; please report this as a fault of pytest-specdec"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, in a folder made when missing, and turn the system's errors into our own.

    Raises:
        BaselineError: the folder or the file can't be written, or another process holds the lock.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.exclusive(path):
            yield
    except atomic.Busy as error:
        raise BaselineError(
            path, f"is being written ({error.strerror})", "wait for that run to end"
        ) from None
    except OSError as error:
        remedy = "make the folder writable, or name another with --specdec-baseline-dir"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "make room on the disk"
        problem = f"can't be written ({error.strerror or error}) and was left as it is"
        raise BaselineError(path, problem, f"{remedy}, then run again") from None


def put(path: Path, document: Document) -> None:
    """Write a document that holds what it must; call it inside `writing`.

    Raises:
        BaselineError: it doesn't hold that; nothing was written.
        OSError: it can't be written; the old file is as it was.
    """
    check(document, path, _NOT_WRITTEN)
    try:
        content = render(document).encode("utf-8")
    except ValueError as error:
        raise BaselineError(path, f"would hold what JSON can't ({error})", _NOT_WRITTEN) from None
    # Through a link, or the rename would put a file in the link's place.
    atomic.write(path.resolve() if path.is_symlink() else path, content)


def keep_from_git(folder: Path) -> None:
    """Let git ignore a folder whose files are of this checkout only; call it inside `writing`."""
    ignore = folder / ".gitignore"
    if not ignore.exists():
        atomic.write(ignore, b"*\n")
