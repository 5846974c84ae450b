"""Noise is recorded with a speedup's baseline; a gate tighter than it fails at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_specdec.verdict import Outcome

from .project import Project


SPEEDUP = "@within_baseline('speedup'{})\ndef test_it():\n    pass\n"
CURVE = "@within_baseline('curve'{})\ndef test_it():\n    pass\n"
FAULT = "within_baseline(*): fail: a fault of the gate, which is tighter than the noise: *"


def entries(project: Project) -> dict[str, Any]:
    (path,) = project.baselines()
    found: dict[str, Any] = json.loads(path.read_text())["entries"]
    return {entry["kind"]: entry for entry in found.values()}


def record(project: Project, how: str = "new", **outcomes: int) -> pytest.RunResult:
    return project.run(f"--specdec-update={how}", **(outcomes or {"passed": 1}))


def forget_noise(project: Project) -> None:
    (path,) = project.baselines()
    document = json.loads(path.read_text())
    document["entries"] = {k: e for k, e in document["entries"].items() if e["kind"] != "noise"}
    path.write_text(json.dumps(document))


def test_noise_is_recorded_with_a_speedup(project: Project) -> None:
    project.test(SPEEDUP.format(""))
    record(project)
    assert set(entries(project)) == {"noise", "speed"}
    noise = entries(project)["noise"]
    assert noise["summary"]["pairs"] == 24
    assert 0 < noise["summary"]["noise floor"] < 0.01
    assert noise["used_by"] == ["test_it.py::test_it"]
    project.run(passed=1)
    assert project.measured == ["noise", "speed", "speed"]


def test_a_baseline_without_noise_gets_it(project: Project) -> None:
    project.test(SPEEDUP.format(""))
    record(project)
    forget_noise(project)
    project.run(passed=1)
    assert set(entries(project)) == {"speed"}
    record(project).stdout.fnmatch_lines(["baseline *: 1 measurement added, 1 measurement kept"])
    assert set(entries(project)) == {"noise", "speed"}


def test_noise_is_measured_anew_with_all(project: Project) -> None:
    project.test(SPEEDUP.format(""))
    record(project)
    before = entries(project)["noise"]["summary"]["noise floor"]
    project.pretend(noise=0.002)
    record(project)
    assert entries(project)["noise"]["summary"]["noise floor"] == before
    record(project, "all")
    assert entries(project)["noise"]["summary"]["noise floor"] < before / 2


def test_a_tighter_gate_fails_before_anything_is_measured(project: Project) -> None:
    project.test(SPEEDUP.format(""))
    record(project)
    measured = len(project.measured)
    project.test(SPEEDUP.format(", tolerance=0.001"))
    result = project.run(failed=1)
    result.stdout.fnmatch_lines([FAULT])
    assert len(project.measured) == measured
    (verdict,) = project.verdicts()["test_it"]
    assert verdict.outcome is Outcome.FAIL
    assert (
        "in the baseline), and the tolerance is 0.1%; allow twice the noise, tolerance=0.0" in verdict.because
    )


def test_a_tolerance_under_the_noise_is_refused_while_recording(project: Project) -> None:
    project.pretend(noise=0.5)
    project.test(SPEEDUP.format(", tolerance=0.06"))
    record(project, failed=1).stdout.fnmatch_lines(
        [f"{FAULT}in this run*or record again on a quieter machine"]
    )
    assert project.baselines() == []
    project.test(SPEEDUP.format(", tolerance=0.6"))
    record(project)
    project.run(passed=1)


def test_a_default_under_the_noise_is_widened_and_says_so(project: Project) -> None:
    project.pretend(noise=0.2)
    project.test(SPEEDUP.format(""))
    record(project)
    project.pretend(noise=0.2, speedup=1.2)
    project.run(passed=1)
    (verdict,) = project.verdicts()["test_it"]
    assert "held with a tolerance of" in verdict.because
    assert "plain decoding against itself" in verdict.because
    project.pretend(noise=0.2, speedup=0.4)
    project.run(failed=1)


def test_a_gate_wider_than_the_noise_is_held(project: Project) -> None:
    project.test(SPEEDUP.format(""))
    record(project)
    project.pretend(speedup=0.9)
    result = project.run(failed=1)
    assert "fault of the gate" not in result.stdout.str()


def test_the_noise_of_a_curve_is_its_own(project: Project) -> None:
    project.test(CURVE.format(""))
    record(project)
    assert set(entries(project)) == {"verify_curve"}
    project.test(CURVE.format(", tolerance=0.000001"))
    project.run(failed=1).stdout.fnmatch_lines([FAULT])
    project.test(CURVE.format(", tolerance=0.02"))
    project.run(passed=1)


def test_a_limit_without_a_tolerance_has_no_such_fault(project: Project) -> None:
    project.pretend(noise=0.9)
    project.test("@min_speedup(1.2999)\ndef test_it():\n    pass\n")
    project.run(passed=1)
    assert project.measured == ["speed"]


LOADED = {"seconds": 20.0, "foreign_share": 0.43}


def test_a_disturbed_run_warns_of_times_and_passes_on_counters(project: Project) -> None:
    project.pretend(environment=LOADED, speedup=0.5)
    project.test("@accept_rate(0.5)\n@min_speedup(1.2)\n@cliff_at(9)\ndef test_it():\n    pass\n")
    result = project.run(passed=1, warnings=2)
    result.stdout.fnmatch_lines(["*other processes used 43% of the cores; run it again on a quiet machine*"])
    outcomes = [verdict.outcome for verdict in project.verdicts()["test_it"]]
    assert outcomes == [Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE]
    project.run("--specdec-inconclusive=fail", failed=1)
    project.pretend(environment=LOADED, accepted=0)
    project.run(failed=1)


def test_a_baseline_recorded_in_a_disturbed_run_says_so(project: Project) -> None:
    project.pretend(environment=LOADED, noise=0.9)
    project.test(SPEEDUP.format(""))
    record(project)
    (verdict,) = project.verdicts()["test_it"]
    assert verdict.because.startswith("recorded as new baseline, but the run was disturbed: other processes")
    assert entries(project)["speed"]["measurement"]["environment"] == LOADED
    # Noise of a disturbed run condemns no gate.
    project.pretend()
    project.run(passed=1)


def test_more_looks_are_not_taken_in_a_disturbed_run(project: Project) -> None:
    project.test("@min_speedup(1.3)\ndef test_it():\n    pass\n")
    project.run(passed=1)
    project.pretend(environment=LOADED)
    project.run(passed=1, warnings=1)
    assert [line for line in project.asked if line.startswith("pairs")] == ["pairs=24", "pairs=24"]
