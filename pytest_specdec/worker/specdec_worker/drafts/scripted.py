"""Drafts that exactness is tested with: of a fixed length, and as right or wrong as a comparison needs."""

from __future__ import annotations

import random

from specdec_worker.drafts.source import Source
from specdec_worker.model import Context


class Scripted(Source):
    """Drafts the tokens of a known text, a share of them replaced by wrong ones.

    ``wrong`` = 0 drafts the text itself, 1 nothing of it; in between the places are drawn by ``seed``. Beyond
    the text's end it goes on with tokens of the prompt: there are always k.
    """

    def __init__(self, text: list[int], wrong: float, seed: int, n_vocab: int) -> None:
        draw = random.Random(seed)
        self._script = [(token + 1) % n_vocab if draw.random() < wrong else token for token in text]
        self._prompt: list[int] = []

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt."""
        self._prompt = prompt

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """Exactly k tokens after ``tokens``."""
        done = len(tokens) - len(self._prompt)
        draft = self._script[done : done + k]
        return draft + [self._prompt[i % len(self._prompt)] for i in range(k - len(draft))]


class Padded(Source):
    """Another source's drafts, filled up to k with the last token of the text."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.context = source.context

    @property
    def forward_ms(self) -> float:
        """Time in the other source's passes so far, ms."""
        return self._source.forward_ms

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt."""
        self._source.begin(prompt)

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """Exactly k tokens after ``tokens``."""
        draft = self._source.propose(tokens, k)
        return draft + [tokens[-1]] * (k - len(draft))

    def verified(self, context: Context, row: int) -> None:
        """Hand the row on."""
        self._source.verified(context, row)

    def settle(self, kept: int) -> None:
        """Roll the source back to the first ``kept`` tokens of the text."""
        self._source.settle(kept)
