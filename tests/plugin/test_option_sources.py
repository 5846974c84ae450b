"""Every setting can come from mark, command line, environment and ini file, in this order of precedence."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_specdec.configuration import resolve
from pytest_specdec.limits import stack
from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Settings

from .project import Project


# Four values as text, none of them the default: for the ini file, the environment, the command line, a mark.
TEXTS: dict[str, tuple[str, str, str, str]] = {
    "target": ("a-target", "b-target", "c-target", "d-target"),
    "draft": ("a-draft", "b-draft", "requantize:Q2_K", "d-draft"),
    "heads": ("a-heads", "b-heads", "c-heads", "d-heads"),
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
    "map_sizes": ("1-4", "1,2,8", "8,4,1", "2-3"),
    "map_depths": ("0", "1,2", "64", "0,256"),
    "blocks": ("9", "10", "11", "12"),
    "calls": ("4", "5", "6", "7"),
    "ngram_max": ("4", "5", "6", "7"),
    "ngram_min": ("2", "3", "4", "5"),
    "oracle_alpha": ("0", "1", "0.5", "0.25"),
    "oracle_ms": ("0.5", "1", "2", "3"),
    "temperature": ("0.5", "1", "1.5", "2"),
    "top_k": ("1", "2", "3", "4"),
    "top_p": ("0.5", "0.6", "0.7", "0.8"),
    "min_p": ("0.1", "0.2", "0.3", "1"),
    "repeat_penalty": ("1.1", "1.2", "1.3", "0.9"),
    "seed": ("1", "2", "3", "4294967295"),
    "python": ("python3.11", "python3.12", "python3.13", "python3.11"),
    "env": ("A=1 'B=2 3'", "C=1", "D=1=2", "A=1 'B=2 3'"),
    "against": ("python3.11", "python3.12", "python3.13", "python3.11"),
    "against_env": ("A=1", "C=1", "D=1=2", "A=1"),
    "against_param": ("k=5", "n_ubatch=4", "depth=3", "k=5"),
    "baseline_dir": ("a", "b", "c", "a"),
    "machine": ("a", "b", "c", "a"),
    "missing": ("skip", "fail", "skip", "skip"),
    "update": ("new", "all", "new", "new"),
    "inconclusive": ("fail", "warn", "fail", "fail"),
    "budget": ("1", "2.5", "3", "1"),
    "alpha": ("0.1", "0.2", "0.3", "0.1"),
    "timeout": ("1", "2.5", "3", "1"),
    "history": ("true", "false", "true", "true"),
    "json": ("a.json", "b.json", "c.json", "a.json"),
    "xdist": ("exclusive", "refuse", "exclusive", "exclusive"),
    "replay": ("a-replay", "b-replay", "c-replay", "a-replay"),
}
INI, ENVIRONMENT, COMMAND_LINE, MARK = range(4)


AGAINST = ("against", "against_env", "against_param")


@pytest.fixture(
    params=[("replay", *AGAINST), ("update", *AGAINST), ("replay", "update")],
    ids=["update", "replay", "against"],
)
def names(request: pytest.FixtureRequest) -> list[str]:
    """Every setting but those that exclude the rest."""
    return [name for name in OPTIONS if name not in request.param]


def expected(project: Project, names: list[str], source: int) -> dict[str, Any]:
    """Each setting's value when all come from one source."""
    kinds = {name: OPTIONS[name].kind for name in names}
    return {name: kind.locate(kind.read(TEXTS[name][source]), project.path) for name, kind in kinds.items()}


def given(settings: Settings, names: list[str]) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in names}


def settings(project: Project, *args: str) -> Settings:
    return resolve(project.pytester.parseconfig(*args))


def write_ini(project: Project, names: list[str]) -> None:
    lines = [f"{OPTIONS[name].ini} = {TEXTS[name][INI]}" for name in names]
    project.pytester.makeini("\n".join(["[pytest]", *lines]))


def set_environment(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    for name in names:
        monkeypatch.setenv(OPTIONS[name].variable, TEXTS[name][ENVIRONMENT])


def command_line(names: list[str]) -> list[str]:
    return [f"{OPTIONS[name].flag}={TEXTS[name][COMMAND_LINE]}" for name in names]


def test_every_setting_is_here_with_four_values_that_tell_sources_apart(project: Project) -> None:
    assert set(TEXTS) == set(OPTIONS)
    sources = [expected(project, list(OPTIONS), source) for source in (INI, ENVIRONMENT, COMMAND_LINE)]
    for name, option in OPTIONS.items():
        ini, environment, argument = (source[name] for source in sources)
        assert ini != option.default
        assert ini != environment != argument


def test_defaults(project: Project) -> None:
    project.pytester.makeini("[pytest]\n")
    defaults = {name: option.default for name, option in OPTIONS.items()}
    assert given(settings(project), list(OPTIONS)) == {**defaults, "baseline_dir": project.path / "baselines"}


def test_ini_over_default(project: Project, names: list[str]) -> None:
    write_ini(project, names)
    assert given(settings(project), names) == expected(project, names, INI)


def test_environment_over_ini(project: Project, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write_ini(project, names)
    set_environment(monkeypatch, names)
    assert given(settings(project), names) == expected(project, names, ENVIRONMENT)


def test_command_line_over_environment(
    project: Project, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ini(project, names)
    set_environment(monkeypatch, names)
    assert given(settings(project, *command_line(names)), names) == expected(project, names, COMMAND_LINE)


def test_mark_over_command_line(project: Project, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write_ini(project, names)
    set_environment(monkeypatch, names)
    of_run = [option for option in OPTIONS.values() if option.run]
    marked = {option.name: option.kind.read(TEXTS[option.name][MARK]) for option in of_run}
    project.test(f"@specdec(**{marked})\ndef test_it():\n    pass\n")
    found = settings(project, *command_line(names))
    monkeypatch.delenv("SPECDEC_REPLAY", raising=False)
    ((item,), _) = project.pytester.inline_genitems("-o", "specdec_replay=")
    merged = found.merged(**stack(item).settings)
    wanted = expected(project, names, COMMAND_LINE)
    wanted.update({name: value for name, value in expected(project, names, MARK).items() if name in marked})
    assert given(merged, names) == wanted


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
