"""What the structural probes found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import ClassVar

from pytest_specdec.measurements.record import Record


if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class ProbeResult(Record):
    """One probe's answer.

    ``outcome`` is "sound", "fault" or "skipped" (``cause`` says why). ``cause`` is one sentence; ``evidence``
    are the numbers and llama.cpp's own words behind it, line by line.
    """

    probe: str
    outcome: str
    cause: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Structure(Record):
    """Every probe's answer for one pair at one draft length.

    ``rollback`` says how rejected drafts leave the target's cache: "seq_rm", or "snapshot" where the state is
    saved and restored; ``rollback_ms`` is the median cost of one such rollback.
    """

    kind: ClassVar[str] = "structure"

    k: int
    method: str
    probes: tuple[ProbeResult, ...]
    rollback: str = "seq_rm"
    rollback_ms: float | None = None
    source: str = "measured"

    @property
    def faults(self) -> tuple[ProbeResult, ...]:
        """The probes that found something."""
        return tuple(one for one in self.probes if one.outcome == "fault")

    def to_frame(self) -> DataFrame:
        """One row per probe."""
        import pandas as pd

        return pd.DataFrame(
            [(one.probe, one.outcome, one.cause) for one in self.probes],
            columns=["probe", "outcome", "cause"],
        )
