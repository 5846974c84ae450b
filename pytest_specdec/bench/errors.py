"""What keeps a measurement from being made, apart from the engine's own errors."""

from __future__ import annotations


class BenchError(Exception):
    """Settings that contradict each other or the model; the message names the option to change."""


class NotMeasured(Exception):
    """Nothing was measured because something is absent.

    ``missing`` tells that ``--specdec-missing`` decides between fail and skip.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        self.reason = reason
        self.missing = missing
        super().__init__(reason)
