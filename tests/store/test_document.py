"""The text of a baseline: sound ones survive, all others are refused with their place and what to do."""

from __future__ import annotations

import copy
import json
import math
import os
import random
from collections.abc import Callable
from dataclasses import fields
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any
from typing import get_args
from typing import get_type_hints

import pytest
from jsonschema import Draft202012Validator

from pytest_specdec.measurements import KINDS
from pytest_specdec.measurements import Record
from pytest_specdec.measurements import from_json
from pytest_specdec.store import BaselineError
from pytest_specdec.store import build_identity
from pytest_specdec.store import document as subject
from pytest_specdec.store.baseline import new_document
from pytest_specdec.store.document import check
from pytest_specdec.store.document import parse
from pytest_specdec.store.document import read
from pytest_specdec.store.document import render
from pytest_specdec.store.document import rounded
from pytest_specdec.store.migrate import SCHEMA_VERSION
from pytest_specdec.store.migrate import MigrationError
from pytest_specdec.store.migrate import migrate
from pytest_specdec.store.summary import summary

from .samples import DAY
from .samples import PAIR
from .samples import hello
from .samples import machine
from .samples import models
from .samples import one_of_each
from .samples import published_totals


Document = dict[str, Any]
Damage = Callable[[Document], object]

SCHEMA = json.loads(Path(subject.__file__).with_name("schema.json").read_text(encoding="utf-8"))
PATH = Path("lab/pair.json")
# Two builds side by side are a report's matter; a baseline is of one.
STORED = sorted(set(KINDS) - {"comparison"})


def sound() -> Document:
    document = new_document("lab", machine(), PAIR, models(), build_identity(hello()), one_of_each(), DAY)
    return copy.deepcopy(document)


def measurement(document: Document, kind: str) -> Document:
    found: Document = document["entries"][f"{kind} k=3"]["measurement"]
    return found


def records(cls: type[Any]) -> set[type[Any]]:
    """A record and those inside it."""
    found = {cls}
    for hint in get_type_hints(cls).values():
        for inner in get_args(hint):
            if is_dataclass(inner) and isinstance(inner, type) and issubclass(inner, Record):
                found |= records(inner)
    return found


def schema_of(cls: type[Any]) -> Document:
    """The definition with the fields of a record, found by them."""
    names = {field.name for field in fields(cls)} | ({"kind"} if hasattr(cls, "kind") else set())
    return next(entry for entry in SCHEMA["$defs"].values() if set(entry.get("properties", ())) == names)


def test_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema_version"] == {"const": SCHEMA_VERSION}


def objects(schema: Any) -> list[Document]:
    found = []
    if isinstance(schema, dict):
        found += [schema] if "properties" in schema and schema.get("type") == "object" else []
        found += [entry for value in schema.values() for entry in objects(value)]
    if isinstance(schema, list):
        found += [entry for value in schema for entry in objects(value)]
    return found


def test_schema_allows_no_unknown_members() -> None:
    assert len(objects(SCHEMA)) > 10
    assert all(entry["additionalProperties"] is False for entry in objects(SCHEMA))


@pytest.mark.parametrize("kind", STORED)
def test_every_kind_of_measurement_has_its_schema(kind: str) -> None:
    assert kind in SCHEMA["$defs"]["entry"]["properties"]["kind"]["enum"]
    for record in records(KINDS[kind]):
        definition = schema_of(record)
        rare = {field.name for field in fields(record) if field.metadata.get("rare")}
        assert set(definition["required"]) == set(definition["properties"]) - rare


def test_published_totals_survive_beside_what_was_measured() -> None:
    document = sound()
    assert measurement(document, "speed").get("published") is None
    for made in published_totals():
        entry = document["entries"][made.key] = {**document["entries"]["speed k=3"]}
        entry["kind"], entry["measurement"] = made.measurement.kind, made.measurement.to_json()
        assert from_json(entry["measurement"]) == made.measurement
    check(document, PATH)
    assert parse(render(document).encode(), PATH) == document


