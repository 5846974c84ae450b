"""Speculative output against the target's own, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import ClassVar

from pytest_specdec.measurements.record import Record


if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class TokenMargin(Record):
    """A speculative token that is not the clean one-token pass's maximum at its position.

    ``margin`` is how far its logit lies under that maximum; ``delta`` the largest logit difference between
    the clean passes at that position, over the top candidates.
    """

    position: int
    token: int
    best: int
    margin: float
    delta: float


@dataclass(frozen=True, slots=True)
class ExactnessCase(Record):
    """Speculative against plain decoding of one prompt, with the evidence for every difference.

    ``first_difference`` is the index of the first token that differs from plain decoding (None: same
    tokens). ``margins`` lists the tokens of the speculative text that a clean pass at N = 1 over that very
    text would not have chosen. ``noise`` is the largest logit difference between clean passes of the widths
    used, ``difference`` the largest between the speculative run's own logits and the clean pass at N = 1,
    both over the top candidates.
    """

    prompt: str
    tokens: int
    first_difference: int | None
    margins: tuple[TokenMargin, ...]
    noise: float
    difference: float
    difference_at: int
    widths: tuple[int, ...]
    plain: tuple[int, ...] = ()
    speculative: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Exactness(Record):
    """Every prompt's comparison at one draft length."""

    kind: ClassVar[str] = "exactness"

    k: int
    method: str
    cases: tuple[ExactnessCase, ...]
    source: str = "measured"

    def to_frame(self) -> DataFrame:
        """One row per prompt."""
        import pandas as pd

        return pd.DataFrame(
            [
                (c.prompt, c.tokens, c.first_difference, len(c.margins), c.noise, c.difference)
                for c in self.cases
            ],
            columns=["prompt", "tokens", "first_difference", "near_ties", "noise", "difference"],
        )
