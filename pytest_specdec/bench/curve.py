"""How a verify cost curve is measured: interleaved blocks of all batch sizes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from pytest_specdec.bench.procedures import Pair
from pytest_specdec.bench.procedures import check_sizes
from pytest_specdec.bench.procedures import text_tokens
from pytest_specdec.measurements import VerifyCurve


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


class Blocks:
    """A curve in the making, block by block, so that two arms can take turns.

    Within a block every N has its turn once, in random order, behind one sentinel: a fixed forward.

    Raises:
        BenchError: the batch sizes don't fit n_batch or the context.
    """

    def __init__(self, bench: Bench, rows: str = "all") -> None:
        check_sizes(bench.settings, bench.settings.sizes, "sizes", lower="depth or sizes")
        self._bench = bench
        self._rows = rows
        self._sizes = bench.settings.sizes
        self._shuffle = random.Random(bench.settings.seed)
        self._samples: dict[int, list[tuple[float, ...]]] = {n: [] for n in self._sizes}
        self._sentinel: list[float] = []

    def warm_up(self) -> None:
        """Run every N once."""
        self._say("warming up")
        self._run(self._sizes, 1)

    def add(self) -> None:
        """Measure one block more."""
        self._say(f"block {len(self._sentinel) + 1}/{self._bench.settings.blocks}")
        order = list(self._sizes)
        self._shuffle.shuffle(order)
        first, *times = self._run([self._sizes[0], *order], self._bench.settings.calls)
        self._sentinel.append(median(first))
        for n, calls in zip(order, times, strict=True):
            self._samples[n].append(tuple(calls))

    def curve(self) -> VerifyCurve:
        """Close with a last sentinel."""
        self._sentinel.append(median(self._run([self._sizes[0]], self._bench.settings.calls)[0]))
        return VerifyCurve(
            n=self._sizes,
            samples_ms=tuple(tuple(self._samples[n]) for n in self._sizes),
            depth=self._bench.settings.depth,
            rows=self._rows,
            sentinel_ms=tuple(self._sentinel),
        )

    def _run(self, order: Sequence[int], calls: int) -> list[list[float]]:
        # Made anew each time: in between, the worker may have been another one.
        pair = Pair(self._bench, drafting=False)
        depth = self._bench.settings.depth
        answer = pair.engine.request(
            "forward",
            context=pair.target.handle,
            tokens=text_tokens(pair.prompts, depth + max(self._sizes)),
            order=list(order),
            calls=calls,
            depth=depth,
            rows=self._rows,
        )
        times: list[list[float]] = answer["ms"]
        return times

    def _say(self, what: str) -> None:
        name = self._bench.session.rig.target(self._bench.settings).name
        self._bench.session.progress(f"verify curve {name}: {what}")


def verify_curve(bench: Bench, rows: str) -> VerifyCurve:
    """Warm up every N, then blocks of all N in random order, until the budget is spent."""
    blocks = Blocks(bench, rows)
    blocks.warm_up()
    budget = bench.settings.budget
    started = time.monotonic()
    for index in range(bench.settings.blocks):
        if index and budget and time.monotonic() - started > budget:
            break
        blocks.add()
    return blocks.curve()
