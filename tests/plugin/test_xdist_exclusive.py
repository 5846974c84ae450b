"""With `--specdec-xdist=exclusive` workers measure one at a time, and the controller does what ends a run."""

from __future__ import annotations

import json

import pytest

from .project import Project


pytest.importorskip("xdist")

SOURCE = """
import time

@pytest.mark.parametrize("k", [pytest.param(k, marks=specdec(k=k)) for k in (2, 3, 4, 5)])
@accept_rate(0.3)
@within_baseline("acceptance")
def test_it(k):
    pass
"""


@pytest.fixture
def workers(project: Project) -> Project:
    project.test(SOURCE)
    return project


def test_workers_measure_one_at_a_time(workers: Project) -> None:
    workers.pretend(slow=0.2)
    workers.run("-n2", "--specdec-xdist=exclusive", "--specdec-update=new", "--dist=each", passed=8)
    log = (workers.path / "asked.log").read_text().splitlines()
    turns = [line.split()[:2] for line in log if line.split()[1] in ("begin", "end")]
    assert len({pid for pid, _ in turns}) == 2
    assert len(turns) >= 16
    for (first, begin), (second, end) in zip(turns[::2], turns[1::2], strict=True):
        assert (begin, end, first) == ("begin", "end", second)


def test_the_controller_records_what_workers_measured(workers: Project) -> None:
    result = workers.run("-n2", "--specdec-xdist=exclusive", "--specdec-update=new", passed=4)
    result.stdout.fnmatch_lines(["baseline *.json: *added*"])
    (path,) = workers.baselines()
    entries = json.loads(path.read_text())["entries"]
    assert len(entries) == 4
    workers.run("-n2", "--specdec-xdist=exclusive", passed=4)


def test_the_controllers_summary_has_every_verdict(workers: Project) -> None:
    result = workers.run("-n2", "--specdec-xdist=exclusive", "--specdec-update=new")
    lines = [line for line in result.outlines if "accept_rate(0.3)" in line and line.endswith("pass")]
    assert len(lines) == 4


def test_the_controllers_json_has_every_measurement(workers: Project) -> None:
    workers.run("-n2", "--specdec-xdist=exclusive", "--specdec-update=new", "--specdec-json=out.json")
    told = json.loads((workers.path / "out.json").read_text())
    assert len(told["tests"]) == 4
    assert sum(len(one["kept"]) for one in told["measured"]) == 4
    assert all(one["hello"]["llama_cpp_python"] == "0.0.1" for one in told["measured"])
