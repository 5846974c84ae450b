"""Limits on made kernel maps: what holds, what fails, and in which words."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.checks.kernels import compare_kernels
from pytest_specdec.checks.kernels import kernel_thresholds
from pytest_specdec.measurements import KernelMap
from pytest_specdec.theory.thresholds import known
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict

from .curves import SAWTOOTH
from .curves import make_curve
from .kernel_maps import GEMMA
from .kernel_maps import REST
from .kernel_maps import UNTILED
from .kernel_maps import depth_map
from .kernel_maps import unrepeated


PASS, FAIL, NOT_MEASURED = Outcome.PASS, Outcome.FAIL, Outcome.NOT_MEASURED
CAUSES = partial(known, "cpu", {"Q4_K", "Q6_K", "Q8_0", "F32"}, features={"AVX", "AVX2"})


def one(paths: str, *, tokens: str = "text", **fields: Any) -> KernelMap:
    """A map of one depth."""
    return KernelMap(maps=(depth_map(paths, **fields),), tokens=tokens, flash_attn="on")


def compare(live: KernelMap, stored: KernelMap, **extra: Any) -> Verdict:
    return compare_kernels(live, stored, None, "within_baseline('kernels')", **extra)


def test_the_right_thresholds_hold() -> None:
    verdict = kernel_thresholds(GEMMA, ns=(4, 8, 64))
    assert verdict.outcome is PASS
    assert verdict.value == 0
    assert verdict.limit == "kernel_thresholds(4, 8, 64)"
    assert verdict.because == "kernel paths change at N = 4, 8 and 64, and nowhere else: N = 1-64, depth 0"


def test_the_depth_decides_which_map_is_meant() -> None:
    assert kernel_thresholds(GEMMA, ns=(2, 4, 8, 64), depth=512).outcome is PASS
    verdict = kernel_thresholds(GEMMA, ns=(4, 8, 64), depth=512)
    assert verdict.outcome is FAIL
    assert verdict.limit == "kernel_thresholds(4, 8, 64, depth=512)"
    assert "2 is new" in verdict.because
    assert verdict.because.endswith("write kernel_thresholds(2, 4, 8, 64, depth=512)")


def test_a_threshold_that_is_gone_is_named_with_its_cause_and_its_cost() -> None:
    verdict = kernel_thresholds(
        UNTILED, ns=(4, 8, 64), baseline=GEMMA, curve=make_curve(SAWTOOTH), known=CAUSES
    )
    assert verdict.outcome is FAIL
    assert verdict.value == 1
    assert verdict.because == (
        "kernel paths change at N = 4 and 64 at depth 0, not at N = 4, 8 and 64: 8 is gone; "
        "T(8)/T(7) = 0.88 at depth 0; if that is the new state, write kernel_thresholds(4, 64)"
    )
    assert verdict.section.splitlines()[:5] == [
        "depth  threads            kernel paths by N",
        "    0        2  expected  1-3 | 4-7 | 8-63 | 64",
        "    0        2  here      1-3 | 4-63 | 64",
        "    0        2  baseline  1-3 | 4-7 | 8-63 | 64",
        "8 is gone: tiled K-quant (ggml-cpu/tiled/tiled.cpp; GGML_CPU_TILED_MM=0 moves it)",
    ]


def test_a_moved_threshold_is_gone_and_new() -> None:
    verdict = kernel_thresholds(one("1-3 a | 4-9 b"), ns=(5,))
    assert verdict.outcome is FAIL
    assert verdict.value == 2
    assert "not at N = 5: 5 is gone, 4 is new" in verdict.because
    assert "1-4 | 5-9" in verdict.section
    assert "1-3 | 4-9" in verdict.section


def test_no_threshold_at_all_can_be_the_limit() -> None:
    assert kernel_thresholds(one("1-9 a"), ns=()).outcome is PASS
    verdict = kernel_thresholds(one("1-3 a | 4-9 b"), ns=())
    assert verdict.outcome is FAIL
    assert verdict.because.startswith("kernel paths change at N = 4 at depth 0, not nowhere: 4 is new")
    assert verdict.limit == "kernel_thresholds()"


@pytest.mark.parametrize(("ns", "wanted"), [((4, 70), "1-9,69-70"), ((1, 4), "1-9")])
def test_a_threshold_that_cannot_show_is_an_error_of_the_gate(ns: tuple[int, ...], wanted: str) -> None:
    verdict = kernel_thresholds(one("1-3 a | 4-9 b"), ns=ns)
    assert verdict.outcome is NOT_MEASURED
    assert verdict.because.startswith("the limit is wrong: N = ")
    assert verdict.because.endswith(f'cannot show on a map of N = 1-9: specdec(map_sizes="{wanted}")')


def test_a_size_between_those_mapped_is_an_error_of_the_gate_and_the_next_one_is_not() -> None:
    gapped = one("1-9 a | 16 b")
    assert kernel_thresholds(gapped, ns=(12,)).outcome is NOT_MEASURED
    verdict = kernel_thresholds(gapped, ns=(16,))
    assert verdict.outcome is PASS
    assert verdict.because.endswith("(in (9, 16]: the sizes between were not mapped)")


def test_a_depth_that_was_not_mapped_says_how_to() -> None:
    verdict = kernel_thresholds(GEMMA, ns=(4,), depth=100)
    assert verdict.outcome is NOT_MEASURED
    assert verdict.because == 'no kernel map at depth 100 (mapped: 0, 512): specdec(map_depths="100")'


def test_without_any_bits_nothing_is_measured() -> None:
    bare = replace(depth_map("1-4 a"), hidden=("",) * 4, logits=("",) * 4)
    verdict = kernel_thresholds(KernelMap((bare,)), ns=())
    assert verdict.outcome is NOT_MEASURED
    assert "neither hidden states nor logits" in verdict.because


def test_a_map_that_does_not_repeat_fails_whatever_the_limit() -> None:
    shaky = KernelMap((unrepeated(depth_map("1-3 a | 4-9 b"), 5, 6),))
    for ns in ((4,), (5,), (70,)):
        verdict = kernel_thresholds(shaky, ns=ns)
        assert verdict.outcome is FAIL
        assert verdict.because == (
            "not deterministic here: a second pass over the same tokens gave other bits at N = 5-6 "
            "(depth 0), so no thresholds can be told"
        )


def test_rows_that_fall_back_are_no_threshold_unless_they_are_not_proven_to() -> None:
    sawtooth = one("1-3 a | 4-7 b", remainder=REST)
    assert kernel_thresholds(sawtooth, ns=(4,)).outcome is PASS
    unproven = replace(sawtooth.maps[0], remainder=(0,) * 7)
    assert kernel_thresholds(KernelMap((unproven,)), ns=(4,)).outcome is FAIL


def test_a_change_that_only_one_output_shows_counts() -> None:
    assert kernel_thresholds(one("1-3 a | 4-9 b", logits="1-9 a"), ns=(4,)).outcome is PASS
    assert kernel_thresholds(one("1-9 a", logits="1-3 a | 4-9 b"), ns=(4,)).outcome is PASS


def test_the_cost_is_told_only_where_it_was_measured() -> None:
    partly = make_curve({1: 10.0, 2: 12.0, 4: 20.0}, depth=256)
    assert "T(4)/T(2) = 1.67 at depth 256" in kernel_thresholds(GEMMA, ns=(8, 64), curve=partly).because
    assert "T(" not in kernel_thresholds(GEMMA, ns=(4, 64), curve=partly).because


@given(st.sets(st.integers(2, 20)), st.sets(st.integers(2, 20)))
def test_exactly_the_thresholds_of_the_map_hold(there: set[int], limit: set[int]) -> None:
    paths = {n: str(sum(start <= n for start in there)) for n in range(1, 21)}
    verdict = kernel_thresholds(KernelMap((depth_map(paths),)), ns=tuple(sorted(limit)))
    assert verdict.outcome is (PASS if there == limit else FAIL)
    assert verdict.value == len(there ^ limit)


def test_the_same_map_is_the_baselines() -> None:
    verdict = compare(GEMMA, GEMMA)
    assert verdict.outcome is PASS
    assert verdict.value == 0
    assert verdict.because == (
        "the kernel map is the baseline's: paths change at N = 4, 8 and 64 (depth 0), at N = 2, 4, 8 and 64 "
        "(depth 512); bit-identical at every N of 1-64"
    )


def test_another_map_fails_with_both_side_by_side() -> None:
    verdict = compare(UNTILED, GEMMA, curve=make_curve(SAWTOOTH), known=CAUSES)
    assert verdict.outcome is FAIL
    assert verdict.value == 1
    assert verdict.because == (
        "the kernel map is not the baseline's: 8 is gone; bit-identical for N = 1-7, other bits from 8 on; "
        "T(8)/T(7) = 0.88 at depth 0; bits are exact, so something changed: compare builds and models, or "
        "accept the new state with --specdec-update=all"
    )
    lines = verdict.section.splitlines()
    assert lines[:5] == [
        "depth  threads            kernel paths by N",
        "    0        2  here      1-3 | 4-63 | 64",
        "    0        2  baseline  1-3 | 4-7 | 8-63 | 64",
        "    0        1  here      1-3 | 4-16",
        "    0        1  baseline  1-3 | 4-7 | 8-16",
    ]
    assert (
        lines.count("8 is gone: tiled K-quant (ggml-cpu/tiled/tiled.cpp; GGML_CPU_TILED_MM=0 moves it)") == 1
    )


def test_the_other_way_round_the_threshold_is_new() -> None:
    verdict = compare(GEMMA, UNTILED, known=CAUSES)
    assert "the kernel map is not the baseline's: 8 is new;" in verdict.because
    assert "8 is new: tiled K-quant" in verdict.section


def test_a_change_at_one_depth_names_it() -> None:
    live = replace(GEMMA, maps=(GEMMA.maps[0], UNTILED.maps[1]))
    assert "8 is gone (depth 512)" in compare(live, GEMMA).because
    alone = replace(GEMMA, one_thread=UNTILED.one_thread)
    verdict = compare(alone, GEMMA)
    assert verdict.outcome is FAIL
    assert "8 is gone (depth 0 with one thread, depth 512 with one thread)" in verdict.because


def test_other_bits_on_the_same_paths_are_told_and_hold() -> None:
    live = one("1-3 a | 4-9 b")
    other = replace(live.maps[0], digests=("x",) * 9)
    verdict = compare(replace(live, maps=(other,)), live)
    assert verdict.outcome is PASS
    assert verdict.because.endswith("; other bits at every N of 1-9")
    mixed = tuple(d if n in (1, 3) else "x" for n, d in zip(other.n, live.maps[0].digests, strict=True))
    verdict = compare(replace(live, maps=(replace(other, digests=mixed),)), live)
    assert verdict.because.endswith("; bit-identical for N = 1,3, other bits at N = 2,4-9")


def test_bits_of_other_tokens_are_not_compared() -> None:
    verdict = compare(one("1-3 a | 4-9 b"), one("1-3 a | 4-9 b", tokens="other"))
    assert verdict.outcome is PASS
    assert verdict.because.endswith("; the baseline is of other tokens, so bits cannot be compared")


def test_a_class_that_no_longer_recurs_fails() -> None:
    verdict = compare(one("1 a | 2-3 b | 4-9 c"), one("1 a | 2-3 b | 4-9 a"))
    assert verdict.outcome is FAIL
    assert "row 0's classes recur otherwise: a b c, were a b a" in verdict.because


def test_other_rows_that_fall_back_fail() -> None:
    verdict = compare(one("1-3 a | 4-7 b"), one("1-3 a | 4-7 b", remainder=REST))
    assert verdict.outcome is FAIL
    assert (
        "at N = 5-7 other rows fall back to the path of a smaller batch: the last 0, were 1-3"
        in verdict.because
    )


def test_content_dependence_fails_when_it_comes_and_when_it_goes() -> None:
    plain, dependent = one("1-9 a"), one("1-9 a", content=(8, 9))
    verdict = compare(dependent, plain)
    assert verdict.outcome is FAIL
    assert "row 0 of N = 8-9 depends on the tokens behind it, did not" in verdict.because
    verdict = compare(plain, dependent)
    assert verdict.outcome is FAIL
    assert "row 0 of N = 8-9 depended on the tokens behind it, does not" in verdict.because
    assert compare(dependent, dependent).outcome is PASS


def test_what_no_longer_repeats_fails_and_the_reverse_is_better() -> None:
    firm = one("1-3 a | 4-9 b")
    shaky = replace(firm, maps=(unrepeated(firm.maps[0], 5),))
    verdict = compare(shaky, firm)
    assert verdict.outcome is FAIL
    assert "not deterministic here: N = 5 do not repeat bit for bit, did" in verdict.because
    verdict = compare(firm, shaky)
    assert verdict.outcome is PASS
    assert "better: N = 5 repeat bit for bit, did not; accept the new state" in verdict.because
    verdict = compare(shaky, shaky)
    assert verdict.outcome is PASS
    assert verdict.because.endswith("a second pass gave other bits at N = 5 (depth 0, 2 threads)")


def test_batches_that_do_not_repeat_are_left_out() -> None:
    live, stored = (
        KernelMap((unrepeated(depth_map(f"1-3 a | 4 b | 5 {path} | 6-9 b"), 5),)) for path in ("x", "b")
    )
    verdict = compare(live, stored)
    assert verdict.outcome is PASS
    assert "bit-identical at every N of 1-4,6-9" in verdict.because


def test_nothing_that_repeats_is_a_failure_and_no_crash() -> None:
    firm = one("1-3 a | 4-9 b")
    verdict = compare(replace(firm, maps=(unrepeated(firm.maps[0], *range(1, 10)),)), firm)
    assert verdict.outcome is FAIL
    assert "not deterministic here: N = 1-9" in verdict.because


def test_only_what_both_maps_have_is_compared() -> None:
    assert compare(one("1-3 a | 4-9 b"), one("1-3 a | 4-5 b")).outcome is PASS
    assert compare(replace(GEMMA, maps=GEMMA.maps[:1]), GEMMA).outcome is PASS
    for other in (one("1-9 a", depth=64), one("20-30 a")):
        verdict = compare(one("1-9 a"), other)
        assert verdict.outcome is NOT_MEASURED
        assert verdict.because.endswith("record one with --specdec-update=new")


def test_a_missing_output_is_told_and_the_other_one_compared() -> None:
    both = one("1-3 a | 4-9 b", logits="1-9 a")
    logits_only = replace(both, maps=(replace(both.maps[0], hidden=("",) * 9),))
    verdict = compare(logits_only, both)
    assert verdict.outcome is PASS
    assert "bits of logits here, of hidden state and logits in the baseline" in verdict.because


def test_other_circumstances_are_told_under_a_failure() -> None:
    live = replace(one("1-9 a", threads=4), flash_attn="off")
    verdict = compare(live, one("1-3 a | 4-9 b"))
    assert "flash attention is off, was on; 4 threads, were 2" in verdict.because


def test_a_tolerance_does_not_apply() -> None:
    assert compare_kernels(UNTILED, GEMMA, 0.5, "w", 0.01).outcome is FAIL
