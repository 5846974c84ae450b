"""Baselines that come with the package, made of published numbers, and those of any machine's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pytest_specdec.store.baseline import Baseline
from pytest_specdec.store.errors import NoBaseline
from pytest_specdec.store.store import Store


PUBLISHED: Final = Path(__file__).parents[1] / "suite" / "published"


def machine_baselines(name: str) -> tuple[str, tuple[Baseline, ...]]:
    """Return a machine's name and all its baselines.

    `name` is a published machine's, or else the path of a machine's folder.

    Raises:
        BaselineError: there is no such machine or folder, it holds no baselines, or one can't be read.
    """
    known = Store(PUBLISHED).machines()
    folder = PUBLISHED / name if name in known else Path(os.path.abspath(Path(name).expanduser()))
    store = Store(folder.parent)
    pairs = store.pairs(folder.name)
    if not pairs:
        published = f"published machines: {', '.join(known)}"
        if not folder.is_dir():
            raise NoBaseline(folder, "is neither a published machine nor a folder", published)
        inside = Store(folder).machines()
        remedy = f"give one of its machines: {', '.join(inside)}" if inside else published
        raise NoBaseline(folder, "is no machine's folder: it holds no baselines of its own", remedy)
    return folder.name, tuple(store.require(folder.name, pair) for pair in pairs)
