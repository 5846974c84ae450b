"""Frozen result types: what was measured, raw, JSON both ways, and as a data frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_specdec.measurements.accounts import DraftCost
from pytest_specdec.measurements.accounts import LedgerRun
from pytest_specdec.measurements.accounts import MemoryUse
from pytest_specdec.measurements.accounts import Stages
from pytest_specdec.measurements.accounts import Timeline
from pytest_specdec.measurements.comparison import ArmFacts
from pytest_specdec.measurements.comparison import ArmResult
from pytest_specdec.measurements.comparison import Comparison
from pytest_specdec.measurements.comparison import TextDifference
from pytest_specdec.measurements.curve import VerifyCurve
from pytest_specdec.measurements.environment import PRESSURES
from pytest_specdec.measurements.environment import Environment
from pytest_specdec.measurements.environment import worst
from pytest_specdec.measurements.exactness import Exactness
from pytest_specdec.measurements.exactness import ExactnessCase
from pytest_specdec.measurements.exactness import Parting
from pytest_specdec.measurements.exactness import TokenMargin
from pytest_specdec.measurements.generation import DecodeRun
from pytest_specdec.measurements.generation import Generation
from pytest_specdec.measurements.generation import Miss
from pytest_specdec.measurements.generation import PublishedAcceptance
from pytest_specdec.measurements.generation import PublishedSpeed
from pytest_specdec.measurements.generation import Speculation
from pytest_specdec.measurements.generation import SpeculativeRun
from pytest_specdec.measurements.generation import SpeedPair
from pytest_specdec.measurements.generation import SpeedRun
from pytest_specdec.measurements.kernels import DepthMap
from pytest_specdec.measurements.kernels import KernelMap
from pytest_specdec.measurements.noise import ArmPair
from pytest_specdec.measurements.noise import NoiseRun
from pytest_specdec.measurements.record import Measurement
from pytest_specdec.measurements.record import Record
from pytest_specdec.measurements.sampling import Distribution
from pytest_specdec.measurements.structure import ProbeResult
from pytest_specdec.measurements.structure import Structure
from pytest_specdec.measurements.variants import Variant


__all__ = [
    "KINDS",
    "PRESSURES",
    "ArmFacts",
    "ArmPair",
    "ArmResult",
    "Comparison",
    "DecodeRun",
    "DepthMap",
    "Distribution",
    "DraftCost",
    "Environment",
    "Exactness",
    "ExactnessCase",
    "Generation",
    "KernelMap",
    "LedgerRun",
    "Measurement",
    "MemoryUse",
    "Miss",
    "NoiseRun",
    "Parting",
    "ProbeResult",
    "PublishedAcceptance",
    "PublishedSpeed",
    "Record",
    "Speculation",
    "SpeculativeRun",
    "SpeedPair",
    "SpeedRun",
    "Stages",
    "Structure",
    "TextDifference",
    "Timeline",
    "TokenMargin",
    "Variant",
    "VerifyCurve",
    "from_json",
    "worst",
]

KINDS: Mapping[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        VerifyCurve,
        DecodeRun,
        SpeculativeRun,
        SpeedRun,
        Exactness,
        DraftCost,
        Timeline,
        MemoryUse,
        LedgerRun,
        KernelMap,
        Structure,
        NoiseRun,
        Comparison,
    )
}


def from_json(data: Mapping[str, Any]) -> Measurement:
    """Rebuild a measurement of any kind.

    Raises:
        ValueError: the kind is unknown.
    """
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"unknown kind of measurement {kind!r}; known: {', '.join(sorted(KINDS))}")
    measurement: Measurement = KINDS[kind].from_json(data)
    return measurement
