"""Whatever happens while a baseline is written, the file is whole, and nobody's entries are lost."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.store import BaselineError
from pytest_specdec.store import Store
from pytest_specdec.store import atomic
from pytest_specdec.store.history import Green
from pytest_specdec.store.history import append
from pytest_specdec.store.upkeep import move_anchors
from pytest_specdec.store.upkeep import note_unused
from pytest_specdec.store.upkeep import remove

from .samples import PAIR
from .samples import Made
from .samples import curve
from .samples import leave_candidate
from .samples import save
from .samples import speculative


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

OLD = Made("old", curve())
NEW = Made("new", speculative())


def prune(store: Store) -> object:
    return remove(store, "lab", PAIR, [NEW.key])


def move(store: Store) -> object:
    return move_anchors(store, "lab", PAIR)


def accept(store: Store) -> object:
    return store.accept(store.candidate_path("lab", PAIR), anchor=True)


def replace_all(store: Store) -> object:
    return save(store, Made("old", curve(1.1)), update="all")


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a copy of this process; its wait status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(call: Callable[..., object]) -> Callable[..., object]:
    """The call, then sudden death."""

    def deadly(*args: object, **kwargs: object) -> None:
        call(*args, **kwargs)
        kill_self()

    return deadly


def before(_: Callable[..., object]) -> Callable[..., object]:
    """Sudden death in place of the call."""
    return lambda *args, **kwargs: kill_self()


def halfway(call: Callable[..., object]) -> Callable[..., object]:
    """Half of what is to be written, then sudden death."""

    def deadly(descriptor: int, content: memoryview) -> None:
        call(descriptor, content[: len(content) // 2])
        kill_self()

    return deadly


@forks
@pytest.mark.parametrize(
    ("name", "death", "survives"),
    [
        ("open", after, "old"),
        ("write", before, "old"),
        ("write", halfway, "old"),
        ("write", after, "old"),
        ("fsync", before, "old"),
        ("replace", before, "old"),
        ("replace", after, "new"),
    ],
)
def test_death_at_any_step_leaves_the_old_file_or_the_new_one(
    name: str,
    death: Callable[[Callable[..., object]], Callable[..., object]],
    survives: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save(store, OLD)
    monkeypatch.setattr(os, name, death(getattr(os, name)))
    status = in_child(lambda: save(store, NEW))
    monkeypatch.undo()
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (NEW.key in store.require("lab", PAIR).entries) is (survives == "new")
    # The dead process' lock and leftovers are in nobody's way, and go with the next save.
    report = save(store, Made("next", curve()))
    assert report.added == ("next",)
    assert [file.name for file in report.path.parent.iterdir()] == [report.path.name]
    assert OLD.key in store.require("lab", PAIR).entries


@forks
@pytest.mark.parametrize(("name", "death"), [("write", halfway), ("replace", before), ("replace", after)])
@pytest.mark.parametrize("work", [prune, move, accept, replace_all])
def test_nothing_that_rewrites_a_file_can_leave_half_of_it(
    work: Callable[[Store], object],
    name: str,
    death: Callable[[Callable[..., object]], Callable[..., object]],
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = save(store, OLD, NEW).path
    save(store, OLD, NEW, update="all")
    candidate = leave_candidate(store, OLD, NEW)
    old = path.read_bytes()
    work(store)
    new = path.read_bytes()
    path.write_bytes(old)
    leave_candidate(store, OLD, NEW)
    monkeypatch.setattr(os, name, death(getattr(os, name)))
    assert os.WTERMSIG(in_child(lambda: work(store))) == signal.SIGKILL
    monkeypatch.undo()
    assert old != new
    assert path.read_bytes() == (new if death is after else old)
    # A candidate goes when it is in, not before.
    assert candidate.exists()


@forks
@pytest.mark.parametrize("name", ["open", "write", "fsync", "replace"])
def test_ctrl_c_at_any_step_leaves_the_old_file_and_nothing_beside_it(
    name: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(store, OLD).path
    content = path.read_bytes()
    call = getattr(os, name)

    def interrupted(*args: object, **kwargs: object) -> object:
        if name == "open" and not str(args[0]).endswith(".tmp"):
            return call(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGINT)
        return call(*args, **kwargs)

    def work() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        monkeypatch.setattr(os, name, interrupted)
        try:
            save(store, NEW)
        except KeyboardInterrupt:
            os._exit(7)

    assert os.waitstatus_to_exitcode(in_child(work)) == 7
    entries = set(store.require("lab", PAIR).entries)
    assert entries == {"old"} if name != "replace" else entries <= {"old", "new"}
    assert name == "replace" or path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def deaths(folder: Path, count: int, name: str) -> list[dict[str, Any]]:
    """What was found after each of so many deaths by a signal."""
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "store.crashes", str(folder), str(count), name],
        env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == count
    return told


def assert_whole(told: list[dict[str, Any]], folder: Path) -> None:
    """Every file could be read after every death, lost nothing that was in it, and is written as ever."""
    assert [one for one in told if "error" in one] == []
    assert all(one["first"] for one in told)
    for what in ("entries", "lines"):
        counts = [one[what] for one in told]
        assert counts == sorted(counts)
        # The processes did get to write before they died.
        assert counts[-1] > 0
    store = Store(folder)
    save(store, NEW)
    append(store.history_path("lab"), [Green("2026-03-14T09:26:53Z", PAIR, "build", "0.1.0", {})])
    assert {file.name for file in (folder / "lab").iterdir()} == {f"{PAIR}.json", "history.jsonl"}


@forks
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_deaths_at_random_moments_leave_valid_files_that_only_grow(name: str, tmp_path: Path) -> None:
    told = deaths(tmp_path / "baselines", 10, name)
    assert_whole(told, tmp_path / "baselines")
    # A line that a kill cuts off spoils no other.
    assert told[-1]["damaged"] <= (len(told) if name == "SIGKILL" else 0)


def start(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


@forks
def test_two_processes_at_once_lose_nothing(store: Store) -> None:
    def work(name: str) -> None:
        for number in range(8):
            save(store, Made(f"{name} {number}", speculative()))

    children = [start(lambda name=name: work(name)) for name in ("one", "two")]  # type: ignore[misc]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    entries = store.require("lab", PAIR).entries
    assert set(entries) == {f"{name} {number}" for name in ("one", "two") for number in range(8)}


def test_what_another_run_wrote_since_is_merged(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, OLD)
    inside = atomic.exclusive

    def late(path: Path) -> object:
        monkeypatch.setattr(atomic, "exclusive", inside)
        save(store, Made("meanwhile", curve()))
        return inside(path)

    monkeypatch.setattr(atomic, "exclusive", late)
    save(store, NEW)
    assert set(store.require("lab", PAIR).entries) == {"old", "meanwhile", "new"}


def test_threads_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    inside = []

    def work() -> None:
        for _ in range(10):
            with atomic.exclusive(path):
                inside.append("in")
                time.sleep(0.001)
                inside.append("out")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == ["in", "out"] * 30
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_its_last_holder_removes_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / ".file.lock"
    take = atomic._try_lock
    taken: list[int] = []

    def late(descriptor: int) -> bool:
        if not taken:
            lock.unlink()
        taken.append(descriptor)
        return take(descriptor)

    monkeypatch.setattr(atomic, "_try_lock", late)
    with atomic.exclusive(tmp_path / "file"):
        assert lock.exists()
    assert len(taken) == 2


def test_a_lock_that_is_never_freed_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(store, OLD).path
    patient = atomic.exclusive
    monkeypatch.setattr(atomic, "exclusive", lambda path: patient(path, timeout=0.05))
    with (
        patient(path),
        pytest.raises(BaselineError, match=r"is being written .another process has held .*wait for"),
    ):
        save(store, NEW)
    assert set(store.require("lab", PAIR).entries) == {"old"}


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("write", errno.ENOSPC, "No space left on device.*was left as it is; make room on the disk"),
        ("fsync", errno.ENOSPC, "No space left on device.*make room on the disk"),
        ("fsync", errno.EIO, "was left as it is; make the folder writable, or name another"),
        ("replace", errno.EROFS, "Read-only file system.*--specdec-baseline-dir"),
    ],
)
def test_a_disk_that_refuses_leaves_the_old_file(
    name: str, code: int, words: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(store, OLD).path
    content = path.read_bytes()

    def refuse(*args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, refuse)
    attempts: list[Callable[[], object]] = [
        lambda: save(store, NEW),
        lambda: save(store, OLD, update="all"),
        lambda: leave_candidate(store, NEW),
    ]
    for attempt in attempts:
        with pytest.raises(BaselineError, match=words):
            attempt()
    monkeypatch.undo()
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert store.candidates() == ()
    assert save(store, NEW).added == ("new",)


def test_a_write_that_comes_in_pieces_is_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write

    def piece(descriptor: int, content: memoryview) -> int:
        return whole(descriptor, content[:100])

    monkeypatch.setattr(os, "write", piece)
    save(store, OLD)
    assert store.require("lab", PAIR).get("old") is not None


@forks
def test_pruning_and_recording_at_once_lose_nothing(store: Store) -> None:
    save(store, *[Made(f"idle {number}", speculative()) for number in range(6)])

    def recording() -> None:
        for number in range(6):
            save(store, Made(f"new {number}", speculative()))

    def pruning() -> None:
        for number in range(6):
            remove(store, "lab", PAIR, [f"idle {number}"])

    children = [start(recording), start(pruning)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert set(store.require("lab", PAIR).entries) == {f"new {number}" for number in range(6)}


@forks
def test_a_file_that_may_not_grow_leaves_the_old_one(store: Store) -> None:
    import resource

    path = save(store, OLD).path
    content = path.read_bytes()

    def crowded() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) + 100, len(content) + 100))
        with pytest.raises(BaselineError, match=r"File too large.*make room on the disk"):
            save(store, NEW)

    assert in_child(crowded) == 0
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_rename_that_windows_refuses_for_a_moment_is_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    rename = os.replace

    def busy(source: Path, target: Path) -> None:
        tries.append(target)
        if len(tries) < 3:
            raise PermissionError(errno.EACCES, "in use")
        rename(source, target)

    monkeypatch.setattr(os, "replace", busy)
    save(store, OLD)
    assert len(tries) == 3
    tries.clear()
    monkeypatch.setattr(atomic, "_RENAME_TRIES", 2)
    with pytest.raises(BaselineError, match=r"can't be written .in use"):
        save(store, NEW)


@pytest.mark.skipif(os.name == "nt", reason="Windows folders have no such permission")
def test_a_read_only_folder_is_read_but_not_written(as_ordinary_user: Path) -> None:
    store = Store(as_ordinary_user / "baselines")
    path = save(store, OLD).path
    content = path.read_bytes()
    path.parent.chmod(0o500)
    store.root.chmod(0o500)
    assert store.load("lab", PAIR) is not None
    assert save(store, OLD).kept == ("old",)
    for attempt in (
        lambda: save(store, NEW),
        lambda: save(store, OLD, update="all"),
        lambda: save(store, NEW, machine_name="attic"),
        lambda: leave_candidate(store, NEW),
        lambda: remove(store, "lab", PAIR, ["old"]),
        lambda: move_anchors(store, "lab", PAIR),
        lambda: note_unused(store, "lab", PAIR, ["old"]),
    ):
        with pytest.raises(
            BaselineError, match=r"Permission denied.*make the folder writable.*--specdec-baseline-dir"
        ):
            attempt()
    assert path.read_bytes() == content


@pytest.mark.skipif(os.name == "nt", reason="Windows folders have no such permission")
def test_a_folder_that_may_not_be_listed_is_an_error(as_ordinary_user: Path) -> None:
    store = Store(as_ordinary_user / "baselines")
    save(store, OLD)
    store.root.chmod(0)
    for attempt in (store.machines, lambda: store.load("lab", PAIR)):
        with pytest.raises(BaselineError, match=r"can't be read.*check its permissions"):
            attempt()


def test_a_root_that_is_a_file_is_an_error(store: Store) -> None:
    store.root.touch()
    with pytest.raises(BaselineError, match=r"can't be (read|written)"):
        save(store, OLD)
