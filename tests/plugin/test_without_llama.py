"""Without the packages that measuring needs the plugin loads and helps, and gates say what to install."""

from __future__ import annotations

import sys

import pytest

from .project import Project


INSTALL = 'pip install "pytest-specdec[llama]"'
GATES = """
@cliff_at(9)
@lossless()
def test_gate():
    pass

def test_fixture(specdec):
    specdec.decode()

def test_machine(specdec_machine):
    pass

def test_plain():
    pass
"""


def hide(project: Project, *packages: str) -> None:
    """Hide packages from workers."""
    folder = project.path / "hidden"
    folder.mkdir()
    for name in packages:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is hidden', name='{name}')\n")
    project.pytester.makeini(f"[pytest]\nspecdec_target = toy.gguf\nspecdec_env = PYTHONPATH={folder}\n")
    (project.path / "toy.gguf").touch()


@pytest.fixture
def bare(project: Project) -> Project:
    """A project without double, where packages are hidden from pytest, by a plugin, and from workers."""
    (project.path / "conftest.py").unlink()
    hidden = ["numpy", "pandas", "jsonschema", "llama_cpp", "gguf"]
    (project.path / "without.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({hidden}))\n")
    hide(project, *hidden)
    project.test(GATES)
    return project


def run(project: Project, *args: str) -> pytest.RunResult:
    return project.pytester.runpytest_subprocess("-p", "without", "-p", "no:hypothesispytest", *args)


@pytest.mark.parametrize("option", ["--markers", "--help", "--fixtures"])
def test_the_plugin_loads_and_helps(bare: Project, option: str) -> None:
    result = run(bare, option)
    assert result.ret == 0
    assert "specdec" in result.stdout.str()


def test_gates_fail_with_the_install_command(bare: Project) -> None:
    result = run(bare)
    result.assert_outcomes(passed=1, failed=2, errors=1)
    told = result.stdout.str()
    assert f"cliff_at(9): not measured: the package numpy is not installed: {INSTALL}" in told
    assert f"lossless(): not measured: the package numpy is not installed: {INSTALL}" in told
    assert told.count(INSTALL) >= 4
    assert "Traceback" not in told


def test_gates_are_skipped_where_policy_says_so_but_never_green(bare: Project) -> None:
    result = run(bare, "--specdec-missing=skip")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "no gate measured anything: " in result.stdout.str()


def test_an_interpreter_without_llama_cpp_python(project: Project) -> None:
    (project.path / "conftest.py").unlink()
    hide(project, "llama_cpp")
    project.test("@cliff_at(9)\ndef test_gate():\n    pass\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = result.stdout.str()
    assert "cliff_at(9): not measured: " in told
    assert INSTALL in told
    assert sys.executable in told


def test_an_interpreter_that_does_not_exist(project: Project) -> None:
    (project.path / "conftest.py").unlink()
    (project.path / "toy.gguf").touch()
    project.test("@cliff_at(9)\ndef test_gate():\n    pass\n")
    result = project.run("--specdec-python=no/such/python", failed=1)
    result.stdout.fnmatch_lines(["cliff_at(9): not measured: *no/such/python*--specdec-python"])
