"""Heads that were fitted: what they are worth on other texts, and whether a tree of drafts would pay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_specdec.reports import text


if TYPE_CHECKING:
    from pytest_specdec.theory.acceptance import Acceptance
    from pytest_specdec.theory.tree import Shape


def position_line(seen: Acceptance, constant: float) -> str:
    """Say how often the first drafted token is right, and what always guessing one token would give."""
    if not seen.position_rounds or not seen.position_rounds[0]:
        return "nothing was drafted on the prompts held out"
    share, (low, high) = seen.positions[0], seen.position_intervals[0]
    times = f", {share / constant:.1f} times that" if constant else ""
    return (
        f"accepted at position 1: {text.number(share)} ({text.interval(low, high)}, "
        f"{text.plural(seen.position_rounds[0], 'round')}); always guessing their most frequent token: "
        f"{text.number(constant)}{times}"
    )


def rank_lines(ranks: Sequence[Sequence[int]], most: int = 3) -> list[str]:
    """Tell for every place how often the right token is among the head's first choices."""
    if not ranks:
        return []
    rows = []
    for place in range(len(ranks[0])):
        column = [row[place] for row in ranks]
        shares = [sum(1 <= rank <= within for rank in column) / len(column) for within in range(1, most + 1)]
        rows.append([f"{place + 1}", *(f"{share:.2f}" for share in shares)])
    return text.table(["place", *(f"top {n}" for n in range(1, most + 1))], rows)


def tree_lines(chain: Shape, tree: Shape, cliff: int | None) -> list[str]:
    """Say whether a tree of drafts would beat the best chain, and where its pass lies before the cliff."""
    where = "no cliff was found" if cliff is None else f"the first cliff is at N = {cliff}"
    lines = [
        f"best chain: {_shape(chain)}",
        f"best tree: {_shape(tree)}; {where}",
    ]
    if tree.speedup > chain.speedup * 1.02:
        lines.append("computed from ranks and T(N): a tree would bring more than a chain")
    else:
        lines.append("computed from ranks and T(N): a tree brings nothing that a chain doesn't")
    return lines


def _shape(one: Shape) -> str:
    nodes = " ".join("".join(f"{rank}" if rank < 10 else f"({rank})" for rank in path) for path in one.nodes)
    return (
        f"N = {one.rows} ({nodes}), {text.number(one.tokens)} tokens a round, "
        f"{text.number(one.speedup)}x by T(N) and drafting"
    )
