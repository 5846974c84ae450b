"""Draft cost, forward share and overhead against the baseline: both sides, floors, and what can't compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_specdec.checks.baseline import within_baseline
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Environment
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import PublishedAcceptance
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Timeline
from pytest_specdec.verdict import Outcome


SPREAD = (0.97, 1.02, 0.99, 1.01, 1.03, 0.98, 1.0, 1.005)


def cost(c: float, *, target_ms: float = 20.0, blocks: int = 8, turn: int = 0) -> DraftCost:
    """A draft of `c` of a target pass, with noise that `turn` hands to other blocks."""
    noise = [SPREAD[(i + turn) % 8] for i in range(blocks)]
    return DraftCost("two-model", tuple(c * target_ms * f for f in noise), (target_ms,) * blocks)


def timeline(share: float, *, prompts: int = 8, host: float = 0.1, scale: float = 1.0) -> Timeline:
    """Requests with `share` of their time in forwards and `host` of it in the host, speculation off."""
    requests = []
    for i in range(prompts):
        forward = 1000.0 * share * SPREAD[i % 8] * scale
        rest = 1000.0 * (1 - share - host) * scale
        own = 1000.0 * host * scale
        wall = forward + rest + own
        for speculating in (False, True):
            requests.append(
                Stages(f"p{i}", speculating, 64, rest, 0.0, 0.0, forward, 0.0, 0.0, 0.0, own, wall)
            )
    return Timeline(3, "two-model", tuple(requests))


def rounds(
    overhead_ms: float, *, prompts: int = 8, pace: float = 1.0, spread: Sequence[float] = SPREAD
) -> SpeculativeRun:
    """Ten rounds a prompt of 12 ms drafting, 25 ms verifying and some overhead."""
    runs = []
    for i in range(prompts):
        draft, verify = (12.0 * pace,) * 10, (25.0 * pace,) * 10
        decode = 5.0 + sum(draft) + sum(verify) + 10 * overhead_ms * spread[i % 8]
        tokens = tuple(range(21))
        runs.append(
            Speculation(
                f"p{i}", 9, tokens, (3,) * 10, (1,) * 10, False, draft, verify, 1.0, 5.0, decode, 1.0, "limit"
            )
        )
    return SpeculativeRun(3, "two-model", tuple(runs))


def judged(live: Measurement, stored: Measurement, metric: str, tolerance: float | None = None) -> Outcome:
    return within_baseline(live, stored, metric=metric, tolerance=tolerance).outcome


def test_the_same_draft_cost_holds_on_a_slower_day() -> None:
    verdict = within_baseline(cost(0.2, target_ms=40.0), cost(0.2, turn=3), metric="draft_cost")
    assert verdict.outcome is Outcome.PASS
    assert verdict.because.endswith("no dearer by more than 15% and 0.01 of T(1)")
    assert verdict.value == pytest.approx(0.2, rel=0.02)
    assert verdict.baseline == pytest.approx(0.2, rel=0.02)


def test_a_dearer_draft_fails_and_names_the_time_that_moved() -> None:
    verdict = within_baseline(cost(0.3), cost(0.2, turn=3), metric="draft_cost")
    assert verdict.outcome is Outcome.FAIL
    assert "costs 0.30 of a target pass (bounds 0.29-0.31), was 0.20 (bounds 0.1" in verdict.because
    assert "drafting takes 6.01 ms per token, took 4.01 (x 1.50)" in verdict.because
    assert "a target pass 20.00 ms, took 20.00 (x 1.00)" in verdict.because
    assert "--specdec-update=all" in verdict.because
    assert verdict.section.splitlines()[1].split() == ["draft", "6.01", "4.01"]


def test_a_draft_that_may_be_dearer_is_open() -> None:
    verdict = within_baseline(cost(0.234), cost(0.2, turn=3), metric="draft_cost")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.because.endswith("but the bounds are not clear of it")
    assert judged(cost(0.234), cost(0.2, turn=3), "draft_cost", 0.5) is Outcome.PASS
    assert judged(cost(0.234), cost(0.2, turn=3), "draft_cost", 0.05) is Outcome.FAIL


def test_twice_next_to_nothing_is_next_to_nothing() -> None:
    assert judged(cost(0.008), cost(0.004), "draft_cost") is Outcome.PASS
    assert judged(cost(0.030), cost(0.015), "draft_cost") is Outcome.FAIL


def test_a_cheaper_draft_is_reported_and_holds() -> None:
    verdict = within_baseline(cost(0.1), cost(0.2), metric="draft_cost")
    assert verdict.outcome is Outcome.PASS
    assert verdict.because.startswith("better: a drafted token (two-model) costs 0.10 of a target pass")


def test_draft_costs_of_too_few_blocks_are_open() -> None:
    verdict = within_baseline(cost(0.4, blocks=3), cost(0.2, blocks=3), metric="draft_cost")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.because.endswith("but 3 blocks against 3 can't tell")


def test_a_published_draft_cost_is_taken_as_it_stands() -> None:
    published = DraftCost("two-model", (4.0,), (20.0,), "published")
    assert judged(published, published, "draft_cost") is Outcome.PASS
    verdict = within_baseline(replace(published, draft_ms=(4.8,)), published, metric="draft_cost")
    assert verdict.outcome is Outcome.FAIL
    assert (verdict.low, verdict.high) == (None, None)
    assert judged(cost(0.3), published, "draft_cost") is Outcome.FAIL
    assert judged(cost(0.2), published, "draft_cost") is Outcome.PASS


def test_draft_costs_that_do_not_compare() -> None:
    none = DraftCost("ngram", (), ())
    assert judged(none, cost(0.2), "draft_cost") is Outcome.NOT_MEASURED
    assert judged(cost(0.2), none, "draft_cost") is Outcome.NOT_MEASURED
    assert judged(replace(cost(0.2), method="ngram"), cost(0.2), "draft_cost") is Outcome.NOT_MEASURED


def test_the_same_forward_share_holds_on_a_slower_day() -> None:
    verdict = within_baseline(timeline(0.7, scale=2.0), timeline(0.7), metric="forward_share")
    assert verdict.outcome is Outcome.PASS
    assert verdict.because == (
        "with speculation off, 70.0% of the request time is decode forwards, was 70.0%, no less by more than "
        "5% and 0.02 of the request time"
    )
    assert verdict.value == pytest.approx(0.7, abs=1e-3)
    assert verdict.baseline == pytest.approx(0.7, abs=1e-3)


def test_a_lower_share_fails_and_names_the_stage_that_grew() -> None:
    verdict = within_baseline(timeline(0.6, host=0.2), timeline(0.7), metric="forward_share")
    assert verdict.outcome is Outcome.FAIL
    assert "60.0% of the request time is decode forwards, was 70.0%, less by more than 5%" in verdict.because
    assert "host takes 0.33 of the forwards' time, took 0.14" in verdict.because
    assert verdict.section.splitlines()[1].split() == ["p0", "59.3%", "69.4%"]


def test_a_share_that_may_be_lower_is_open() -> None:
    few = within_baseline(
        timeline(0.6, host=0.2, prompts=3), timeline(0.7, prompts=3), metric="forward_share"
    )
    assert few.outcome is Outcome.INCONCLUSIVE
    assert few.because.endswith("but 3 prompts can't tell, 7 are the fewest that can (--specdec-prompts)")
    stored = timeline(0.7)
    uneven = [replace(r, wall_ms=r.wall_ms * (1.3 if i < 10 else 1.0)) for i, r in enumerate(stored.requests)]
    verdict = within_baseline(replace(stored, requests=tuple(uneven)), stored, metric="forward_share")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.because.endswith("but the bounds are not clear of it")


def test_the_floor_of_a_share_is_absolute() -> None:
    # Less by a tenth, but by 0.01 of the request time only.
    assert judged(timeline(0.09), timeline(0.10), "forward_share") is Outcome.PASS
    assert judged(timeline(0.36, host=0.2), timeline(0.40), "forward_share") is Outcome.FAIL
    assert judged(timeline(0.36, host=0.2), timeline(0.40), "forward_share", 0.2) is Outcome.PASS


def test_a_higher_share_is_reported_and_holds() -> None:
    verdict = within_baseline(timeline(0.8), timeline(0.7), metric="forward_share")
    assert verdict.outcome is Outcome.PASS
    assert verdict.because.startswith("better: with speculation off, 80.0%")


def test_shares_of_other_prompts_do_not_compare() -> None:
    verdict = within_baseline(timeline(0.7, prompts=7), timeline(0.7), metric="forward_share")
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert "the baseline was measured on other prompts (8 prompts)" in verdict.because


def test_the_same_overhead_holds() -> None:
    verdict = within_baseline(rounds(1.5), rounds(1.5, spread=SPREAD[::-1]), metric="overhead")
    assert verdict.outcome is Outcome.PASS
    assert verdict.value == pytest.approx(1.5, rel=0.01)
    assert verdict.because == (
        "a round (k = 3, two-model) takes 1.50 ms beside drafting and verifying, took 1.50, no more by more "
        "than 25% and 0.2 ms per round"
    )


def test_more_overhead_fails() -> None:
    verdict = within_baseline(rounds(2.2), rounds(1.5), metric="overhead")
    assert verdict.outcome is Outcome.FAIL
    assert "takes 2.20 ms beside drafting and verifying, took 1.50, more by more than 25%" in verdict.because
    assert "choosing tokens, rollback, waits or Python got dearer" in verdict.because
    assert verdict.section.splitlines()[1].split() == ["p0", "10", "2.13", "1.46", "1.82"]
    assert judged(rounds(2.2), rounds(1.5), "overhead", 0.6) is Outcome.PASS


def test_overhead_that_may_be_more_is_open() -> None:
    verdict = within_baseline(rounds(1.9), rounds(1.5, spread=SPREAD[::-1]), metric="overhead")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.because.endswith("but the bounds are not clear of it")
    few = within_baseline(rounds(9.0, prompts=3), rounds(1.5, prompts=3), metric="overhead")
    assert few.outcome is Outcome.INCONCLUSIVE
    assert "3 prompts can't tell" in few.because


def test_the_floor_of_overhead_is_absolute() -> None:
    assert judged(rounds(0.25), rounds(0.1), "overhead") is Outcome.PASS
    assert judged(rounds(0.35), rounds(0.1), "overhead") is Outcome.FAIL


def test_a_machine_that_is_slower_today_may_take_longer() -> None:
    assert judged(rounds(2.2, pace=1.5), rounds(1.5), "overhead") is Outcome.PASS
    assert judged(rounds(3.3, pace=1.5), rounds(1.5), "overhead") is Outcome.FAIL
    # Passes that got faster are no reason for the rest to be.
    assert judged(rounds(1.5, pace=0.5), rounds(1.5), "overhead") is Outcome.PASS


def test_less_overhead_is_reported_and_holds() -> None:
    verdict = within_baseline(rounds(0.5), rounds(1.5), metric="overhead")
    assert verdict.outcome is Outcome.PASS
    assert verdict.because.startswith("better: a round (k = 3, two-model) takes 0.50 ms")


def test_overheads_that_do_not_compare() -> None:
    live = rounds(1.5)
    published = SpeculativeRun(3, "two-model", (), "published", PublishedAcceptance(0.25))
    for stored, why in (
        (replace(live, k=4), "measured two-model at k = 3, the baseline has two-model at k = 4"),
        (published, "published totals don't tell the time of rounds"),
        (rounds(1.5, prompts=7), "measured on other prompts (7 prompts with rounds)"),
        (SpeculativeRun(3, "two-model", ()), "measured on other prompts (0 prompts with rounds)"),
    ):
        verdict = within_baseline(live, stored, metric="overhead")
        assert verdict.outcome is Outcome.NOT_MEASURED
        assert why in verdict.because


@pytest.mark.parametrize(
    ("live", "stored", "metric"),
    [
        (cost(0.4), cost(0.2), "draft_cost"),
        (timeline(0.5, host=0.3), timeline(0.7), "forward_share"),
        (rounds(9.0), rounds(1.5), "overhead"),
    ],
)
def test_a_disturbed_run_decides_nothing(
    live: DraftCost | Timeline | SpeculativeRun, stored: Measurement, metric: str
) -> None:
    assert judged(live, stored, metric) is Outcome.FAIL
    disturbed = replace(live, environment=Environment(9.0, foreign_share=0.9))
    verdict = within_baseline(disturbed, stored, metric=metric)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "other processes used 90% of the cores" in verdict.because
