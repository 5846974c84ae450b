from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pytest_specdec.checks.noise import Floor
from pytest_specdec.checks.noise import noise_floor
from pytest_specdec.checks.noise import tighter_than_noise
from pytest_specdec.measurements import ArmPair
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Environment
from pytest_specdec.measurements import NoiseRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.theory.noise import paired_floor
from pytest_specdec.verdict import Outcome

from .curves import METAL
from .curves import make_curve


LOADED = Environment(20.0, foreign_share=0.43)


def run(spread: float, pairs: int = 24) -> NoiseRun:
    """Pairs that differ by up to `spread` either way."""
    factors = np.random.default_rng(5).uniform(1 - spread, 1 + spread, pairs)
    return NoiseRun(tuple(ArmPair("p", 11, 100.0, 11, float(100.0 * factor)) for factor in factors))


def test_the_floor_of_pairs() -> None:
    found = noise_floor(run(0.1))
    assert found is not None
    assert found.value == paired_floor(run(0.1).log_ratios())
    assert 0.005 < found.value < 0.1
    assert found.what == "plain decoding against itself, 24 pairs"
    assert noise_floor(run(0.1, pairs=8)) is None
    assert noise_floor(NoiseRun(())) is None


def test_texts_of_other_lengths_are_compared_by_rate() -> None:
    pair = ArmPair("p", 11, 1000.0, 21, 1000.0)
    assert pair.ratio == pytest.approx(2.0)
    assert NoiseRun((pair,)).log_ratios() == pytest.approx([np.log(2.0)])
    assert NoiseRun((pair,)).to_frame()["ratio"].tolist() == pytest.approx([2.0])


def test_the_floor_of_a_curve() -> None:
    quiet, loud = noise_floor(make_curve(METAL)), noise_floor(make_curve(METAL, noise=0.2))
    assert quiet is not None
    assert loud is not None
    assert quiet.value < 0.02 < loud.value
    samples = tuple(
        tuple((t * (1.2 if b % 2 and t > 15 else 1.0),) for b in range(8)) for t in (10.0, 15.0, 20.0)
    )
    found = noise_floor(VerifyCurve((1, 2, 4), samples))
    assert found is not None
    assert found.value == pytest.approx(0.2)
    assert found.what == "T(4)/T(1) in the odd blocks of the curve against the even ones"


def test_single_values_and_other_kinds_have_no_floor() -> None:
    assert noise_floor(make_curve(METAL, blocks=1, source="published")) is None
    assert noise_floor(make_curve(METAL, blocks=3)) is None
    assert noise_floor(DraftCost("two-model", (1.0,) * 8, (2.0,) * 8)) is None
    assert noise_floor(None) is None


def test_a_disturbed_run_tells_nothing_of_the_noise() -> None:
    assert noise_floor(replace(run(0.1), environment=LOADED)) is None
    assert noise_floor(make_curve(METAL, environment=LOADED)) is None


@pytest.mark.parametrize(
    ("recorded", "where", "remedy"),
    [
        (
            False,
            "in the baseline",
            "record the baseline anew on a quieter machine (--specdec-update=all)",
        ),
        (True, "in this run", "record again on a quieter machine"),
    ],
)
def test_a_gate_tighter_than_the_noise_fails(recorded: bool, where: str, remedy: str) -> None:
    floor = Floor(0.0312, "plain decoding against itself, 24 pairs")
    verdict = tighter_than_noise(
        floor, metric="speedup", tolerance=0.02, limit="within_baseline('speedup')", recorded=recorded
    )
    assert verdict is not None
    assert verdict.outcome is Outcome.FAIL
    assert verdict.because == (
        "a fault of the gate, which is tighter than the noise: with nothing changed, times here differ by "
        f"3.1% (plain decoding against itself, 24 pairs, {where}), and the tolerance is 2.0%; allow twice "
        f"the noise, tolerance=0.07, or {remedy}"
    )
    assert verdict.value == 0.0312
    assert verdict.limit == "within_baseline('speedup')"


def test_a_gate_at_the_noise_or_wider_is_none_of_that() -> None:
    def fault(floor: Floor | None, tolerance: float | None, metric: str = "speedup") -> bool:
        found = tighter_than_noise(floor, metric=metric, tolerance=tolerance, limit="", recorded=False)
        return found is not None

    assert not fault(Floor(0.03, ""), 0.03)
    assert fault(Floor(0.031, ""), 0.03)
    assert not fault(None, 0.0001)
    # Without a tolerance, the metric's own one counts.
    assert not fault(Floor(0.14, ""), None, "curve")
    assert fault(Floor(0.16, ""), None, "curve")
