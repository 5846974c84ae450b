"""A value that doesn't fit is a usage error that names its option, variable or ini key, before any test."""

from __future__ import annotations

import pytest

from .project import Project


BAD = {
    "k": ("three", "must be a whole number, not 'three'"),
    "n_ctx": ("0", "must be at least 1, not 0"),
    "seed": ("4294967296", "must be at most 4294967295, not 4294967296"),
    "method": ("magic", "must be one of auto, two-model, ngram, medusa, eagle, oracle, not 'magic'"),
    "swa_full": ("perhaps", "must be true or false, not 'perhaps'"),
    "sizes": ("1-", "must be sizes such as '1-12,16', not '1-'"),
    "budget": ("0", "must be above 0, not 0"),
    "timeout": ("nan", "must be a finite number, not nan"),
    "alpha": ("0.5", "must be above 0 and below 0.5, not 0.5"),
    "env": ("NOTHING", "must be K=V, not 'NOTHING'"),
    "baseline_dir": (" ", "must not be empty"),
}


def told(result: pytest.RunResult) -> str:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "INTERNALERROR" not in result.stderr.str() + result.stdout.str()
    return " ".join(result.stderr.str().split())


@pytest.mark.parametrize(("name", "value", "reason"), [(name, *bad) for name, bad in BAD.items()])
def test_on_the_command_line(project: Project, name: str, value: str, reason: str) -> None:
    flag = f"--specdec-{name.replace('_', '-')}"
    assert f"error: argument {flag}: {reason}" in told(project.run(f"{flag}={value}"))


@pytest.mark.parametrize(("name", "value", "reason"), [(name, *bad) for name, bad in BAD.items()])
def test_in_the_environment(
    project: Project, name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SPECDEC_{name.upper()}", value)
    assert f"ERROR: SPECDEC_{name.upper()} {reason}" in told(project.run())


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (value, _) in BAD.items() if value != " "]
)
def test_in_the_ini_file(project: Project, name: str, value: str) -> None:
    project.pytester.makeini(f"[pytest]\nspecdec_{name} = {value}\n")
    assert f"ERROR: specdec_{name} ({project.path / 'tox.ini'})" in told(project.run())


def test_an_unbalanced_quote(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_ENV", "A='1")
    assert "SPECDEC_ENV must be K=V: No closing quotation" in told(project.run())


def test_an_unknown_option(project: Project) -> None:
    assert "unrecognized arguments: --specdec-magic" in told(project.run("--specdec-magic"))
