"""Texts that a model says, many at a time, with the hidden state that chose each token."""

from __future__ import annotations

import time
from typing import Any
from typing import Dict
from typing import List
from typing import Optional

import numpy as np

from specdec_worker.binding import lib
from specdec_worker.errors import Refused
from specdec_worker.generate import ends
from specdec_worker.model import Context
from specdec_worker.sampling import chooser


def texts(
    context: Context, prompts: List[List[int]], n_predict: int, sampling: Optional[Dict[str, Any]], path: str
) -> Dict[str, Any]:
    """What follows each prompt, ``n_predict`` tokens or up to its end, all in the same passes.

    ``path`` gets the hidden states as a .npy file, float32 of shape (tokens in all, width): of one text after
    the other, without the first token of each. The context needs a sequence for every prompt.

    Raises:
        Refused: the context is too small, or llama.cpp refuses a pass.
    """
    room = context.n_ctx // max(1, context.n_sequences)
    if len(prompts) > context.n_sequences or max(map(len, prompts)) + n_predict > room:
        raise Refused(
            "request",
            f"{len(prompts)} texts of up to {max(map(len, prompts)) + n_predict} tokens don't fit "
            f"{context.n_sequences} sequences of {room}: raise n_ctx or lower n_predict",
        )
    context.clear()
    batch = _Batch(context, max(context.n_batch, len(prompts)))
    try:
        return _said(context, batch, prompts, n_predict, sampling, path)
    finally:
        batch.free()
        context.clear()


def _said(
    context: Context,
    batch: _Batch,
    prompts: List[List[int]],
    n_predict: int,
    sampling: Optional[Dict[str, Any]],
    path: str,
) -> Dict[str, Any]:
    said: "list[list[int]]" = []
    states: "list[list[Any]]" = [[] for _ in prompts]
    choosers = [chooser(context, sampling, prompt) for prompt in prompts]
    for number, prompt in enumerate(prompts):
        for start in range(0, len(prompt), context.n_batch):
            part = prompt[start : start + context.n_batch]
            batch.decode([(token, start + i, number) for i, token in enumerate(part)], hidden=False)
        row = (len(prompt) - 1) % context.n_batch
        said.append([choosers[number].choose(context, row, prompt)])
    going = [number for number, text in enumerate(said) if n_predict > 1 and not ends(context, text[0])]
    while going:
        places = [(said[n][-1], len(prompts[n]) + len(said[n]) - 1, n) for n in going]
        batch.decode(places, hidden=True)
        still = []
        for row, number in enumerate(going):
            states[number].append(context.hidden(row).copy())
            history = [*prompts[number], *said[number]]
            token = choosers[number].choose(context, row, history)
            said[number].append(token)
            if len(said[number]) < n_predict and not ends(context, token):
                still.append(number)
        going = still
    found = [state for one in states for state in one]
    width = context.model.n_hidden
    np.save(path, np.array(found, dtype=np.float32).reshape(len(found), width), allow_pickle=False)
    return {"texts": said}


class _Batch:
    """Rows of several sequences in one pass."""

    def __init__(self, context: Context, capacity: int) -> None:
        self._context = context
        self._batch = lib.llama_batch_init(capacity, 0, 1)

    def decode(self, rows: "list[tuple[int, int, int]]", hidden: bool) -> None:
        """One pass over (token, position, sequence): logits of the last row, or of all with hidden states."""
        context, batch = self._context, self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = 1 if hidden or i == len(rows) - 1 else 0
        lib.llama_set_embeddings(context.handle, hidden)
        start = time.perf_counter()
        code = lib.llama_decode(context.handle, batch)
        lib.llama_synchronize(context.handle)
        context.forward_ms += (time.perf_counter() - start) * 1000.0
        if code != 0:
            raise Refused(
                "decode",
                f"llama_decode returned {code} for {len(rows)} rows of several texts: lower n_predict",
            )

    def free(self) -> None:
        """Give the memory back."""
        lib.llama_batch_free(self._batch)
