"""Trees of drafts: what is chosen is a tree, the best one, and pays where it should."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory.tree import best_nodes
from pytest_specdec.theory.tree import best_shapes
from pytest_specdec.theory.tree import depth
from pytest_specdec.theory.tree import parents
from pytest_specdec.theory.tree import shape


ranks = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=12)


@given(ranks, st.integers(0, 8))
def test_every_node_stands_on_another(found: list[list[int]], count: int) -> None:
    nodes = best_nodes(found, count)
    assert len(nodes) <= count
    assert all(len(path) == 1 or path[:-1] in nodes for path in nodes)


@given(ranks, st.integers(1, 3))
def test_no_other_tree_of_that_size_brings_more(found: list[list[int]], count: int) -> None:
    everything = best_nodes(found, 99)

    def tokens(nodes: tuple[tuple[int, ...], ...]) -> float:
        return shape(found, nodes, lambda _: 1.0, 0.0).tokens

    best = tokens(tuple(best_nodes(found, count)))
    for nodes in combinations(everything, min(count, len(everything))):
        if all(len(path) == 1 or path[:-1] in nodes for path in nodes):
            assert tokens(nodes) <= best


def test_a_chain_brings_what_its_acceptance_says() -> None:
    """Right at place 1 in three of four, at 2 in two of these; T(1) = 8, T(3) = 12, drafting 1 a place."""
    found = [[1, 1], [1, 1], [1, 2], [2, 1]]
    one = shape(found, best_nodes(found, 2, chain=True), {1: 8.0, 3: 12.0}.__getitem__, 1.0)
    assert one.nodes == ((1,), (1, 1))
    assert one.tokens == 2.25
    assert one.speedup == pytest.approx(2.25 * 8 / 14)


def test_a_tree_pays_where_rows_are_free_and_not_behind_a_cliff() -> None:
    found = [[1, 1]] * 4 + [[2, 1]] * 4 + [[3, 3]]
    flat = best_shapes(found, range(1, 6), lambda n: 10.0, 0.0)
    assert flat[1].speedup > flat[0].speedup
    assert (2,) in flat[1].nodes
    cliff = best_shapes(found, range(1, 6), lambda n: 10.0 if n <= 2 else 40.0, 0.0)
    assert cliff[1].speedup == cliff[0].speedup
    assert cliff[1].rows == 2


def test_a_head_that_goes_on_from_its_drafts_runs_once_for_every_parent() -> None:
    """At (1) and (2) it has to be run for each; heads that look at one state are run once for a place."""
    nodes = [(1,), (2,), (1, 1), (2, 1)]
    assert (depth(nodes), parents(nodes)) == (2, 3)
    assert (depth([]), parents([])) == (0, 0)
    found = [[1, 1], [2, 1]]
    by_place = shape(found, nodes, lambda _: 10.0, 2.0)
    by_parent = shape(found, nodes, lambda _: 10.0, 2.0, parents)
    assert by_place.speedup == pytest.approx(3 * 10 / 14)
    assert by_parent.speedup == pytest.approx(3 * 10 / 16)


def test_a_tree_is_not_tried_where_it_was_chosen() -> None:
    """Half the samples say that second choices are right, and the other half that first ones are."""
    found = [[2, 2], [1, 1]] * 4
    chain, tree = best_shapes(found, range(1, 4), lambda n: 10.0, 0.0)
    assert tree.nodes == ((2,), (2, 2))
    assert tree.tokens == 1
    assert chain.tokens == 1


def test_what_cannot_be_drafted_is_in_no_tree() -> None:
    assert best_nodes([[0, 1], [1, 0]], 5) == [(1,)]
