"""The same arm against itself: what times differ by when nothing does."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
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
class ArmPair(Record):
    """Plain decoding of one prompt by two arms, run next to each other, ms after the prefill."""

    prompt: str
    first_tokens: int
    first_ms: float
    second_tokens: int
    second_ms: float

    @property
    def ratio(self) -> float:
        """The second arm's decode rate ÷ the first's."""
        first = (self.first_tokens - 1) / self.first_ms
        return (self.second_tokens - 1) / self.second_ms / first


@dataclass(frozen=True, slots=True)
class NoiseRun(Record):
    """Plain decoding as both arms of interleaved pairs, in ABBA order per prompt."""

    kind: ClassVar[str] = "noise"

    pairs: tuple[ArmPair, ...]
    source: str = "measured"
    environment: Environment | None = field(default=None, metadata=RARE)

    def log_ratios(self) -> NDArray[float64]:
        """Natural log of the second decode rate ÷ the first, shape (pairs,)."""
        import numpy as np

        return np.log([pair.ratio for pair in self.pairs])

    def to_frame(self) -> DataFrame:
        """One row per pair."""
        import pandas as pd

        return pd.DataFrame([{**pair.to_json(), "ratio": pair.ratio} for pair in self.pairs])
