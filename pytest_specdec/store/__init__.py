"""Baselines: machine and build identity, and the files that keep measurements."""

from __future__ import annotations

from pytest_specdec.store.baseline import Anchor
from pytest_specdec.store.baseline import Baseline
from pytest_specdec.store.baseline import Entry
from pytest_specdec.store.baseline import load_file
from pytest_specdec.store.baseline import model_differences
from pytest_specdec.store.build import build_differences
from pytest_specdec.store.build import build_digest
from pytest_specdec.store.build import build_id
from pytest_specdec.store.build import build_identity
from pytest_specdec.store.errors import BaselineError
from pytest_specdec.store.errors import NoBaseline
from pytest_specdec.store.machine import Machine
from pytest_specdec.store.machine import differences
from pytest_specdec.store.machine import identify
from pytest_specdec.store.store import SaveReport
from pytest_specdec.store.store import Store


__all__ = [
    "Anchor",
    "Baseline",
    "BaselineError",
    "Entry",
    "Machine",
    "NoBaseline",
    "SaveReport",
    "Store",
    "build_differences",
    "build_digest",
    "build_id",
    "build_identity",
    "differences",
    "identify",
    "load_file",
    "model_differences",
]
