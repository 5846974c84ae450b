"""Hidden states: whether a model gives them, and logits beside them."""

from __future__ import annotations

from typing import Any
from typing import Dict

import numpy as np

from specdec_worker.errors import Refused
from specdec_worker.model import Context


def readable(context: Context, token: int) -> Dict[str, Any]:
    """Whether one pass gives hidden states, ``hidden``, and logits beside them, ``logits``."""
    if not context.embeddings:
        raise Refused("request", "this context was made without embeddings")
    logits = not gives_no_logits(context, token)
    hidden = context.hidden(0) is not None
    context.clear()
    return {"hidden": hidden, "logits": logits}


def gives_no_logits(context: Context, token: int) -> bool:
    """Whether logits beside hidden states are what an earlier pass left behind, or nothing at all."""
    context.clear()
    with context.logits_only():
        context.decode([token], "all")
        earlier = context.logits(0).copy()
    context.clear()
    context.decode([(token + 1) % context.model.n_vocab], "all")
    try:
        logits = context.logits(0)
    except Refused:
        return True
    return bool(np.array_equal(logits, earlier) or logits.min() == logits.max())
