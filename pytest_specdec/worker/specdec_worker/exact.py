"""Evidence on exactness: the speculative text against clean passes of every width that was used."""

from __future__ import annotations

from typing import Any
from typing import Callable

import numpy as np

from specdec_worker import generate
from specdec_worker.model import Context


TOP = 50


class Clean:
    """Clean passes (no rollback) over one text behind its prompt: one token at a time, then in batches.

    Per token of the text the logits of the one-token pass's top candidates and of the token itself are
    kept; ``delta(width)`` is how far passes of ``width`` tokens lie from them, the largest per token.
    """

    def __init__(self, context: Context, prompt: list[int], text: list[int]) -> None:
        self._context = context
        self._prompt = prompt
        self._text = text
        self._delta: dict[int, Any] = {}
        self.ids: list[Any] = []
        self.values: list[Any] = []
        self.best: list[tuple[int, float]] = []
        self._pass(1, self._keep)

    def delta(self, width: int) -> Any:
        """The largest logit difference at each token, float64 of shape (tokens,); zero for width 1."""
        if width not in self._delta:
            found = np.zeros(len(self._text))
            if width > 1:

                def compare(position: int, logits: Any) -> None:
                    difference = np.abs(logits[self.ids[position]] - self.values[position])
                    found[position] = float(difference.max())

                self._pass(width, compare)
            self._delta[width] = found
        return self._delta[width]

    def _keep(self, position: int, logits: Any) -> None:
        count = min(TOP, logits.shape[0])
        chosen = np.append(np.argpartition(logits, -count)[-count:], self._text[position])
        self.ids.append(chosen)
        self.values.append(logits[chosen].astype(np.float64))
        top = int(logits.argmax())
        self.best.append((top, float(logits[top])))

    def _pass(self, width: int, keep: Callable[[int, Any], None]) -> None:
        """Call ``keep`` with every token's place and the row that would have chosen it."""
        context, text = self._context, self._text
        context.clear()
        context.prefill(self._prompt)
        keep(0, context.logits((len(self._prompt) - 1) % context.n_batch))
        for start in range(0, len(text) - 1, width):
            batch = text[start : min(start + width, len(text) - 1)]
            context.decode(batch, "all")
            for row in range(len(batch)):
                keep(start + row + 1, context.logits(row))


class Evidence:
    """Comparisons on one prompt; what doesn't depend on the draft length is made once."""

    def __init__(self, context: Context, prompt: list[int], n_predict: int) -> None:
        self._context = context
        self._prompt = prompt
        self._n_predict = n_predict
        self._plain: list[int] = generate.plain(context, prompt, n_predict)["tokens"]
        self._clean: dict[tuple[int, ...], Clean] = {}

    def compare(self, source: Any, k: int) -> dict[str, Any]:
        """Speculate and hold every token and its logits against clean passes."""
        own: list[Any] = []
        run = generate.speculate(
            self._context, source, self._prompt, k, self._n_predict, lambda row: own.append(row.copy())
        )
        text: list[int] = run["tokens"]
        clean = self._clean.get(tuple(text))
        if clean is None:
            clean = self._clean[tuple(text)] = Clean(self._context, self._prompt, text)
        widths = sorted({n + 1 for n in run["drafted"]})
        delta = np.max([clean.delta(width) for width in [1, *widths]], axis=0)
        spread = [
            float(np.abs(logits[ids] - values).max())
            for logits, ids, values in zip(own, clean.ids, clean.values)
        ]
        margins = [
            {
                "position": i,
                "token": token,
                "best": best,
                "margin": top - float(clean.values[i][-1]),
                "delta": float(delta[i]),
            }
            for i, (token, (best, top)) in enumerate(zip(text, clean.best))
            if token != best
        ]
        worst = int(np.argmax(spread))
        return {
            "tokens": len(text),
            "first_difference": _first_difference(self._plain, text),
            "margins": margins,
            "noise": float(delta.max()),
            "difference": spread[worst],
            "difference_at": worst,
            "widths": widths,
            "plain": self._plain,
            "speculative": text,
        }


def _first_difference(plain: list[int], text: list[int]) -> int | None:
    for i, (ours, theirs) in enumerate(zip(plain, text)):
        if ours != theirs:
            return i
    return None if len(plain) == len(text) else min(len(plain), len(text))
