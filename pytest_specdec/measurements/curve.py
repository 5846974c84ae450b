"""Verify cost: T(N)."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from statistics import median
from typing import TYPE_CHECKING
from typing import ClassVar

from pytest_specdec.measurements.environment import Environment
from pytest_specdec.measurements.record import RARE
from pytest_specdec.measurements.record import Record


if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class VerifyCurve(Record):
    """T(N): wall time in ms of one forward pass over N tokens of one sequence at ``depth``.

    ``samples_ms[i][b][c]`` is call c of block b at batch size ``n[i]``; within a block every N was visited
    once, in random order, so that column b is a pairing. ``rows`` says whether logits were asked for all
    N rows ("all", a verify pass) or the last one ("last", what ``llama-bench -p N`` measures).
    ``sentinel_ms`` is one fixed forward before each block and after the last.
    """

    kind: ClassVar[str] = "verify_curve"

    n: tuple[int, ...]
    samples_ms: tuple[tuple[tuple[float, ...], ...], ...]
    depth: int = 0
    rows: str = "all"
    sentinel_ms: tuple[float, ...] = ()
    source: str = "measured"
    environment: Environment | None = field(default=None, metadata=RARE)

    def blocks_ms(self) -> NDArray[float64]:
        """Median over the calls of each block, shape (len(n), blocks), ms."""
        import numpy as np

        return np.array([[median(calls) for calls in blocks] for blocks in self.samples_ms], dtype=float)

    def medians_ms(self) -> dict[int, float]:
        """N to the median over all its calls, ms."""
        return {
            n: float(median([ms for calls in blocks for ms in calls]))
            for n, blocks in zip(self.n, self.samples_ms, strict=True)
        }

    def to_frame(self) -> DataFrame:
        """Columns n, block, call, ms."""
        import pandas as pd

        rows = [
            (n, b, c, ms)
            for n, blocks in zip(self.n, self.samples_ms, strict=True)
            for b, calls in enumerate(blocks)
            for c, ms in enumerate(calls)
        ]
        return pd.DataFrame(rows, columns=["n", "block", "call", "ms"])
