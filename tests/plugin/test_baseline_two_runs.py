"""Two runs that record into one folder at the same time lose nothing of each other's."""

from __future__ import annotations

import json
import subprocess
import sys

from .project import Project


GATES = """
@within_baseline("curve")
def test_curve():
    pass

@within_baseline("acceptance")
def test_counts():
    pass
"""


def test_both_are_recorded_and_hold(project: Project) -> None:
    project.test(GATES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    record = ["--specdec-update=new", "--specdec-history=true"]
    runs = [
        subprocess.Popen([*command, *record, "-k", which], cwd=project.path, stdout=subprocess.PIPE)
        for which in ("curve", "counts")
    ]
    told = [run.communicate()[0].decode() for run in runs]
    assert [run.returncode for run in runs] == [0, 0], told
    (path,) = project.baselines()
    assert {entry["kind"] for entry in json.loads(path.read_text())["entries"].values()} == {
        "speculative",
        "verify_curve",
    }
    assert len((path.parent / "history.jsonl").read_text().splitlines()) == 2
    project.run("-W", "error", passed=2)
