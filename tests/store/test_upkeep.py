"""Pruning: what a run did not use is noted, and entries go with their reason, and only on demand."""

from __future__ import annotations

import json
from datetime import date

import pytest

from pytest_specdec.store import BaselineError
from pytest_specdec.store import Store
from pytest_specdec.store import build_identity
from pytest_specdec.store.upkeep import Unused
from pytest_specdec.store.upkeep import note_path
from pytest_specdec.store.upkeep import note_unused
from pytest_specdec.store.upkeep import note_used
from pytest_specdec.store.upkeep import reasons
from pytest_specdec.store.upkeep import remove
from pytest_specdec.store.upkeep import unused

from .samples import DAY
from .samples import PAIR
from .samples import Made
from .samples import curve
from .samples import hello
from .samples import models
from .samples import save
from .samples import speculative


A, B = Made("a", curve()), Made("b", speculative())


def test_a_note_comes_back_and_git_ignores_it(store: Store) -> None:
    assert unused(store, "lab", PAIR) == Unused()
    note_unused(store, "lab", PAIR, ["b", "a"], day=DAY)
    assert unused(store, "lab", PAIR) == Unused(("a", "b"), DAY.isoformat())
    path = note_path(store, "lab", PAIR)
    assert path.with_name(".gitignore").read_text(encoding="utf-8") == "*\n"
    assert {file.name for file in path.parent.iterdir()} == {path.name, ".gitignore"}
    # Neither machines nor candidates are made of it.
    assert (store.machines(), store.candidates()) == ((), ())


def test_a_later_run_replaces_it_and_a_part_takes_out_what_it_used(store: Store) -> None:
    note_used(store, "lab", PAIR, ["a"])
    assert not store.root.exists()
    note_unused(store, "lab", PAIR, ["a", "b", "c"], day=DAY)
    note_used(store, "lab", PAIR, ["b", "z"])
    assert unused(store, "lab", PAIR) == Unused(("a", "c"), DAY.isoformat())
    before = note_path(store, "lab", PAIR).stat().st_mtime_ns
    note_used(store, "lab", PAIR, ["z"])
    assert note_path(store, "lab", PAIR).stat().st_mtime_ns == before
    note_unused(store, "lab", PAIR, [], day=DAY)
    assert unused(store, "lab", PAIR).keys == ()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "\x00",
        "{" * 20_000,
        '{"unused": ["a"]}',
        '{"day": "2026-03-14", "unused": "a"}',
        '{"day": "2026-03-14", "unused": [1]}',
        '{"day": "someday", "unused": []}',
        '{"day": 3, "unused": []}',
        '{"day": NaN, "unused": []}',
    ],
)
def test_a_note_that_is_none_says_what_to_do(store: Store, content: str) -> None:
    path = note_path(store, "lab", PAIR)
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BaselineError, match="delete it; the next full run writes it anew"):
        unused(store, "lab", PAIR)


def test_entries_are_found_with_their_reasons(store: Store) -> None:
    save(store, A, B)
    save(store, Made("c", curve()), day=date(2026, 3, 20))
    save(store, A, models=models(draft="2"), day=date(2026, 3, 20), update="all")
    baseline = store.require("lab", PAIR)
    assert reasons(baseline) == {}
    assert reasons(baseline, stale=True) == {
        "b": "measured with another model file",
        "c": "measured with another model file",
    }
    idle = Unused(("gone", "b", "a"), "2026-03-21")
    assert reasons(baseline, last_run=idle, stale=True) == {
        "a": "not used by any test of the last full run",
        "b": "not used by any test of the last full run, measured with another model file",
        "c": "measured with another model file",
    }
    today = date(2026, 3, 30)
    assert reasons(baseline, older_than=16, today=today) == {}
    assert reasons(baseline, older_than=15, today=today) == {"b": "recorded 2026-03-14"}
    assert set(reasons(baseline, older_than=0, today=today)) == {"a", "b", "c"}


def test_entries_go_and_take_their_builds_along(store: Store) -> None:
    old, new = build_identity(hello()), build_identity(hello(llama_cpp_python="0.4.0"))
    path = save(store, A, build=old).path
    save(store, B, build=new)
    kept = json.loads(path.read_text(encoding="utf-8"))["entries"]["b"]
    assert remove(store, "lab", PAIR, ["a", "nothing"]) == ("a",)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["entries"] == {"b": kept}
    assert [build["llama_cpp_python"] for build in document["builds"].values()] == ["0.4.0"]
    before = path.stat().st_mtime_ns
    assert remove(store, "lab", PAIR, ["a"]) == ()
    assert path.stat().st_mtime_ns == before
    assert remove(store, "lab", PAIR, ["b"]) == ("b",)
    assert not path.exists()
    assert remove(store, "lab", PAIR, ["b"]) == ()


def test_a_broken_baseline_is_left_as_it_is(store: Store) -> None:
    path = save(store, A).path
    path.write_text("{", encoding="utf-8")
    with pytest.raises(BaselineError, match="is truncated or no JSON"):
        remove(store, "lab", PAIR, ["a"])
    assert path.read_text(encoding="utf-8") == "{"
