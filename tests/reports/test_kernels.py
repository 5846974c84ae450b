from __future__ import annotations

from dataclasses import replace
from functools import partial

from pytest_specdec.measurements import KernelMap
from pytest_specdec.reports.kernels import classes_of
from pytest_specdec.reports.kernels import kernel_section
from pytest_specdec.reports.kernels import ranges_text
from pytest_specdec.theory.thresholds import known

from ..checks.kernel_maps import GEMMA
from ..checks.kernel_maps import depth_map
from ..checks.kernel_maps import unrepeated


CAUSES = partial(known, "cpu", {"Q4_K", "Q5_0", "Q6_K", "Q8_0", "F32"}, features={"AVX", "AVX2"})


def test_the_whole_section() -> None:
    assert kernel_section(GEMMA, known=CAUSES) == [
        "depth  threads  kernel paths by N",
        "    0        2  1-3 | 4-7 | 8-63 | 64",
        "  512        2  1 | 2-3 | 4-7 | 8-63 | 64",
        "  512        1  1-3 | 4-7 | 8-16",
        "thresholds:",
        "  2 at depth 512: flash attention no longer splits the KV range among threads (ggml-cpu/ops.cpp; "
        "threads=1 moves it)",
        "  4: repack matrix-matrix (ggml-cpu/repack.cpp; use_extra_bufts=False moves it)",
        "  8: tiled K-quant (ggml-cpu/tiled/tiled.cpp; GGML_CPU_TILED_MM=0 moves it)",
        "  64: tiled flash attention (ggml-cpu/ops.cpp; flash_attn=off moves it); rows 1-62 only, row 0 "
        "keeps its path",
        "remainder: the last row of N = 5, the last 2 rows of N = 6, the last 3 rows of N = 7, computed as a "
        "smaller batch",
        "every batch repeated bit for bit",
    ]


def test_a_threshold_that_is_not_known_stands_alone() -> None:
    lines = kernel_section(KernelMap((depth_map("1-4 a | 5-9 b"),)), known=CAUSES)
    assert lines[lines.index("thresholds:") + 1] == "  5"
    assert "  4" in kernel_section(GEMMA)


def test_a_cause_that_would_show_elsewhere_too_is_not_named() -> None:
    # tinyBLAS begins at 2 whatever the depth and the threads, and changes nothing at depth 0.
    deep = KernelMap((depth_map("1 s | 2-9 a", depth=512),))
    (line,) = [line for line in kernel_section(deep, known=CAUSES) if line.startswith("  2")]
    assert "tinyBLAS" in line
    assert "flash attention" in line
    both = replace(deep, maps=(depth_map("1-9 a"), *deep.maps))
    (line,) = [line for line in kernel_section(both, known=CAUSES) if line.startswith("  2")]
    assert "tinyBLAS" not in line
    assert "flash attention" in line
    alone = replace(deep, one_thread=(depth_map("1 s | 2-9 a", depth=512, threads=1),))
    (line,) = [line for line in kernel_section(alone, known=CAUSES) if line.startswith("  2")]
    assert "tinyBLAS" in line


def test_a_cause_that_cannot_show_there_is_not_named() -> None:
    for shallow in (depth_map("1 s | 2-9 a"), depth_map("1 s | 2-9 a", depth=512, threads=1)):
        (line,) = [
            line for line in kernel_section(KernelMap((shallow,)), known=CAUSES) if line.startswith("  2")
        ]
        assert line == "  2: tinyBLAS matrix-matrix (ggml-cpu/llamafile/sgemm.cpp)"


def test_a_gap_names_the_size_that_a_cause_begins_at() -> None:
    lines = kernel_section(KernelMap((depth_map({4: "a", 16: "b"}),)), known=CAUSES)
    assert "  in (4, 16]: 8, tiled K-quant (ggml-cpu/tiled/tiled.cpp; GGML_CPU_TILED_MM=0 moves it)" in lines


def test_one_output_alone_is_said() -> None:
    lines = kernel_section(KernelMap((depth_map("1-3 a | 4-9 b", logits="1-9 a"),)))
    assert "  4: hidden state only" in lines
    lines = kernel_section(KernelMap((depth_map("1-9 a", logits="1-3 a | 4-9 b"),)))
    assert "  4: logits only" in lines


def test_what_differs_by_depth_has_a_line_for_each_in_order() -> None:
    two = KernelMap((depth_map("1-3 a | 4-9 b", logits="1-9 a"), depth_map("1-3 a | 4-9 b", depth=64)))
    lines = kernel_section(two)
    assert lines[lines.index("thresholds:") + 1 :][:2] == [
        "  4 at depth 0: hidden state only",
        "  4 at depth 64",
    ]


def test_a_path_that_comes_back_is_said() -> None:
    lines = kernel_section(KernelMap((depth_map("1 a | 2-3 b | 4-9 a"),)))
    assert "  4: row 0 as at N = 1" in lines


def test_one_path_for_all() -> None:
    lines = kernel_section(KernelMap((depth_map("1-9 a"),)))
    assert lines == [
        "depth  threads  kernel paths by N",
        "    0        2  1-9",
        "thresholds: none",
        "every batch repeated bit for bit",
    ]


def test_content_dependent_sizes_are_named_with_what_they_mean() -> None:
    (line,) = [
        line
        for line in kernel_section(KernelMap((depth_map("1-9 a", content=(8, 9)),)))
        if line.startswith("content-dependent: ")
    ]
    assert "at N = 8-9 row 0 depends on the tokens behind it" in line


def test_what_holds_at_one_depth_names_it() -> None:
    two = KernelMap((depth_map("1-7 a", remainder={5: 1}), depth_map("1-7 a", depth=512)))
    assert "remainder: the last row of N = 5, computed as a smaller batch (depth 0)" in kernel_section(two)


def test_passes_that_do_not_repeat_are_named() -> None:
    shaky = KernelMap(
        (depth_map("1-9 a"), unrepeated(depth_map("1-9 a", depth=512), 5, 6)),
        one_thread=(unrepeated(depth_map("1-9 a", threads=1), 1),),
    )
    assert kernel_section(shaky)[-1] == (
        "not deterministic here: a second pass gave other bits at N = 5-6 (depth 512, 2 threads), "
        "N = 1 (depth 0, 1 thread)"
    )


def test_the_one_thread_map_is_held_against_the_same_sizes() -> None:
    # Of the thresholds at 4 and 20 the shorter list can show the first one only: no difference.
    both = KernelMap(
        (depth_map("1-3 a | 4-19 b | 20-30 c"),), one_thread=(depth_map("1-3 a | 4-16 b", threads=1),)
    )
    assert not any(line.startswith("    0        1") for line in kernel_section(both))
    other = replace(both, one_thread=(depth_map("1-16 a", threads=1),))
    assert "    0        1  1-16" in kernel_section(other)


def test_a_part_of_the_sizes_has_its_own_ranges() -> None:
    assert ranges_text(classes_of(GEMMA.maps[0], sizes=(1, 2, 8, 9))) == "1-2 | 8-9"
