"""The anchor: what an entry held first stays beside what takes its place, until it is moved on purpose."""

from __future__ import annotations

import json
from datetime import date

import pytest

from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.store import Anchor
from pytest_specdec.store import BaselineError
from pytest_specdec.store import Entry
from pytest_specdec.store import NoBaseline
from pytest_specdec.store import Store
from pytest_specdec.store import build_identity
from pytest_specdec.store.upkeep import move_anchors

from .samples import DAY
from .samples import PAIR
from .samples import Made
from .samples import curve
from .samples import hello
from .samples import leave_candidate
from .samples import models
from .samples import one_of_each
from .samples import save
from .samples import speculative


SECOND, THIRD = date(2026, 4, 1), date(2026, 5, 1)


def entry(store: Store, key: str = "curve") -> Entry:
    return store.require("lab", PAIR).entries[key]


def anchor(store: Store, key: str = "curve") -> Anchor:
    found = entry(store, key).anchor
    assert found is not None
    return found


def first_ms(measurement: object) -> float:
    assert isinstance(measurement, VerifyCurve)
    return measurement.samples_ms[0][0][0]


def test_a_first_measurement_needs_no_anchor(store: Store) -> None:
    save(store, *one_of_each())
    assert all(one.anchor is None for one in store.require("lab", PAIR).entries.values())


def test_the_first_measurement_stays_through_every_replacement(store: Store) -> None:
    old, new = build_identity(hello()), build_identity(hello(llama_cpp_python="0.4.0"))
    save(store, Made("curve", curve()), build=old)
    first = save(store, Made("curve", curve(1.1)), build=new, day=SECOND, update="all")
    second = save(store, Made("curve", curve(1.2)), build=new, day=THIRD, update="all")
    assert first.anchored == second.anchored == ("curve",)
    assert entry(store).recorded == "2026-05-01"
    assert first_ms(entry(store).measurement) == pytest.approx(18.0)
    assert (anchor(store).recorded, anchor(store).build) == (DAY.isoformat(), old)
    assert first_ms(anchor(store).measurement) == 15.0


def test_every_kind_has_one_that_comes_back(store: Store) -> None:
    save(store, *one_of_each())
    report = save(store, *one_of_each(), day=SECOND, update="all")
    assert report.anchored == report.replaced
    for one in store.require("lab", PAIR).entries.values():
        assert one.anchor is not None
        assert one.anchor.measurement == one.measurement
        assert (one.anchor.recorded, one.recorded) == (DAY.isoformat(), "2026-04-01")


def test_what_is_recorded_only_when_new_gets_none(store: Store) -> None:
    save(store, Made("curve", curve()))
    report = save(store, Made("curve", curve(1.1)), Made("other", curve()), day=SECOND)
    assert (report.added, report.kept, report.anchored) == (("other",), ("curve",), ())
    assert entry(store).anchor is entry(store, "other").anchor is None


def test_another_model_file_begins_anew(store: Store) -> None:
    save(store, Made("curve", curve()))
    save(store, Made("curve", curve(1.1)), update="all")
    assert entry(store).anchor is not None
    assert save(store, Made("curve", curve(3.0)), models=models(draft="2"), update="all").anchored == ()
    assert entry(store).anchor is None


def test_an_unknown_model_file_is_taken_for_the_same(store: Store) -> None:
    unknown = {"target": {**models()["target"], "sha256": None, "size": None}, "draft": None}
    save(store, Made("curve", curve()), models=unknown)
    save(store, Made("curve", curve(1.1)), update="all")
    assert entry(store).anchor is not None


def test_its_build_is_kept_as_long_as_it_is(store: Store) -> None:
    old, new = build_identity(hello()), build_identity(hello(llama_cpp_python="0.4.0"))
    path = save(store, Made("curve", curve()), build=old).path
    save(store, Made("curve", curve()), build=new, update="all")
    assert len(json.loads(path.read_text(encoding="utf-8"))["builds"]) == 2
    move_anchors(store, "lab", PAIR)
    assert entry(store).build == new
    assert list(json.loads(path.read_text(encoding="utf-8"))["builds"].values()) == [new]


@pytest.mark.parametrize("move", [False, True])
def test_accepting_keeps_it_unless_told_otherwise(store: Store, move: bool) -> None:
    save(store, Made("curve", curve()), Made("counts", speculative()))
    save(store, Made("counts", speculative()), update="all")
    candidate = leave_candidate(store, Made("curve", curve(2.0)), day=SECOND)
    assert store.accept(candidate, anchor=move).anchored == (() if move else ("curve",))
    assert (entry(store).anchor is None) is move
    # Of what the candidate doesn't hold, nothing is moved.
    assert entry(store, "counts").anchor is not None


def test_anchors_are_moved_by_key_or_all(store: Store) -> None:
    made = [Made(key, curve()) for key in ("a", "b", "c")]
    save(store, *made)
    save(store, *made[:2], day=SECOND, update="all")
    before = store.path("lab", PAIR).read_bytes()
    assert move_anchors(store, "lab", PAIR, ["c"]) == {}
    assert store.path("lab", PAIR).read_bytes() == before
    assert move_anchors(store, "lab", PAIR, ["a"]) == {"a": DAY.isoformat()}
    assert (entry(store, "a").anchor, entry(store, "b").anchor is None) == (None, False)
    assert move_anchors(store, "lab", PAIR) == {"b": DAY.isoformat()}
    assert entry(store, "a").recorded == "2026-04-01"


def test_where_there_is_no_baseline_nothing_is_moved(store: Store) -> None:
    with pytest.raises(NoBaseline, match="no baselines for machine lab"):
        move_anchors(store, "lab", PAIR)
    assert not store.root.exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"measurement": {"kind": "verify_curve"}}, "entries.curve.anchor.measurement: .* is a required"),
        ({"recorded": "yesterday"}, "entries.curve.anchor.recorded: 'yesterday' does not match"),
        ({"build": "none"}, "the anchor of entry curve has build none, not in builds"),
        ({"extra": 1}, "'extra' was unexpected"),
    ],
)
def test_a_damaged_anchor_is_refused(store: Store, damage: dict[str, object], words: str) -> None:
    path = save(store, Made("curve", curve())).path
    save(store, Made("curve", curve()), update="all")
    document = json.loads(path.read_text(encoding="utf-8"))
    document["entries"]["curve"]["anchor"].update(damage)
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BaselineError, match=words):
        store.load("lab", PAIR)


def test_an_anchor_of_another_kind_or_with_columns_that_do_not_fit_is_refused(store: Store) -> None:
    path = save(store, *one_of_each()).path
    save(store, *one_of_each(), update="all")
    text = path.read_text(encoding="utf-8")
    for key, spoilt in json.loads(text)["entries"].items():
        document = json.loads(text)
        other = "decode" if spoilt["kind"] != "decode" else "speed"
        document["entries"][key]["anchor"]["measurement"]["kind"] = other
        path.write_text(json.dumps(document), encoding="utf-8")
        with pytest.raises(BaselineError, match=f"anchor.measurement.kind: '{spoilt['kind']}' was expected"):
            store.load("lab", PAIR)
    document = json.loads(text)
    document["entries"]["verify_curve k=3"]["anchor"]["measurement"]["n"] = [1, 2]
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BaselineError, match=r"the anchor of entry .*2 batch sizes, but samples for 3"):
        store.load("lab", PAIR)
