"""Prompt lookup: text that repeats drafts itself."""

from __future__ import annotations

from specdec_worker.drafts.source import Source


class Ngram(Source):
    """What followed the longest suffix of ``shortest`` to ``longest`` tokens when it last occurred.

    The copy may run into the tokens it proposes, so text of a short period is continued. A table from
    n-gram to the place after its latest occurrence keeps the cost of a proposal independent of the length.
    """

    def __init__(self, longest: int, shortest: int = 1) -> None:
        self._sizes = range(shortest, longest + 1)
        self._clear()

    def _clear(self) -> None:
        self._after: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._sizes}
        self._indexed = 0

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt, and index it: that is prefill, and no part of a draft's cost."""
        self._clear()
        self._index(prompt)

    def _index(self, tokens: list[int]) -> None:
        last = len(tokens) - 1
        for end in range(self._indexed, last):
            for n, table in self._after.items():
                if end + 1 >= n:
                    table[tuple(tokens[end + 1 - n : end + 1])] = end + 1
        self._indexed = max(self._indexed, last)

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """At most k tokens after ``tokens``."""
        self._index(tokens)
        for n in reversed(self._sizes):
            start = self._after[n].get(tuple(tokens[-n:]))
            if start is not None:
                length = len(tokens)
                draft: list[int] = []
                for i in range(start, start + k):
                    draft.append(tokens[i] if i < length else draft[i - length])
                return draft
        return []
