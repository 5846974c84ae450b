"""Hidden states: whether a model gives them, and those of a given text."""

from __future__ import annotations

from typing import Any
from typing import Dict
from typing import List

import numpy as np

from specdec_worker.agreement import WIDTH
from specdec_worker.errors import Refused
from specdec_worker.model import Context


def readable(context: Context, token: int) -> Dict[str, Any]:
    """Whether one pass gives hidden states, ``hidden``, and logits beside them, ``logits``."""
    if not context.embeddings:
        raise Refused("request", "this context was made without embeddings")
    logits = not gives_no_logits(context, token)
    hidden = context.hidden(0) is not None
    context.clear()
    return {"hidden": hidden, "logits": logits, "width": context.model.n_hidden}


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


def features(context: Context, tokens: List[int], text: List[int], path: str) -> Dict[str, Any]:
    """The hidden state that decides each token of ``text`` behind the prompt ``tokens``.

    Written to ``path`` as a .npy file, float32 of shape (len(text), width). Batches have 63 tokens at most.
    """
    if not tokens or not text:
        raise Refused("request", "a prompt and a text of one token or more are needed")
    if len(tokens) + len(text) > context.n_ctx:
        raise Refused(
            "request", f"{len(tokens) + len(text)} tokens don't fit a context of {context.n_ctx}: raise n_ctx"
        )
    width = min(WIDTH, context.n_batch)
    context.clear()
    before = tokens[:-1]
    for start in range(0, len(before), width):
        context.decode(before[start : start + width], "none", save=False)
    fed = [tokens[-1], *text[:-1]]
    found = np.empty((len(fed), context.model.n_hidden), dtype=np.float32)
    for start in range(0, len(fed), width):
        part = fed[start : start + width]
        context.decode(part, "all", save=False)
        for row in range(len(part)):
            found[start + row] = context.hidden(row)
    np.save(path, found, allow_pickle=False)
    return {"rows": len(fed)}