def test_published_totals_are_summed_up() -> None:
    acceptance, length, speed = (summary(made.measurement) for made in published_totals())
    assert acceptance == {"acceptance rate": 0.5}
    assert length == {"acceptance rate": 0.25, "tokens per round": 3.0625}
    assert speed == {"pairs": 0, "plain tokens/s": 50.0, "speculative tokens/s": 60.0, "speedup": 1.2}


@pytest.mark.parametrize("kind", STORED)
def test_every_kind_of_measurement_is_summed_up(kind: str) -> None:
    assert f"{kind} k=3" in sound()["entries"]
    assert sound()["entries"][f"{kind} k=3"]["summary"]


def test_a_sound_document_passes_and_survives() -> None:
    document = sound()
    check(document, PATH)
    assert parse(render(document).encode(), PATH) == document


def test_text_is_sorted_and_has_one_row_a_line() -> None:
    lines = render(sound()).splitlines()
    keys = [line.partition(":")[0] for line in lines if line.startswith('  "')]
    assert keys == sorted(keys)
    assert len(keys) == len(SCHEMA["properties"])
    # One line for each of the batch sizes 1, 2 and 9.
    start = next(n for n, line in enumerate(lines) if '"samples_ms"' in line)
    assert [line.count("[") for line in lines[start + 1 : start + 5]] == [5, 5, 5, 0]
    assert any('"tokens": [5, 6, 7, 8, 9, 10, 11]' in line for line in lines)
    assert sum('"plain_ms": 160.0' in line and '"speculative_ms": 100.0' in line for line in lines) == 1
    first, second, ninth = (
        next(n for n, line in enumerate(lines) if f'"T({size}) ms"' in line) for size in (1, 2, 9)
    )
    assert first < second < ninth


def test_numbers_in_keys_are_sorted_by_size() -> None:
    text = render({"T(10)": 1, "T(9)": 1, "T(100)": 1, "a": 1, "٣": 1})
    assert [line.split('"')[1] for line in text.splitlines()[1:-1]] == ["T(9)", "T(10)", "T(100)", "a", "٣"]


def test_floats_are_rounded_to_six_digits_and_nothing_else() -> None:
    assert rounded({"a": (1 / 3, 123456789.0, 5, True, None, "x", 2.5e-9)}) == {
        "a": [0.333333, 123457000.0, 5, True, None, "x", 2.5e-9]
    }


def test_unrounded_text_is_not_rewritten_by_reading() -> None:
    document = sound()
    measurement(document, "draft_cost")["draft_ms"][0] = 4.123456789012345
    again = parse(render(document).encode(), PATH)
    assert measurement(again, "draft_cost")["draft_ms"][0] == 4.123456789012345


def curve_of(document: Document) -> Document:
    return measurement(document, "verify_curve")


def run_of(document: Document) -> Document:
    found: Document = measurement(document, "speculative")["speculations"][0]
    return found


