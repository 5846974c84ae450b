"""Medusa: one head for every place of the draft, all on one hidden state."""

from __future__ import annotations

from typing import Any

from specdec_worker.drafts.heads import Heads
from specdec_worker.drafts.heads import Matrices
from specdec_worker.drafts.heads import residual
from specdec_worker.model import Context


class Medusa(Heads):
    """Head i guesses the token i places behind the next, by residual SiLU blocks and an output matrix.

    Cai et al. 2024, section 2.1.1. Heads don't see the tokens before their place. ``weight`` has shape
    (heads, blocks, width, width), ``bias`` without the last; ``output`` (rows, width) serves all heads, or
    ``output0``, ``output1``, ... one each.
    """

    def __init__(self, target: Context, matrices: Matrices) -> None:
        super().__init__(target, matrices)
        self._weight, self._bias = matrices["weight"], matrices["bias"]

    def longest(self, k: int) -> int:
        """As many as there are heads."""
        return len(self._weight)

    def step(self, place: int, state: Any, token: int) -> "tuple[Any, Any]":
        """The same state again, and head ``place``'s logits."""
        found = state
        for weight, bias in zip(self._weight[place], self._bias[place]):
            found = residual(found, weight, bias)
        own = self._matrices.get(f"output{place}")
        return state, (self._matrices["output"] if own is None else own) @ found
