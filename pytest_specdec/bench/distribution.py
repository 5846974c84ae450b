"""How a distribution is measured: the first prompt's continuation, drawn over and over by speculation."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.procedures import Pair
from pytest_specdec.measurements import Distribution


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


# A request draws so many, so that none runs into the time-out.
PART = 1000


def distribution(bench: Bench, draws: int) -> Distribution:
    """Draw ``draws`` texts of n_predict tokens; every draw has a seed of its own.

    Raises:
        BenchError: the settings are greedy.
        RequestRefused: there are too many texts of that length.
    """
    settings = bench.settings
    if settings.temperature == 0:
        raise BenchError("greedy decoding has one text only: set temperature above 0 to draw")
    pair = Pair(bench)
    name, tokens = pair.prompts[0]
    sampling = pair.sources.sampling
    assert sampling is not None
    known = pair.engine.request(
        "odds", context=pair.target.handle, tokens=tokens, n_predict=settings.n_predict, sampling=sampling
    )
    odds = {tuple(text): share for text, share in zip(known["texts"], known["odds"], strict=True)}
    counted: Counter[tuple[int, ...]] = Counter()
    for start in range(0, draws, PART):
        bench.session.progress(f"drawing {pair.model.name} k={settings.k}: {start}/{draws}")
        answer = pair.asked(
            "draws",
            tokens,
            settings.n_predict,
            settings.k,
            sampling=sampling,
            first=start,
            count=min(PART, draws - start),
        )
        for text, count in zip(answer["texts"], answer["counts"], strict=True):
            counted[tuple(text)] += count
    texts = sorted({*counted, *odds})
    return Distribution(
        prompt=name,
        k=settings.k,
        method=bench.method,
        temperature=settings.temperature,
        texts=tuple(texts),
        counts=tuple(counted[text] for text in texts),
        odds=tuple(odds.get(text, 0.0) for text in texts),
    )
