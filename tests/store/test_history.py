"""The history of green runs: lines are whole, come back in order, and damaged ones are named."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from pathlib import Path

import pytest

from pytest_specdec.store import BaselineError
from pytest_specdec.store import Store
from pytest_specdec.store.history import MAX_LINE
from pytest_specdec.store.history import Damaged
from pytest_specdec.store.history import Green
from pytest_specdec.store.history import append
from pytest_specdec.store.history import moment
from pytest_specdec.store.history import read

from .samples import PAIR
from .samples import Made
from .samples import curve
from .samples import save


def green(number: int = 0, **figures: float) -> Green:
    at = f"2026-03-14T09:26:{number:02}Z"
    return Green(at, PAIR, "0.3.36-0c1e57098-ab", "0.1.0", {"speed k=3": figures or {"speedup": 1.25}})


def lines(path: Path) -> list[Green | Damaged]:
    return list(read(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lab" / "history.jsonl"


def test_runs_come_back_in_order(path: Path) -> None:
    assert lines(path) == []
    append(path, [green(1), green(2)])
    append(path, [])
    append(path, [green(3)])
    assert lines(path) == [green(1), green(2), green(3)]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_nothing_to_append_makes_no_file(path: Path) -> None:
    append(path, [])
    assert not path.parent.exists()


def test_a_line_says_what_it_is_in_plain_json(path: Path) -> None:
    append(path, [green(0, speedup=1 / 3)])
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "version": 1,
        "at": "2026-03-14T09:26:00Z",
        "pair": PAIR,
        "build": "0.3.36-0c1e57098-ab",
        "plugin": "0.1.0",
        "figures": {"speed k=3": {"speedup": 0.333333}},
    }


def test_figures_keep_their_order(path: Path) -> None:
    append(path, [green(0, **{"T(2) ms": 1.0, "T(10) ms": 2.0, "T(1) ms": 3.0})])
    (run,) = lines(path)
    assert isinstance(run, Green)
    assert list(run.figures["speed k=3"]) == ["T(2) ms", "T(10) ms", "T(1) ms"]


def test_moments_are_utc() -> None:
    there = timezone(timedelta(hours=2))
    assert moment(datetime(2026, 3, 14, 1, 2, 3, 999, there)) == "2026-03-13T23:02:03Z"
    assert abs(datetime.strptime(moment(), "%Y-%m-%dT%H:%M:%S%z") - datetime.now(UTC)) < timedelta(minutes=1)


def test_what_a_killed_process_left_is_ended_and_named(path: Path) -> None:
    append(path, [green(1)])
    with path.open("ab") as file:
        file.write(b'{"version": 1, "at": "2026-')
    append(path, [green(2)])
    assert lines(path) == [green(1), Damaged(2, "is truncated or no JSON"), green(2)]


GOOD = json.dumps(green().to_json())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is truncated or no JSON"),
        ("[" * 100_000, "is truncated or no JSON"),
        ("\ufffd\x00", "is truncated or no JSON"),
        ("9" * 5000, "is truncated or no JSON"),
        ("3", "is no run"),
        ("{}", "is no run: it needs version, figures, at, build, pair, plugin"),
        (GOOD.replace('"version": 1', '"version": 2'), "was written by a newer pytest-specdec (version 2)"),
        (GOOD.replace('"version": 1', '"version": "1"'), "is no run: it needs"),
        (GOOD.replace(f'"{PAIR}"', "null"), "is no run: it needs"),
        (GOOD.replace("09:26:00Z", "half past nine"), "has no moment such as"),
        (GOOD.replace("1.25", "NaN"), "has figures that are no finite numbers"),
        (GOOD.replace("1.25", "1e999"), "has figures that are no finite numbers"),
        (GOOD.replace("1.25", "9" * 400), "has figures that are no finite numbers"),
        (GOOD.replace("1.25", "true"), "has figures that are no finite numbers"),
        (GOOD.replace('{"speedup": 1.25}', "1.25"), "has figures that are no finite numbers"),
        ('"' + "x" * (3 * MAX_LINE) + '"', "is longer than 1,048,576 bytes"),
    ],
)
def test_a_damaged_line_is_told_and_the_others_are_read(path: Path, line: str, problem: str) -> None:
    path.parent.mkdir()
    path.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n", encoding="utf-8")
    first, damaged, last = lines(path)
    assert first == last == green()
    assert isinstance(damaged, Damaged)
    assert damaged.line == 3
    assert damaged.problem.startswith(problem)


@pytest.mark.parametrize("name", ["write", "fsync"])
def test_a_full_disk_leaves_the_file_as_it_was(
    path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, [green(1)])
    before = path.read_bytes()
    whole = os.write

    def refuse(descriptor: int, *content: bytes) -> int:
        if content and len(content[0]) > 10:
            return whole(descriptor, content[0][:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, refuse)
    with pytest.raises(BaselineError, match=r"No space left on device.*was left as it is; make room"):
        append(path, [green(2)])
    monkeypatch.undo()
    assert path.read_bytes() == before
    append(path, [green(3)])
    assert lines(path) == [green(1), green(3)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_two_processes_at_once_mix_no_lines(path: Path) -> None:
    path.parent.mkdir()
    children = []
    for child in range(2):
        pid = os.fork()
        if pid == 0:
            for number in range(20):
                append(path, [green(number, child=child), green(number, child=child)])
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    found = lines(path)
    assert len(found) == 80
    for child in range(2):
        mine = [run for run in found if isinstance(run, Green) and run.figures["speed k=3"]["child"] == child]
        assert [run.at for run in mine] == sorted(run.at for run in mine)
        assert len(mine) == 40


def test_a_folder_that_may_not_be_written_is_an_error(as_ordinary_user: Path) -> None:
    path = as_ordinary_user / "lab" / "history.jsonl"
    append(path, [green(1)])
    path.chmod(0o400)
    with pytest.raises(BaselineError, match=r"Permission denied.*make the folder writable"):
        append(path, [green(2)])
    path.chmod(0)
    with pytest.raises(BaselineError, match=r"can't be read.*check its permissions"):
        lines(path)


def test_it_is_no_baseline_and_no_machine(store: Store) -> None:
    append(store.history_path("attic"), [green()])
    save(store, Made("curve", curve()))
    assert (store.machines(), store.histories()) == (("lab",), ("attic",))
