"""The store: what it writes, merges, refuses and leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.models.describe import ModelFacts
from pytest_specdec.store import BaselineError
from pytest_specdec.store import NoBaseline
from pytest_specdec.store import Store
from pytest_specdec.store import build_identity
from pytest_specdec.store.upkeep import move_anchors

from .samples import DAY
from .samples import PAIR
from .samples import Made
from .samples import curve
from .samples import decode
from .samples import hello
from .samples import leave_candidate
from .samples import machine
from .samples import models
from .samples import one_of_each
from .samples import save
from .samples import speculative


NEW = Made("curve", curve())
OTHER = Made("acceptance", speculative())


def test_everything_measured_comes_back(store: Store) -> None:
    made = one_of_each()
    report = save(store, *made)
    assert report.path == store.root / "lab" / f"{PAIR}.json"
    assert report.added == tuple(sorted(entry.key for entry in made))
    baseline = store.require("lab", PAIR, machine())
    assert (baseline.machine_name, baseline.pair, baseline.path) == ("lab", PAIR, report.path)
    assert baseline.machine == machine()
    assert baseline.models == models()
    for entry in made:
        kept = baseline.get(entry.key)
        assert kept is not None
        assert kept.kind == entry.measurement.kind
        assert kept.settings == {"k": 3, "threads": 2, "ratios": [1, 2]}
        assert kept.used_by == tuple(entry.used_by)
        assert kept.build == build_identity(hello())
        assert kept.recorded == DAY.isoformat()
        if entry.measurement.kind != "verify_curve":
            assert kept.measurement == entry.measurement


def test_times_come_back_to_six_digits(store: Store) -> None:
    save(store, NEW)
    kept = store.require("lab", PAIR).entries["curve"].measurement
    assert isinstance(kept, VerifyCurve)
    assert kept.medians_ms() == pytest.approx(curve().medians_ms(), rel=1e-5)
    assert kept.medians_ms() != curve().medians_ms()


def test_an_unknown_key_is_none(store: Store) -> None:
    save(store, NEW)
    assert store.require("lab", PAIR).get("nothing") is None


def test_facts_of_models_are_taken_as_they_come(store: Store) -> None:
    facts = ModelFacts(
        name="SmolLM2",
        architecture="llama",
        parameters=134_515_008,
        layers=30,
        vocabulary=49_152,
        tensor_types={"Q4_1": 210},
        size=98_000_000,
        sha256="a" * 64,
        tokenizer="gpt2",
        context_length=8192,
        quantisation="Q4_1",
    )
    save(store, NEW, models={"target": facts, "draft": None})
    assert store.require("lab", PAIR).models == {"target": facts.to_json(), "draft": None}
    save(store, OTHER, models={"target": facts})


def test_new_writes_only_what_is_not_there(store: Store) -> None:
    save(store, NEW)
    report = save(store, Made("curve", curve(2.0)), OTHER)
    assert (report.added, report.replaced, report.kept) == (("acceptance",), (), ("curve",))
    kept = store.require("lab", PAIR).entries
    assert kept["curve"].measurement == store.require("lab", PAIR).entries["curve"].measurement
    assert kept["curve"].measurement.to_json()["samples_ms"][0][0][0] == 15.0
    assert "acceptance" in kept


def test_new_without_anything_new_leaves_the_file_untouched(store: Store) -> None:
    path = save(store, NEW, OTHER).path
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    report = save(
        store,
        Made("curve", curve(2.0), used_by=frozenset({"other"})),
        build=build_identity(hello(python="3")),
    )
    assert report.kept == ("curve",)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_all_overwrites_what_is_given_and_nothing_else(store: Store) -> None:
    path = save(store, NEW, OTHER).path
    before = json.loads(path.read_text(encoding="utf-8"))["entries"]["acceptance"]
    again = Made("curve", curve(2.0), used_by=frozenset({"tests/test_other.py::test_other"}))
    report = save(store, again, Made("decode", decode()), update="all")
    assert (report.added, report.replaced, report.kept) == (("decode",), ("curve",), ())
    entry = store.require("lab", PAIR).entries["curve"]
    assert entry.measurement.to_json()["samples_ms"][0][0][0] == 30.0
    assert entry.used_by == ("tests/test_other.py::test_other", "tests/test_pair.py::test_pair")
    assert json.loads(path.read_text(encoding="utf-8"))["entries"]["acceptance"] == before


def test_builds_are_kept_for_the_entries_that_need_them(store: Store) -> None:
    old, new = build_identity(hello()), build_identity(hello(llama_cpp_python="0.4.0"))
    path = save(store, NEW, OTHER, build=old).path
    save(store, NEW, update="all", build=new)
    entries = store.require("lab", PAIR).entries
    assert (entries["curve"].build, entries["acceptance"].build) == (new, old)
    save(store, OTHER, update="all", build=new)
    move_anchors(store, "lab", PAIR)
    assert list(json.loads(path.read_text(encoding="utf-8"))["builds"].values()) == [new]


def test_nothing_to_save_makes_no_file(store: Store) -> None:
    for update in ("new", "all"):
        report = save(store, update=update)
        assert (report.added, report.replaced, report.kept) == ((), (), ())
    assert not store.root.exists()


def test_an_unheard_of_verb_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="update is 'none', expected 'new' or 'all'"):
        save(store, NEW, update="none")


def test_other_hardware_is_refused_with_what_differs(store: Store) -> None:
    save(store, NEW)
    other = machine(cores=64, chip="Intel Xeon")
    words = r"machine .chip AMD EPYC 7763 against Intel Xeon; cores 2 against 64 here.*--specdec-machine=NAME"
    with pytest.raises(BaselineError, match=words) as caught:
        store.load("lab", PAIR, other)
    assert "known machines: lab" in str(caught.value)
    with pytest.raises(BaselineError, match=words):
        save(store, OTHER, machine=other, update="all")
    assert set(store.require("lab", PAIR, machine()).entries) == {"curve"}


def test_soft_facts_may_differ(store: Store) -> None:
    save(store, NEW)
    upgraded = type(machine())(machine().hard, {"kernel": "7.0"})
    assert store.load("lab", PAIR, upgraded) is not None
    save(store, OTHER, machine=upgraded)
    assert store.require("lab", PAIR).machine.soft == {"kernel": "7.0"}


def test_other_model_files_are_refused_for_new_and_taken_for_all(store: Store) -> None:
    save(store, NEW, OTHER)
    with pytest.raises(BaselineError, match=r"other model files .draft SmolLM2.*--specdec-update=all"):
        save(store, Made("decode", decode()), models=models(draft="2"))
    report = save(store, Made("curve", curve(2.0)), models=models(draft="2"), update="all")
    assert report.replaced == ("curve",)
    baseline = store.require("lab", PAIR)
    assert baseline.stale == ("acceptance",)
    assert baseline.models == models(draft="2")
    assert save(store, Made("curve", curve(3.0)), models=models(draft="3")).kept == ("curve",)


def test_a_draft_that_came_or_went_is_another_draft(store: Store) -> None:
    save(store, NEW, models={"target": models()["target"], "draft": None})
    with pytest.raises(BaselineError, match="draft none → SmolLM2 135M Q2_K"):
        save(store, OTHER)


def test_an_unknown_checksum_is_no_other_file(store: Store) -> None:
    unknown = {"target": {**models()["target"], "sha256": None, "size": None}, "draft": None}
    save(store, NEW, models=unknown)
    assert save(store, OTHER, models={"target": models()["target"], "draft": None}).added == ("acceptance",)


def test_missing_baselines_list_what_there_is(store: Store) -> None:
    assert store.load("lab", PAIR) is None
    with pytest.raises(
        NoBaseline, match="no baselines for machine lab, nor any other; record with --specdec-update=new"
    ):
        store.require("lab", PAIR)
    save(store, NEW)
    assert store.load("lab", "other--pair") is None
    with pytest.raises(
        NoBaseline, match=rf"no baseline for the pair other--pair on machine lab .known pairs: {PAIR}\)"
    ):
        store.require("lab", "other--pair")
    assert store.load("mars", PAIR) is None
    with pytest.raises(
        NoBaseline, match=r"no baselines for machine mars .known machines: lab\).*--specdec-machine"
    ):
        store.require("mars", PAIR)


def test_machines_pairs_and_candidates_are_listed(store: Store) -> None:
    assert (store.machines(), store.candidates()) == ((), ())
    save(store, NEW)
    save(store, NEW, pair="a--b", machine_name="attic")
    leave_candidate(store, NEW)
    (store.root / "empty").mkdir()
    (store.root / "lab" / "notes.txt").touch()
    (store.root / "README.md").touch()
    assert store.machines() == ("attic", "lab")
    assert store.pairs("lab") == (PAIR,)
    assert store.pairs("../lab") == ()
    assert [path.name for path in store.candidates()] == [f"lab--{PAIR}.json"]


def test_a_long_list_is_cut(store: Store) -> None:
    for number in range(23):
        (store.root / f"m{number:02}").mkdir(parents=True)
        (store.root / f"m{number:02}" / "a--b.json").touch()
    with pytest.raises(NoBaseline, match="m19 and 3 more"):
        store.require("lab", PAIR)


@pytest.mark.parametrize("name", ["../lab", "", ".hidden", "a/b", "a b", "x" * 101, "lab\n"])
def test_names_that_are_no_file_names_are_refused(store: Store, name: str) -> None:
    with pytest.raises(BaselineError, match=r"machine name .* can't be a file's name"):
        store.load(name, PAIR)
    with pytest.raises(BaselineError, match=r"pair name .* can't be a file's name"):
        store.load("lab", name and name + "x" * 20)
    with pytest.raises(BaselineError, match="machine name"):
        save(store, NEW, machine_name=name)


def test_a_file_under_another_pairs_name_is_refused(store: Store) -> None:
    path = save(store, NEW).path
    path.rename(path.with_name("other--pair.json"))
    with pytest.raises(BaselineError, match=f"holds the pair {PAIR}; rename it to {PAIR}.json"):
        store.load("lab", "other--pair")


def test_a_folder_may_be_renamed(store: Store) -> None:
    save(store, NEW)
    (store.root / "lab").rename(store.root / "cellar")
    assert store.load("cellar", PAIR, machine()) is not None


def test_a_broken_file_is_neither_read_nor_overwritten(store: Store) -> None:
    path = save(store, NEW).path
    broken = path.read_bytes()[:-40]
    path.write_bytes(broken)
    for attempt in (
        lambda: store.load("lab", PAIR),
        lambda: save(store, OTHER),
        lambda: save(store, NEW, update="all"),
    ):
        with pytest.raises(BaselineError, match="is truncated or no JSON"):
            attempt()
    assert path.read_bytes() == broken


def test_a_measurement_that_the_schema_refuses_is_not_written(store: Store) -> None:
    path = save(store, NEW).path
    before = path.read_bytes()
    for value in (float("nan"), float("inf"), -1.0):
        bad = VerifyCurve(n=(1,), samples_ms=(((value,),),))
        with pytest.raises(BaselineError, match="nothing was written"):
            save(store, Made("bad", bad))
    with pytest.raises(BaselineError, match=r"more tokens accepted than drafted.*nothing was written"):
        save(store, Made("bad", speculative(accepted=(9, 1, 0))))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_link_stays_a_link(store: Store, tmp_path: Path) -> None:
    path = save(store, NEW).path
    real = tmp_path / "shared.json"
    path.rename(real)
    path.symlink_to(real)
    save(store, OTHER)
    assert path.is_symlink()
    assert set(store.require("lab", PAIR).entries) == {"curve", "acceptance"}


def test_the_file_holds_neither_folders_nor_lock_files_beside_it(store: Store) -> None:
    path = save(store, NEW, OTHER).path
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_candidate_is_kept_from_git_and_accepted(store: Store) -> None:
    save(store, NEW, OTHER)
    path = leave_candidate(store, Made("curve", curve(2.0)), Made("decode", decode()))
    assert path == store.candidate_path("lab", PAIR) == store.root / ".candidates" / f"lab--{PAIR}.json"
    assert path.with_name(".gitignore").read_text(encoding="utf-8") == "*\n"
    assert set(store.require("lab", PAIR).entries) == {"curve", "acceptance"}
    report = store.accept(path)
    assert (report.path, report.added, report.replaced) == (store.path("lab", PAIR), ("decode",), ("curve",))
    assert store.require("lab", PAIR).entries["curve"].measurement.to_json()["samples_ms"][0][0][0] == 30.0
    assert not path.exists()
    with pytest.raises(NoBaseline, match="no such candidate; known candidates: none"):
        store.accept(path)


def test_a_candidate_takes_the_place_of_the_last_one(store: Store) -> None:
    leave_candidate(store, NEW)
    path = leave_candidate(store, OTHER)
    assert set(json.loads(path.read_text(encoding="utf-8"))["entries"]) == {"acceptance"}
    assert {file.name for file in path.parent.iterdir()} == {".gitignore", path.name}


def test_a_candidate_makes_the_first_baseline_and_may_come_from_elsewhere(
    store: Store, tmp_path: Path
) -> None:
    path = leave_candidate(store, NEW).rename(tmp_path / "artifact.json")
    report = store.accept(path)
    assert report.added == ("curve",)
    assert path.exists()


def test_a_candidate_of_other_hardware_is_refused(store: Store) -> None:
    save(store, NEW)
    path = leave_candidate(store, OTHER, machine=machine(cores=64))
    with pytest.raises(BaselineError, match="cores 2 against 64"):
        store.accept(path)
    assert path.exists()


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys, pytest_specdec.store; print(*({'numpy', 'pandas', 'jsonschema'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
