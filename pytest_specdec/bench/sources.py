"""What a request to speculate says of its draft source, by method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.keys import SAMPLING
from pytest_specdec.bench.rig import Loaded


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


class Sources:
    """One bench's source, for any of its prompts.

    Raises:
        BenchError: its settings exclude each other.
    """

    def __init__(
        self, bench: Bench, target: Loaded, draft: Loaded | None, heads: tuple[Path, ...] = ()
    ) -> None:
        settings = bench.settings
        if settings.ngram_min > settings.ngram_max:
            raise BenchError(
                f"ngram_min = {settings.ngram_min} exceeds ngram_max = {settings.ngram_max}: prompt lookup "
                "has no length left to search for"
            )
        if settings.samples and bench.method == "oracle":
            raise BenchError(
                "the oracle knows what greedy decoding says: leave temperature and repeat_penalty as they "
                "are, or choose another method"
            )
        self._bench = bench
        self._target = target
        self._draft = draft
        self._heads = heads

    @property
    def sampling(self) -> dict[str, Any] | None:
        """How tokens are drawn, as the worker takes it; None for greedy decoding."""
        settings = self._bench.settings
        if not settings.samples:
            return None
        return {name: getattr(settings, name) for name in SAMPLING}

    def of(self, tokens: list[int], k: int) -> dict[str, Any]:
        """The source as the worker takes it, for a prompt and a draft length."""
        settings, method = self._bench.settings, self._bench.method
        if self._draft is not None:
            return {"method": "two-model", "context": self._draft.handle}
        if self._heads:
            return {"method": method, "folders": [str(folder) for folder in self._heads]}
        if method == "oracle":
            text = self._text(tokens, k)
            return _oracle(text, settings.oracle_alpha, settings.oracle_ms, settings.seed)
        return {"method": "ngram", "longest": settings.ngram_max, "shortest": settings.ngram_min}

    def _text(self, tokens: list[int], k: int) -> list[int]:
        """What the target says in passes of k + 1 tokens, whatever the drafts.

        Between classes of batch sizes a near tie may part it from plain decoding.
        """
        engine, count = self._bench.session.rig.engine, self._bench.settings.n_predict
        known = self._bench.session.rig.texts
        place = (engine.generation, self._target.handle, k, count, tuple(tokens))
        if place not in known:
            context = {"context": self._target.handle, "tokens": tokens, "n_predict": count}
            plain = engine.request("decode", **context)["tokens"]
            run = engine.request("speculate", **context, k=k, source=_oracle(plain, 1.0, 0.0, 0), fixed=True)
            known[place] = run["tokens"]
        return known[place]


def _oracle(text: list[int], alpha: float, ms: float, seed: int) -> dict[str, Any]:
    return {"method": "oracle", "text": text, "alpha": alpha, "ms": ms, "seed": seed}
