"""A gate tighter than the noise, measured between runs of which nothing changed, is a fault of the gate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_specdec.checks.baseline.limits import ALLOWED
from pytest_specdec.checks.conditions import disturbed
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import NoiseRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports import text
from pytest_specdec.theory.noise import halves_floor
from pytest_specdec.theory.noise import paired_floor
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Floor:
    """The relative change that shows where nothing changed, and `what` it was seen in."""

    value: float
    what: str


def noise_floor(measured: Measurement | None) -> Floor | None:
    """Return the floor of A/A pairs, or of a curve between its odd and even blocks.

    None where there are too few pairs or blocks, and for a disturbed run, which tells nothing of others.
    """
    if isinstance(measured, NoiseRun) and measured.pairs and not disturbed(measured):
        floor = paired_floor(measured.log_ratios())
        what = f"plain decoding against itself, {text.plural(len(measured.pairs), 'pair')}"
        return None if floor is None else Floor(floor, what)
    if isinstance(measured, VerifyCurve) and not disturbed(measured):
        found = halves_floor(measured.blocks_ms())
        if found is not None:
            floor, row = found
            quotient = f"T({measured.n[row]})/T({measured.n[0]})"
            return Floor(floor, f"{quotient} in the odd blocks of the curve against the even ones")
    return None


def tighter_than_noise(
    floor: Floor | None, *, metric: str, tolerance: float | None, limit: str, recorded: bool
) -> Verdict | None:
    """Return the failure of a gate that asks for less than the noise, None for one that doesn't.

    `recorded` says that the floor was measured in this run, which records it; else it is the baseline's.
    """
    if floor is None or (allowed := ALLOWED[metric].share(tolerance)) >= floor.value:
        return None
    if recorded:
        where, quiet = "in this run", "record again on a quieter machine"
    else:
        where, quiet = (
            "in the baseline",
            "record the baseline anew on a quieter machine (--specdec-update=all)",
        )
    because = (
        f"a fault of the gate, which is tighter than the noise: with nothing changed, times here differ by "
        f"{floor.value:.1%} ({floor.what}, {where}), and the tolerance is {allowed:.1%}; allow twice the "
        f"noise, tolerance={_allowance(floor.value):g}, or {quiet}"
    )
    return Verdict(Outcome.FAIL, f"noise of {metric}", floor.value, None, None, limit, because)


def widened(floor: Floor | None, *, metric: str) -> float | None:
    """Return the tolerance to hold a metric with where its default is tighter than the noise, else None."""
    if floor is None or ALLOWED[metric].share(None) >= floor.value:
        return None
    return _allowance(floor.value)


def because_widened(floor: Floor, tolerance: float, *, metric: str) -> str:
    """Say why a default tolerance was widened."""
    return (
        f"held with a tolerance of {tolerance:.0%}, not {ALLOWED[metric].share(None):.0%}: with nothing "
        f"changed, times here differ by {floor.value:.1%} ({floor.what})"
    )


def _allowance(floor: float) -> float:
    """Return twice the floor, rounded up to a hundredth."""
    return math.ceil(200 * floor) / 100
