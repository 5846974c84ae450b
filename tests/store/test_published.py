"""The bundled baseline is what its tables make, and machines are found by name and by folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_specdec.store import BaselineError
from pytest_specdec.store import NoBaseline
from pytest_specdec.store import Store
from pytest_specdec.store import load_file
from pytest_specdec.store.published import PUBLISHED
from pytest_specdec.store.published import machine_baselines

from . import published
from .samples import PAIR
from .samples import one_of_each
from .samples import save


def test_the_file_is_what_the_tables_make() -> None:
    assert published.PATH.read_text(encoding="utf-8") == published.text()


def test_everything_in_it_says_that_it_was_published() -> None:
    entries = load_file(published.PATH).entries.values()
    assert {entry.measurement.source for entry in entries} == {"published"}
    assert {entry.kind for entry in entries} == {
        "draft_cost",
        "ledger",
        "speculative",
        "speed",
        "verify_curve",
    }


def test_a_published_machine_is_found_by_its_name() -> None:
    name, (baseline,) = machine_baselines(published.MACHINE)
    assert name == published.MACHINE
    assert baseline.pair == published.PAIR
    assert baseline.machine.hard["chip"] == "Apple M5 Pro"


def test_any_machine_is_found_by_its_folder(tmp_path: Path) -> None:
    save(Store(tmp_path), *one_of_each())
    name, (baseline,) = machine_baselines(str(tmp_path / "lab"))
    assert (name, baseline.pair) == ("lab", PAIR)


def test_a_folder_of_a_published_name_is_written_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Store(tmp_path), *one_of_each(), machine_name=published.MACHINE)
    monkeypatch.chdir(tmp_path)
    assert machine_baselines(published.MACHINE)[1][0].pair == published.PAIR
    assert machine_baselines(f"./{published.MACHINE}")[1][0].pair == PAIR


def test_what_is_no_machine_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        NoBaseline, match=f"neither a published machine nor a folder; .*: {published.MACHINE}$"
    ):
        machine_baselines("apple-m9")
    save(Store(tmp_path), *one_of_each())
    with pytest.raises(NoBaseline, match=r"no baselines of its own; give one of its machines: lab$"):
        machine_baselines(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoBaseline, match="no baselines of its own; published machines: "):
        machine_baselines(str(tmp_path / "empty"))


def test_a_damaged_baseline_is_refused(tmp_path: Path) -> None:
    save(Store(tmp_path), *one_of_each())
    (tmp_path / "lab" / f"{PAIR}.json").write_text("{")
    with pytest.raises(BaselineError, match="truncated"):
        machine_baselines(str(tmp_path / "lab"))


def test_published_machines_lie_in_the_suite() -> None:
    assert Store(PUBLISHED).machines() == (published.MACHINE,)