def put(place: Callable[[Document], Any], key: Any, value: Any) -> Damage:
    def damage(document: Document) -> None:
        place(document)[key] = value

    return damage


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no entries": (lambda d: d.pop("entries"), "the top level: 'entries' is a required property"),
    "entries a list": (put(lambda d: d, "entries", []), "entries: .* is not of type 'object'"),
    "unknown member": (put(lambda d: d, "extra", 1), "'extra' was unexpected"),
    "unknown kind": (put(lambda d: d["entries"]["decode k=3"], "kind", "dream"), "'dream' is not one of"),
    "kind of another": (put(lambda d: measurement(d, "decode"), "kind", "speed"), "'decode' was expected"),
    "text for a time": (
        put(lambda d: curve_of(d)["samples_ms"][1][0], 2, "9"),
        r"samples_ms\[1\]\[0\]\[2\]: '9'",
    ),
    "true for a time": (put(lambda d: curve_of(d)["samples_ms"][0][0], 0, True), r"\[0\]\[0\]\[0\]: True"),
    "time zero": (put(lambda d: curve_of(d)["samples_ms"][0][0], 0, 0), "0 is less than or equal to"),
    "time negative": (put(run_of, "decode_ms", -1.0), "-1.0 is less than the minimum"),
    "time absurd": (put(run_of, "decode_ms", 1e300), "greater than the maximum"),
    "half a token": (
        put(lambda d: run_of(d)["tokens"], 3, 7.5),
        r"tokens\[3\]: 7.5 is not of type 'integer'",
    ),
    "token too large": (put(lambda d: run_of(d)["tokens"], 3, 2**31), "greater than the maximum"),
    "no blocks": (put(lambda d: curve_of(d)["samples_ms"], 0, []), "should be non-empty|too short"),
    "missing N": (lambda d: curve_of(d)["n"].pop(), "2 batch sizes, but samples for 3"),
    "twice the same N": (put(lambda d: curve_of(d)["n"], 1, 1), "non-unique"),
    "N out of order": (put(curve_of, "n", [2, 1, 9]), "batch sizes out of order"),
    "ragged blocks": (lambda d: curve_of(d)["samples_ms"][2].pop(), "different numbers of blocks"),
    "accepted over drafted": (
        put(lambda d: run_of(d)["accepted"], 1, 4),
        "more tokens accepted than drafted",
    ),
    "missing round": (lambda d: run_of(d)["verify_ms"].pop(), "columns of different length"),
    "one token": (
        put(lambda d: measurement(d, "speed")["pairs"][0], "plain_tokens", 1),
        "1 is less than the minimum of 2",
    ),
    "no pairs": (
        lambda d: measurement(d, "speed")["pairs"].clear(),
        r"pairs: \[\] (should be non-empty|is too short)",
    ),
    "pairs and published rates": (
        put(
            lambda d: measurement(d, "speed"),
            "published",
            published_totals()[2].measurement.to_json()["published"],
        ),
        "published totals beside measured runs",
    ),
    "rounds and a published rate": (
        put(
            lambda d: measurement(d, "speculative"),
            "published",
            {"rate": 0.5, "rounds": None, "tokens": None},
        ),
        "published totals beside measured runs",
    ),
    "published rate above one": (
        put(
            lambda d: d["entries"]["speculative k=3"],
            "measurement",
            {
                **published_totals()[0].measurement.to_json(),
                "published": {"rate": 1.5, "rounds": None, "tokens": None},
            },
        ),
        "published.rate: 1.5 is greater than the maximum",
    ),
    "lopsided draft cost": (
        lambda d: measurement(d, "draft_cost")["target_ms"].pop(),
        "different numbers of blocks",
    ),
    "unheard-of build": (lambda d: d["builds"].clear(), "has build '?0.3.36-.*not in builds"),
    "nested setting": (put(lambda d: d["entries"]["decode k=3"]["settings"], "k", {"a": 1}), "settings.k: "),
    "bad SHA-256": (put(lambda d: d["models"]["target"], "sha256", "abc"), "'abc' does not match"),
    "bad draft": (put(lambda d: d["models"]["draft"], "size", "big"), "models.draft.size: 'big'"),
    "bad day": (
        put(lambda d: d["entries"]["decode k=3"], "recorded", "yesterday"),
        "'yesterday' does not match",
    ),
    "hard fact missing": (lambda d: d["machine"]["hard"].pop("chip"), "'chip' is a required property"),
    "name with a path": (put(lambda d: d["machine"], "name", "../x"), "'../x' does not match"),
    "no version": (lambda d: d.pop("schema_version"), "is no baseline .schema_version is None"),
    "version a text": (put(lambda d: d, "schema_version", "1"), "is no baseline .schema_version is 1"),
    "version true": (put(lambda d: d, "schema_version", True), "is no baseline"),
    "version negative": (put(lambda d: d, "schema_version", -1), "is no baseline"),
    "version older than any": (put(lambda d: d, "schema_version", 0), "schema 0 is older than any"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_refused_with_place_and_remedy(name: str, tmp_path: Path) -> None:
    damage, words = DAMAGES[name]
    document = sound()
    damage(document)
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BaselineError, match=words) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "record anew with --specdec-update=new" in str(caught.value)


