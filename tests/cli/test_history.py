"""``specdec history``: figures over time, what changed, and what damaged files do to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_specdec.cli import main
from pytest_specdec.store import Store
from pytest_specdec.store.history import Green
from pytest_specdec.store.history import append


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "baselines")


def green(
    at: int, pair: str = "a--b", build: str = "0.3.36-ab", plugin: str = "0.1.0", **more: float
) -> Green:
    figures = {"speed k=3": {"speedup": 1.25 + at / 100, "pairs": 8, **more}}
    return Green(f"2026-03-{at:02}T09:00:00Z", pair, build, plugin, figures)


def specdec(store: Store, *arguments: str) -> int:
    return main(["history", *arguments, "--baseline-dir", str(store.root)])


def test_it_shows_what_changed_and_when(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    append(
        store.history_path("lab"),
        [
            green(1),
            green(2),
            green(3, build="0.3.37-cd", extra=0.5),
            green(4, build="0.3.37-cd", plugin="0.2.0"),
            green(1, pair="other--b"),
        ],
    )
    assert specdec(store, "a--b") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "other--b" not in captured.out
    rows = [line.split() for line in captured.out.splitlines()]
    assert rows[0] == ["a--b", "on", "lab"]
    assert rows[2] == ["speed", "k=3"]
    assert rows[3] == ["when", "(UTC)", "speedup", "pairs", "extra", "changed"]
    assert rows[4] == [
        *("2026-03-01T09:00:00Z", "1.26", "8", "-", "build", "0.3.36-ab;", "pytest-specdec", "0.1.0")
    ]
    assert rows[5] == ["2026-03-02T09:00:00Z", "1.27", "8", "-"]
    assert rows[6] == ["2026-03-03T09:00:00Z", "1.28", "8", "0.5", "build", "0.3.36-ab", "→", "0.3.37-cd"]
    assert rows[7][4:] == ["pytest-specdec", "0.1.0", "→", "0.2.0"]


def test_machines_and_pairs_are_told_apart(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    append(store.history_path("lab"), [green(1), green(1, pair="c--d")])
    append(store.history_path("attic"), [green(2)])
    assert specdec(store) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if " on " in line]
    assert titles == ["a--b on attic", "a--b on lab", "c--d on lab"]
    assert specdec(store, "--machine", "attic") == 0
    assert "lab" not in capsys.readouterr().out


def test_json_has_every_run(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    append(store.history_path("lab"), [green(1), green(2, build="x")])
    assert specdec(store, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == [{"machine": "lab", **run.to_json()} for run in (green(1), green(2, build="x"))]


def test_damaged_lines_are_named_and_skipped(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    path = store.history_path("lab")
    append(path, [green(1)])
    with path.open("a", encoding="utf-8") as file:
        file.write('{"version": 1, "at": 3}\nnonsense\n')
    append(path, [green(2)])
    assert specdec(store) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"specdec: {path}:2: is no run: it needs version, figures, at, build, pair, plugin; skipped",
        f"specdec: {path}:3: is truncated or no JSON; skipped",
    ]
    assert captured.out.count("2026-03-") == 2


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_nothing_but_damage_is_no_answer(
    store: Store, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path = store.history_path("lab")
    path.parent.mkdir(parents=True)
    path.write_text("nonsense\n", encoding="utf-8")
    assert specdec(store, *arguments) == 2
    assert "lab/history.jsonl:1: is truncated or no JSON; skipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no history of green runs; keep it with pytest --specdec-history=true"),
        (("--machine", "mars"), "no history of green runs of machine mars; known machines: lab"),
        (("x--y",), "no green run of the pair x--y is kept; known pairs: a--b"),
        (("--machine", "../lab"), "machine name '../lab' can't be a file's name"),
    ],
)
def test_what_there_is_not_is_bad_usage(
    store: Store, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments:
        append(store.history_path("lab"), [green(1)])
    assert specdec(store, *arguments) in (2, 3)
    assert words in capsys.readouterr().err


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[31m"
    line = Green("2026-03-01T09:00:00Z", evil, evil, evil, {evil: {evil: 1.0}})
    append(store.history_path("lab"), [line])
    assert specdec(store) == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


def test_a_file_that_is_none_is_told(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.history_path("lab").mkdir(parents=True)
    assert specdec(store, "--machine", "lab") == 2
    assert "can't be read (Is a directory)" in capsys.readouterr().err
