"""What speculation asks of a source of drafts."""

from __future__ import annotations

from typing import Any
from typing import Optional
from typing import Sequence

from specdec_worker.model import Context
from specdec_worker.sampling import Sampler


class Source:
    """Proposes tokens; a subclass says which.

    ``context`` is the cache of a draft model, None without one. ``forward_ms`` adds up the passes spent on
    drafting so far, in ms. ``odds`` has the distribution that each token of the last proposal was drawn from;
    it is empty where tokens were not drawn.
    """

    context: Optional[Context] = None
    odds: Sequence[Any] = ()

    def draws_by(self, sampler: Optional[Sampler]) -> None:
        """Draw drafts as the target draws its text, where this source has odds; None: be greedy."""

    @property
    def forward_ms(self) -> float:
        """Time in passes so far, ms."""
        return self.context.forward_ms if self.context else 0.0

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt."""

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """At most k tokens after ``tokens``, the prompt included."""
        raise NotImplementedError

    def verified(self, context: Context, row: int) -> None:
        """The target chose the text's last token by this row of its last pass."""

    def settle(self, kept: int) -> None:
        """The first ``kept`` tokens of the text, its last one excluded, are what a cache may hold."""
