"""The fixture `specdec_machine` is the machine that baselines are kept for."""

from __future__ import annotations

from .project import Project


def test_it_is_this_machine(project: Project) -> None:
    project.test("def test_it(specdec_machine):\n    assert specdec_machine.hard['backend'] == 'cpu'\n")
    project.run(passed=1)


def test_without_llama_cpp_it_fails_or_skips(project: Project) -> None:
    project.pretend(missing=["hello"])
    project.test("def test_it(specdec_machine):\n    pass\n")
    project.run(errors=1).stdout.fnmatch_lines(["*no llama-cpp-python in the double*"])
    assert project.run("--specdec-missing=skip", skipped=1).ret == 0
