"""A second, cheaper model."""

from __future__ import annotations

from typing import Any
from typing import Optional

from specdec_worker.binding import lib
from specdec_worker.drafts.source import Source
from specdec_worker.model import Context
from specdec_worker.sampling import Sampler


class TwoModel(Source):
    """A second model that decodes ahead, with a cache of its own: greedily, or drawing as the target does."""

    context: Context

    def __init__(self, context: Context) -> None:
        self.context = context
        self.odds: list[Any] = []
        self._sampler: Optional[Sampler] = None
        # Entries of rejected tokens that a planted fault left in the cache.
        self._stale = 0

    def draws_by(self, sampler: Optional[Sampler]) -> None:
        """Draw from the model's own odds, transformed as the target's are."""
        self._sampler = sampler

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
        self.odds = []
        feed: Any = tokens[context.past - self._stale :]
        while len(draft) < k:
            context.decode(feed, "last")
            token = self._chosen(len(feed) - 1, tokens, draft)
            draft.append(token)
            if lib.llama_vocab_is_eog(vocab, token):
                break
            feed = [token]
        return draft

    def _chosen(self, row: int, tokens: list[int], draft: list[int]) -> int:
        if self._sampler is None:
            return self.context.best(row)
        self.odds.append(self._sampler.odds(self.context, row, [*tokens, *draft]))
        return self._sampler.draw(self.odds[-1])

    def settle(self, kept: int) -> None:
        """Roll back to the first ``kept`` tokens of the text."""
        context = self.context
        kept += self._stale
        if kept < context.past:
            left = min(context.past - kept, context.faults.draft_rollback_short)
            context.rollback(kept + left)
            self._stale += left
