"""A second, cheaper model."""

from __future__ import annotations

from typing import Any

from specdec_worker.binding import lib
from specdec_worker.drafts.source import Source
from specdec_worker.model import Context


class TwoModel(Source):
    """A second model that decodes ahead greedily, with a cache of its own."""

    context: Context

    def __init__(self, context: Context) -> None:
        self.context = context
        # Entries of rejected tokens that a planted fault left in the cache.
        self._stale = 0

    def begin(self, prompt: list[int]) -> None:
        """Prefill the prompt."""
        self._stale = 0
        self.context.clear()
        self.context.prefill(prompt)

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """At most k tokens after ``tokens``; fewer after an end-of-generation token.

        After a full acceptance the cache lacks the last drafted token as well: the first pass takes two.
        """
        context = self.context
        vocab = context.model.vocab
        draft: list[int] = []
        feed: Any = tokens[context.past - self._stale :]
        while len(draft) < k:
            context.decode(feed, "last")
            token = context.best(len(feed) - 1)
            draft.append(token)
            if lib.llama_vocab_is_eog(vocab, token):
                break
            feed = [token]
        return draft

    def settle(self, kept: int) -> None:
        """Roll back to the first ``kept`` tokens of the text."""
        context = self.context
        kept += self._stale
        if kept < context.past:
            left = min(context.past - kept, context.faults.draft_rollback_short)
            context.rollback(kept + left)
            self._stale += left
