"""What the source is known to say, for which models."""

from __future__ import annotations

import json

import pytest

from pytest_specdec.theory.thresholds import TABLE
from pytest_specdec.theory.thresholds import Known
from pytest_specdec.theory.thresholds import cpu_features
from pytest_specdec.theory.thresholds import known


# Tensor types of Gemma 3 270M "Q4_K_M" and of SmolLM2 Q4_1.
GEMMA = {"F32": 109, "Q4_K": 27, "Q5_0": 81, "Q6_K": 9, "Q8_0": 10}
SMOLLM = {"F32": 61, "Q4_1": 210, "Q8_0": 1}
X86 = {"SSE3", "AVX", "AVX2", "FMA"}


def told(found: list[Known]) -> list[str]:
    return [one.told for one in found]


def test_a_k_quant_on_an_x86_cpu() -> None:
    assert told(known("cpu", GEMMA, 4, features=X86)) == ["repack matrix-matrix (ggml-cpu/repack.cpp)"]
    assert told(known("cpu", GEMMA, 8, features=X86)) == ["tiled K-quant (ggml-cpu/tiled/tiled.cpp)"]
    assert known("cpu", GEMMA, 5, features=X86) == []
    assert known("cpu", GEMMA, 8, features=X86)[0].knob == "GGML_CPU_TILED_MM=0"


def test_a_model_without_such_tensors_has_no_such_threshold() -> None:
    assert known("cpu", SMOLLM, 4, features=X86) == []
    assert known("cpu", SMOLLM, 8, features=X86) == []


def test_another_cpu_has_others() -> None:
    assert told(known("cpu", {"Q6_K"}, 4, features={"NEON"})) == [
        "repack matrix-matrix (ggml-cpu/repack.cpp)"
    ]
    assert known("cpu", {"Q6_K"}, 4, features=X86) == []
    assert known("cpu", {"Q6_K"}, 8, features={"NEON"}) == []


def test_a_cpu_that_is_not_known_is_told_what_it_takes() -> None:
    assert told(known("cpu", {"Q6_K"}, 8)) == ["tiled K-quant with AVX or AVX2 (ggml-cpu/tiled/tiled.cpp)"]


def test_norms_do_not_make_a_quantised_model_a_float_one() -> None:
    assert known("cpu", {"Q4_1": 1, "F32": 9}, 2, features=X86) == known("cpu", {"Q4_1"}, 2, features=X86)
    assert "tinyBLAS matrix-matrix (ggml-cpu/llamafile/sgemm.cpp)" in told(
        known("cpu", {"F32"}, 2, features=X86)
    )


def test_metal_leaves_small_batches_behind_at_9_whatever_the_type() -> None:
    assert told(known("metal", GEMMA, 9)) == ["matrix-matrix (ggml-metal/ggml-metal-common.cpp)"]
    assert known("metal", {"Q4_K"}, 2) == []
    assert told(known("metal", {"Q4_0"}, 2)) == ["small-batch matrix-vector (ggml-metal/ggml-metal-ops.cpp)"]


def test_cuda_says_on_which_gpu() -> None:
    assert told(known("cuda", {"Q4_K"}, 6)) == [
        "MMQ matrix-matrix on Blackwell (ggml-cuda/mmvq.cu)",
        "MMQ matrix-matrix on Volta (ggml-cuda/mmvq.cu)",
    ]
    assert told(known("cuda", {"Q4_0"}, 6)) == []
    assert "MMQ matrix-matrix (ggml-cuda/mmvq.cu)" in told(known("cuda", {"Q4_0"}, 9))


def test_several_backends_are_asked_one_by_one() -> None:
    both = known("CUDA+vulkan", {"Q4_0"}, 9)
    assert {one.backend for one in both} == {"cuda", "vulkan"}
    assert known("sycl", {"Q4_0"}, 9) == []


def test_attention_splits_among_threads_in_a_longer_context_only() -> None:
    (split,) = [one for one in known("cpu", SMOLLM, 2, features=X86) if one.threaded]
    assert split.applies(512, 2)
    assert not split.applies(512, 1)
    assert not split.applies(0, 2)


def test_features_are_those_that_are_on() -> None:
    info = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | NEON = 0 | REPACK = 1 | "
    assert cpu_features(info) == {"SSE3", "AVX", "AVX2", "REPACK"}


@pytest.mark.parametrize("entry", TABLE, ids=lambda one: f"{one.backend}-{one.n}-{one.what}")
def test_every_entry_has_a_place_in_the_source(entry: Known) -> None:
    assert entry.n >= 2
    assert entry.file.startswith("ggml-")
    data = entry.to_json()
    assert data["commit"] == "0c1e57098"
    assert json.loads(json.dumps(data)) == data


def test_no_entry_is_there_twice() -> None:
    assert len(set(TABLE)) == len(TABLE)
