"""``specdec baseline``: list, show, diff, accept, anchor and prune."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from datetime import UTC
from datetime import datetime
from pathlib import Path

import pytest

from pytest_specdec.cli import baseline as command
from pytest_specdec.cli import main
from pytest_specdec.store import Store
from pytest_specdec.store import build_identity
from pytest_specdec.store.upkeep import note_unused

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


def specdec(store: Store, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([*arguments, "--baseline-dir", str(store.root)]))


def test_list_says_how_to_record_the_first_one(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert specdec(store, "list") == 0
    assert "record one with: pytest --specdec-update=new" in capsys.readouterr().out


def test_list_names_machines_pairs_and_candidates(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, *one_of_each())
    save(store, Made("curve", curve()), machine_name="attic", pair="a--b")
    candidate = leave_candidate(store, Made("curve", curve()))
    assert specdec(store, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("attic") < lines.index("lab")
    row = next(line.split() for line in lines if PAIR in line and ".candidates" not in line)
    assert row[:3] == [PAIR, str(len(one_of_each())), "2026-03-14"]
    assert row[3].startswith("0.3.36-")
    assert f"  {candidate}" in lines


def test_list_goes_on_after_a_broken_file(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, Made("curve", curve()))
    store.path("lab", "broken--pair").write_text("{", encoding="utf-8")
    assert specdec(store, "list") == 2
    out = capsys.readouterr().out
    assert "unusable: is truncated or no JSON" in out
    assert "2026-03-14" in out


@pytest.mark.parametrize("by", ["pair", "machine and pair", "file"])
def test_show_tells_what_is_in_it(by: str, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(store, *one_of_each()).path
    name = {"pair": PAIR, "machine and pair": f"lab/{PAIR}", "file": str(path)}[by]
    assert specdec(store, "show", name) == 0
    out = capsys.readouterr().out
    for words in (
        f"{PAIR} on lab",
        "chip: AMD EPYC 7763",
        "gpu: none",
        "target: SmolLM2 135M (llama, 93.5 MiB, SHA-256 0000",
        "F32 × 61, Q4_1 × 210",
        "AVX2 = 1",
        "verify_curve k=3",
        "recorded 2026-03-14 with build 0.3.36-",
        "settings k=3 ratios=[1, 2] threads=2",
        "used by tests/test_pair.py::test_pair",
    ):
        assert words in out
    figures = [line.split() for line in out.splitlines()]
    assert ["drafted", "9"] in figures
    assert ["acceptance", "rate", "0.4444"] in figures
    assert ["speedup", "1.6"] in figures


def test_show_marks_what_another_model_was_measured_with(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    save(store, Made("curve", curve()), Made("acceptance", speculative()))
    save(store, Made("curve", curve()), models=models(draft="2"), update="all")
    assert specdec(store, "show", PAIR) == 0
    out = capsys.readouterr().out
    assert "acceptance  (stale: measured with another model file)" in out
    assert out.count("stale") == 1


def test_a_name_that_is_nothing_is_bad_usage(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, Made("curve", curve()))
    assert specdec(store, "show", "nothing") == 3
    assert f"no file and no baseline 'nothing'; known baselines: lab/{PAIR}" in capsys.readouterr().err
    assert specdec(store, "show", f"mars/{PAIR}") == 3
    assert "no baselines for machine mars (known machines: lab)" in capsys.readouterr().err
    assert specdec(store, "diff", "gone.json") == 3
    assert specdec(store, "accept", "gone.json") == 3
    assert "no such candidate" in capsys.readouterr().err


def test_a_pair_of_two_machines_must_be_said_with_one(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    save(store, Made("curve", curve()))
    save(store, Made("curve", curve()), machine_name="attic")
    assert specdec(store, "show", PAIR) == 3
    assert f"say which: attic/{PAIR}, lab/{PAIR}" in capsys.readouterr().err


def test_a_broken_file_cannot_be_shown(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"schema_version": 99}', encoding="utf-8")
    assert specdec(store, "show", str(path)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"specdec: {path}: was written by a newer pytest-specdec")
    assert captured.out == ""


def test_diff_holds_a_candidate_against_its_baseline(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    same = Made("decode", decode())
    save(store, Made("curve", curve()), same, Made("gone", speculative()))
    candidate = leave_candidate(
        store,
        Made("curve", curve(1.1)),
        same,
        Made("fresh", speculative()),
        build=build_identity(hello(llama_cpp_python="0.4.0")),
        models=models(draft="2"),
        machine=machine(cores=4),
    )
    assert specdec(store, "diff", str(candidate)) == 0
    out = capsys.readouterr().out
    assert out.count("build: llama-cpp-python 0.3.36 → 0.4.0") == 1
    assert "machine: cores 2 against 4" in out
    assert (
        "models: draft SmolLM2 135M Q2_K (SHA-256 111111111111) → SmolLM2 135M Q2_K (SHA-256 222222222222)"
        in out
    )
    assert "gone\n  only in the old one" in out
    assert "fresh\n  only in the new one" in out
    assert "1 measurement exactly the same" in out
    curves = [line.split() for line in out.splitlines() if line.lstrip().startswith("T(")]
    assert [line[0] for line in curves] == ["T(1)", "T(2)", "T(9)"]
    assert [line[-1] for line in curves] == ["×1.100"] * 3


def test_diff_of_counters_shows_figures_that_moved(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, Made("acceptance", speculative()))
    candidate = leave_candidate(store, Made("acceptance", speculative(accepted=(0, 0, 0))))
    assert specdec(store, "diff", str(candidate), PAIR) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["accepted", "4", "→", "0"] in rows
    assert ["drafted", "9", "→", "9"] in rows


def test_diff_of_one_with_itself(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, *one_of_each())
    assert specdec(store, "diff", PAIR, PAIR) == 0
    out = capsys.readouterr().out
    assert f"{len(one_of_each())} measurements exactly the same" in out
    assert "→" not in out


def test_accept_writes_the_candidate_into_its_baseline(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    save(store, Made("curve", curve()))
    candidate = leave_candidate(store, Made("curve", curve(2.0)), Made("decode", decode()))
    assert specdec(store, "accept", str(candidate)) == 0
    assert capsys.readouterr().out.startswith(f"{store.path('lab', PAIR)}: 1 added, 1 replaced\n")
    assert store.require("lab", PAIR).entries["curve"].measurement.to_json()["samples_ms"][0][0][0] == 30.0
    assert not candidate.exists()


def test_accept_refuses_other_hardware_and_keeps_the_candidate(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    save(store, Made("curve", curve()))
    candidate = leave_candidate(store, Made("decode", decode()), machine=machine(cores=4))
    assert specdec(store, "accept", str(candidate)) == 2
    assert "another machine (cores 2 against 4 here)" in capsys.readouterr().err
    assert candidate.exists()


def test_the_folder_comes_from_the_environment(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(store, Made("curve", curve()))
    monkeypatch.setenv("SPECDEC_BASELINE_DIR", str(store.root))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args(["list"])) == 0
    assert PAIR in capsys.readouterr().out


def test_the_command_as_users_run_it(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, Made("curve", curve()))
    assert main(["baseline", "list", "--baseline-dir", str(store.root)]) == 0
    assert PAIR in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["baseline", "burn"])
    assert caught.value.code == 3


def test_accept_says_what_it_is_still_held_against(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, Made("curve", curve()))
    candidate = leave_candidate(store, Made("curve", curve(2.0)))
    assert specdec(store, "accept", str(candidate)) == 0
    told = capsys.readouterr().out.splitlines()[1]
    assert told.startswith("1 measurement still held against what was recorded first; to let that go: ")
    program, *arguments = shlex.split(told.partition("let that go: ")[2])
    assert program == "specdec"
    assert main(arguments) == 0
    assert "held against 2026-03-14, no longer against 2026-03-14" in capsys.readouterr().out
    assert store.require("lab", PAIR).entries["curve"].anchor is None


def test_accept_with_its_anchor_leaves_nothing_to_say(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    save(store, Made("curve", curve()))
    candidate = leave_candidate(store, Made("curve", curve(2.0)))
    assert specdec(store, "accept", "--anchor", str(candidate)) == 0
    assert capsys.readouterr().out == f"{store.path('lab', PAIR)}: 0 added, 1 replaced\n"
    assert store.require("lab", PAIR).entries["curve"].anchor is None


@pytest.mark.parametrize("by", ["pair", "machine and pair", "file"])
def test_anchor_moves_what_it_is_told_to(by: str, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(store, Made("a", curve()), Made("b", curve()), Made("c", curve())).path
    save(store, Made("a", curve()), Made("b", curve()), update="all")
    name = {"pair": PAIR, "machine and pair": f"lab/{PAIR}", "file": str(path)}[by]
    assert specdec(store, "anchor", name, "b") == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["b"]
    assert specdec(store, "anchor", name) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["a"]
    assert specdec(store, "anchor", name) == 0
    assert "every entry is its own anchor already" in capsys.readouterr().out


def test_anchor_of_nothing_is_bad_usage(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(store, Made("curve", curve())).path
    assert specdec(store, "anchor", PAIR, "curve", "curv") == 3
    assert "has no entry 'curv'; specdec baseline show lists its keys" in capsys.readouterr().err
    assert specdec(store, "anchor", "nothing") == 3
    assert specdec(store, "anchor", f"mars/{PAIR}") == 3
    capsys.readouterr()
    elsewhere = tmp_path / "copy.json"
    elsewhere.write_bytes(path.read_bytes())
    assert specdec(store, "anchor", str(elsewhere)) == 3
    assert "is not in the folder of baselines" in capsys.readouterr().err


def test_show_names_the_anchor(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, Made("curve", curve()))
    save(store, Made("curve", curve()), update="all")
    assert specdec(store, "show", PAIR) == 0
    assert "  anchor of 2026-03-14 with build 0.3.36-" in capsys.readouterr().out


def test_prune_shows_first_and_then_removes(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(store, Made("idle", curve()), Made("old", curve()), Made("used", curve())).path
    save(store, Made("used", curve()), Made("idle", curve()), models=models(draft="2"), update="all")
    note_unused(store, "lab", PAIR, ["idle", "gone"])
    before = path.read_bytes()
    assert specdec(store, "prune", "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"lab/{PAIR}: would remove idle: not used by any test of the last full run",
        f"lab/{PAIR}: would remove old: measured with another model file",
    ]
    assert path.read_bytes() == before
    assert specdec(store, "prune", "--stale") == 0
    assert capsys.readouterr().out == f"lab/{PAIR}: removed old: measured with another model file\n"
    assert specdec(store, "prune", PAIR, "--unused") == 0
    assert capsys.readouterr().out.startswith(f"lab/{PAIR}: removed idle: ")
    assert set(store.require("lab", PAIR).entries) == {"used"}
    assert specdec(store, "prune") == 0
    assert capsys.readouterr().out == "nothing to remove\n"


def test_prune_by_age_takes_no_others(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, Made("old", curve()))
    save(store, Made("young", curve()), day=datetime.now(UTC).date())
    note_unused(store, "lab", PAIR, ["young"])
    assert specdec(store, "prune", "--older-than", "30") == 0
    assert capsys.readouterr().out == f"lab/{PAIR}: removed old: recorded 2026-03-14\n"
    for days in ("-1", "x", "99999", ""):
        with pytest.raises(SystemExit):
            specdec(store, "prune", f"--older-than={days}")
        assert "must be a number of days" in capsys.readouterr().err


def test_prune_goes_on_after_a_broken_file(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    save(store, Made("idle", curve()))
    store.path("lab", "broken--pair").write_text("{", encoding="utf-8")
    note_unused(store, "lab", PAIR, ["idle"])
    assert specdec(store, "prune") == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"lab/{PAIR}: removed idle")
    assert "broken--pair.json: is truncated or no JSON" in captured.err
    assert specdec(store, "prune", "nothing") == 3
    assert specdec(store, "prune", "mars/nothing") == 3


def nan(text: str) -> str:
    return text.replace('"depth": 0', '"depth": NaN', 1)


SPOILT: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda text: "", "is empty"),
    "truncated": (lambda text: text[: len(text) // 2], "is truncated or no JSON"),
    "wrong type": (
        lambda text: text.replace('"entries": {', '"entries": 3, "x": {', 1),
        "does not hold what",
    ),
    "a time as text": (lambda text: text.replace("15.0", '"15.0"', 1), "is not of type 'number'"),
    "no number": (nan, "NaN is no finite number"),
    "tampered counts": (
        lambda text: text.replace('"accepted": [3, 1, 0]', '"accepted": [9, 1, 0]'),
        "more tokens",
    ),
    "newer": (lambda text: text.replace('"schema_version": ', '"schema_version": 9'), "newer pytest-specdec"),
    "another encoding": (lambda text: text.replace("tests/", "\udcff"), "is not UTF-8 text"),
    "a million entries": (
        lambda text: text.replace('"entries": {', '"entries": {' + '"k":{},' * 1_000_000, 1),
        "more than 200,000 fields",
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_every_action_on_a_spoilt_file_says_what_is_wrong_with_it(
    name: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(store, Made("curve", curve()), Made("counts", speculative())).path
    spoil, words = SPOILT[name]
    path.write_text(spoil(path.read_text(encoding="utf-8")), encoding="utf-8", errors="surrogateescape")
    spoilt = path.read_bytes()
    candidate = leave_candidate(store, Made("curve", curve()))
    for arguments in (
        ["list"],
        ["show", PAIR],
        ["show", str(path)],
        ["diff", str(candidate)],
        ["diff", PAIR, PAIR],
        ["accept", str(candidate)],
        ["accept", str(path)],
        ["anchor", PAIR],
        ["prune", "--older-than", "0"],
    ):
        assert specdec(store, *arguments) == 2, arguments
        captured = capsys.readouterr()
        assert words in captured.out + captured.err, arguments
    assert path.read_bytes() == spoilt
    assert candidate.exists()
