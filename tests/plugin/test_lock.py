"""One holder at a time, in this process and in others, however the holder ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pytest_specdec.lock import exclusive


HOLD = """
import sys, time
from pathlib import Path
from pytest_specdec.lock import exclusive

with exclusive(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    sys.stdin.read(1)
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def take(path: Path) -> tuple[threading.Thread, threading.Event, threading.Event]:
    waiting, held = threading.Event(), threading.Event()

    def run() -> None:
        with exclusive(path, waiting.set):
            held.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, waiting, held


@pytest.mark.parametrize("kill", [False, True])
def test_it_waits_for_another_process(holder: subprocess.Popen[str], tmp_path: Path, kill: bool) -> None:
    thread, waiting, held = take(tmp_path / "lock")
    assert waiting.wait(10)
    assert not held.wait(0.3)
    if kill:
        holder.kill()
    holder.communicate("x" if not kill else None)
    assert held.wait(10)
    thread.join()


def test_a_free_lock_does_not_wait(tmp_path: Path) -> None:
    for _ in range(2):
        with exclusive(tmp_path / "lock", lambda: pytest.fail("waited for nobody")):
            pass


def test_it_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), exclusive(tmp_path / "lock", lambda: None):
        raise ZeroDivisionError
    with exclusive(tmp_path / "lock", lambda: pytest.fail("waited for nobody")):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_file_that_may_only_be_read_will_do(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(0o444)
    with exclusive(tmp_path / "lock", lambda: pytest.fail("waited for nobody")):
        pass
