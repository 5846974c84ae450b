"""Draft sources, one per file: given the tokens so far, propose at most k more."""

from __future__ import annotations

from typing import Any
from typing import Callable

from specdec_worker.drafts.ngram import Ngram
from specdec_worker.drafts.oracle import Oracle
from specdec_worker.drafts.source import Source
from specdec_worker.drafts.two_model import TwoModel
from specdec_worker.errors import Refused
from specdec_worker.model import Context


def source_of(spec: dict[str, Any], context: Callable[[int], Context], n_vocab: int) -> Source:
    """The source that a request asks for: "method", and what that method needs.

    Raises:
        Refused: an unknown method.
    """
    values = dict(spec)
    method = values.pop("method")
    if method == "ngram":
        return Ngram(**values)
    if method == "oracle":
        return Oracle(**values, n_vocab=n_vocab)
    if method == "two-model":
        return TwoModel(context(values["context"]))
    raise Refused("request", f"unknown draft source {method!r}; known: ngram, oracle, two-model")
