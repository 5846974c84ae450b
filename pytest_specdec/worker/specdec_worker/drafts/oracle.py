"""The known answer: drafts that are right as often as they are told to be."""

from __future__ import annotations

import random
import time

from specdec_worker.drafts.source import Source


class Oracle(Source):
    """Drafts the tokens of a known text, each right with probability ``alpha``, independently.

    ``text`` is what the target says after the prompt; beyond its end, and once another text is generated,
    nothing is proposed. ``ms`` is what a drafted token costs. Draws depend on ``seed`` and the prompt alone.
    """

    def __init__(self, text: list[int], alpha: float, ms: float, seed: int, n_vocab: int) -> None:
        self._text = text
        self._alpha = alpha
        self._ms = ms
        self._seed = seed
        self._n_vocab = n_vocab
        self._spent_ms = 0.0
        self._start = 0

    @property
    def forward_ms(self) -> float:
        """Time that drafts were made to take so far, ms."""
        return self._spent_ms

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt."""
        self._start = len(prompt)
        self._draw = random.Random(f"{self._seed} {prompt}").random

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """At most k tokens after ``tokens``."""
        done = len(tokens) - self._start
        if tokens[self._start :] != self._text[:done]:
            return []
        right = self._text[done : done + k]
        draft = [token if self._draw() < self._alpha else (token + 1) % self._n_vocab for token in right]
        if self._ms and draft:
            start = time.perf_counter()
            time.sleep(self._ms * len(draft) / 1000.0)
            self._spent_ms += (time.perf_counter() - start) * 1000.0
        return draft
