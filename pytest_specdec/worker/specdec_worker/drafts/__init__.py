"""Draft sources, one per file: given the tokens so far, propose at most k more."""

from __future__ import annotations

from typing import Any
from typing import Callable

from specdec_worker.drafts.eagle import Eagle
from specdec_worker.drafts.heads import Matrices
from specdec_worker.drafts.medusa import Medusa
from specdec_worker.drafts.ngram import Ngram
from specdec_worker.drafts.oracle import Oracle
from specdec_worker.drafts.source import Source
from specdec_worker.drafts.two_model import TwoModel
from specdec_worker.errors import Refused
from specdec_worker.model import Context


def source_of(
    spec: dict[str, Any],
    target: Context,
    context: Callable[[int], Context],
    matrices: Callable[[str], Matrices],
) -> Source:
    """The source that a request asks for: "method", and what that method needs.

    ``context`` has a draft model's context by its handle, ``matrices`` those of a folder of heads.

    Raises:
        Refused: an unknown method.
    """
    values = dict(spec)
    method = values.pop("method")
    if method == "ngram":
        return Ngram(**values)
    if method == "oracle":
        return Oracle(**values, n_vocab=target.model.n_vocab)
    if method == "two-model":
        return TwoModel(context(values["context"]))
    if method in ("medusa", "eagle"):
        merged = {name: array for folder in values["folders"] for name, array in matrices(folder).items()}
        return (Medusa if method == "medusa" else Eagle)(target, merged)
    raise Refused(
        "request", f"unknown draft source {method!r}; known: ngram, oracle, two-model, medusa, eagle"
    )
