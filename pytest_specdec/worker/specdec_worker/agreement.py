"""A given text through the model in small batches: the token it would have chosen at every place."""

from __future__ import annotations

from typing import Any
from typing import Dict
from typing import List

from specdec_worker.errors import Refused
from specdec_worker.model import Context


# From 64 rows on llama.cpp has kernels for prompts, which round otherwise than those that decode.
WIDTH = 63


def agreement(context: Context, tokens: List[int], text: List[int]) -> Dict[str, Any]:
    """The most likely token at each place of ``text`` behind the prompt ``tokens``: ``best``, one per place.

    Every place is given the text before it, whatever the model itself would have said there. Batches have 63
    tokens at most, over the prompt too.
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
    best: "list[int]" = []
    for start in range(0, len(fed), width):
        part = fed[start : start + width]
        context.decode(part, "all", save=False)
        best.extend(context.best(row) for row in range(len(part)))
    return {"best": best}
