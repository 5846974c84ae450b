from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_specdec.checks import conditions
from pytest_specdec.checks.acceptance import accept_rate
from pytest_specdec.checks.accounts import ledger_closes
from pytest_specdec.checks.accounts import min_forward_share
from pytest_specdec.checks.baseline import METRICS
from pytest_specdec.checks.baseline import within_baseline
from pytest_specdec.checks.conditions import RULES
from pytest_specdec.checks.conditions import disturbance
from pytest_specdec.checks.conditions import disturbed
from pytest_specdec.checks.conditions import too_few
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.checks.curve import cliff_at
from pytest_specdec.checks.curve import max_draft_cost
from pytest_specdec.checks.curve import max_verify_cost
from pytest_specdec.checks.curve import no_cliff
from pytest_specdec.checks.shape import dip_at
from pytest_specdec.checks.shape import plateau
from pytest_specdec.checks.speed import answer
from pytest_specdec.checks.speed import decided
from pytest_specdec.checks.speed import min_speedup
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Environment
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict

from .curves import METAL
from .curves import make_curve
from .test_acceptance import speculation


VERDICT = Verdict(Outcome.FAIL, "m", 1.0, None, None, "limit()", "as it is")
BUSY = (10.0, 30.0, 30.0)
LOADED = Environment(20.0, foreign_share=0.43)

CURVE = make_curve(METAL)
COST = DraftCost("two-model", (4.0,) * 8, (10.0,) * 8)
SPEED = SpeedRun(3, "two-model", tuple(SpeedPair("p", 11, 100.0, 11, 80.0 + i / 10) for i in range(8)))
OFF = Stages("a", False, 9, 30.0, 0.0, 0.0, 60.0, 6.0, 0.0, 0.0, 4.0, 100.0)
ON = Stages("a", True, 9, 30.0, 4.0, 20.0, 30.0, 8.0, 1.0, 0.0, 7.0, 100.0)
TIMELINE = Timeline(
    3, "two-model", tuple(replace(one, prompt=f"p{i}") for i in range(8) for one in (OFF, ON))
)
LEDGER = LedgerRun(
    "two-model",
    64,
    10.0,
    (1, 3, 7, 2),
    3,
    (12.0, 16.0, 30.0, 14.0),
    (1.0, 3.0, 7.0, 2.0),
    (1.6, 2.2, 2.5, 2.0),
    (1600 / 17, 2200 / 27, 2500 / 53, 2000 / 22),
)
COUNTED = SpeculativeRun(3, "two-model", (speculation("p", [3, 3], [2, 1]),))


@pytest.mark.parametrize(
    ("sentinel", "found"),
    [
        ((), False),
        ((10.0,), False),
        ((10.0, 15.0, 15.0), False),
        ((10.0, 15.1, 15.1), True),
        ((15.1, 15.1, 10.0, 10.0), False),
    ],
)
def test_half_of_the_blocks_must_be_slow(sentinel: tuple[float, ...], found: bool) -> None:
    assert bool(disturbance(sentinel)) is found
    assert disturbed(make_curve(METAL, sentinel_ms=sentinel)) == disturbance(sentinel)


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
    assert under_conditions(verdict, replace(COST, environment=LOADED)) is verdict


def test_a_quiet_run_of_enough_blocks_decides() -> None:
    assert under_conditions(VERDICT, make_curve(METAL)) is VERDICT
    assert under_conditions(VERDICT, make_curve(METAL, blocks=2, source="published")) is VERDICT


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (LOADED, "other processes used 43% of the cores; run it again on a quiet machine"),
        (Environment(1.0, steal_share=0.051), "the hypervisor took 5% of the cores' time for other machines"),
        (
            Environment(1.0, quota_throttled=0.25),
            "the CPU quota stopped the run in 25% of its periods; raise",
        ),
        (Environment(1.0, throttled=3), "the processor slowed down for heat 3 times; let it cool down"),
        (Environment(1.0, speed_limit=80), "heat limited the processor's speed to 80%; let it cool down"),
        (Environment(1.0, thermal_pressure="heavy"), "thermal pressure was heavy; let it cool down"),
        (Environment(1.0, low_power=True), "the machine was in a low-power mode; switch it off"),
    ],
)
def test_each_rule_says_what_disturbed(environment: Environment, words: str) -> None:
    found = disturbed(replace(COST, environment=environment))
    assert found.startswith(f"the run was disturbed: {words}")


@pytest.mark.parametrize(
    "environment",
    [
        None,
        Environment(1.0),
        Environment(1.0, foreign_share=0.10, steal_share=0.05, quota_throttled=0.02),
        Environment(1.0, throttled=0, speed_limit=100, thermal_pressure="nominal", low_power=False),
        Environment(1.0, load=99.0, on_battery=True, governor="powersave", quota_cores=0.5, virtualised=True),
    ],
)
def test_what_lies_within_every_rule_disturbs_nothing(environment: Environment | None) -> None:
    assert disturbed(replace(COST, environment=environment)) == ""


