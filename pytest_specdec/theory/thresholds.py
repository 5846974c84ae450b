"""Batch sizes at which llama.cpp's source chooses another kernel, read at commit 0c1e57098.

N counts the tokens of a forward pass (ggml's ne11). The table names a cause for a threshold that was found;
it predicts none: kernels may round alike, and weights of other shapes may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import replace
from typing import Any
from typing import Final


COMMIT: Final = "0c1e57098"

_K: Final = frozenset({"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"})
_IQ: Final = frozenset({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"})
_PLAIN: Final = frozenset({"Q1_0", "Q2_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "IQ4_NL"})
_QUANTISED: Final = _K | _IQ | _PLAIN
_HALF: Final = frozenset({"F16", "BF16"})
_FLOAT: Final = _HALF | {"F32"}


@dataclass(frozen=True, slots=True)
class Known:
    """A threshold of the source: from batches of `n` tokens on, `what` computes.

    `types` are the tensor types it concerns, none: any. `needs` are features of a CPU, one of which it takes,
    as llama.cpp's system info names them; `on` says in words what else it takes. `knob` moves or removes it
    without a rebuild. It shows from `depth` tokens in the context on; `threaded`: with more than one thread.
    """

    backend: str
    n: int
    what: str
    file: str
    types: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    on: str = ""
    knob: str = ""
    depth: int = 0
    threaded: bool = False

    @property
    def told(self) -> str:
        """The cause in a few words: "repack matrix-matrix (ggml-cpu/repack.cpp)"."""
        where = f" {self.on}" if self.on else ""
        return f"{self.what}{where} ({self.file})"

    def applies(self, depth: int, threads: int) -> bool:
        """Whether it can show at a context depth with a number of threads."""
        return depth >= self.depth and not (self.threaded and threads == 1)

    def to_json(self) -> dict[str, Any]:
        """Return builtin types only."""
        return {**asdict(self), "types": sorted(self.types), "needs": list(self.needs), "commit": COMMIT}


def known(
    backend: str, tensor_types: Collection[str], n: int, *, features: Collection[str] | None = None
) -> list[Known]:
    """Return what the source says about batch size n on a backend, for a model's own tensor types.

    Args:
        backend: "cpu", "metal", "cuda", "rocm" or "vulkan"; several joined by "+".
        tensor_types: as GGUF names them ("Q4_K"). F32 counts only where there is no other: norms have it in
            every model.
        n: batch size in tokens.
        features: those of the CPU, from `cpu_features`; None where they are not known: then it is said what
            a threshold takes.
    """
    backends = backend.lower().split("+")
    weights = frozenset(tensor_types) - {"F32"} or frozenset(tensor_types)
    fitting = [
        one
        for one in TABLE
        if one.n == n and one.backend in backends and (not one.types or one.types & weights)
    ]
    if features is None:
        return [replace(one, on=f"with {' or '.join(one.needs)}") if one.needs else one for one in fitting]
    return [one for one in fitting if not one.needs or set(one.needs) & set(features)]


def cpu_features(system_info: str) -> frozenset[str]:
    """Return the features that llama.cpp's system info lists: "AVX2 = 1 | NEON = 0" has AVX2."""
    return frozenset(re.findall(r"(\w+) = 1\b", system_info))


