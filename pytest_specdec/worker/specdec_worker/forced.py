"""Clean one-token passes over a given text: the logits of its choices, for comparison between builds."""

from __future__ import annotations

from typing import Any
from typing import List
from typing import Optional

import numpy as np

from specdec_worker.errors import Refused
from specdec_worker.model import Context


TOP = 50


def forced(
    context: Context, tokens: List[int], text: List[int], candidates: Optional[List[List[int]]]
) -> "dict[str, Any]":
    """Logits at every place of ``text`` behind the prompt ``tokens``, one token at a time.

    ``candidates`` names the tokens whose logits are wanted at each place; without it, the ``TOP`` most likely
    ones and the text's own. The answer has them as ``ids`` and ``values``, and each place's ``best`` token.
    """
    if len(tokens) + len(text) > context.n_ctx:
        raise Refused(
            "request", f"{len(tokens) + len(text)} tokens don't fit a context of {context.n_ctx}: raise n_ctx"
        )
    ids: "list[list[int]]" = []
    values: "list[list[float]]" = []
    best: "list[int]" = []

    def keep(place: int, row: int) -> None:
        logits = context.logits(row)
        if candidates is None:
            count = min(TOP, logits.shape[0])
            chosen = np.argpartition(logits, -count)[-count:]
            if text[place] not in chosen:
                chosen = np.append(chosen, text[place])
        else:
            chosen = np.asarray(candidates[place], dtype=np.int64)
        ids.append([int(token) for token in chosen])
        values.append([float(value) for value in logits[chosen]])
        best.append(int(logits.argmax()))

    context.clear()
    context.prefill(tokens)
    keep(0, (len(tokens) - 1) % context.n_batch)
    for place in range(1, len(text)):
        context.decode([text[place - 1]], "all", save=False)
        keep(place, 0)
    return {"ids": ids, "values": values, "best": best}
