"""EAGLE: the next hidden state from this one and the next token, over and over."""

from __future__ import annotations

from typing import Any

import numpy as np

from specdec_worker.drafts.heads import Heads
from specdec_worker.drafts.heads import residual


class Eagle(Heads):
    """A feature-level head, autoregressive over its own features; Li et al. 2024, without its attention.

    ``fc_weight`` (width, 2 x width) takes the token's embedding and the state, in this order; ``weight``
    (blocks, width, width) and ``bias`` are residual SiLU blocks behind it; ``output`` (rows, width) is the
    target's own. ``embedding`` (n_vocab, width) is the target's.
    """

    def step(self, place: int, state: Any, token: int) -> "tuple[Any, Any]":
        """The next state, and its logits."""
        matrices = self._matrices
        embedded = np.asarray(matrices["embedding"][token], dtype=np.float32)
        found = matrices["fc_weight"] @ np.concatenate([embedded, state]) + matrices["fc_bias"]
        for weight, bias in zip(matrices["weight"], matrices["bias"]):
            found = residual(found, weight, bias)
        return found, matrices["output"] @ found
