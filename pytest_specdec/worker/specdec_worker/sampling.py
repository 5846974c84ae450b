"""From logits to a token: greedy, or drawn; and what verification makes of a drafted one."""

from __future__ import annotations

import time
from typing import Any
from typing import Optional

import numpy as np

from specdec_worker.model import Context


# Tokens that a repetition penalty looks back on, as llama.cpp's own sampler does by default.
PENALISED = 64


class Greedy:
    """The most likely token, always."""

    def choose(self, context: Context, row: int, history: list[int]) -> int:
        """The token after ``history`` by a row of the last batch."""
        return context.best(row)

    def judge(self, context: Context, row: int, history: list[int], token: int, odds: Any) -> Optional[int]:
        """None where a drafted token is right, else the token that stands in its place."""
        best = context.best(row)
        return None if best == token else best


class Sampler(Greedy):
    """Draws from softmax(logits ÷ temperature) over what penalty, top-k, top-p and min-p leave.

    That is llama.cpp's order: temperature comes last, and 0 is greedy. ``repeat_penalty`` divides the
    positive logits and multiplies the negative ones of the last `PENALISED` tokens. A top-k of 0 is no limit.

    A draft from a distribution q is accepted with probability min(1, p ÷ q), and replaced by a draw from
    norm(max(p − q, 0)) where it is not: the text then has the target's own distribution p, whatever q is
    (Leviathan et al. 2023, appendix A.1). Where a source gives no odds, q is 1 for its token.
    """

    def __init__(
        self,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repeat_penalty: float,
        seed: Any,
        trust: bool = False,
    ) -> None:
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p
        self._min_p = min_p
        self._penalty = repeat_penalty
        self._rng = np.random.default_rng(seed)
        # A planted fault: drafts are accepted without the ratio test.
        self._trust = trust

    def odds(self, context: Context, row: int, history: list[int]) -> Any:
        """The probability of each token after ``history``, float64 of shape (n_vocab,)."""
        start = time.perf_counter()
        found = self.transformed(context.logits(row), history)
        context.sampling_ms += (time.perf_counter() - start) * 1000.0
        return found

    def transformed(self, logits: Any, history: list[int]) -> Any:
        """The probabilities that logits give, float64 of their shape."""
        values = logits.astype(np.float64)
        if self._penalty != 1.0 and history:
            recent = np.unique(np.asarray(history[-PENALISED:], dtype=np.int64))
            before = values[recent]
            values[recent] = np.where(before > 0, before / self._penalty, before * self._penalty)
        found = np.zeros_like(values)
        if self._temperature == 0:
            found[values.argmax()] = 1.0
            return found
        if 0 < self._top_k < len(values):
            top = np.sort(np.argpartition(-values, self._top_k - 1)[: self._top_k])
            kept = top[np.argsort(-values[top], kind="stable")]
        else:
            kept = np.argsort(-values, kind="stable")
        share = _softmax(values[kept])
        if self._top_p < 1.0:
            share = share[: 1 + int(np.searchsorted(np.cumsum(share), self._top_p))]
        share = share[share >= self._min_p * share[0]]
        kept = kept[: len(share)]
        found[kept] = _softmax(values[kept] / self._temperature)
        return found

    def draw(self, odds: Any) -> int:
        """A token by its odds, which need not add up to 1."""
        edges = np.cumsum(odds)
        return int(np.searchsorted(edges, self._rng.random() * edges[-1], side="right"))

    def choose(self, context: Context, row: int, history: list[int]) -> int:
        """A token after ``history``, drawn."""
        return self.draw(self.odds(context, row, history))

    def judge(self, context: Context, row: int, history: list[int], token: int, odds: Any) -> Optional[int]:
        """None where a drafted token is accepted, else the one drawn in its place."""
        own = self.odds(context, row, history)
        start = time.perf_counter()
        try:
            drafted = 1.0 if odds is None else float(odds[token])
            if self._trust or self._rng.random() * drafted < own[token]:
                return None
            if odds is None:
                rest = own.copy()
                rest[token] = 0.0
            else:
                rest = np.maximum(own - odds, 0.0)
            return self.draw(rest if rest.any() else own)
        finally:
            context.sampling_ms += (time.perf_counter() - start) * 1000.0


def chooser(context: Context, sampling: Optional[dict[str, Any]], prompt: list[int], turn: int = 0) -> Greedy:
    """Greedy without ``sampling``; draws depend on its seed, the prompt and the ``turn``."""
    if sampling is None:
        return Greedy()
    values = dict(sampling)
    seed = [values.pop("seed"), turn, *prompt]
    return Sampler(**values, seed=seed, trust=bool(context.faults.no_ratio))


def _softmax(values: Any) -> Any:
    powers = np.exp(values - values.max())
    return powers / powers.sum()
