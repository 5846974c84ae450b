"""May I upgrade? Each thing that can change, alone, is found, named, and judged as what it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pytest_specdec.checks.upgrade import judge
from pytest_specdec.measurements import Comparison
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import TextDifference
from pytest_specdec.measurements import TokenMargin
from pytest_specdec.measurements import from_json
from pytest_specdec.reports.upgrade import Conclusion
from pytest_specdec.reports.upgrade import UpgradeReport
from pytest_specdec.theory.thresholds import known
from pytest_specdec.verdict import Outcome

from .comparisons import ACCEPTED
from .comparisons import WORSE
from .comparisons import Made
from .comparisons import changed
from .comparisons import compare
from .curves import SAWTOOTH
from .kernel_maps import GEMMA
from .kernel_maps import UNTILED
from .kernel_maps import depth_map
from .kernel_maps import unrepeated


SAME, CHANGED = Conclusion.SAME, Conclusion.CHANGED
REGRESSION, UNKNOWN = Conclusion.REGRESSION, Conclusion.UNKNOWN
TIMES = ("T(N)", "draft cost", "overhead", "plain decoding", "speculative decoding")


def scaled(factor: float, *sizes: int) -> dict[int, float]:
    return {n: t * (factor if n in sizes else 1.0) for n, t in SAWTOOTH.items()}


def words(report: UpgradeReport) -> dict[str, str]:
    """What became of each aspect that is judged."""
    return {one.verdict.metric: one.word for one in report.aspects if one.judged and one.word != "same"}


def shares(report: UpgradeReport) -> Mapping[str, float]:
    assert report.attribution is not None
    return report.attribution.shares()


def tie(margin: float, delta: float, prompt: str = "code", text: str = "speculative") -> TextDifference:
    return TextDifference(prompt, text, 20, 140, 1140, TokenMargin(20, 140, 1140, margin, delta))


def test_another_build_that_does_the_same_is_no_difference() -> None:
    report = judge(compare())
    assert report.conclusion is SAME
    assert report.outcome is Outcome.PASS
    assert words(report) == {}
    assert report.because.endswith("are the same, times within 5%")
    assert "0.3.36 (commit bbbbbbb), was llama-cpp-python 0.3.30" in report.aspect("build").verdict.because
    assert report.attribution is None
    assert report.attribution_because.startswith("no change to attribute: speculative decoding x 1.00")
    assert "488 tokens in 8 texts are the same" in report.aspect("texts").verdict.because


def test_dearer_wide_passes_are_attributed_to_the_curve() -> None:
    dearer = scaled(1.3, *(n for n in SAWTOOTH if n > 4))
    report = judge(compare(new=changed(build=Made().build, params=("n_ubatch=4",), curve=dearer)))
    assert report.conclusion is REGRESSION
    assert report.outcome is Outcome.FAIL
    assert words(report) == {"T(N)": "regression", "speculative decoding": "regression"}
    verdict = report.aspect("T(N)").verdict
    assert verdict.because.startswith("dearer at N = 5-10,12: T(")
    assert verdict.because.endswith("no difference within 5% at N = 1-4 (x 1.00)")
    assert verdict.low is not None
    assert verdict.value == pytest.approx(1.3, rel=0.02)
    assert shares(report)["curve"] >= 0.8
    assert all(abs(shares(report)[name]) < 0.1 for name in ("draft", "acceptance", "overhead"))
    assert "parameters n_ubatch=4, was none" in report.aspect("build").verdict.because
    assert report.because.startswith("T(N): dearer at N = 5-10,12")


def test_a_worse_draft_is_attributed_to_acceptance_and_draft_cost() -> None:
    report = judge(compare(new=changed(accepted=WORSE, draft_ms=6.0)))
    assert report.conclusion is REGRESSION
    assert set(words(report)) == {"draft cost", "acceptance", "speculative decoding"}
    assert shares(report)["acceptance"] + shares(report)["draft"] >= 0.9
    assert min(shares(report)["acceptance"], shares(report)["draft"]) > 0.1
    assert abs(shares(report)["curve"]) < 0.1
    verdict = report.aspect("acceptance").verdict
    assert "tokens per round, were 3.04: 29.5% fewer; " in verdict.because
    assert "other counts on 4 of 4 prompts" in verdict.because
    assert verdict.section.count("fewer") == 4
    assert "6.00 ms per drafted token, was 4.00 (x 1.50" in report.aspect("draft cost").verdict.because


def test_a_sleep_is_attributed_to_overhead() -> None:
    report = judge(compare(new=changed(overhead_ms=12.0)))
    assert report.conclusion is REGRESSION
    assert set(words(report)) == {"overhead", "speculative decoding"}
    assert shares(report)["overhead"] >= 0.9
    assert "12.00 ms per round, was 1.00" in report.aspect("overhead").verdict.because
    assert "host" in report.aspect("overhead").verdict.section


def test_overhead_counts_as_a_share_of_the_round() -> None:
    # Twice as much of next to nothing.
    report = judge(compare(new=changed(overhead_ms=2.0)))
    assert report.conclusion is SAME


def test_a_moved_threshold_is_worth_knowing_and_no_regression() -> None:
    for old, new, told in ((GEMMA, UNTILED, "gone"), (UNTILED, GEMMA, "new")):
        report = judge(compare(Made(kernels=old), changed(kernels=new)))
        assert report.conclusion is CHANGED
        assert report.conclusion.value == "a change worth knowing and no regression"
        assert report.outcome is Outcome.PASS
        assert words(report) == {"kernel map": "changed"}
        expected = f"threshold 8 is {told}; bit-identical for N = 1-7, other bits at N = 8-64"
        assert report.aspect("kernel map").verdict.because == expected
        assert report.because == f"kernel map: {expected}"


def test_maps_are_shown_side_by_side_with_known_causes() -> None:
    causes = partial(known, "cpu", ["Q4_K", "Q8_0"], features={"AVX512_VNNI", "AVX2", "AVX512"})
    report = judge(compare(new=changed(kernels=UNTILED)), known=causes)
    lines = report.aspect("kernel map").verdict.section.splitlines()
    assert ["0", "2", "old", "1-3", "|", "4-7", "|", "8-63", "|", "64"] in [line.split() for line in lines]
    assert ["0", "2", "new", "1-3", "|", "4-63", "|", "64"] in [line.split() for line in lines]
    assert sum(line.startswith("8 is gone: ") and "GGML_CPU_TILED_MM" in line for line in lines) == 1


def test_other_bits_alone_are_worth_knowing() -> None:
    moved = replace(GEMMA.maps[0], digests=("x", *GEMMA.maps[0].digests[1:]))
    report = judge(compare(new=changed(kernels=replace(GEMMA, maps=(moved, GEMMA.maps[1])))))
    assert report.conclusion is CHANGED
    because = report.aspect("kernel map").verdict.because
    assert because.startswith(
        "the thresholds are the same; bit-identical for N = 2-64, other bits at N = 1 (depth 0)"
    )
    assert because.endswith("bit-identical for N = 1-64 (depth 512)")


def test_bits_of_other_tokens_are_not_compared() -> None:
    report = judge(compare(new=changed(kernels=replace(GEMMA, tokens="other"))))
    assert report.conclusion is SAME
    assert (
        "bits can't be compared, the maps are of other tokens" in report.aspect("kernel map").verdict.because
    )


def test_maps_are_compared_by_what_both_arms_have() -> None:
    # The output head hides the 4, and the new arm gives no hidden states.
    full = depth_map("1-3 a | 4-7 b | 8-16 c", logits="1-7 a | 8-16 c")
    blind = replace(full, hidden=("",) * len(full.n), digests=tuple(f"other {n}" for n in full.n))
    old, new = (KernelMap((one,), tokens="text") for one in (full, blind))
    report = judge(compare(Made(kernels=old), changed(kernels=new)))
    assert report.conclusion is SAME
    because = report.aspect("kernel map").verdict.because
    assert (
        because == "the thresholds are the same; bits can't be compared, the maps are not of the same outputs"
    )


def test_a_map_that_does_not_repeat_is_told() -> None:
    shaky = replace(GEMMA, maps=(unrepeated(GEMMA.maps[0], 9), GEMMA.maps[1]))
    report = judge(compare(new=changed(kernels=shaky)))
    assert report.conclusion is CHANGED
    because = report.aspect("kernel map").verdict.because
    assert "bit-identical for N = 1-8,10-64 (depth 0)" in because
    assert "new at depth 0: N = 9 do not repeat bit for bit" in because
    back = judge(compare(Made(kernels=shaky), changed(kernels=GEMMA)))
    assert "new at depth 0: N = 9 repeat again" in back.aspect("kernel map").verdict.because


def test_texts_that_part_at_a_near_tie_are_no_regression() -> None:
    new = changed(kernels=UNTILED, other_token={("code", "speculative"): 20})
    report = judge(compare(new=new, differences=(tie(0.2, 0.6),)))
    assert report.conclusion is CHANGED
    assert set(words(report)) == {"kernel map", "texts"}
    because = report.aspect("texts").verdict.because
    assert (
        "1 parts from the old arm's at a near tie ('code' (speculative) at 20, margin 0.200 <= δ = 0.600)"
        in because
    )
    assert "on 1 prompt counted up to where the texts part" in report.aspect("acceptance").verdict.because


@pytest.mark.parametrize(
    ("differences", "told"),
    [
        ((tie(0.7, 0.6),), "margin 0.700 > δ = 0.600"),
        ((replace(tie(0.2, 0.6), tie=None),), "no evidence of a near tie"),
        ((), "'code' (speculative) at 20, no evidence of a near tie"),
        ((tie(0.2, 0.6, text="plain"),), "1 of 8 texts is not the old arm's"),
    ],
)
def test_texts_that_part_otherwise_are_a_regression(differences: Any, told: str) -> None:
    new = changed(other_token={("code", "speculative"): 20})
    report = judge(compare(new=new, differences=differences))
    assert report.conclusion is REGRESSION
    assert words(report) == {"texts": "regression"}
    assert told in report.aspect("texts").verdict.because
    assert "rounding does not explain it" in report.because


def test_a_text_that_ends_early_differs() -> None:
    comparison = compare()
    runs = [
        replace(run, generations=tuple(replace(g, tokens=g.tokens[:-1]) for g in run.generations))
        for run in comparison.new.plain
    ]
    report = judge(replace(comparison, new=replace(comparison.new, plain=tuple(runs))))
    assert report.conclusion is REGRESSION
    assert "4 of 8 texts are not the old arm's" in report.because
    assert "end" in report.aspect("texts").verdict.section


def test_acceptance_counts_only_what_both_texts_share() -> None:
    # Behind the parting everything is rejected: another text, so nothing is known of the build.
    worse = {**ACCEPTED, "code": (5, 3, 4, 5, *(0,) * 60)}
    new = changed(kernels=UNTILED, accepted=worse, other_token={("code", "speculative"): 20})
    report = judge(compare(new=new, differences=(tie(0.2, 0.6),)))
    assert report.aspect("acceptance").word == "same"
    worse = {**ACCEPTED, "code": (0,) * 60}
    report = judge(compare(new=replace(new, accepted=worse), differences=(tie(0.2, 0.6),)))
    assert report.aspect("acceptance").word == "regression"


def test_a_small_fall_of_acceptance_needs_other_bits() -> None:
    # One more round in the whole run.
    worse = {**ACCEPTED, "list": (5, 5, 2, 5, 5, 2, 5, 5, 2, 5, 4, 2)}
    report = judge(compare(new=changed(accepted=worse)))
    assert report.conclusion is REGRESSION
    assert "the kernel maps show no other bits to explain it" in report.because
    report = judge(compare(new=changed(accepted=worse, kernels=UNTILED)))
    assert report.conclusion is CHANGED
    assert "which other bits may do at near ties of the draft" in report.because
    report = judge(compare(new=changed(accepted=worse, kernels=UNTILED)), tolerance=0.01)
    assert report.aspect("acceptance").word == "regression"


def test_a_better_draft_is_a_change_and_no_regression() -> None:
    report = judge(compare(Made(accepted=WORSE), changed(accepted=ACCEPTED)))
    assert report.conclusion is CHANGED
    assert words(report) == {"acceptance": "changed", "speculative decoding": "changed"}
    assert shares(report)["acceptance"] >= 0.9
    assert "were 2.14: no fewer" in report.aspect("acceptance").verdict.because


def test_cheaper_times_are_a_change_and_no_regression() -> None:
    report = judge(compare(new=changed(curve=scaled(0.8, *SAWTOOTH))))
    assert report.conclusion is CHANGED
    assert set(words(report).values()) == {"changed"}
    assert "cheaper at N = 1-10,12" in report.aspect("T(N)").verdict.because
    assert "faster by more than 5%" in report.aspect("plain decoding").verdict.because


def test_a_speedup_that_falls_as_plain_decoding_gains_is_no_regression() -> None:
    better = dict.fromkeys(ACCEPTED, (4,))
    old = Made(accepted=better, noise=0.005)
    report = judge(compare(old, changed(old, curve=scaled(0.5, 1))))
    speedup = report.aspect("speedup")
    assert speedup.word == "reported"
    assert speedup.verdict.because.endswith("speculation paid, and does not pay any more")
    assert report.conclusion is CHANGED


def test_doubtful_times_could_not_be_told() -> None:
    old = Made(noise=0.2)
    report = judge(compare(old, changed(old, kernels=UNTILED)))
    assert report.conclusion is UNKNOWN
    assert report.outcome is Outcome.INCONCLUSIVE
    assert "unclear" in words(report).values()
    assert "Beside that: kernel map: threshold 8 is gone" in report.because


def test_a_proven_regression_outweighs_doubt() -> None:
    old = Made(noise=0.2)
    report = judge(compare(old, changed(old, accepted=WORSE)))
    assert report.conclusion is REGRESSION
    assert "unclear" in words(report).values()


def test_a_size_no_round_verified_changes_the_curve_only() -> None:
    report = judge(compare(new=changed(curve=scaled(0.8, 12))))
    assert report.conclusion is CHANGED
    assert words(report) == {"T(N)": "changed"}
    report = judge(compare(new=changed(curve=scaled(1.2, 12))))
    assert report.conclusion is REGRESSION
    assert words(report) == {"T(N)": "regression"}


# Eight blocks, or pairs, that lie 12 % about the estimate.
WIDE = (0.88, 1.12, 0.9, 1.1, 0.88, 1.12, 0.9, 1.1)


@pytest.mark.parametrize(
    ("factor", "word", "told"),
    [
        (1.0, "unclear", "the bounds reach 13% beyond the estimate, more than the tolerance of 5%"),
        (1.08, "unclear", "bounds not clear, may be dearer at N = 1-10,12"),
        (1.3, "regression", "dearer at N = 1-10,12"),
        (0.9, "same", "no difference within 5% at N = 1-10,12"),
        (0.7, "changed", "cheaper at N = 1-10,12"),
    ],
)
def test_the_curve_is_judged_on_its_bounds(factor: float, word: str, told: str) -> None:
    comparison = compare(Made(noise=0.0))
    curve = comparison.new.curve
    samples = tuple(
        tuple(tuple(ms * factor * f for ms in calls) for calls, f in zip(blocks, WIDE, strict=True))
        for blocks in curve.samples_ms
    )
    new = replace(comparison.new, curve=replace(curve, samples_ms=samples))
    aspect = judge(replace(comparison, new=new)).aspect("T(N)")
    assert aspect.word == word
    assert told in aspect.verdict.because


@pytest.mark.parametrize(
    ("factor", "word", "told"),
    [
        (1.0, "unclear", "the bounds reach 13% beyond the estimate, more than the tolerance of 5%"),
        (1.08, "unclear", "may be slower by more than 5%, bounds not clear"),
        (1.3, "regression", "slower by more than 5%"),
        (0.9, "same", "no difference within 5%"),
        (0.7, "changed", "faster by more than 5%"),
    ],
)
def test_a_rate_is_judged_on_its_bounds(factor: float, word: str, told: str) -> None:
    comparison = compare(Made(noise=0.0, repetitions=2))
    factors = iter(WIDE)
    runs = tuple(
        replace(
            run,
            generations=tuple(
                replace(g, decode_ms=g.decode_ms * factor * next(factors)) for g in run.generations
            ),
        )
        for run in comparison.new.plain
    )
    aspect = judge(replace(comparison, new=replace(comparison.new, plain=runs))).aspect("plain decoding")
    assert aspect.word == word
    assert told in aspect.verdict.because


@pytest.mark.parametrize(
    ("share", "word", "told"),
    [
        (0.0, "unclear", "the bounds reach 12% beyond the estimate, more than the tolerance of 5%"),
        (0.08, "unclear", "may be more than 5% of a round dearer, bounds not clear"),
        (0.3, "regression", "more than 5% of a round dearer"),
        (-0.1, "same", "no difference of more than 5% of a round"),
        (-0.3, "changed", "more than 5% of a round cheaper"),
    ],
)
def test_overhead_is_judged_on_its_bounds(share: float, word: str, told: str) -> None:
    comparison = compare(Made(noise=0.0, repetitions=2, overhead_ms=60.0))
    factors = iter(WIDE)
    runs = tuple(
        replace(
            run,
            speculations=tuple(
                replace(one, decode_ms=one.decode_ms * (share + next(factors))) for one in run.speculations
            ),
        )
        for run in comparison.new.speculative
    )
    aspect = judge(replace(comparison, new=replace(comparison.new, speculative=runs))).aspect("overhead")
    assert aspect.word == word
    assert told in aspect.verdict.because


def test_one_disturbed_repetition_does_not_move_the_rate_that_is_told() -> None:
    comparison = compare(Made(noise=0.0))
    first, *rest = comparison.new.plain
    slow = replace(first, generations=tuple(replace(g, decode_ms=5 * g.decode_ms) for g in first.generations))
    report = judge(replace(comparison, new=replace(comparison.new, plain=(slow, *rest))))
    assert "46.5 tokens/s, was 46.5 (" in report.aspect("plain decoding").verdict.because


def test_too_few_blocks_or_pairs_prove_nothing() -> None:
    old = Made(blocks=3, repetitions=1)
    dearer = changed(old, curve=scaled(2.0, *SAWTOOTH))
    report = judge(compare(old, dearer))
    assert report.conclusion is UNKNOWN
    assert "only 3 blocks were measured, 7 are the fewest" in report.aspect("T(N)").verdict.because
    assert "only 4 pairs, 7 are the fewest" in report.aspect("plain decoding").verdict.because
    assert {words(report)[metric] for metric in TIMES} == {"unclear"}
    assert "too few pairs tell it from noise" in report.attribution_because
    assert all(verdict.high is None for verdict in report.verdicts if verdict.metric in TIMES)


def test_a_disturbed_run_proves_no_regression() -> None:
    sentinel = {"sentinel_ms": (10.0, 20.0, 20.0)}
    dearer = changed(curve=scaled(1.3, 6), fields=sentinel)
    verdict = judge(compare(new=dearer)).aspect("T(N)").verdict
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.because.startswith("the run was disturbed")
    assert "As measured: dearer at N = 6" in verdict.because


def test_the_same_build_is_no_difference_also_in_noise() -> None:
    old = Made(noise=0.2)
    report = judge(compare(old, replace(old, name="new", seed=2)))
    assert report.conclusion is SAME
    assert report.because.startswith("the same build on both sides; ")
    assert report.because.endswith("in doubt, which is this machine's noise")
    assert judge(compare(old, changed(old))).conclusion is UNKNOWN
    for other in (replace(old, seed=2, env=("A=1",)), replace(old, seed=2, params=("k=3",))):
        assert judge(compare(old, other)).conclusion is UNKNOWN


def test_the_same_build_that_differs_beyond_doubt_is_the_machines_doing() -> None:
    old = Made()
    beside = replace(old, name="new", seed=2)
    for new in (
        replace(beside, curve=scaled(1.3, 6)),
        replace(beside, accepted=WORSE),
        replace(beside, kernels=UNTILED),
    ):
        report = judge(compare(old, new))
        assert report.conclusion is UNKNOWN
        assert report.because.startswith("the same build on both sides, yet beyond doubt")


def test_nothing_measured_is_no_answer() -> None:
    comparison = compare()
    for arm in (replace(comparison.new, plain=()), replace(comparison.new, speculative=())):
        report = judge(replace(comparison, new=arm))
        assert report.conclusion is UNKNOWN
        assert "not measured" in words(report).values()
    other_depth = replace(comparison.new, curve=replace(comparison.new.curve, depth=64))
    report = judge(replace(comparison, new=other_depth))
    assert words(report) == {"T(N)": "not measured"}
    same = replace(comparison.new, facts=replace(comparison.old.facts, name="new"), plain=(), speculative=())
    assert judge(replace(comparison, new=same)).conclusion is UNKNOWN


def test_a_width_without_t_n_cannot_be_attributed() -> None:
    comparison = compare(new=changed(accepted=WORSE))
    arms = [
        replace(arm, curve=replace(arm.curve, n=(1, 2), samples_ms=arm.curve.samples_ms[:2]))
        for arm in (comparison.old, comparison.new)
    ]
    report = judge(replace(comparison, old=arms[0], new=arms[1]))
    assert report.attribution is None
    assert "cannot be attributed: T(N) was not measured at N = " in report.attribution_because


def test_a_source_without_a_model_is_judged_by_its_share_of_the_round() -> None:
    old = Made(model=False, draft_ms=0.01)
    assert judge(compare(old, changed(old, draft_ms=0.02))).conclusion is SAME
    report = judge(compare(old, changed(old, draft_ms=3.0)))
    assert report.aspect("draft cost").word == "regression"
    assert "of a round dearer" in report.aspect("draft cost").verdict.because


def test_another_draft_length_is_judged_by_times_only() -> None:
    comparison = compare(new=changed(accepted=WORSE))
    runs = tuple(replace(run, k=4) for run in comparison.new.speculative)
    report = judge(replace(comparison, new=replace(comparison.new, speculative=runs)))
    assert report.aspect("acceptance").word == "changed"
    assert "only times can be compared" in report.aspect("acceptance").verdict.because


def test_wrong_limits_are_refused() -> None:
    for tolerance in (0.0, 1.0):
        with pytest.raises(ValueError, match="tolerance must be"):
            judge(compare(), tolerance=tolerance)
    with pytest.raises(ValueError, match="alpha must be"):
        judge(compare(), alpha=0.0)


def test_a_comparison_survives_json() -> None:
    comparison = compare(
        new=changed(other_token={("code", "plain"): 20}), differences=(tie(0.2, 0.6),), turns=True
    )
    text = json.dumps(comparison.to_json())
    back = from_json(json.loads(text))
    assert isinstance(back, Comparison)
    assert back == comparison
    assert judge(back).because == judge(comparison).because
    assert set(comparison.to_frame()["arm"]) == {"old", "new"}
