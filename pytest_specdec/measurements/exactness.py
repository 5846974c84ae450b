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
    clean passes of the widths used, at several alignments, at that position, over the top candidates.
    """

    position: int
    token: int
    best: int
    margin: float
    delta: float


@dataclass(frozen=True, slots=True)
class Parting(Record):
    """The first token at which a run leaves another one that it had to equal bit for bit.

    ``step`` 1: the "real" drafts' run against "plain" decoding. Step 2, every pass as wide as the draft
    length allows: a run with "useless", "perfect", "mixed" or "real" drafts against "clean" passes of that
    width, or against the run with useless drafts. ``token`` and ``other`` are equal where only the bits of
    the logits that decided them differ; None where that text had ended. The rounds count from 1, the prefill
    is 0; clean passes and plain decoding have none.
    """

    step: int
    drafts: str
    against: str
    position: int
    token: int | None
    other: int | None
    round: int
    other_round: int | None = None


@dataclass(frozen=True, slots=True)
class ExactnessCase(Record):
    """Speculative against plain decoding of one prompt, with the evidence for every difference.

    ``steps`` are those that applied: 1, same class, same bits; 2, the same bits whatever the drafts, over the
    first ``invariant`` tokens; 3, near ties. ``reasons`` say why the others did not, ``partings`` where a
    bit-exact step failed, ``refused`` what llama.cpp would not do in the middle of a run.

    ``first_difference`` is the index of the first token that differs from plain decoding (None: same
    tokens). ``margins`` lists the tokens of the speculative text that a clean pass at N = 1 over that very
    text would not have chosen. ``noise`` is the largest logit difference between clean passes of the widths
    used at several alignments, ``difference`` the largest between the speculative run's own logits and the
    clean pass at N = 1, both over the top candidates; both are 0 where the run has that pass's own bits.
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
    steps: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    partings: tuple[Parting, ...] = ()
    invariant: int = 0
    refused: str = ""

    @property
    def decided(self) -> int | None:
        """The strictest step that applied; None where none is known to have."""
        return min(self.steps, default=None)


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
                (c.prompt, c.tokens, c.decided, c.first_difference, len(c.margins), c.noise, c.difference)
                for c in self.cases
            ],
            columns=["prompt", "tokens", "step", "first_difference", "near_ties", "noise", "difference"],
        )
