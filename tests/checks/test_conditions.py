from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_specdec.checks.conditions import disturbance
from pytest_specdec.checks.conditions import too_few
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict

from .curves import METAL
from .curves import make_curve


VERDICT = Verdict(Outcome.FAIL, "m", 1.0, None, None, "limit()", "as it is")
BUSY = (10.0, 30.0, 30.0)


@pytest.mark.parametrize(
    ("sentinel", "disturbed"),
    [
        ((), False),
        ((10.0,), False),
        ((10.0, 15.0, 15.0), False),
        ((10.0, 15.1, 15.1), True),
        ((15.1, 15.1, 10.0, 10.0), False),
    ],
)
def test_half_of_the_blocks_must_be_slow(sentinel: tuple[float, ...], disturbed: bool) -> None:
    assert bool(disturbance(sentinel)) is disturbed


def test_seven_blocks_are_the_fewest_with_a_bound() -> None:
    # 1 / 2^7 < 0.01 < 1 / 2^6.
    assert too_few(6) == (
        "only 6 blocks were measured, 7 are the fewest that can tell: "
        "allow more (specdec(blocks=7), --specdec-budget)"
    )
    assert too_few(7) == ""
    assert "only 1 block was measured" in too_few(1)
    assert "14 are the fewest" in too_few(13, 0.0001)


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.FAIL])
def test_a_decision_becomes_a_doubt(outcome: Outcome) -> None:
    changed = under_conditions(replace(VERDICT, outcome=outcome), make_curve(METAL, sentinel_ms=BUSY))
    assert changed.outcome is Outcome.INCONCLUSIVE
    assert changed.because.endswith("As measured: as it is")


@pytest.mark.parametrize("outcome", [Outcome.INCONCLUSIVE, Outcome.NOT_MEASURED])
def test_a_doubt_stays_what_it_is(outcome: Outcome) -> None:
    verdict = replace(VERDICT, outcome=outcome)
    assert under_conditions(verdict, make_curve(METAL, sentinel_ms=BUSY)) is verdict


def test_a_quiet_run_of_enough_blocks_decides() -> None:
    assert under_conditions(VERDICT, make_curve(METAL)) is VERDICT
    assert under_conditions(VERDICT, make_curve(METAL, blocks=2, source="published")) is VERDICT
