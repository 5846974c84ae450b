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

    accept_extra: drafted tokens accepted in every rejecting round although verification refused them.
    wrong_bonus: the bonus token is the second best of its row.
    sleep_forward: seconds slept after each forward pass, as a share of its own time.
    sleep_round_ms: milliseconds slept in each speculative round.
    hang: a forward pass never returns.
    abort: a forward pass ends the process as GGML_ASSERT does.
    """

    accept_extra: int = 0
    wrong_bonus: int = 0
    sleep_forward: float = 0.0
    sleep_round_ms: float = 0.0
    hang: int = 0
    abort: int = 0

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
