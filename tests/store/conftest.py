"""What the tests of the store share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_specdec.store import Store


_NOBODY = 65534


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "baselines")


@pytest.fixture
def as_ordinary_user() -> Iterator[Path]:
    """A folder of an ordinary user, who runs the test: permissions say nothing to root."""
    folder = Path(tempfile.mkdtemp(prefix="specdec-user-"))
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root:
        os.chown(folder, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for place, _, _ in os.walk(folder):
            os.chmod(place, 0o700)
        shutil.rmtree(folder)