def test_a_newer_schema_is_refused_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1, "who": "knows"}), encoding="utf-8")
    with pytest.raises(
        BaselineError,
        match=rf"newer pytest-specdec .schema {SCHEMA_VERSION + 1}, .*{SCHEMA_VERSION}.; upgrade pytest-spec",
    ):
        read(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"all is well", "is truncated or no JSON"),
        (b"[1, 2]", r"holds \[1, 2\], not a baseline"),
        (b"null", "holds None, not a baseline"),
        (b'{"schema_version": NaN}', "NaN is no finite number"),
        (b'{"schema_version": -Infinity}', "-Infinity is no finite number"),
        (b'{"schema_version": 1e999}', "1e999 is no finite number"),
        (b'{"schema_version": ' + b"9" * 5000 + b"}", "is truncated or no JSON"),
        (b'{"a": 1, "a": 2}', "the key a stands there twice"),
        (b'{"a": "\\ud800"}', "is not UTF-8 text"),
        (b'\xff\xfe{"a": 1}', "is not UTF-8 text"),
        (b'{"a": ' * 20_000, "nested too deep|truncated or no JSON"),
        (b"[" * 200_000, "nested too deep"),
    ],
)
def test_what_is_no_json_object_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_bytes(content)
    with pytest.raises(BaselineError, match=words):
        read(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = render(sound()).encode()
    path = tmp_path / "pair.json"
    step = max(1, len(content) // 150)
    for length in [*range(0, len(content) - 2, step), len(content) - 2]:
        path.write_bytes(content[:length])
        with pytest.raises(BaselineError, match=r"is truncated or no JSON|is empty"):
            read(path)


def test_a_byte_order_mark_and_windows_line_ends_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_bytes(b"\xef\xbb\xbf" + render(sound()).replace("\n", "\r\n").encode())
    assert read(path) == sound()


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    document = sound()
    document["entries"]["\x1b[31mred"] = document["entries"].pop("decode k=3")
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BaselineError, match="does not match") as caught:
        read(path)
    assert "\x1b" not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="is no file"):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "pair.json")
    (tmp_path / "file").touch()
    with pytest.raises(BaselineError, match="can't be read"):
        read(tmp_path / "file" / "pair.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pair.json")
    with pytest.raises(BaselineError, match="is no file"):
        read(tmp_path / "pair.json")


def test_a_file_of_permissions_that_forbid_reading_is_refused(as_ordinary_user: Path) -> None:
    path = as_ordinary_user / "pair.json"
    path.write_text(render(sound()), encoding="utf-8")
    path.chmod(0)
    with pytest.raises(BaselineError, match=r"can't be read.*check its permissions"):
        read(path)


