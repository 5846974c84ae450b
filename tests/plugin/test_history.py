"""`--specdec-history=true` keeps the figures of green runs, one line per pair."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest

from pytest_specdec.cli import main

from .project import Project


KEEP = "--specdec-history=true"
GATES = """
@cliff_at(9)
def test_curve():
    pass

@specdec(target="other.gguf")
@accept_rate(0.5)
def test_counts():
    pass
"""


def lines(project: Project) -> list[dict[str, Any]]:
    files = list(project.path.glob("baselines/*/history.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_green_run_adds_a_line_per_pair(project: Project) -> None:
    project.test(GATES)
    project.run(KEEP, passed=2).stdout.fnmatch_lines(["history baselines/*/history.jsonl: 2 lines added"])
    first, second = lines(project)
    assert [first["pair"], second["pair"]] == ["toy--none", "other--none"]
    assert first["at"] == second["at"]
    assert first["build"].startswith("0.0.1-012345678-")
    assert first["plugin"] == version("pytest-specdec")
    assert list(first["figures"]) == ["verify_curve k=3 n_ubatch=512"]
    assert second["figures"]["speculative k=3 n_ubatch=512"]["acceptance rate"] == pytest.approx(
        2 / 3, rel=1e-5
    )
    project.run(KEEP, passed=2)
    assert len(lines(project)) == 4


@pytest.mark.parametrize(
    ("source", "args"),
    [
        (GATES, ()),
        (GATES + "\ndef test_fails():\n    assert False\n", (KEEP,)),
        ("@accept_rate(0.9)\ndef test_it():\n    pass\n", (KEEP,)),
        (
            GATES
            + "\n@pytest.fixture\ndef broken():\n    yield\n    1 / 0\n\ndef test_it(broken):\n    pass\n",
            (KEEP,),
        ),
        ("def test_it():\n    pass\n", (KEEP,)),
        (GATES, (KEEP, "--collect-only")),
    ],
)
def test_no_other_run_does(project: Project, source: str, args: tuple[str, ...]) -> None:
    project.test(source)
    project.run(*args)
    assert lines(project) == []


def test_nor_one_whose_baseline_could_not_be_written(project: Project) -> None:
    project.test("@within_baseline('curve')\ndef test_curve():\n    pass\n")
    project.run("--specdec-update=new", "--specdec-machine=lab", passed=1)
    project.test("@within_baseline('acceptance')\ndef test_it():\n    pass\n")
    path = project.baselines()[0]
    (path.parent / f".{path.name}.lock").mkdir()
    result = project.run(KEEP, "--specdec-update=new", "--specdec-machine=lab", passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert lines(project) == []


def test_a_history_that_cannot_be_written_ends_the_run_red(project: Project) -> None:
    project.test(GATES)
    (project.path / "baselines" / "lab" / "history.jsonl").mkdir(parents=True)
    result = project.run(KEEP, "--specdec-machine=lab", passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["specdec: *history.jsonl: can't be written (Is a directory)*"])


def test_the_command_shows_them(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.test(GATES)
    project.run(KEEP, passed=2)
    project.run(KEEP, passed=2)
    capsys.readouterr()
    assert main(["history", "other--none"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("other--none on ")
    assert len([line for line in out if line.startswith("  20")]) == 2
    assert sum("build 0.0.1-012345678-" in line for line in out) == 1
