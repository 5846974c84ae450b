"""The frozen settings: defaults, cores, and what a mark may replace."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Settings
from pytest_specdec.settings import usable_cores
from pytest_specdec.values import Number
from pytest_specdec.values import Pairs
from pytest_specdec.values import Sizes
from pytest_specdec.values import Switch


def test_they_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().k = 4  # type: ignore[misc]


def test_every_default_is_a_legal_value() -> None:
    for option in OPTIONS.values():
        if option.name not in ("baseline_dir",):
            assert option.kind.check(option.default) == option.default


def test_threads_resolve_to_usable_cores() -> None:
    assert Settings().n_threads == usable_cores() >= 1
    assert Settings().merged(threads=7).n_threads == 7


def test_only_settings_of_a_run_are_merged() -> None:
    changed = Settings().merged(k=5, draft=None)
    assert (changed.k, Settings().k) == (5, 3)
    with pytest.raises(
        ValueError, match="unknown setting 'python'; set it with --specdec-python; known: target, "
    ):
        Settings().merged(python="python3")


def test_options_show_their_defaults_as_they_are_typed() -> None:
    assert Sizes().show((1, 2, 3, 5, 7, 8)) == "1-3,5,7-8"
    assert Sizes().read(Sizes().show((1, 2, 3, 5, 7, 8))) == (1, 2, 3, 5, 7, 8)
    assert Number(above=0).show(600.0) == "600"
    assert Switch().show(False) == "false"


@pytest.mark.parametrize("text", ["", "1", "0,1", "3-1", "1--2", "a", "1,,2", "1-70000", "1-9999999"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must "):
        Sizes().read(text)


def test_sizes_are_sorted_and_unique() -> None:
    assert Sizes().read(" 8, 1-3 ,2") == (1, 2, 3, 8)


@pytest.mark.parametrize("value", ["A=1", 7, ["=1"], [3], ["A=\0"]])
def test_pairs_that_are_none(value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be "):
        Pairs().check(value)
