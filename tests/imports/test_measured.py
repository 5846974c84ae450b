"""This project's own JSON: a measurement, `specdec curve --json`, a run's JSON file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.read import curves
from pytest_specdec.measurements import VerifyCurve


VERIFY = VerifyCurve((1, 2, 9), tuple(((t, t + 1), (t + 2, t + 3)) for t in (10.0, 12.0, 40.0)), depth=64)
LAST = VerifyCurve((1, 2, 9), VERIFY.samples_ms, rows="last")


def test_a_measurement_is_itself() -> None:
    (curve,) = curves(json.dumps(VERIFY.to_json()), "file")
    assert (curve.name, curve.verify, curve.noise_ms) == ("", VERIFY, None)
    assert curve.origin == "measured, depth 64, logits of all rows"


def test_every_curve_is_found_and_named_by_its_key() -> None:
    document = {
        "verify_curve": VERIFY.to_json(),
        "llama_bench_curve": LAST.to_json(),
        "kept": [{"key": "verify_curve depth=64", "measurement": VERIFY.to_json()}],
        "other": [1, "two", None, {"kind": "decode", "generations": []}],
    }
    found = curves(json.dumps(document), "file")
    assert [curve.name for curve in found] == ["verify_curve", "llama_bench_curve", "verify_curve depth=64"]
    assert [curve.verify.rows for curve in found] == ["all", "last", "all"]


def test_values_that_stand_one_after_the_other_are_all_looked_at() -> None:
    text = json.dumps(VERIFY.to_json()) + "\n" + json.dumps(LAST.to_json())
    assert [curve.verify for curve in curves(text, "file")] == [VERIFY, LAST]


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def damage(data: dict[str, Any]) -> None:
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (put("n", value="1,2"), "n is no list of batch sizes"),
        (put("n", value=[1, 2, "x"]), "n is no list of batch sizes"),
        (put("n", value=[0, 2, 9]), "n is no list of batch sizes"),
        (put("n", value=[1, 9, 2]), "n is not increasing"),
        (put("n", value=[1, 2]), "samples_ms has not one entry for each of 2 sizes"),
        (put("samples_ms", value=7), "samples_ms has not one entry for each of 3 sizes"),
        (put("samples_ms", 1, value=[]), "samples_ms of N = 2 are no blocks of times"),
        (put("samples_ms", 1, value=[[1.0]]), "samples_ms of N = 2 are no blocks of times in ms, as many as"),
        (put("samples_ms", 2, 1, value=[]), "samples_ms of N = 9 are no blocks"),
        (put("samples_ms", 2, 1, 0, value="x"), "samples_ms of N = 9 are no blocks"),
        (put("samples_ms", 2, 1, 0, value=0), "samples_ms of N = 9 are no blocks"),
        (put("samples_ms", 2, 1, 0, value=True), "samples_ms of N = 9 are no blocks"),
        (put("samples_ms", 2, 1, 0, value=float("inf")), "samples_ms of N = 9 are no blocks"),
        (put("depth", value=-1), "depth or rows are none"),
        (put("rows", value="some"), "depth or rows are none"),
    ],
)
def test_damage_is_told_with_its_place(damage: Callable[[dict[str, Any]], None], told: str) -> None:
    data = copy.deepcopy(VERIFY.to_json())
    damage(data)
    with pytest.raises(BadFile) as caught:
        curves(json.dumps({"all": [{"measurement": data}]}), "file")
    assert str(caught.value).startswith(f"file: all[0].measurement: {told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "file: holds no verify curve: a table (CSV)"),
        ("[1, 2]", "file: holds no verify curve"),
        ('{\n "kind": "verify_curve",\n', "file:3: is cut or no JSON"),
        ("[" * 100_000, "file:1: is no JSON of ours"),
        ('{"a": ' + "9" * 5000 + "}", "file:1: is no JSON of ours"),
    ],
)
def test_what_holds_no_curve_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadFile) as caught:
        curves(text, "file")
    assert str(caught.value).startswith(told)