def test_several_disturbances_are_all_told_and_each_remedy_once() -> None:
    hot = Environment(1.0, foreign_share=0.2, throttled=1, speed_limit=90)
    assert disturbed(make_curve(METAL, sentinel_ms=BUSY, environment=hot)) == (
        "the run was disturbed: one and the same forward took 10.00 to 30.00 ms (median 30.00); "
        "other processes used 20% of the cores; the processor slowed down for heat 1 times; "
        "heat limited the processor's speed to 90%; run it again on a quiet machine, let it cool down"
    )


def test_every_rule_is_about_a_known_fact_and_has_its_reason() -> None:
    known = Environment.__dataclass_fields__
    assert all(rule.fact in known and rule.reason and rule.remedy for rule in RULES)
    assert len({rule.fact for rule in RULES}) == len(RULES)


TIMES: dict[str, tuple[Measurement, Callable[[Measurement], Verdict]]] = {
    "cliff_at": (CURVE, lambda m: cliff_at(m, n=9)),  # type: ignore[arg-type]
    "no_cliff": (CURVE, lambda m: no_cliff(m, upto=9)),  # type: ignore[arg-type]
    "max_verify_cost": (CURVE, lambda m: max_verify_cost(m, n=9, ratio=2.0)),  # type: ignore[arg-type]
    "plateau": (CURVE, lambda m: plateau(m, start=9, stop=12)),  # type: ignore[arg-type]
    "dip_at": (CURVE, lambda m: dip_at(m, n=3)),  # type: ignore[arg-type]
    "max_draft_cost": (COST, lambda m: max_draft_cost(m, c=0.2)),  # type: ignore[arg-type]
    "min_speedup": (SPEED, lambda m: min_speedup(m, x=2.0)),  # type: ignore[arg-type]
    "ledger_closes": (LEDGER, lambda m: ledger_closes(m)),  # type: ignore[arg-type]
    "min_forward_share": (TIMELINE, lambda m: min_forward_share(m, p=0.9)),  # type: ignore[arg-type]
}
BASELINES: dict[str, Measurement] = {
    "curve": CURVE,
    "draft_cost": COST,
    "speedup": SPEED,
    "forward_share": TIMELINE,
    "overhead": SpeculativeRun(3, "two-model", tuple(speculation(f"p{i}", [3, 3], [2, 1]) for i in range(8))),
}


@pytest.mark.parametrize("name", TIMES)
def test_no_limit_on_times_is_decided_in_a_disturbed_run(name: str) -> None:
    measured, judge = TIMES[name]
    assert judge(measured).outcome in (Outcome.PASS, Outcome.FAIL)
    spoiled = replace(measured, environment=LOADED)  # type: ignore[type-var]
    verdict = judge(spoiled)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.because == (
        "the run was disturbed: other processes used 43% of the cores; run it again on a quiet machine. "
        f"As measured: {judge(measured).because}"
    )


@pytest.mark.parametrize("metric", BASELINES)
def test_nor_any_against_a_baseline(metric: str) -> None:
    measured = BASELINES[metric]
    assert within_baseline(measured, measured, metric=metric).outcome is Outcome.PASS
    spoiled = replace(measured, environment=LOADED)  # type: ignore[type-var]
    verdict = within_baseline(spoiled, measured, metric=metric)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "other processes used 43% of the cores" in verdict.because


def test_every_metric_of_times_is_tried_above() -> None:
    assert {*BASELINES, "acceptance", "kernels"} == set(METRICS)


def test_counters_hold_under_any_load() -> None:
    spoiled = replace(COUNTED, environment=LOADED)
    assert accept_rate(spoiled, low=0.4, high=0.6) == accept_rate(COUNTED, low=0.4, high=0.6)
    assert accept_rate(spoiled, low=0.6).outcome is Outcome.FAIL
    assert within_baseline(spoiled, COUNTED, metric="acceptance").outcome is Outcome.PASS
    fewer = SpeculativeRun(3, "two-model", (speculation("p", [3, 3], [1, 1]),), environment=LOADED)
    assert within_baseline(fewer, COUNTED, metric="acceptance").outcome is Outcome.FAIL


def test_more_pairs_do_not_mend_a_disturbed_run() -> None:
    assert not decided(SPEED, x=1.245)
    assert decided(replace(SPEED, environment=LOADED), x=1.245)


def test_whether_it_pays_is_not_said_of_a_disturbed_run() -> None:
    assert answer(SPEED).startswith("speculation pays here")
    told = answer(replace(SPEED, environment=LOADED))
    assert told.startswith("whether speculation pays here is not decided: the run was disturbed: other")
    assert "As measured: speculation (k = 3" in told


def test_without_rules_nothing_disturbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "RULES", ())
    assert disturbed(replace(COST, environment=LOADED)) == ""


def test_a_curve_from_elsewhere_is_judged_as_it_stands() -> None:
    one = VerifyCurve((1, 2), (((10.0,),), ((30.0,),)), source="published")
    verdict = max_verify_cost(one, n=2, ratio=1.3)
    assert verdict.outcome is Outcome.FAIL
    assert (verdict.low, verdict.high) == (None, None)
