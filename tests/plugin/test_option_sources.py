"""Every setting can come from mark, command line, environment and ini file, in this order of precedence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.marks import stack
from pytest_specdec.run import RUN
from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Settings

from .project import Project


# Four values as text, none of them the default: for the ini file, the environment, the command line, a mark.
TEXTS: dict[str, tuple[str, str, str, str]] = {
    "target": ("a-target", "b-target", "c-target", "d-target"),
    "draft": ("a-draft", "b-draft", "requantize:Q2_K", "d-draft"),
    "method": ("two-model", "ngram", "two-model", "ngram"),
    "k": ("4", "5", "6", "7"),
    "prompts": ("a", "b", "default::code", "d"),
    "n_predict": ("10", "11", "12", "13"),
    "depth": ("10", "11", "12", "13"),
    "n_ctx": ("10", "11", "12", "13"),
    "n_batch": ("10", "11", "12", "13"),
    "n_ubatch": ("10", "11", "12", "13"),
    "threads": ("1", "2", "3", "4"),
    "gpu_layers": ("0", "1", "2", "3"),
    "backend": ("cpu", "metal", "cuda", "vulkan"),
    "flash_attn": ("on", "off", "on", "off"),
    "type_k": ("f32", "q8_0", "bf16", "q4_0"),
    "type_v": ("f32", "q8_0", "bf16", "q4_0"),
    "use_extra_bufts": ("false", "true", "false", "true"),
    "swa_full": ("no", "yes", "no", "yes"),
    "sizes": ("1-4", "1,2,8", "8,4,1", "2-3"),
    "blocks": ("9", "10", "11", "12"),
    "calls": ("4", "5", "6", "7"),
    "ngram_max": ("4", "5", "6", "7"),
    "seed": ("1", "2", "3", "4294967295"),
    "python": ("python3.11", "python3.12", "python3.13", ""),
    "env": ("A=1 'B=2 3'", "C=1", "D=1=2", ""),
    "baseline_dir": ("a", "b", "c", ""),
    "machine": ("a", "b", "c", ""),
    "missing": ("skip", "fail", "skip", ""),
    "update": ("new", "all", "new", ""),
    "inconclusive": ("fail", "warn", "fail", ""),
    "budget": ("1", "2.5", "3", ""),
    "alpha": ("0.1", "0.2", "0.3", ""),
    "timeout": ("1", "2.5", "3", ""),
    "json": ("a.json", "b.json", "c.json", ""),
    "xdist": ("exclusive", "refuse", "exclusive", ""),
}
RUN_SETTINGS = [option.name for option in OPTIONS.values() if option.run]


def expected(project: Project, name: str, text: str) -> Any:
    kind = OPTIONS[name].kind
    return kind.locate(kind.read(text), project.path)


def settings(project: Project, *args: str) -> Settings:
    return project.pytester.parseconfigure(*args).stash[RUN].settings


def ini(project: Project, name: str) -> None:
    project.pytester.makeini(f"[pytest]\nspecdec_{name} = {TEXTS[name][0]}\n")


def test_every_setting_is_here() -> None:
    assert list(TEXTS) == list(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_default(project: Project, name: str) -> None:
    project.pytester.makeini("[pytest]\n")
    default = Path(project.path) / "baselines" if name == "baseline_dir" else OPTIONS[name].default
    assert getattr(settings(project), name) == default


@pytest.mark.parametrize("name", OPTIONS)
def test_ini_over_default(project: Project, name: str) -> None:
    ini(project, name)
    assert getattr(settings(project), name) == expected(project, name, TEXTS[name][0])


@pytest.mark.parametrize("name", OPTIONS)
def test_environment_over_ini(project: Project, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ini(project, name)
    monkeypatch.setenv(OPTIONS[name].variable, TEXTS[name][1])
    assert getattr(settings(project), name) == expected(project, name, TEXTS[name][1])


@pytest.mark.parametrize("name", OPTIONS)
def test_command_line_over_environment(project: Project, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ini(project, name)
    monkeypatch.setenv(OPTIONS[name].variable, TEXTS[name][1])
    found = settings(project, f"{OPTIONS[name].flag}={TEXTS[name][2]}")
    assert getattr(found, name) == expected(project, name, TEXTS[name][2])


@pytest.mark.parametrize("name", RUN_SETTINGS)
def test_mark_over_command_line(project: Project, name: str) -> None:
    ini(project, name)
    value = OPTIONS[name].kind.read(TEXTS[name][3])
    project.test(f"@specdec({name}={value!r})\ndef test_it():\n    pass\n")
    items, _ = project.pytester.inline_genitems(f"{OPTIONS[name].flag}={TEXTS[name][2]}")
    (item,) = items
    merged = item.config.stash[RUN].settings.merged(**stack(item).settings)
    assert getattr(merged, name) == expected(project, name, TEXTS[name][3])


def test_an_empty_variable_counts_as_unset(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_TARGET", "")
    monkeypatch.setenv("SPECDEC_K", "")
    assert settings(project).target == str(project.path / "toy.gguf")
    assert settings(project).k == 3


def test_an_empty_argument_takes_an_optional_value_away(project: Project) -> None:
    assert settings(project, "--specdec-target=").target is None


def test_ini_values_may_be_native(project: Project) -> None:
    (project.path / "tox.ini").unlink()
    project.pytester.makepyprojecttoml(
        """
        [tool.pytest.ini_options]
        specdec_k = 4
        specdec_swa_full = false
        specdec_timeout = 2.5
        specdec_env = ["A=1", "B=2 3"]
        specdec_sizes = "1-4"
        """
    )
    found = settings(project)
    assert (found.k, found.swa_full, found.timeout, found.sizes) == (4, False, 2.5, (1, 2, 3, 4))
    assert found.env == (("A", "1"), ("B", "2 3"))


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="native TOML came with pytest 9")
def test_ini_values_of_native_toml(project: Project) -> None:
    (project.path / "tox.ini").unlink()
    project.pytester.makepyprojecttoml(
        """
        [tool.pytest]
        specdec_k = 4
        specdec_swa_full = false
        specdec_timeout = 3
        specdec_env = ["A=1", "B=2 3"]
        """
    )
    found = settings(project)
    assert (found.k, found.swa_full, found.timeout) == (4, False, 3.0)
    assert type(found.timeout) is float
    assert found.env == (("A", "1"), ("B", "2 3"))


def test_the_command_line_repeats_pairs(project: Project) -> None:
    found = settings(project, "--specdec-env=A=1", "--specdec-env=B=2", "--specdec-env=A=3")
    assert found.env == (("A", "3"), ("B", "2"))


def test_override_ini_is_an_ini_value(project: Project) -> None:
    assert settings(project, "-o", "specdec_k=5").k == 5
