"""Ways to pay for drafts, measured side by side."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field

from pytest_specdec.measurements.accounts import MemoryUse
from pytest_specdec.measurements.curve import VerifyCurve
from pytest_specdec.measurements.generation import SpeculativeRun
from pytest_specdec.measurements.generation import SpeedRun
from pytest_specdec.measurements.record import RARE
from pytest_specdec.measurements.record import Record


@dataclass(frozen=True, slots=True)
class Variant(Record):
    """One draft source on one target: what it drafted, what a pass costs, how fast it was.

    ``curve`` has T(N) for one token and every width that was verified, at the run's mean depth. ``memory`` is
    None where the platform doesn't tell. ``lossless`` is what exactness says: "pass", "fail",
    "not measured"; ``lossless_because`` why. ``shared`` is computed: the part of the target's bytes that a
    draft made of its blocks reads, which would be its cost if the two shared weights and cache.
    """

    name: str
    method: str
    k: int
    run: SpeculativeRun
    curve: VerifyCurve
    speed: SpeedRun
    memory: MemoryUse | None
    lossless: str
    lossless_because: str
    shared: float | None = field(default=None, metadata=RARE)
