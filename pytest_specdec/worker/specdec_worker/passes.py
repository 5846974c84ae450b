"""Timed forward passes, steady decoding, and the proof that the cache rolls back."""

from __future__ import annotations

import hashlib
import time
from typing import Any
from typing import Callable
from typing import Iterable

import numpy as np

from specdec_worker.errors import Refused
from specdec_worker.model import Context


def _fill(context: Context, tokens: list[int], depth: int) -> None:
    """Bring the cache to exactly ``depth`` tokens."""
    if context.past == depth:
        return
    context.clear()
    for start in range(0, depth, context.n_batch):
        context.decode(tokens[start : min(depth, start + context.n_batch)], "none")


def forward(
    context: Context, tokens: list[int], order: list[int], calls: int, depth: int, rows: str
) -> dict[str, Any]:
    """One block: for each N of ``order`` in turn ``calls`` passes over N tokens at ``depth``, in ms.

    After each pass the cache is rolled back, outside the time.
    """
    longest = max(order)
    if len(tokens) < depth + longest:
        raise Refused("request", f"{len(tokens)} tokens are too few for depth {depth} and N = {longest}")
    context.clear()
    _fill(context, tokens, depth)
    times = []
    for n in order:
        batch = tokens[depth : depth + n]
        samples = []
        for _ in range(calls):
            samples.append(context.decode(batch, rows))
            context.rollback(depth)
        times.append(samples)
    return {"order": order, "ms": times}


def steady(context: Context, tokens: list[int], depth: int, count: int) -> dict[str, Any]:
    """Greedy decoding of ``count`` tokens after ``depth`` tokens of text: ms per token, choice included."""
    context.clear()
    _fill(context, tokens, depth)
    context.decode([tokens[depth]], "last")
    times = []
    for _ in range(count):
        start = time.perf_counter()
        context.decode([context.best(0)], "last")
        context.best(0)
        times.append((time.perf_counter() - start) * 1000.0)
    return {"ms": times}


def _digest(context: Context, rows: int) -> str:
    digest = hashlib.sha256()
    for row in range(rows):
        digest.update(np.ascontiguousarray(context.logits(row)).tobytes())
    return digest.hexdigest()


def prove_rollback(context: Context, tokens: list[int], width: int = 4) -> dict[str, Any]:
    """Whether removing tokens leaves a cache that does not remember them, by the bits of the logits.

    "inside" the last batch, the "whole" last batch, and "across" batches. What was removed must not matter
    (three different fillings, one of them the tokens decoded afterwards), what was kept must: a cache that
    fell back too far would pass the first test alone. Every comparison is between passes of equal widths,
    so that another kernel is never taken for a fault. Refusals by llama.cpp are a False with its text.
    """
    if len(tokens) < 4 * width:
        raise Refused(
            "request", f"{len(tokens)} tokens are too few to prove rollback; {4 * width} are needed"
        )
    first, second, third = (tokens[i * width : (i + 1) * width] for i in range(3))
    wrong, other = third, list(reversed(second))

    def run(before: list[list[int]], keep: int, after: list[list[int]]) -> str:
        context.clear()
        for batch in before:
            context.decode(batch, "all")
        context.rollback(keep)
        for batch in after:
            context.decode(batch, "all")
        return _digest(context, len(after[-1]))

    def inside(kept: int, filling: list[int]) -> str:
        return run([first, [kept, *filling[1:]]], width + 1, [second[1:]])

    def across(kept: int, filling: list[int]) -> str:
        start = [*first[: width - 2], kept, first[-1]]
        return run([start, filling, list(reversed(filling))], width - 1, [[first[-1], *second[1:]]])

    def singles(filling: list[int]) -> str:
        return run([[t] for t in [*first, *filling]], len(first), [[t] for t in second])

    changed = wrong[0] if wrong[0] != second[0] else wrong[1]
    changed_first = wrong[0] if wrong[0] != first[-2] else wrong[1]
    cases: dict[str, Callable[[], bool]] = {
        "inside": lambda: (
            _same(inside(second[0], filling) for filling in (second, wrong, other))
            and inside(changed, wrong) != inside(second[0], wrong)
        ),
        "whole": lambda: _same(
            [run([first, filling], width, [second]) for filling in (second, wrong, other)]
            + [run([first], width, [second])]
        ),
        "across": lambda: (
            _same(across(first[-2], filling) for filling in (second, wrong, other))
            and across(changed_first, wrong) != across(first[-2], wrong)
            and _same([singles(second), singles(wrong), singles([])])
        ),
    }
    answers: dict[str, Any] = {}
    for name, holds in cases.items():
        try:
            answers[name] = holds()
        except Refused as refused:
            answers[name] = False
            answers[f"{name}_refused"] = refused.message
    context.clear()
    answers["proven"] = all(answers[name] for name in cases)
    return answers


def _same(digests: Iterable[str]) -> bool:
    return len(set(digests)) == 1
