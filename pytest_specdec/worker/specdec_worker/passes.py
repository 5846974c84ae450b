"""Timed forward passes, steady decoding, and the proof that the cache rolls back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from typing import Callable
from typing import Optional

import numpy as np

from specdec_worker.errors import Refused
from specdec_worker.model import Context


# Cells of a cache come in such steps.
CELLS = 256


def _fill(context: Context, tokens: list[int], depth: int) -> None:
    """Bring the cache to exactly ``depth`` tokens."""
    if context.past == depth:
        return
    context.clear()
    for start in range(0, depth, context.n_batch):
        context.decode(tokens[start : min(depth, start + context.n_batch)], "none", save=False)


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
        context.decode([context.best(0)], "last", save=False)
        context.best(0)
        times.append((time.perf_counter() - start) * 1000.0)
    return {"ms": times}


@dataclass(frozen=True)
class _Case:
    """One kind of rollback: rows that must be the same bits, and rows that must not be."""

    same: Callable[[], list[Any]]
    other: Optional[Callable[[], list[Any]]] = None


def prove_rollback(context: Context, tokens: list[int], width: int = 4) -> dict[str, Any]:
    """Whether removing tokens leaves a cache that does not remember them, by the bits of the logits.

    "inside" the last batch, the "whole" last batch, and "across" batches. What was removed must not matter
    (three different fillings, one of them the tokens decoded afterwards), what was kept must: a cache that
    fell back too far would pass the first test alone. Every comparison is between passes of equal widths,
    so that another kernel is never taken for a fault. "far", with a sliding window that has no full cache
    alone, goes back behind everything such a cache still holds.

    Each case says whether it "holds"; "refused" is llama.cpp's refusal, "difference" the largest logit
    difference between rows that should be the same bits, each None where it doesn't apply.
    """
    if len(tokens) < 4 * width:
        raise Refused(
            "request", f"{len(tokens)} tokens are too few to prove rollback; {4 * width} are needed"
        )
    cases = _near(context, tokens, width)
    if context.window and not context.swa_full:
        cases["far"] = _far(context, tokens, width)
    answers = [_judged(name, case) for name, case in cases.items()]
    context.clear()
    return {"mode": context.mode, "cases": answers, "proven": all(one["holds"] for one in answers)}


def _judged(name: str, case: _Case) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": name, "holds": False, "refused": None, "difference": None}
    try:
        rows = case.same()
        answer["holds"] = all(np.array_equal(rows[0], one) for one in rows[1:])
        if not answer["holds"]:
            answer["difference"] = max(float(np.abs(rows[0] - one).max()) for one in rows[1:])
        elif case.other is not None:
            one, other = case.other()
            answer["holds"] = not np.array_equal(one, other)
    except Refused as refused:
        answer["refused"] = refused.message
    return answer


def _near(context: Context, tokens: list[int], width: int) -> dict[str, _Case]:
    first, second, third = (tokens[i * width : (i + 1) * width] for i in range(3))
    wrong, other = third, list(reversed(second))

    def run(before: list[list[int]], keep: int, after: list[list[int]]) -> Any:
        context.clear()
        for batch in before:
            context.decode(batch, "none")
        context.rollback(keep)
        *between, last = after
        for batch in between:
            context.decode(batch, "none")
        context.decode(last, "all")
        return _rows(context, len(last))

    def inside(kept: int, filling: list[int]) -> Any:
        return run([first, [kept, *filling[1:]]], width + 1, [second[1:]])

    def across(kept: int, filling: list[int]) -> Any:
        start = [*first[: width - 2], kept, first[-1]]
        return run([start, filling, list(reversed(filling))], width - 1, [[first[-1], *second[1:]]])

    def singles(filling: list[int]) -> Any:
        return run([[t] for t in [*first, *filling]], len(first), [[t] for t in second])

    changed = wrong[0] if wrong[0] != second[0] else wrong[1]
    changed_first = wrong[0] if wrong[0] != first[-2] else wrong[1]
    fillings = (second, wrong, other)
    return {
        "inside": _Case(
            lambda: [inside(second[0], filling) for filling in fillings],
            lambda: [inside(changed, wrong), inside(second[0], wrong)],
        ),
        "whole": _Case(
            lambda: [
                *(run([first, filling], width, [second]) for filling in fillings),
                run([first], width, [second]),
            ]
        ),
        "across": _Case(
            lambda: [across(first[-2], filling) for filling in fillings],
            lambda: [across(changed_first, wrong), across(first[-2], wrong)],
        ),
        "one by one": _Case(lambda: [singles(filling) for filling in (second, wrong, [])]),
    }


def _far(context: Context, tokens: list[int], width: int) -> _Case:
    # A window's cache holds it and one physical batch, rounded up; llama-kv-cache-iswa.cpp.
    held = -(-(context.window + context.n_ubatch) // CELLS) * CELLS
    end = min(context.window + held, context.n_ctx - width)
    keep = max(end - held, 2 * width)
    text = (tokens * (end // len(tokens) + 2))[: end + width]

    def run(upto: int) -> Any:
        context.clear()
        for start, stop in ((0, keep), (keep, upto)):
            for at in range(start, stop, context.n_batch):
                context.decode(text[at : min(at + context.n_batch, stop)], "none")
        context.rollback(keep)
        context.decode(text[keep : keep + width], "all")
        return _rows(context, width)

    return _Case(lambda: [run(keep), run(end)])


def _rows(context: Context, count: int) -> Any:
    return np.stack([context.logits(row).copy() for row in range(count)])
