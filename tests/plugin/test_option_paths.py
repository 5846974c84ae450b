"""Relative paths begin where they were written; names of models stay names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_specdec.run import RUN
from pytest_specdec.settings import Settings
from pytest_specdec.values import File

from .project import Project


@pytest.fixture
def elsewhere(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = project.path / "elsewhere"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def settings(project: Project, *args: str) -> Settings:
    return project.pytester.parseconfigure(str(project.path), *args).stash[RUN].settings


def test_an_ini_value_begins_at_its_file(project: Project, elsewhere: Path) -> None:
    project.pytester.makeini("[pytest]\nspecdec_target = m/a.gguf\nspecdec_baseline_dir = b\n")
    found = settings(project)
    assert found.target == str(project.path / "m/a.gguf")
    assert found.baseline_dir == project.path / "b"


def test_the_command_line_and_the_environment_begin_in_the_working_directory(
    project: Project, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_DRAFT", "m/d.gguf")
    found = settings(project, "--specdec-target=../a.gguf", "--specdec-json=o/r.json")
    assert found.target == str(project.path / "a.gguf")
    assert found.draft == str(elsewhere / "m/d.gguf")
    assert found.json == elsewhere / "o/r.json"


def test_a_mark_and_the_default_begin_at_rootdir(project: Project, elsewhere: Path) -> None:
    found = settings(project)
    assert found.merged(target="m/a.gguf").target == str(project.path / "m/a.gguf")
    assert found.baseline_dir == project.path / "baselines"


def test_a_path_object_is_taken(project: Project) -> None:
    assert settings(project).merged(target=Path("a.gguf")).target == str(project.path / "a.gguf")


@pytest.mark.parametrize(
    ("written", "located"),
    [
        ("smollm2-135m", "smollm2-135m"),
        ("requantize:Q2_K", "requantize:Q2_K"),
        ("default", "default"),
        ("default::code,list", "default::code,list"),
        ("~/a.gguf", "~/a.gguf"),
        ("a.gguf", "{base}/a.gguf"),
        ("m/model", "{base}/m/model"),
        ("plain-file", "{base}/plain-file"),
        ("mine.jsonl::code", "{base}/mine.jsonl::code"),
        ("../a.gguf", "{parent}/a.gguf"),
        ("{base}/x.gguf", "{base}/x.gguf"),
    ],
)
def test_names_stay_and_paths_become_absolute(tmp_path: Path, written: str, located: str) -> None:
    (tmp_path / "plain-file").touch()
    places = {"base": tmp_path, "parent": tmp_path.parent}
    expected = (
        located.format(**places).replace("/", os.sep) if located != written else located.format(**places)
    )
    assert File().locate(written.format(**places), tmp_path) == expected


def test_an_interpreter_on_the_path_stays_a_name(project: Project) -> None:
    assert settings(project, "--specdec-python=python3").python == "python3"
    found = settings(project, "--specdec-python=.venv/bin/python").python
    assert found == str(project.path / ".venv/bin/python")
