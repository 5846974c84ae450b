"""Texts drawn many times by speculation, and the exact odds of all texts: are they the target's own?"""

from __future__ import annotations

from collections import Counter
from typing import Any

from specdec_worker import generate
from specdec_worker.drafts.source import Source
from specdec_worker.errors import Refused
from specdec_worker.model import Context
from specdec_worker.sampling import Sampler
from specdec_worker.sampling import chooser


# Texts whose exact odds are worked out; beyond it a test would have more cells than draws.
MOST_TEXTS = 4096


def drawn(
    context: Context,
    source: Source,
    prompt: list[int],
    n_predict: int,
    k: int,
    sampling: dict[str, Any],
    first: int,
    count: int,
) -> dict[str, Any]:
    """Speculate ``count`` times; the texts that came, and how often each did.

    Draws are numbered from ``first`` on, and each number has draws of its own.
    """
    counted: Counter[tuple[int, ...]] = Counter()
    for turn in range(first, first + count):
        choose = chooser(context, sampling, prompt, turn)
        run = generate.speculate(context, source, prompt, k, n_predict, choose=choose, fixed=True)
        counted[tuple(run["tokens"])] += 1
    return {"texts": [list(text) for text in counted], "counts": list(counted.values())}


def odds(context: Context, prompt: list[int], n_predict: int, sampling: dict[str, Any]) -> dict[str, Any]:
    """The probability of every text of ``n_predict`` tokens, or up to its end, by plain passes.

    Raises:
        Refused: there are too many texts to work out.
    """
    sampler = chooser(context, sampling, prompt)
    assert isinstance(sampler, Sampler)
    known: dict[tuple[int, ...], float] = {}
    open_texts: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_texts:
        text, share = open_texts.pop()
        if len(text) == n_predict or (text and generate.ends(context, text[-1])):
            known[text] = share
            continue
        context.clear()
        context.prefill(prompt)
        row = (len(prompt) - 1) % context.n_batch
        for token in text:
            context.decode([token], "all", save=False)
            row = 0
        found = sampler.odds(context, row, [*prompt, *text])
        for token in found.nonzero()[0]:
            open_texts.append(((*text, int(token)), share * float(found[token])))
        if len(open_texts) + len(known) > MOST_TEXTS:
            raise Refused(
                "request",
                f"more than {MOST_TEXTS} texts of {n_predict} tokens are possible: lower n_predict or top_k",
            )
    return {"texts": [list(text) for text in known], "odds": list(known.values())}
