"""Evidence on exactness: the speculative text against clean passes of every width that was used."""

from __future__ import annotations

from typing import Any

import numpy as np

from specdec_worker import generate
from specdec_worker.model import Context


TOP = 50


def _forced(context: Context, prompt: list[int], text: list[int], width: int, keep: Any) -> None:
    """Clean passes (no rollback) over ``text`` behind its prompt, ``width`` tokens at a time.

    ``keep(position, logits)`` gets, for every token of the text, the row that would have chosen it.
    """
    context.clear()
    context.prefill(prompt)
    keep(0, context.logits((len(prompt) - 1) % context.n_batch))
    for start in range(0, len(text) - 1, width):
        batch = text[start : min(start + width, len(text) - 1)]
        context.decode(batch, "all")
        for row in range(len(batch)):
            keep(start + row + 1, context.logits(row))


def compare(
    context: Context, source: Any, prompt: list[int], k: int, n_predict: int, plain: Any = None
) -> tuple[dict[str, Any], Any]:
    """Speculate and hold every token and its logits against clean passes.

    Gives the evidence and the plain run's tokens, which serve the next draft length.
    The logits compared are those of the clean one-token pass's top candidates and of the chosen token.
    """
    if plain is None:
        plain = generate.plain(context, prompt, n_predict)["tokens"]
    own: list[Any] = []
    run = generate.speculate(context, source, prompt, k, n_predict, lambda row: own.append(row.copy()))
    text = run["tokens"]
    differs = [i for i, pair in enumerate(zip(plain, text)) if pair[0] != pair[1]]
    first = differs[0] if differs else None
    if first is None and len(plain) != len(text):
        first = min(len(plain), len(text))

    ids: list[Any] = []
    clean: list[Any] = []
    best: list[tuple[int, float]] = []

    def keep_single(position: int, logits: Any) -> None:
        count = min(TOP, logits.shape[0])
        chosen = np.append(np.argpartition(logits, -count)[-count:], text[position])
        ids.append(chosen)
        clean.append(logits[chosen].astype(np.float64))
        top = int(logits.argmax())
        best.append((top, float(logits[top])))

    _forced(context, prompt, text, 1, keep_single)
    widths = sorted({n + 1 for n in run["drafted"]})
    delta = np.zeros(len(text))

    def keep_wide(position: int, logits: Any) -> None:
        difference = np.abs(logits[ids[position]] - clean[position]).max()
        delta[position] = max(delta[position], float(difference))

    for width in widths:
        if width > 1:
            _forced(context, prompt, text, width, keep_wide)
    spread = np.array([float(np.abs(own[i][ids[i]] - clean[i]).max()) for i in range(len(text))])
    margins = [
        {
            "position": i,
            "token": text[i],
            "best": best[i][0],
            "margin": best[i][1] - float(clean[i][-1]),
            "delta": float(delta[i]),
        }
        for i in range(len(text))
        if text[i] != best[i][0]
    ]
    worst = int(spread.argmax())
    return {
        "tokens": len(text),
        "first_difference": first,
        "margins": margins,
        "noise": float(delta.max()),
        "difference": float(spread[worst]),
        "difference_at": worst,
        "widths": widths,
        "plain": plain,
        "speculative": text,
    }, plain
