"""`pytest --markers` and `--help` tell everything from the functions and the table of options."""

from __future__ import annotations

import inspect

from pytest_specdec.marks import MARKS
from pytest_specdec.settings import OPTIONS

from .project import Project


def test_each_mark_is_listed_with_signature_and_first_paragraph(project: Project) -> None:
    listed = project.run("--markers").stdout.str()
    assert "@pytest.mark.cliff_at(n, *, ratio=1.4): Require the first cliff" in listed
    assert "@pytest.mark.accept_rate(low, high=1.0): " in listed
    assert "@pytest.mark.specdec(**settings): " in listed
    for name, function in MARKS.items():
        first = (inspect.getdoc(function) or "").split("\n\n")[0]
        assert f"@pytest.mark.{name}(" in listed
        assert f": {first}" in listed


def test_marks_are_known_to_strict_markers(project: Project) -> None:
    project.test(
        f"pytestmark = [getattr(pytest.mark, name) for name in {list(MARKS)}]\n\ndef test_it(): pass\n"
    )
    result = project.run("--strict-markers", "--collect-only", "-q", "-W", "error")
    # cliff_at without an argument can't be collected, but no name is unknown.
    result.stdout.fnmatch_lines(["*cliff_at(): cliff_at() missing 1 required positional argument*"])
    result.stdout.no_fnmatch_line("*not found in `markers`*")


def test_each_option_is_in_the_help_with_its_ini_twin(project: Project) -> None:
    told = project.run("--help").stdout.str()
    for option in OPTIONS.values():
        assert f"{option.flag}={option.kind.metavar}" in told
        assert f"  {option.ini} ({option.kind.ini}):" in told
