"""A plugin that isn't used costs nothing: no heavy package is imported, and few of our own modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .project import Project


HEAVY = {"numpy", "pandas", "jsonschema", "llama_cpp", "gguf", "scipy", "matplotlib", "jinja2"}
OURS = {
    "pytest_specdec",
    "pytest_specdec.configuration",
    "pytest_specdec.fixtures",
    "pytest_specdec.limits",
    "pytest_specdec.marks",
    "pytest_specdec.plugin",
    "pytest_specdec.run",
    "pytest_specdec.settings",
    "pytest_specdec.values",
    "pytest_specdec.verdict",
}
SPY = """
import sys

def pytest_unconfigure():
    with open("seen.txt", "w") as file:
        file.write("\\n".join(sorted(sys.modules)))
"""


def seen(project: Project, *args: str) -> set[str]:
    (project.path / "conftest.py").unlink()
    (project.path / "spy.py").write_text(SPY)
    result = project.pytester.runpytest_subprocess("-p", "spy", "-p", "no:hypothesispytest", *args)
    assert result.ret == 0
    return set((project.path / "seen.txt").read_text().split())


@pytest.mark.parametrize("args", [(), ("--collect-only",), ("--markers",), ("--help",)])
def test_an_unused_plugin_imports_nothing_heavy(project: Project, args: tuple[str, ...]) -> None:
    (project.path / "test_plain.py").write_text("def test_it():\n    pass\n")
    modules = seen(project, *args)
    assert not HEAVY & modules
    assert {name for name in modules if name.startswith("pytest_specdec")} == OURS


def test_marks_that_are_not_run_import_nothing_heavy(project: Project) -> None:
    project.test("@cliff_at(9)\ndef test_gate(specdec):\n    pass\n\ndef test_plain():\n    pass\n")
    assert not HEAVY & seen(project, "-m", "not specdec")


def test_the_package_itself_imports_nothing_heavy() -> None:
    code = "import pytest_specdec, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())
