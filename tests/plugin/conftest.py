"""What the tests of hooks, marks and options use."""

from __future__ import annotations

import os
import sys

import pytest

from .project import Project


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project; nothing in the environment reaches it."""
    for name in list(os.environ):
        if name.startswith("SPECDEC_"):
            monkeypatch.delenv(name)
    # A file written twice within a second, at one size, would be taken from its cached bytecode.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    # Hypothesis imports itself at the end of each run, which takes longer than the run.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    return Project(pytester)
