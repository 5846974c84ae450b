"""Two arms measured in one run, interleaved: an old build of llama.cpp and a new one."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import ClassVar

from pytest_specdec.measurements.accounts import DraftCost
from pytest_specdec.measurements.accounts import Timeline
from pytest_specdec.measurements.curve import VerifyCurve
from pytest_specdec.measurements.exactness import TokenMargin
from pytest_specdec.measurements.generation import DecodeRun
from pytest_specdec.measurements.generation import SpeculativeRun
from pytest_specdec.measurements.kernels import KernelMap
from pytest_specdec.measurements.record import Record


if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class ArmFacts(Record):
    """What one arm is: its build, environment and settings, and what loading it took.

    ``build`` is the identity in words (version, commit, a digest of libraries and system info);
    ``load_ms`` and ``peak_bytes`` are None where the platform or the build doesn't tell.
    """

    name: str
    build: str
    version: str
    env: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    load_ms: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ArmResult(Record):
    """Everything measured on one arm.

    ``curve``'s blocks and the entries of ``plain``, ``speculative`` and ``timelines`` pair with the other
    arm's of the same index: they ran next to each other, in ABBA order. ``draft`` is None for a source
    without a model.
    """

    facts: ArmFacts
    curve: VerifyCurve
    kernels: KernelMap
    plain: tuple[DecodeRun, ...]
    speculative: tuple[SpeculativeRun, ...]
    timelines: tuple[Timeline, ...]
    draft: DraftCost | None = None


@dataclass(frozen=True, slots=True)
class TextDifference(Record):
    """Where the new arm's plain or speculative text first leaves the old arm's.

    ``tie`` is the new arm's own evidence at that position: how far the old arm's token lies under its choice
    (``margin``), and ``delta``, how far the two arms' logits differ there; None where it was not taken.
    """

    prompt: str
    text: str
    position: int
    old_token: int | None
    new_token: int | None
    tie: TokenMargin | None = None


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """An old arm and a new one, side by side.

    ``turns`` is set when memory did not allow both to be loaded at once, so that they took turns.
    """

    kind: ClassVar[str] = "comparison"

    k: int
    method: str
    old: ArmResult
    new: ArmResult
    differences: tuple[TextDifference, ...] = ()
    turns: bool = False
    source: str = "measured"
    notes: tuple[str, ...] = field(default=())

    def to_frame(self) -> DataFrame:
        """One row per arm and batch size: arm, n, median ms."""
        import pandas as pd

        rows = [
            (arm.facts.name, n, ms)
            for arm in (self.old, self.new)
            for n, ms in arm.curve.medians_ms().items()
        ]
        return pd.DataFrame(rows, columns=["arm", "n", "ms"])
