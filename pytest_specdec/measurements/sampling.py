"""Texts drawn by speculation, against their exact odds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import ClassVar

from pytest_specdec.measurements.record import Record


if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Distribution(Record):
    """How often each text was drawn behind one prompt, and its probability by plain passes of the target.

    Row i: ``texts[i]`` (token ids), ``counts[i]``, ``odds[i]``.
    """

    kind: ClassVar[str] = "distribution"

    prompt: str
    k: int
    method: str
    temperature: float
    texts: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    odds: tuple[float, ...]
    source: str = "measured"

    @property
    def draws(self) -> int:
        """Texts drawn."""
        return sum(self.counts)

    def to_frame(self) -> DataFrame:
        """One row per text."""
        import pandas as pd

        return pd.DataFrame({"text": list(self.texts), "count": self.counts, "odds": self.odds})
