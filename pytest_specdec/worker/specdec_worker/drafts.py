"""Draft sources: given the tokens so far, propose at most k more."""

from __future__ import annotations

import random
from typing import Any

from specdec_worker.binding import lib
from specdec_worker.model import Context


class Ngram:
    """Prompt lookup: what followed the longest suffix of up to ``longest`` tokens when it last occurred.

    The copy may run into the tokens it proposes, so text of a short period is continued. A table from
    n-gram to the place after its latest occurrence keeps the cost of a proposal independent of the length.
    """

    context = None

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._clear()

    def _clear(self) -> None:
        self._after: list[dict[tuple[int, ...], int]] = [{} for _ in range(self.longest)]
        self._indexed = 0

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt."""
        self._clear()

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """At most k tokens after ``tokens``."""
        last = len(tokens) - 1
        for end in range(self._indexed, last):
            for n, table in enumerate(self._after, start=1):
                if end + 1 >= n:
                    table[tuple(tokens[end + 1 - n : end + 1])] = end + 1
        self._indexed = max(self._indexed, last)
        for n in range(min(self.longest, len(tokens)), 0, -1):
            start = self._after[n - 1].get(tuple(tokens[-n:]))
            if start is not None:
                length = len(tokens)
                draft: list[int] = []
                for i in range(start, start + k):
                    draft.append(tokens[i] if i < length else draft[i - length])
                return draft
        return []

    def settle(self, kept: int) -> None:
        """Nothing to take back: only accepted tokens enter the table."""


class TwoModel:
    """A second model that decodes ahead greedily, with a cache of its own."""

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


class Scripted:
    """Drafts the tokens of a known text, a share of them replaced by wrong ones.

    ``wrong`` = 0 drafts the text itself, 1 nothing of it; in between the places are drawn by ``seed``. Beyond
    the text's end it goes on with tokens of the prompt: there are always k.
    """

    context = None

    def __init__(self, text: list[int], wrong: float, seed: int, n_vocab: int) -> None:
        draw = random.Random(seed)
        self._script = [(token + 1) % n_vocab if draw.random() < wrong else token for token in text]
        self._prompt: list[int] = []

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt."""
        self._prompt = prompt

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """Exactly k tokens after ``tokens``."""
        done = len(tokens) - len(self._prompt)
        draft = self._script[done : done + k]
        return draft + [self._prompt[i % len(self._prompt)] for i in range(k - len(draft))]

    def settle(self, kept: int) -> None:
        """Nothing to take back."""


class Padded:
    """Another source's drafts, filled up to k with the last token of the text."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.context = source.context

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt."""
        self._source.begin(prompt)

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """Exactly k tokens after ``tokens``."""
        draft: list[int] = self._source.propose(tokens, k)
        return draft + [tokens[-1]] * (k - len(draft))

    def settle(self, kept: int) -> None:
        """Roll the source back to the first ``kept`` tokens of the text."""
        self._source.settle(kept)