def _cpu() -> tuple[Known, ...]:
    repack, tiled = "ggml-cpu/repack.cpp", "ggml-cpu/tiled/tiled.cpp"
    tiny, attention, amx = "ggml-cpu/llamafile/sgemm.cpp", "ggml-cpu/ops.cpp", "ggml-cpu/amx/mmq.cpp"
    gemm, buffers = "repack matrix-matrix", "use_extra_bufts=False"
    wide, blas = "tinyBLAS matrix-matrix", "ggml-blas/ggml-blas.cpp"
    arm = ("NEON",)
    return (
        Known("cpu", 4, gemm, repack, frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}), knob=buffers),
        Known("cpu", 4, gemm, repack, frozenset({"Q2_K"}), ("AVX512",), knob=buffers),
        Known("cpu", 4, gemm, repack, frozenset({"Q5_K", "Q6_K", "Q8_0", "Q1_0"}), arm, knob=buffers),
        Known("cpu", 8, "tiled K-quant", tiled, _K | _IQ, ("AVX", "AVX2"), knob="GGML_CPU_TILED_MM=0"),
        Known("cpu", 2, wide, tiny, frozenset({"Q8_0", "Q4_0", "Q5_0", "IQ4_NL"})),
        Known("cpu", 2, wide, tiny, _FLOAT, ("AVX", "AVX2")),
        Known("cpu", 4, wide, tiny, frozenset({"F32"}), arm),
        Known("cpu", 8, wide, tiny, frozenset({"F16"}), arm),
        Known(
            "cpu",
            2,
            "AMX tiles",
            amx,
            frozenset({"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "F16"}),
            ("AMX_INT8",),
            knob=buffers,
        ),
        Known(
            "cpu",
            2,
            "flash attention no longer splits the KV range among threads",
            attention,
            depth=256,
            threaded=True,
            knob="threads=1",
        ),
        Known("cpu", 64, "tiled flash attention", attention, knob="flash_attn=off"),
        Known("cpu", 32, "BLAS", blas, on="in builds with it"),
    )


def _metal() -> tuple[Known, ...]:
    ops, common = "ggml-metal/ggml-metal-ops.cpp", "ggml-metal/ggml-metal-common.cpp"
    return (
        Known("metal", 2, "small-batch matrix-vector", ops, _FLOAT | _PLAIN),
        Known("metal", 4, "small-batch matrix-vector", ops, _K),
        Known("metal", 9, "matrix-matrix", common),
        Known("metal", 20, "flash attention without the vector kernel", ops, knob="flash_attn=off"),
        Known("metal", 32, "expert matrix-matrix", common, on="in a mixture of experts"),
    )


def _nvidia(backend: str) -> tuple[Known, ...]:
    mmvq, mmf, mmvf = "ggml-cuda/mmvq.cu", "ggml-cuda/mmf.cu", "ggml-cuda/mmvf.cu"
    gpu, attention = "ggml-cuda/ggml-cuda.cu", "ggml-cuda/fattn.cu"
    return (
        Known(backend, 2, "operations no longer fused", gpu, knob="GGML_CUDA_DISABLE_FUSION=1"),
        Known(backend, 5, "MMVQ with fewer warps", mmvq, _QUANTISED),
        Known(backend, 9, "MMQ matrix-matrix", mmvq, _QUANTISED),
        Known(backend, 2, "MMF matrix-matrix", mmvf, _HALF, on="on Ampere and later"),
        Known(backend, 4, "MMF matrix-matrix", mmvf, frozenset({"F32"}), on="on Ampere and later"),
        Known(backend, 17, "cuBLAS", mmf, _FLOAT),
        Known(backend, 2, "matrix flash attention", attention, on="on Ada and later"),
    )


# The last batch size on MMVQ where it is less than 8, by GPU (mmvq.cu, ggml_cuda_should_use_mmvq).
_MMVQ_LAST: Final = {
    ("cuda", "Ada"): {"Q2_K": 4, "Q3_K": 6},
    ("cuda", "Blackwell"): {"Q2_K": 5, "Q3_K": 5, "Q4_K": 5, "Q5_K": 6, "Q6_K": 7},
    ("cuda", "DGX Spark"): {"Q2_K": 6},
    ("cuda", "Jetson Orin"): dict.fromkeys(_K, 1),
    ("cuda", "Volta"): {"Q2_K": 4, "Q3_K": 6, "Q4_K": 5, "Q5_K": 6, "Q6_K": 7},
    ("rocm", "CDNA1"): {
        **{"Q2_K": 4, "Q3_K": 3, "Q4_K": 2, "Q5_K": 3, "Q6_K": 4},
        **{"Q4_0": 7, "Q4_1": 7, "Q5_1": 7, "Q8_0": 6},
        **{"IQ1_S": 5, "IQ2_XXS": 6, "IQ3_S": 6, "IQ4_XS": 6},
    },
    ("rocm", "CDNA2 and later"): {"Q2_K": 5, "Q3_K": 3, "Q4_K": 3, "Q5_K": 3, "Q6_K": 5},
}


def _by_gpu() -> tuple[Known, ...]:
    return tuple(
        Known(
            backend,
            last + 1,
            "MMQ matrix-matrix",
            "ggml-cuda/mmvq.cu",
            frozenset(name for name, limit in lasts.items() if limit == last),
            on=f"on {gpu}",
        )
        for (backend, gpu), lasts in _MMVQ_LAST.items()
        for last in sorted(set(lasts.values()))
    )


TABLE: Final = (
    *_cpu(),
    *_metal(),
    *_nvidia("cuda"),
    Known("rocm", 9, "MMQ matrix-matrix", "ggml-cuda/mmvq.cu", _QUANTISED),
    *_by_gpu(),
    Known("vulkan", 2, "integer dot products", "ggml-vulkan/ggml-vulkan.cpp", _QUANTISED),
    Known("vulkan", 9, "matrix-matrix", "ggml-vulkan/ggml-vulkan-types.h"),
)
