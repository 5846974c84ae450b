"""Remainder rows of made kernels: found where they are, and never taken for a threshold, nor one for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory.classes import find_classes
from pytest_specdec.theory.remainder import find_remainder
from pytest_specdec.theory.remainder import small_batches
from pytest_specdec.theory.remainder import to_place


@dataclass(frozen=True)
class Kernels:
    """Matrix kernels switched at thresholds; from `block` on they work in blocks and leave a remainder.

    The remainder goes to the kernel of small batches, or, with `mixed`, to one that is found nowhere else.
    With `split` the attention of one-token passes is a path of its own.
    """

    thresholds: tuple[int, ...]
    block: int
    mixed: bool = False
    split: bool = False

    def paths(self, n: int) -> list[str]:
        own = sum(n >= threshold for threshold in self.thresholds)
        attention = "split" if self.split and n == 1 else ""
        rest = self.remainder(n)
        last = f"rest of {own}" if self.mixed and own > 1 else "0"
        return [f"{own}{attention}"] * (n - rest) + [last + attention] * rest

    def remainder(self, n: int) -> int:
        return n % self.block if self.thresholds and n >= self.block else 0

    def decode(self, past: Sequence[str], n: int) -> list[str]:
        """A row's bits depend on the paths of all rows before it: their keys and values are in the cache."""
        paths = [*past, *self.paths(n)]
        return ["/".join(paths[: row + 1]) for row in range(len(past), len(paths))]


def found(kernels: Kernels, sizes: Sequence[int]) -> dict[int, int]:
    rows = {n: kernels.decode([], n) for n in sizes}
    behind = {
        (m, r): kernels.decode(kernels.paths(m), r)
        for m in sizes
        for r in small_batches(rows)
        if m > r and m + r in sizes
    }
    certain = find_remainder(rows, behind)
    placed = {(s, n): kernels.decode(kernels.paths(s), n) for s, n in to_place(rows, certain)}
    return find_remainder(rows, behind, placed)


def thresholds(kernels: Kernels, sizes: Sequence[int]) -> tuple[int, ...]:
    rest = found(kernels, sizes)
    digests = [kernels.decode([], n) for n in sizes]
    names: dict[str, str] = {}
    letters = [[names.setdefault(one, chr(0x100 + len(names))) for one in batch] for batch in digests]
    pattern = ["".join(batch) for batch in letters]
    return find_classes(sizes, [pattern], [rest[n] for n in sizes]).thresholds


@st.composite
def kernels(draw: st.DrawFn) -> Kernels:
    block = draw(st.integers(2, 5))
    more = draw(st.sets(st.integers(2, 7), max_size=3))
    return Kernels(
        (block, *(block * times for times in sorted(more))), block, draw(st.booleans()), draw(st.booleans())
    )


@given(kernels())
def test_thresholds_are_those_of_the_kernels(made: Kernels) -> None:
    expected = {*made.thresholds, *([2] if made.split else [])}
    assert thresholds(made, range(1, 41)) == tuple(sorted(expected))


@given(
    st.lists(st.integers(2, 30), max_size=4, unique=True).map(sorted),
    st.integers(2, 5),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 32), min_size=1, max_size=20, unique=True).map(sorted),
)
def test_a_row_of_a_full_block_is_never_a_remainder(
    switches: list[int], block: int, mixed: bool, split: bool, sizes: list[int]
) -> None:
    made = Kernels(tuple(switches), block, mixed, split)
    for n, rest in found(made, sizes).items():
        assert rest <= made.remainder(n)


@pytest.mark.parametrize("split", [False, True])
def test_fours_that_leave_their_rest_to_the_kernel_of_small_batches(split: bool) -> None:
    rest = found(Kernels((4,), 4, split=split), range(1, 12))
    assert rest == {n: n % 4 if n > 4 else 0 for n in range(1, 12)}


def test_a_rest_with_a_path_of_its_own_is_found_where_a_larger_batch_shows_its_rows_in_a_block() -> None:
    rest = found(Kernels((4, 8), 4, mixed=True), range(1, 14))
    assert rest == {n: n % 4 if 8 < n < 12 else 0 for n in range(1, 14)} | {5: 1, 6: 2, 7: 3}


def test_a_gap_in_the_list_still_shows_the_rest_of_the_batch_before_it() -> None:
    made = Kernels((4, 8), 4, mixed=True)
    assert found(made, [1, 2, 3, 8, 9, 16]) == {1: 0, 2: 0, 3: 0, 8: 0, 9: 1, 16: 0}
    assert thresholds(made, [1, 2, 3, 4, 8, 9, 16]) == (4, 8)


def test_a_switch_that_spares_row_0_is_no_remainder() -> None:
    rows = {n: [f"{row}" if row == 0 or n < 6 else f"{row} of 6" for row in range(n)] for n in range(1, 9)}
    behind = {(m, 1): [f"{m}"] for m in range(1, 8)}
    assert to_place(rows, {}) == [(1, 5)]
    placed = {(1, 5): [f"{row}" for row in range(1, 6)]}
    assert set(find_remainder(rows, behind, placed).values()) == {0}


def test_rows_like_a_small_batch_prove_nothing_where_the_rows_before_them_changed() -> None:
    rows = {1: ["a"], 2: ["b", "c"], 3: ["b", "d", "e"]}
    assert find_remainder(rows, {(2, 1): ["e"]}) == {1: 0, 2: 0, 3: 0}
    assert find_remainder({**rows, 3: ["b", "c", "e"]}, {(2, 1): ["e"]}) == {1: 0, 2: 0, 3: 1}


def test_a_place_proves_nothing_unless_it_gives_the_bits_of_the_larger_batch() -> None:
    rows = {1: ["a"], 2: ["b", "c"], 3: ["b", "c", "d"], 4: ["b", "c", "e", "f"]}
    assert to_place(rows, {}) == [(2, 3)]
    assert find_remainder(rows, {}, {(2, 3): ["neither", "x", "y"]})[3] == 0
    assert find_remainder(rows, {}, {(2, 3): ["e", "x", "y"]})[3] == 1


def test_a_batch_computed_otherwise_is_no_place_to_compare_at() -> None:
    rows = {1: ["b"], 2: ["b", "c"], 3: ["b", "c", "d"], 4: ["b", "c", "e", "f"]}
    assert to_place(rows, {}) == [(2, 3)]
    assert to_place({**rows, 2: ["b", "other"]}, {}) == [(1, 2), (1, 3)]
    assert to_place({**rows, 2: ["b", "other"], 1: ["other"]}, {}) == []
    assert to_place({**rows, 4: ["b", "other", "e", "f"]}, {}) == [(1, 3)]
    assert to_place({**rows, 4: ["other", "c", "e", "f"]}, {}) == []


def test_without_small_batches_in_the_list_there_is_nothing_to_compare_to() -> None:
    assert small_batches({8: ["a"], 9: ["a"]}) == ()
    assert small_batches({1: ["a"], 2: ["b"], 3: ["b"]}) == (2, 3)
    assert small_batches({1: ["a"], 2: ["a"], 3: ["a"]}) == (1,)
    assert small_batches({1: ["a"], 3: ["a"]}) == (1,)
