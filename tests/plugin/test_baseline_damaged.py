"""A baseline that is damaged, however it came to that, fails the tests that need it, in clear words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .project import Project


CURVE = "@within_baseline('curve')\ndef test_curve():\n    pass\n"


def text(change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda path: path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def data(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        document = json.loads(path.read_text(encoding="utf-8"))
        change(document)
        path.write_text(json.dumps(document), encoding="utf-8")

    return damage


def curve(document: dict[str, Any]) -> dict[str, Any]:
    (entry,) = document["entries"].values()
    found: dict[str, Any] = entry["measurement"]
    return found


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (text(lambda text: ""), "is empty"),
    "truncated": (text(lambda text: text[:-30]), "is truncated or no JSON"),
    "merged badly": (text(lambda text: f"<<<<<<< HEAD\n{text}"), "is truncated or no JSON"),
    "twice the same key": (
        text(lambda text: text.replace('"pair":', '"pair": "x", "pair":')),
        "the key pair stands there twice",
    ),
    "no number": (text(lambda text: text.replace("10.0", "NaN", 1)), "NaN is no finite number"),
    "endless": (text(lambda text: text.replace("10.0", "1e999", 1)), "is no finite number"),
    "wrong type": (data(lambda d: curve(d).update(n="1-16")), "'1-16' is not of type 'array'"),
    "a time as text": (data(lambda d: curve(d)["samples_ms"][0][0].append("9")), "'9' is not of type"),
    "a time below zero": (data(lambda d: curve(d)["samples_ms"][0][0].append(-9)), "-9 is less than"),
    "a size taken out": (data(lambda d: curve(d)["n"].pop()), "batch sizes, but samples for"),
    "no entries": (data(lambda d: d.pop("entries")), "'entries' is a required property"),
    "an entry more than it knows": (data(lambda d: d.update(extra=1)), "'extra' was unexpected"),
    "a build taken out": (data(lambda d: d["builds"].clear()), "not in builds"),
    "a million entries": (
        text(lambda text: text.replace('"entries": {', '"entries": {' + '"k":{},' * 1_000_000)),
        "holds more than 200,000 fields",
    ),
    "another pair's": (data(lambda d: d.update(pair="other--none")), "holds the pair other--none"),
    "a folder": (folder, "is no file"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_it_fails_whatever_the_policy_and_stays_as_it_is(project: Project, name: str) -> None:
    project.test(CURVE)
    project.run("--specdec-update=new", passed=1)
    (path,) = project.baselines()
    damage, words = DAMAGES[name]
    damage(path)
    damaged = path.read_bytes() if path.is_file() else None
    for args in (("--specdec-missing=skip",), ("--specdec-update=new",), ("--specdec-update=all",)):
        result = project.run(*args)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        told = result.stdout.str()
        assert words in told
        assert f"within_baseline('curve'): fail: {path}: " in told
        assert "Traceback" not in told + result.stderr.str()
        assert "INTERNALERROR" not in told
    assert (path.read_bytes() if path.is_file() else None) == damaged
