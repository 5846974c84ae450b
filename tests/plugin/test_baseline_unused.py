"""The end of a full run names entries that no test used; a part of the tests, or a red run, says nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import pytest

from pytest_specdec.cli import main

from .project import Project


TWO = """
@within_baseline("curve")
def test_curve():
    pass

@within_baseline("acceptance")
def test_counts():
    pass
"""
ONE = TWO.replace('@within_baseline("acceptance")\n', "")


@pytest.fixture
def recorded(project: Project) -> Project:
    """A project with two entries, one of which its tests don't use any more."""
    project.test(TWO)
    project.run("--specdec-update=new", passed=2).stdout.no_fnmatch_line("not used by *")
    project.test(ONE)
    return project


def named(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("not used by any test of this run: ")]


def entries(project: Project) -> list[str]:
    (path,) = project.baselines()
    return sorted(entry["kind"] for entry in json.loads(path.read_text())["entries"].values())


@pytest.mark.parametrize("args", [(), ("--specdec-baseline-dir=kept here",)])
def test_the_printed_command_removes_them(project: Project, args: tuple[str, ...]) -> None:
    project.test(TWO)
    project.run("--specdec-update=new", *args, passed=2)
    project.test(ONE)
    (line,) = named(project.run(*args, passed=2))
    assert "speculative k=3" in line
    assert "verify_curve" not in line
    program, *arguments = shlex.split(line.partition("; remove with ")[2])
    assert program == "specdec"
    assert main([*arguments, "--dry-run"]) == 0
    assert main(arguments) == 0
    assert named(project.run(*args, passed=2)) == []


def test_prune_knows_the_last_full_run(recorded: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baseline", "prune"]) == 0
    assert "nothing to remove" in capsys.readouterr().out
    recorded.run(passed=2)
    capsys.readouterr()
    assert main(["baseline", "prune", "--dry-run"]) == 0
    assert "would remove speculative k=3" in capsys.readouterr().out
    assert entries(recorded) == ["speculative", "verify_curve"]
    assert main(["baseline", "prune"]) == 0
    assert entries(recorded) == ["verify_curve"]


def test_what_a_later_run_uses_is_not_pruned(recorded: Project, capsys: pytest.CaptureFixture[str]) -> None:
    recorded.run(passed=2)
    recorded.test(TWO)
    recorded.run("-k", "counts", passed=1, deselected=1)
    capsys.readouterr()
    assert main(["baseline", "prune"]) == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_a_damaged_note_is_told_and_mended_by_the_next_full_run(
    recorded: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.run(passed=2)
    (note,) = recorded.path.glob("baselines/.unused/*.json")
    note.write_text("{")
    capsys.readouterr()
    assert main(["baseline", "prune"]) == 2
    assert "delete it; the next full run writes it anew" in capsys.readouterr().err
    recorded.run("test_it.py::test_curve", passed=1).stdout.fnmatch_lines(["*.unused*delete it; *"])
    recorded.run(passed=2)
    assert main(["baseline", "prune"]) == 0
    assert entries(recorded) == ["verify_curve"]


@pytest.mark.parametrize(
    ("args", "full"),
    [
        (("-k", "test"), True),
        (("-k", "curve"), False),
        (("-m", "specdec"), False),
        (("test_it.py",), True),
        (("test_it.py::test_curve",), False),
        (("--deselect=test_it.py::test_counts",), False),
    ],
)
def test_a_part_of_the_tests_says_nothing(recorded: Project, args: tuple[str, ...], full: bool) -> None:
    result = recorded.run(*args)
    assert result.ret == 0
    assert bool(named(result)) is full


Change = Callable[[Project], object]


def skipped(project: Project) -> None:
    project.test(
        TWO.replace('@within_baseline("acceptance")', '@pytest.mark.skip\n@within_baseline("acceptance")')
    )


def failed(project: Project) -> None:
    project.test(ONE + "\ndef test_fails():\n    assert False\n")


def without_its_file(project: Project) -> None:
    (project.path / "test_it.py").rename(project.path / "test_other.py")


def in_another_file(project: Project) -> None:
    """The test that used it stands in a file that this run leaves out."""
    project.test("@within_baseline('curve')\ndef test_curve():\n    pass\n", test_more=TWO)
    path = project.baselines()[0]
    path.write_text(path.read_text().replace("test_it.py::test_counts", "test_more.py::test_counts"))


@pytest.mark.parametrize(
    ("change", "args", "told"),
    [
        (skipped, (), False),
        (failed, (), False),
        (in_another_file, ("test_it.py",), False),
        (without_its_file, (), True),
    ],
)
def test_it_is_named_only_when_no_test_can_need_it(
    recorded: Project, change: Change, args: tuple[str, ...], told: bool
) -> None:
    change(recorded)
    assert bool(named(recorded.run(*args))) is told


def test_a_test_that_could_not_measure_may_need_it(project: Project) -> None:
    source = "@accept_rate(0.5)\n@within_baseline('curve')\ndef test_it():\n    pass\n"
    project.test(source)
    project.run("--specdec-update=new", passed=1)
    project.pretend(missing=["speculative"])
    assert named(project.run(passed=1)) == []
    project.pretend()
    project.test(source.replace("@accept_rate(0.5)\n", ""))
    assert len(named(project.run(passed=1))) == 1


def test_what_a_limit_only_looks_up_is_used(project: Project) -> None:
    source = "@kernel_thresholds(4, 8)\ndef test_map():\n    pass\n"
    project.test(source + "\n@within_baseline('curve')\ndef test_curve():\n    pass\n")
    project.run("--specdec-update=new", passed=2)
    project.test(source + "\ndef test_curve():\n    pass\n")
    assert named(project.run(passed=2)) == []


def test_a_folder_that_may_not_be_written_leaves_the_run_green(recorded: Project) -> None:
    (recorded.path / "baselines" / ".unused").write_text("in the way")
    result = recorded.run(passed=2)
    assert result.ret == 0
    assert len(named(result)) == 1
    result.stdout.fnmatch_lines(["*.unused*can't be written*"])


def test_without_a_baseline_nothing_is_written(project: Project) -> None:
    project.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    project.run(passed=1)
    assert not (project.path / "baselines").exists()
