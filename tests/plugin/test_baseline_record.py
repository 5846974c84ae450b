"""`--specdec-update` records what tests that pass measured; every other run leaves baselines alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .project import Project


CURVE = "@within_baseline('curve')\ndef test_curve():\n    pass\n"
ALL = "@within_baseline()\ndef test_all():\n    pass\n"
# What all metrics but the curve record.
KINDS = ["draft_cost", "kernel_map", "kernel_map", "noise", "speculative", "speed", "timeline"]


def entries(project: Project) -> dict[str, Any]:
    (path,) = project.baselines()
    found: dict[str, Any] = json.loads(path.read_text())["entries"]
    return found


def kinds(project: Project) -> list[str]:
    return sorted(entry["kind"] for entry in entries(project).values())


def test_new_records_and_the_next_run_holds(project: Project) -> None:
    project.test(ALL)
    result = project.run("--specdec-update=new", "-W", "error", passed=1)
    result.stdout.fnmatch_lines(["baseline baselines/*/toy--none.json: 8 measurements added"])
    assert kinds(project) == sorted([*KINDS, "verify_curve"])
    verdicts = project.verdicts()["test_all"]
    assert all("recorded as new baseline" in verdict.because for verdict in verdicts)
    assert all(verdict.value is not None and verdict.baseline is None for verdict in verdicts)
    before = project.baselines()[0].read_bytes()
    project.run("-W", "error", passed=1)
    assert project.baselines()[0].read_bytes() == before
    held = project.verdicts()["test_all"]
    assert {verdict.metric for verdict in held if verdict.baseline is None} == {"kernel map"}


def test_a_recorded_speedup_takes_every_look(project: Project) -> None:
    project.test("@within_baseline('speedup')\ndef test_it():\n    pass\n")
    project.run("--specdec-update=new", passed=1)
    project.run(passed=1)
    assert [line for line in project.asked if line.startswith("pairs")] == ["pairs=48", "pairs=8"]


def test_measurements_of_other_limits_are_recorded_too(project: Project) -> None:
    project.test("@cliff_at(9)\n@lossless()\ndef test_it(specdec):\n    specdec.draft_cost()\n")
    project.run("--specdec-update=new", passed=1)
    assert kinds(project) == ["exactness", "verify_curve"]
    (used,) = {tuple(entry["used_by"]) for entry in entries(project).values()}
    assert used == ("test_it.py::test_it",)


def test_without_a_baseline_it_fails_and_says_how_to_record(project: Project) -> None:
    project.test(CURVE)
    result = project.run(failed=1)
    result.stdout.fnmatch_lines(["within_baseline('curve'): not measured: *record with --specdec-update=new"])
    assert project.baselines() == []


def test_without_a_baseline_it_skips_when_asked_to(project: Project) -> None:
    project.test(CURVE + "\n@lossless()\ndef test_holds():\n    pass\n")
    project.run("--specdec-missing=skip", skipped=1, passed=1)


def test_a_missing_entry_says_how_to_record(project: Project) -> None:
    project.test(CURVE)
    project.run("--specdec-update=new", passed=1)
    project.test(ALL)
    project.run(passed=1, warnings=6).stdout.fnmatch_lines(
        ["*the baseline holds no acceptance for these settings: record *--specdec-update=new*"]
    )
    project.run("--specdec-update=new", passed=1).stdout.fnmatch_lines(
        ["baseline *: 7 measurements added, 1 measurement kept"]
    )


def test_new_does_not_touch_what_is_there(project: Project) -> None:
    project.test(CURVE)
    project.run("--specdec-update=new", passed=1)
    before = project.baselines()[0].read_bytes()
    project.pretend(curve={"5": 14.5})
    project.run("--specdec-update=new", failed=1)
    assert project.baselines()[0].read_bytes() == before


def test_all_replaces_and_passes(project: Project) -> None:
    project.test(CURVE)
    project.run("--specdec-update=new", passed=1)
    project.pretend(curve={"5": 14.5})
    project.run(failed=1)
    result = project.run("--specdec-update=all", passed=1)
    result.stdout.fnmatch_lines(["baseline *: 1 measurement replaced"])
    (verdict,) = project.verdicts()["test_curve"]
    assert verdict.because.startswith("recorded over the old baseline, against which: fail: ")
    project.run(failed=1).stdout.fnmatch_lines(["within_baseline('curve'): fail: drifted since *"])


def test_what_a_failed_test_relied_on_is_not_recorded(project: Project) -> None:
    project.test(ALL + "\n@no_cliff(16)\ndef test_fails():\n    pass\n")
    result = project.run("--specdec-update=new", passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["1 measurement not recorded, for these did not pass: test_it.py::test_fails"]
    )
    assert kinds(project) == KINDS


@pytest.mark.parametrize(
    ("how", "outcomes"),
    [
        ("@pytest.mark.xfail", {"xpassed": 1}),
        ("@pytest.mark.usefixtures('broken')", {"passed": 1, "errors": 1}),
    ],
)
def test_nor_what_a_test_with_another_outcome_did(
    project: Project, how: str, outcomes: dict[str, int]
) -> None:
    project.test(
        "@pytest.fixture\ndef broken():\n    yield\n    raise OSError\n\n"
        + CURVE.replace("@within", f"{how}\n@within")
    )
    project.run("--specdec-update=new", **outcomes)
    assert project.baselines() == []


def test_a_part_of_the_tests_leaves_other_entries(project: Project) -> None:
    project.test(ALL)
    project.run("--specdec-update=new", passed=1)
    project.test(CURVE)
    project.run("--specdec-update=all", passed=1).stdout.fnmatch_lines(["baseline *: 1 measurement replaced"])
    assert len(entries(project)) == 8


def test_settings_that_differ_are_other_entries(project: Project) -> None:
    project.test(
        """
        @pytest.mark.parametrize("k", [pytest.param(k, marks=specdec(k=k)) for k in (2, 3)])
        @within_baseline("acceptance")
        def test_it(k):
            pass
        """
    )
    project.run("--specdec-update=new", passed=2)
    assert len(entries(project)) == 2
    project.run("-k", "3", passed=1, deselected=1)


def test_each_pair_has_its_file(project: Project) -> None:
    project.test(
        CURVE + "\n@specdec(target='other.gguf')\n@within_baseline('curve')\ndef test_b():\n    pass\n"
    )
    project.run("--specdec-update=new", passed=2)
    assert [path.name for path in project.baselines()] == ["other--none.json", "toy--none.json"]


def test_the_machine_and_the_folder_can_be_named(project: Project) -> None:
    project.test(CURVE)
    args = ("--specdec-machine=bench-1", "--specdec-baseline-dir=kept")
    project.run("--specdec-update=new", *args, passed=1)
    assert (project.path / "kept" / "bench-1" / "toy--none.json").exists()
    project.run(*args, passed=1)
    project.run("--specdec-machine=bench-2", "--specdec-baseline-dir=kept", failed=1).stdout.fnmatch_lines(
        ["*no baselines for machine bench-2 (known machines: bench-1)*"]
    )


def break_file(path: Path) -> None:
    path.write_text(path.read_text()[:100])


def from_the_future(path: Path) -> None:
    document = json.loads(path.read_text())
    document["schema_version"] = 99
    path.write_text(json.dumps(document))


def other_hardware(path: Path) -> None:
    document = json.loads(path.read_text())
    document["machine"]["hard"]["cores"] = 999
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (break_file, "is truncated or no JSON"),
        (from_the_future, "was written by a newer pytest-specdec"),
        (other_hardware, "was recorded on another machine"),
    ],
)
def test_a_file_that_cannot_be_used_fails_the_test_with_its_words(
    project: Project, spoil: Any, told: str
) -> None:
    project.test(CURVE + "\n@lossless()\ndef test_holds():\n    pass\n")
    project.run("--specdec-update=new", passed=2)
    (path,) = project.baselines()
    spoil(path)
    spoiled = path.read_bytes()
    result = project.run("--specdec-missing=skip", failed=1, passed=1)
    result.stdout.fnmatch_lines([f"within_baseline('curve'): fail: *toy--none.json: *{told}*"])
    project.run("--specdec-update=all", failed=1, passed=1)
    assert path.read_bytes() == spoiled


def test_a_baseline_that_cannot_be_written_ends_the_run_red(project: Project) -> None:
    project.test(CURVE)
    (project.path / "baselines").write_text("in the way")
    result = project.run("--specdec-update=new")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "baselines" in result.stdout.str()


def test_without_update_nothing_is_written(project: Project) -> None:
    project.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    project.run(passed=1)
    assert not (project.path / "baselines").exists()