@pytest.mark.parametrize(("colon", "count"), [(":", 1_000_000), (" :", 250_000)])
def test_a_million_entries_are_refused_without_looking_at_them(
    colon: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pair.json"
    empty = json.dumps({**sound(), "entries": {}}).replace('"entries": {}', '"entries": {%s}')
    path.write_text(empty % ",".join(f'"k{n}"{colon}{{}}' for n in range(count)), encoding="utf-8")
    assert path.stat().st_size < subject.MAX_BYTES
    # The schema check is what would take minutes.
    monkeypatch.setattr(subject, "_validator", lambda: pytest.fail("checked all the same"))
    with pytest.raises(BaselineError, match="more than 200,000 fields"):
        read(path)


def test_a_file_of_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    with path.open("wb") as file:
        file.truncate(8 * 2**30)
    with pytest.raises(BaselineError, match="has 8192 MiB, more than any run writes"):
        read(path)


def test_the_quick_look_at_numbers_decides_as_the_standard_does() -> None:
    plain = Draft202012Validator(SCHEMA)
    quick = subject._validator()
    dice = random.Random(20260314)
    values: list[Any] = [
        0,
        1,
        -1,
        2**31,
        2**53 + 1,
        1.0,
        2.5,
        0.0,
        -0.5,
        1e13,
        math.inf,
        True,
        None,
        "1",
        [],
        {},
    ]
    refused = 0
    for _ in range(40):
        document = sound()
        entries = [_arrays(entry["measurement"]) for entry in document["entries"].values()]
        array = dice.choice([array for array in dice.choice([e for e in entries if e]) if array])
        array[dice.randrange(len(array))] = dice.choice(values)
        assert quick.is_valid(document) == plain.is_valid(document)
        refused += not quick.is_valid(document)
    assert 5 < refused < 40


def _arrays(value: Any) -> list[list[Any]]:
    found = [value] if isinstance(value, list) else []
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found + [array for child in children for array in _arrays(child)]


def test_not_a_number_cannot_be_rendered() -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant|Out of range"):
        render({"a": [math.nan]})


def _rename(document: Document) -> Document:
    return {**{key: value for key, value in document.items() if key != "old"}, "new": document["old"]}


def _double(document: Document) -> Document:
    return {**document, "new": document["new"] * 2}


def test_migrations_run_in_order_and_leave_their_input_alone() -> None:
    old = {"schema_version": 3, "old": 21}
    assert migrate(old, steps={3: _rename, 4: _double}, to=5) == {"schema_version": 5, "new": 42}
    assert migrate({"schema_version": 4, "new": 1}, steps={3: _rename, 4: _double}, to=5)["new"] == 2
    assert old == {"schema_version": 3, "old": 21}
    same = {"schema_version": 5}
    assert migrate(same, steps={}, to=5) is same


def test_migrations_that_stumble_or_are_missing_say_so() -> None:
    with pytest.raises(MigrationError, match=r"schema 3 is damaged .KeyError: 'old'"):
        migrate({"schema_version": 3}, steps={3: _rename}, to=4)
    with pytest.raises(MigrationError, match="schema 2 is older than any"):
        migrate({"schema_version": 2}, steps={3: _rename}, to=4)


def test_an_older_file_is_read_as_this_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(document: Document) -> Document:
        return {
            **{key: value for key, value in document.items() if key != "models_pair"},
            "pair": document["models_pair"],
        }

    older = sound()
    older["models_pair"] = older.pop("pair")
    path = tmp_path / "pair.json"
    path.write_text(json.dumps({**older, "schema_version": 0}), encoding="utf-8")
    monkeypatch.setattr("pytest_specdec.store.migrate.STEPS", {0: named, 1: dict})
    assert read(path) == sound()
    path.write_text(json.dumps({**sound(), "schema_version": 0}), encoding="utf-8")
    with pytest.raises(BaselineError, match=r"schema 0 is damaged.*models_pair.*record anew"):
        read(path)


RECORDED = Path(__file__).with_name("recorded")


def test_a_file_of_the_first_schema_is_read_with_all_it_holds() -> None:
    path = RECORDED / "baseline_schema_1.json"
    old = json.loads(path.read_text(encoding="utf-8"))
    assert old["schema_version"] == 1
    document = read(path)
    assert document["schema_version"] == SCHEMA_VERSION
    assert set(document["entries"]) == set(old["entries"])
    assert {entry["kind"] for entry in document["entries"].values()} >= {"exactness", "speed", "verify_curve"}
    for key, entry in document["entries"].items():
        assert "anchor" not in entry
        if entry["kind"] != "exactness":
            assert entry == old["entries"][key]
    (case,) = from_json(measurement(document, "exactness")).cases  # type: ignore[attr-defined]
    assert (case.prompt, case.first_difference, case.decided, case.refused) == ("code/fib", 4, None, "")
    assert case.margins[0].delta == 0.5
    # As a file of this version it stays what it is.
    assert parse(render(document).encode(), path) == document


def test_a_damaged_file_of_the_first_schema_says_so(tmp_path: Path) -> None:
    old = json.loads((RECORDED / "baseline_schema_1.json").read_text(encoding="utf-8"))
    path = tmp_path / "pair.json"
    for name, value, words in (
        ("entries", {"x": {"kind": "exactness", "measurement": None}}, "its schema 1 is damaged"),
        ("entries", [], "its schema 1 is damaged"),
        ("machine", {}, "machine: .* is a required property"),
    ):
        path.write_text(json.dumps({**old, name: value}), encoding="utf-8")
        with pytest.raises(BaselineError, match=words):
            read(path)
