"""The bits of every row in batches of other sizes: which kernel computed what, without a clock."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np

from specdec_worker.errors import Refused
from specdec_worker.hidden import gives_no_logits
from specdec_worker.model import Context


# The cache is filled in parts of this size whatever the batch size is: a map depends on the cache's bits.
PART = 64


class Rows:
    """Digests of a batch's rows, 16 hex digits each; "" where the model has no such output."""

    def __init__(self, hidden: list[str], logits: list[str]) -> None:
        self.hidden = hidden
        self.logits = logits

    def same(self, other: Rows) -> bool:
        """Whether all rows have equal bits."""
        return self.hidden == other.hidden and self.logits == other.logits

    def first(self) -> list[str]:
        """Row 0: hidden state and logits."""
        return [self.hidden[0], self.logits[0]]

    def answer(self) -> dict[str, list[str]]:
        """What is sent."""
        return {"hidden": self.hidden, "logits": self.logits}


def kernel_map(
    context: Context,
    tokens: list[int],
    sizes: list[int],
    depth: int,
    followers: list[list[int]],
    repeat: bool,
    remainder: list[dict[str, Any]],
    fresh: bool,
) -> dict[str, Any]:
    """For each N of ``sizes`` the bits of all rows of the batch ``tokens[depth : depth + N]`` at ``depth``.

    ``repeated``: whether a second pass gave the same bits, one per N; empty without ``repeat``.
    ``content``: whether row 0 changes with the tokens behind it: those of the text, and each list of
    ``followers`` (max(sizes) - 1 tokens each). ``behind``: for each ``{"m", "r", "first"}`` of ``remainder``
    the rows of the next r tokens decoded behind the batch of m as a batch of their own; left out where row 0
    of the batch of m is ``first``, the row 0 of a batch of r: such batches can't be told apart. ``fresh``
    fills the cache; without it, the caller knows that it holds ``tokens[:depth]``.

    Raises:
        Refused: there are too few tokens, or llama.cpp refuses a batch.
    """
    _check(tokens, depth + max(sizes))
    spent, start = context.forward_ms, time.perf_counter()
    take = _Passes(context, tokens, depth, fresh)
    answer: dict[str, Any] = {"rows": [], "repeated": [], "content": [], "behind": []}
    for n in sizes:
        batch = tokens[depth : depth + n]
        rows = take(batch)
        for probe in remainder:
            if probe["m"] == n and rows.first() != probe["first"]:
                after = depth + n
                small = take(tokens[after : after + probe["r"]])
                answer["behind"].append({"m": n, "r": probe["r"], "rows": small.answer()})
                context.rollback(depth + n)
        context.rollback(depth)
        if repeat:
            answer["repeated"].append(rows.same(take(batch)))
            context.rollback(depth)
        firsts = {tuple(rows.first())}
        for other in followers if n > 1 else []:
            firsts.add(tuple(take([batch[0], *other[: n - 1]], 1).first()))
            context.rollback(depth)
        answer["content"].append(len(firsts) > 1)
        answer["rows"].append(rows.answer())
    return {**answer, **_spent(context, spent, start)}


def behind(
    context: Context, tokens: list[int], depth: int, pairs: list[list[int]], fresh: bool
) -> dict[str, Any]:
    """For each (s, n) of ``pairs`` the rows of the n tokens that follow a batch of s at ``depth``.

    Raises:
        Refused: there are too few tokens, or llama.cpp refuses a batch.
    """
    _check(tokens, depth + max(s + n for s, n in pairs))
    spent, start = context.forward_ms, time.perf_counter()
    take = _Passes(context, tokens, depth, fresh)
    rows = []
    for s, n in pairs:
        context.decode(tokens[depth : depth + s], "all")
        rows.append(take(tokens[depth + s : depth + s + n]).answer())
        context.rollback(depth)
    return {"rows": rows, **_spent(context, spent, start)}


def _check(tokens: list[int], count: int) -> None:
    if len(tokens) < count:
        raise Refused("request", f"{len(tokens)} tokens are too few: this map needs {count}")


def _spent(context: Context, before: float, start: float) -> dict[str, float]:
    wall = (time.perf_counter() - start) * 1000.0
    return {"forward_ms": context.forward_ms - before, "wall_ms": wall}


class _Passes:
    """Passes over batches at the end of a context's cache that tell the bits of their rows."""

    def __init__(self, context: Context, tokens: list[int], depth: int, fresh: bool) -> None:
        self._context = context
        if fresh or context.past != depth:
            context.logits_apart = context.embeddings and gives_no_logits(context, tokens[0])
            context.clear()
            part = min(PART, context.n_batch)
            for start in range(0, depth, part):
                context.decode(tokens[start : min(depth, start + part)], "none")

    def __call__(self, batch: list[int], count: int | None = None) -> Rows:
        """The first ``count`` rows of one pass over the batch, all by default."""
        context = self._context
        past = context.past
        wanted = range(len(batch) if count is None else count)
        context.decode(batch, "all")
        hidden = [_digest(context.hidden(row)) for row in wanted]
        if context.logits_apart:
            context.rollback(past)
            with context.logits_only():
                context.decode(batch, "all")
        return Rows(hidden, [_digest(context.logits(row)) for row in wanted])


def _digest(values: Any) -> str:
    if values is None:
        return ""
    return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()[:16]
