"""Planted faults, for tests of the gate itself: the environment variable SPECDEC_FAULTS of a worker.

``SPECDEC_FAULTS="accept_extra=1,sleep_forward=0.1"``; a worker without the variable has none. A run with
faults says so in its hello.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from dataclasses import fields
from typing import Any

from specdec_worker.errors import Refused


@dataclass(frozen=True)
class Faults:
    """The faults in force.

    In verification, each in every round it can act in:

    accept_extra: drafted tokens accepted in a rejecting round although verification refused them.
    wrong_bonus: the bonus token is the second best of its row.
    wrong_row: the bonus token is the best of the row behind its own, of the row before where there is none.

    In the cache after a rejecting round, the host's counter moved along, so that llama.cpp can't notice:

    rollback_short: rejected entries that stay and are counted.
    rollback_none: nothing is rolled back.
    rollback_far: accepted entries rolled back with the rejected ones.
    keep_rejected: the rejected token's entry stands where the bonus token's belongs.
    hole: the last entry but one is removed.
    k_shift: positions that all entries are moved by.

    skew: positions by which the host's counter leaves the cache after a rejecting round; llama.cpp refuses.
    draft_rollback_short: as rollback_short, in the draft model's cache: it costs acceptance, no correctness.

    no_ratio: drafts are accepted without the ratio test of rejection sampling.

    sleep_forward: seconds slept after each forward pass, as a share of its own time.
    sleep_round_ms: milliseconds slept in each speculative round.

    Deaths in a forward pass; deaths.py does them:

    hang: it never returns.
    freeze: it never returns, and no other thread of the process runs again.
    abort: it ends the process as GGML_ASSERT does.
    segfault: it reads at address 0.
    kill: the process gets SIGKILL, as from the system when memory runs out.
    oom: native code asks for more memory than there is.
    close_pipe: the pipe of answers closes, and it never returns.
    garbage: something else stands where an answer is due, and it never returns.

    slow_start: seconds that pass before the first answer.
    ignore_term: SIGTERM has no effect.
    """

    accept_extra: int = 0
    wrong_bonus: int = 0
    wrong_row: int = 0
    rollback_short: int = 0
    rollback_none: int = 0
    rollback_far: int = 0
    keep_rejected: int = 0
    hole: int = 0
    k_shift: int = 0
    skew: int = 0
    draft_rollback_short: int = 0
    no_ratio: int = 0
    sleep_forward: float = 0.0
    sleep_round_ms: float = 0.0
    hang: int = 0
    freeze: int = 0
    abort: int = 0
    segfault: int = 0
    kill: int = 0
    oom: int = 0
    close_pipe: int = 0
    garbage: int = 0
    slow_start: float = 0.0
    ignore_term: int = 0

    def planted(self) -> dict[str, float]:
        """The faults that are set."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}


def read(text: str | None = None) -> Faults:
    """Parse SPECDEC_FAULTS.

    Raises:
        Refused: an unknown name or a value that is no number.
    """
    text = os.environ.get("SPECDEC_FAULTS", "") if text is None else text
    known: dict[str, Any] = {f.name: type(f.default) for f in fields(Faults)}
    values: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if name not in known:
            raise Refused("request", f"SPECDEC_FAULTS: unknown fault {name!r}; known: {', '.join(known)}")
        try:
            values[name] = known[name](value or 1)
        except ValueError:
            raise Refused("request", f"SPECDEC_FAULTS: {name}={value!r} is no number") from None
    return Faults(**values)
