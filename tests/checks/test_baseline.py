from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_specdec.checks.baseline import settled
from pytest_specdec.checks.baseline import within_baseline
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict

from .curves import METAL
from .curves import make_curve


PASS, FAIL, INCONCLUSIVE, NOT_MEASURED = (
    Outcome.PASS,
    Outcome.FAIL,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_MEASURED,
)
SPREAD = (0.97, 1.02, 0.99, 1.01, 1.03, 0.98, 1.0, 1.005)


def run(**prompts: tuple[int, int, int]) -> SpeculativeRun:
    """Prompt = (rounds, drafted per round, accepted in all)."""
    return SpeculativeRun(
        3, "two-model", tuple(speculation(name, *counts) for name, counts in prompts.items())
    )


def speculation(name: str, rounds: int, drafted: int, accepted: int) -> Speculation:
    shares = [accepted // rounds + (1 if i < accepted % rounds else 0) for i in range(rounds)]
    times = (1.0,) * rounds
    tokens = tuple(range(1 + accepted + rounds))
    return Speculation(
        name, 9, tokens, (drafted,) * rounds, tuple(shares), False, times, times, 1.0, 1.0, 9.0, 8.0, "limit"
    )


def speed(ratio: float, *, plain_ms: float = 3150.0, looks: int = 1) -> SpeedRun:
    # A prompt meets another part of the spread at each visit.
    noise = [SPREAD[(i + 3 * (i // 8)) % 8] for i in range(8 * looks)]
    pairs = [SpeedPair(f"p{i % 8}", 64, plain_ms, 64, plain_ms / ratio / f) for i, f in enumerate(noise)]
    return SpeedRun(3, "two-model", tuple(pairs))


def recorded(ratio: float, *, plain_ms: float = 3150.0) -> SpeedRun:
    """As many pairs as a baseline records."""
    return speed(ratio, plain_ms=plain_ms, looks=6)


def judge_speed(live: SpeedRun, stored: SpeedRun, tolerance: float | None = None) -> Verdict:
    return within_baseline(live, stored, metric="speedup", tolerance=tolerance)


def test_an_unknown_metric_is_named_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError,
        match=r"knows acceptance, curve, draft_cost, forward_share, kernels, overhead, speedup, not 'speed'",
    ):
        within_baseline(speed(1.5), None, metric="speed")


def test_a_measurement_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'curve'\) compares verify_curve; the live measurement is speed"):
        within_baseline(speed(1.5), None, metric="curve")
    with pytest.raises(ValueError, match=r"the stored measurement is speculative"):
        within_baseline(speed(1.5), run(a=(5, 3, 8)), metric="speedup")


def test_no_baseline_is_not_measured() -> None:
    verdict = within_baseline(speed(1.5), None, metric="speedup", limit="within_baseline()")
    assert verdict.outcome is NOT_MEASURED
    assert verdict.because == (
        "the baseline holds no speedup for these settings: record one with --specdec-update=new"
    )
    assert verdict.limit == "within_baseline()"


def test_the_same_shape_holds_whatever_the_speed() -> None:
    slower = {n: 2 * t for n, t in METAL.items()}
    verdict = within_baseline(make_curve(slower), make_curve(METAL, seed=1), metric="curve")
    assert verdict.outcome is PASS
    assert verdict.because == "T(N)/T(1) is within 15% of the baseline at N = 1-9,12,16,24,32"
    assert verdict.baseline is not None


def test_a_dearer_size_fails_with_old_and_new() -> None:
    dearer = {**METAL, 4: 36.0}
    verdict = within_baseline(make_curve(dearer), make_curve(METAL, seed=1), metric="curve")
    assert verdict.outcome is FAIL
    assert verdict.metric == "T(4)/T(1)"
    assert verdict.value == pytest.approx(36.0 / 18.15, rel=0.02)
    assert verdict.baseline == pytest.approx(27.23 / 18.15, rel=0.02)
    assert "verify cost rose: T(4)/T(1) was 1.5" in verdict.because
    assert "tolerance x 1.15" in verdict.because
    assert "--specdec-update=all" in verdict.because
    assert any(line.split()[0] == "4" for line in verdict.section.splitlines())


def test_a_rise_that_nobody_could_time_is_none() -> None:
    def held(scale: float) -> Verdict:
        live, stored = ({n: scale * t for n, t in ms.items()} for ms in ({**METAL, 4: 36.0}, METAL))
        return within_baseline(make_curve(live), make_curve(stored, seed=1), metric="curve")

    # 9 us, where 0.05 ms count; then 0.09 ms.
    assert held(0.001).outcome is PASS
    assert held(0.01).outcome is FAIL


def test_the_tolerance_is_the_users() -> None:
    live, stored = make_curve({**METAL, 4: 36.0}), make_curve(METAL, seed=1)
    assert within_baseline(live, stored, metric="curve", tolerance=0.5).outcome is PASS
    slightly = make_curve({**METAL, 4: 29.5})
    assert within_baseline(slightly, stored, metric="curve").outcome is PASS
    assert within_baseline(slightly, stored, metric="curve", tolerance=0.03).outcome is FAIL


def test_bounds_that_are_not_clear_do_not_fail() -> None:
    live = make_curve({**METAL, 4: 32.5}, noise=0.06)
    verdict = within_baseline(live, make_curve(METAL, noise=0.06, seed=1), metric="curve")
    assert verdict.outcome is INCONCLUSIVE
    assert "verify cost may have risen, bounds not clear: T(4)/T(1) was 1." in verdict.because


def test_a_cheaper_curve_is_reported_and_holds() -> None:
    cheaper = {n: t if n < 9 else 0.75 * t for n, t in METAL.items()}
    verdict = within_baseline(make_curve(cheaper), make_curve(METAL, seed=1), metric="curve")
    assert verdict.outcome is PASS
    assert "better: T(" in verdict.because
    assert "also N = " in verdict.because
    assert "tolerance x 0.87" in verdict.because
    assert "better: a cliff of the baseline is gone: at 9 (T(9)/T(8) = 1.3" in verdict.because
    assert "--specdec-update=all" in verdict.because


def test_a_new_cliff_fails_within_the_tolerance() -> None:
    # 1.30 became 1.46 between neighbours, though neither left its 15 %.
    old, new = {**METAL, 5: 29.0, 6: 37.9}, {**METAL, 5: 27.4, 6: 40.0}
    verdict = within_baseline(make_curve(new), make_curve(old, seed=1), metric="curve")
    assert verdict.outcome is FAIL
    assert verdict.because.startswith("a cliff that the baseline has not: at 6 (T(6)/T(5) = 1.4")


def test_a_step_on_the_line_is_no_new_cliff() -> None:
    old, new = {**METAL, 6: 29.01 * 1.385}, {**METAL, 6: 29.01 * 1.415}
    for live, stored in ((old, new), (new, old)):
        verdict = within_baseline(
            make_curve(live, noise=0.0005), make_curve(stored, noise=0.0005, seed=1), metric="curve"
        )
        assert verdict.outcome is PASS
        assert "cliff" not in verdict.because


def test_a_step_that_may_have_become_a_cliff_is_open() -> None:
    live = make_curve({**METAL, 6: 29.01 * 1.4}, noise=0.03)
    verdict = within_baseline(
        live, make_curve({**METAL, 6: 29.01 * 1.25}, noise=0.03, seed=1), metric="curve"
    )
    assert verdict.outcome is INCONCLUSIVE
    assert "there may be a cliff that the baseline has not: at 6" in verdict.because


def test_a_step_that_never_was_a_cliff_is_not_gone() -> None:
    verdict = within_baseline(make_curve({**METAL, 6: 34.5}), make_curve(METAL, seed=1), metric="curve")
    assert verdict.outcome is PASS
    assert "cliff" not in verdict.because


def test_curves_without_common_sizes_do_not_compare() -> None:
    verdict = within_baseline(make_curve(METAL), make_curve({7: 1.0, 70: 2.0}), metric="curve")
    assert verdict.outcome is NOT_MEASURED
    assert "measured N = 1-9,12,16,24,32, the baseline has 7,70" in verdict.because


def test_a_disturbed_curve_decides_nothing() -> None:
    live = make_curve({**METAL, 4: 40.0}, sentinel_ms=(1.0, 5.0, 5.0))
    verdict = within_baseline(live, make_curve(METAL), metric="curve")
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.because.startswith("the run was disturbed")
    assert "verify cost rose" in verdict.because


def test_equal_counts_hold() -> None:
    verdict = within_baseline(
        run(a=(10, 3, 12), b=(8, 3, 3)), run(a=(10, 3, 12), b=(8, 3, 3)), metric="acceptance"
    )
    assert verdict.outcome is PASS
    assert verdict.value == verdict.baseline == 15 / 54
    assert verdict.because == (
        "15 of 54 drafted tokens accepted on 2 prompts, k = 3: each prompt's counts are the baseline's"
    )


def test_one_token_less_fails() -> None:
    verdict = within_baseline(
        run(a=(10, 3, 12), b=(8, 3, 2)), run(a=(10, 3, 12), b=(8, 3, 3)), metric="acceptance"
    )
    assert verdict.outcome is FAIL
    assert "not the baseline's on 1 of 2 prompts ('b': 2 of 24, was 3 of 24)" in verdict.because
    assert (verdict.value, verdict.baseline) == (14 / 54, 15 / 54)
    assert any(
        line.split() == ["b", "8", "8", "2/24", "3/24", "changed"] for line in verdict.section.splitlines()
    )


def test_more_accepted_is_reported_and_holds() -> None:
    verdict = within_baseline(run(a=(8, 3, 14)), run(a=(10, 3, 12)), metric="acceptance")
    assert verdict.outcome is PASS
    assert verdict.because.startswith(
        "better: more is accepted on 1 of 1 prompt ('a': 14 of 24, was 12 of 30"
    )
    assert "in 8 rounds, was 10" in verdict.because
    assert "--specdec-update=all" in verdict.because


def test_fewer_drafts_for_the_same_text_are_a_gain() -> None:
    verdict = within_baseline(run(a=(10, 2, 12)), run(a=(10, 3, 12)), metric="acceptance")
    assert verdict.outcome is PASS
    assert verdict.because.startswith("better: ")


def test_a_gain_does_not_make_up_for_a_loss() -> None:
    verdict = within_baseline(
        run(a=(10, 3, 20), b=(8, 3, 2)), run(a=(10, 3, 12), b=(8, 3, 3)), metric="acceptance"
    )
    assert verdict.outcome is FAIL
    assert "better on 1 of 2 prompts ('a': 20 of 30, was 12 of 30)" in verdict.because


def test_another_text_at_the_same_rate_fails() -> None:
    verdict = within_baseline(run(a=(5, 3, 6)), run(a=(10, 3, 12)), metric="acceptance")
    assert verdict.outcome is FAIL


def test_a_higher_rate_at_fewer_tokens_per_round_is_no_gain() -> None:
    # The source drafts less: 1 of 1 per round instead of 2 of 3.
    verdict = within_baseline(run(a=(10, 1, 10)), run(a=(10, 3, 20)), metric="acceptance")
    assert verdict.outcome is FAIL


def test_the_tolerance_does_not_apply_to_counters() -> None:
    live, stored = run(a=(10, 3, 11)), run(a=(10, 3, 12))
    assert within_baseline(live, stored, metric="acceptance", tolerance=0.9).outcome is FAIL


def test_acceptance_is_never_compared_across_k() -> None:
    verdict = within_baseline(replace(run(a=(10, 3, 12)), k=4), run(a=(10, 3, 12)), metric="acceptance")
    assert verdict.outcome is NOT_MEASURED
    assert "measured two-model at k = 4, the baseline has two-model at k = 3" in verdict.because


def test_other_prompts_do_not_compare() -> None:
    verdict = within_baseline(run(a=(10, 3, 12)), run(b=(10, 3, 12)), metric="acceptance")
    assert verdict.outcome is NOT_MEASURED
    assert "other prompts" in verdict.because


def test_acceptance_without_drafts_compares() -> None:
    verdict = within_baseline(run(a=(10, 0, 0)), run(a=(10, 0, 0)), metric="acceptance")
    assert verdict.outcome is PASS
    assert verdict.value is None


def test_the_same_speedup_holds_on_a_slower_day() -> None:
    verdict = judge_speed(speed(1.5, plain_ms=6300.0), recorded(1.5))
    assert verdict.outcome is PASS
    assert re.search(r": 1\.\d\d of the baseline's \(bounds 0\.9\d-1\.0\d\), within 5%$", verdict.because), (
        verdict.because
    )


def test_a_lower_speedup_fails_and_names_the_rate_that_moved() -> None:
    verdict = judge_speed(speed(1.2), recorded(1.8))
    assert verdict.outcome is FAIL
    assert verdict.value == pytest.approx(1.2, rel=0.01)
    assert verdict.baseline == pytest.approx(1.8, rel=0.01)
    assert "of the baseline's (bounds 0.6" in verdict.because
    assert "lower by more than 5% beyond doubt; speculative decoding has 24.0 tokens/s" in verdict.because
    assert re.match(
        r"speedup is 1\.\d\dx \(1\.16-1\.24, 8 pairs\), was 1\.\d\dx \(1\.7\d-1\.8\d, 48 pairs\)",
        verdict.because,
    )
    assert "had 36.0 (x 0.67)" in verdict.because
    assert "plain decoding 20.0, had 20.0 (x 1.00)" in verdict.because


def test_a_tenth_less_fails_by_default() -> None:
    assert judge_speed(speed(1.62, looks=3), recorded(1.8)).outcome is FAIL


def test_a_lower_speedup_within_bounds_is_open() -> None:
    verdict = judge_speed(speed(1.69), recorded(1.8))
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.because.endswith("lower by more than 5%, but the bounds are not clear of it")
    assert judge_speed(speed(1.69), recorded(1.8), tolerance=0.2).outcome is PASS
    assert judge_speed(speed(1.69), recorded(1.8), tolerance=0.01).outcome is FAIL


def test_what_differs_between_prompts_does_not_widen_the_bounds() -> None:
    def uneven(run: SpeedRun) -> SpeedRun:
        pairs = [
            replace(pair, speculative_ms=pair.speculative_ms * (1 + int(pair.prompt[1:])))
            for pair in run.pairs
        ]
        return replace(run, pairs=tuple(pairs))

    live, stored = speed(1.5, looks=3), recorded(1.8)
    even, odd = judge_speed(live, stored), judge_speed(uneven(live), uneven(stored))
    assert odd.outcome is even.outcome is FAIL
    assert odd.because.partition("baseline's (bounds")[2][:10] == even.because.partition("(bounds")[2][:10]


def test_other_prompts_have_no_speedup_to_compare() -> None:
    others = tuple(replace(pair, prompt=f"other {pair.prompt}") for pair in speed(1.5).pairs)
    verdict = judge_speed(SpeedRun(3, "two-model", others), recorded(1.5))
    assert verdict.outcome is NOT_MEASURED
    assert "measured on other prompts" in verdict.because


def test_what_nobody_could_notice_does_not_count() -> None:
    # A tenth slower, at 0.02 ms per token.
    fast = judge_speed(speed(1.3, plain_ms=1.26, looks=3), recorded(1.5, plain_ms=1.26))
    assert fast.outcome is PASS
    assert fast.because.endswith("which is no more than 0.05 ms per token")
    assert judge_speed(speed(1.3, looks=3), recorded(1.5)).outcome is FAIL


def test_a_higher_speedup_is_reported_and_holds() -> None:
    verdict = judge_speed(speed(2.4), recorded(1.8))
    assert verdict.outcome is PASS
    assert verdict.because.startswith("better: speedup is 2.4")


def test_speedups_of_too_few_pairs_are_open() -> None:
    few = SpeedRun(3, "two-model", speed(1.0).pairs[:4])
    verdict = judge_speed(few, recorded(1.8))
    assert verdict.outcome is INCONCLUSIVE
    assert (verdict.low, verdict.high) == (None, None)
    assert verdict.because.endswith("4 pairs against 48 can't tell")


def test_a_baseline_of_too_few_pairs_condemns_nothing() -> None:
    few = SpeedRun(3, "two-model", speed(1.8).pairs[:4])
    assert judge_speed(speed(1.8), few).outcome is PASS
    verdict = judge_speed(speed(1.0), few)
    assert verdict.outcome is INCONCLUSIVE
    assert re.search(r"was 1\.\d\dx \(4 pairs\)", verdict.because)
    assert verdict.because.endswith("8 pairs against 4 can't tell")


def test_speedups_of_another_k_do_not_compare() -> None:
    assert judge_speed(replace(speed(1.5), k=4), recorded(1.5)).outcome is NOT_MEASURED
    assert judge_speed(SpeedRun(3, "two-model", ()), recorded(1.5)).outcome is NOT_MEASURED


@pytest.mark.parametrize(
    ("ratio", "looks", "expected"),
    [(1.8, 3, True), (1.2, 1, True), (1.74, 1, False), (1.715, 3, False), (1.69, 1, False), (1.62, 3, True)],
)
def test_pairs_are_taken_until_the_bounds_are_clear(ratio: float, looks: int, expected: bool) -> None:
    assert settled(speed(ratio, looks=looks), recorded(1.8)) is expected


def test_a_lucky_look_settles_nothing() -> None:
    # It passes as it stands, and a tolerance that the bounds are clear of ends it.
    live, stored = speed(1.74), recorded(1.8)
    assert judge_speed(live, stored).outcome is PASS
    assert not settled(live, stored)
    assert settled(live, stored, tolerance=0.2)


def test_pairs_that_can_not_be_compared_are_no_reason_for_more() -> None:
    assert settled(replace(speed(1.5), k=4), recorded(1.5))
    assert settled(SpeedRun(3, "two-model", ()), recorded(1.5))
