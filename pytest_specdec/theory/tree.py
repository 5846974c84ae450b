"""Would a tree of drafts pay where a chain does not? From the ranks of the right tokens in each head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Drafted tokens of one pass.

    `nodes` are paths of ranks: (1,) is the first choice, (2, 1) the first one behind the second.

    `tokens` is what a pass brings on average, the bonus token included; `speedup` that over its cost.
    """

    nodes: tuple[tuple[int, ...], ...]
    tokens: float
    speedup: float

    @property
    def rows(self) -> int:
        """Rows of the verify pass: the last token and every node."""
        return len(self.nodes) + 1


def best_nodes(ranks: Sequence[Sequence[int]], count: int, *, chain: bool = False) -> list[tuple[int, ...]]:
    """The `count` paths that are right most often; with `chain` only first choices.

    `ranks[j][i]` is the rank, from 1, that the right token had i places ahead, given those before it; 0 where
    it can't be drafted. A path is right no more often than what it begins with, so that the most frequent
    ones are a tree: the construction of Cai et al. 2024, section 2.3.3.
    """
    counted: Counter[tuple[int, ...]] = Counter()
    for row in ranks:
        path: tuple[int, ...] = ()
        for rank in row:
            if rank < 1 or (chain and rank > 1):
                break
            path = (*path, rank)
            counted[path] += 1
    return sorted(counted, key=lambda path: (-counted[path], len(path), path))[:count]


def depth(nodes: Sequence[tuple[int, ...]]) -> int:
    """Places that a draft of these nodes has: what heads that look at one state are run for."""
    return max((len(path) for path in nodes), default=0)


def parents(nodes: Sequence[tuple[int, ...]]) -> int:
    """Nodes that others stand behind: what a head that goes on from its own drafts is run for."""
    return len({path[:-1] for path in nodes})


def shape(
    ranks: Sequence[Sequence[int]],
    nodes: Sequence[tuple[int, ...]],
    pass_ms: Callable[[int], float],
    draft_ms: float,
    steps: Callable[[Sequence[tuple[int, ...]]], int] = depth,
) -> Shape:
    """What verifying these nodes in one pass brings.

    tokens = 1 + the mean number of nodes on the right path;
    speedup = tokens x T(1) / (T(nodes + 1) + steps x draft_ms), by the times that a head is run.
    """
    chosen = set(nodes)
    right = sum(tuple(row[:length]) in chosen for row in ranks for length in range(1, len(row) + 1))
    tokens = 1.0 + right / len(ranks)
    cost = pass_ms(len(nodes) + 1) + draft_ms * steps(nodes)
    return Shape(tuple(nodes), tokens, tokens * pass_ms(1) / cost)


def best_shapes(
    ranks: Sequence[Sequence[int]],
    sizes: Sequence[int],
    pass_ms: Callable[[int], float],
    draft_ms: float,
    steps: Callable[[Sequence[tuple[int, ...]]], int] = depth,
) -> tuple[Shape, Shape]:
    """The chain and the tree of the highest speedup, over passes of `sizes` rows.

    Every other sample chooses them, the rest says what they bring: a choice looks better where it was made.
    """
    choosing, trying = (ranks[::2], ranks[1::2]) if len(ranks) > 1 else (ranks, ranks)

    def best(*, chain: bool) -> Shape:
        found = max(
            (
                shape(choosing, best_nodes(choosing, rows - 1, chain=chain), pass_ms, draft_ms, steps)
                for rows in sizes
                if rows > 1
            ),
            key=lambda one: one.speedup,
        )
        return shape(trying, found.nodes, pass_ms, draft_ms, steps)

    return best(chain=True), best(chain=False)
