"""Heads on the target's hidden state: their matrices, and from a state to a token."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from typing import Dict
from typing import List
from typing import Optional

import numpy as np

from specdec_worker.binding import lib
from specdec_worker.drafts.source import Source
from specdec_worker.errors import Refused
from specdec_worker.model import Context
from specdec_worker.sampling import Sampler


Matrices = Dict[str, Any]


def load(folder: str) -> Matrices:
    """Arrays by the names of their .npy files; an embedding stays on disk, of which drafts read rows."""
    return {
        path.stem: np.load(path, mmap_mode="r" if path.stem == "embedding" else None, allow_pickle=False)
        for path in sorted(Path(folder).glob("*.npy"))
    }


class Heads(Source):
    """Drafts from the hidden state of the last row that the target judged; a subclass says how.

    Before the first pass there is none, and nothing is proposed. ``ids`` are the tokens that a head's rows
    stand for, absent where they stand for all.
    """

    def __init__(self, target: Context, matrices: Matrices) -> None:
        self._matrices = matrices
        self._ids = matrices.get("ids")
        self._n_vocab = target.model.n_vocab
        self._vocab = target.model.vocab
        self._state: Any = None
        self._spent_ms = 0.0
        self._sampler: Optional[Sampler] = None
        self.odds: List[Any] = []

    @property
    def forward_ms(self) -> float:
        """Time in the heads so far, ms."""
        return self._spent_ms

    def draws_by(self, sampler: Optional[Sampler]) -> None:
        """Draw from the heads' own odds, transformed as the target's are."""
        self._sampler = sampler

    def begin(self, prompt: List[int]) -> None:
        """Start over with a prompt."""
        self._state = None

    def verified(self, context: Context, row: int) -> None:
        """Keep the state of the row."""
        state = context.hidden(row)
        if state is None:
            raise Refused("request", "llama.cpp gives no hidden state of this model: no head can read it")
        self._state = state.copy()

    def propose(self, tokens: List[int], k: int) -> List[int]:
        """At most k tokens after ``tokens``; fewer after an end-of-generation token."""
        self.odds = []
        draft: List[int] = []
        if self._state is None:
            return draft
        start = time.perf_counter()
        state = self._state
        for place in range(min(k, self.longest(k))):
            state, logits = self.step(place, state, draft[-1] if draft else tokens[-1])
            token = self._chosen(logits, tokens, draft)
            draft.append(token)
            if lib.llama_vocab_is_eog(self._vocab, token):
                break
        self._spent_ms += (time.perf_counter() - start) * 1000.0
        return draft

    def longest(self, k: int) -> int:
        """The longest draft of k tokens or fewer that there are heads for."""
        return k

    def step(self, place: int, state: Any, token: int) -> "tuple[Any, Any]":
        """The state for the next place, and the logits of a head's rows at this one."""
        raise NotImplementedError

    def _chosen(self, logits: Any, tokens: List[int], draft: List[int]) -> int:
        if self._sampler is None:
            row = int(logits.argmax())
            return row if self._ids is None else int(self._ids[row])
        if self._ids is not None:
            whole = np.full(self._n_vocab, -np.inf)
            whole[self._ids] = logits
            logits = whole
        self.odds.append(self._sampler.transformed(logits, [*tokens, *draft]))
        return self._sampler.draw(self.odds[-1])


def residual(state: Any, weight: Any, bias: Any) -> Any:
    """One residual SiLU block: state + silu(weight @ state + bias)."""
    inner = weight @ state + bias
    # exp overflows to infinity where silu is 0 anyway.
    with np.errstate(over="ignore"):
        return state + inner / (1.0 + np.exp(-inner))
