from __future__ import annotations

import argparse
import json
from dataclasses import replace

import pytest

from pytest_specdec import cli
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.causes import causes_in
from pytest_specdec.cli import kernels
from pytest_specdec.measurements import KernelMap
from pytest_specdec.models.describe import ModelFacts
from pytest_specdec.models.errors import ModelError
from pytest_specdec.settings import Settings
from pytest_specdec.settings import usable_cores

from ..checks.kernel_maps import GEMMA
from ..checks.kernel_maps import unrepeated
from .double import Session
from .double import put


HELLO = {
    "llama_cpp_python": "0.3.36",
    "ggml_version": "0.9.4",
    "ggml_commit": "0c1e57098",
    "system_info": "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | REPACK = 1 | ",
    "devices": [{"name": "CPU", "description": "Example CPU 9", "type": "cpu"}],
}
FACTS = ModelFacts(
    "Gemma", "gemma3", 268, 18, 262144, {"F32": 109, "Q4_K": 27, "Q6_K": 9}, 1, "0" * 64, None, None, "Q4_K_M"
)


class Double(Session):
    """A bench that maps what it is told."""

    told = HELLO
    map: KernelMap = GEMMA

    def facts(self) -> dict[str, ModelFacts | None]:
        return {"target": FACTS, "draft": None}

    def kernel_maps(self) -> KernelMap:
        self.measuring()
        return self.map


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> type[Double]:
    return put(Double, monkeypatch, map=GEMMA)


def shown(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert cli.main(["kernels", "gemma-3-270m", *argv]) == code
    return capsys.readouterr().out


def test_the_map_with_its_causes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "--threads", "2").splitlines()
    assert lines[:3] == [
        "gemma-3-270m: kernel paths, told by the bits of hidden states and logits in batches of N of the "
        "same tokens",
        "llama-cpp-python 0.3.36 (ggml 0.9.4 0c1e57098); CPU Example CPU 9, 2 threads, flash attention on",
        "",
    ]
    assert "  512        2  1 | 2-3 | 4-7 | 8-63 | 64" in lines
    assert "  4: repack matrix-matrix (ggml-cpu/repack.cpp; use_extra_bufts=False moves it)" in lines
    assert lines[-1] == "N = 1-64 took 8.1 s, 7.4 s of it in forward passes"


def test_knobs_that_move_thresholds_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--use-extra-bufts", "no", "--type-k", "q8_0", "--env", "GGML_CPU_TILED_MM=0"]
    assert "flash attention on, type_k q8_0, use_extra_bufts false, GGML_CPU_TILED_MM=0\n" in shown(
        capsys, *argv
    )


def test_json_has_the_map_and_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(shown(capsys, "--json", "--sizes", "1-64", "--depths", "0,512", "--env", "A=b=c"))
    assert KernelMap.from_json(data["kernel_map"]) == GEMMA
    assert data["device"] == "CPU Example CPU 9"
    assert data["build"]["ggml_commit"] == "0c1e57098"
    assert data["deterministic"] is True
    assert data["settings"]["map_depths"] == [0, 512]
    assert data["settings"]["threads"] == usable_cores()
    assert data["settings"]["env"] == {"A": "b=c"}
    assert [one["thresholds"] for one in data["depths"]] == [[4, 8, 64], [2, 4, 8, 64]]
    assert [one["thresholds"] for one in data["one_thread"]] == [[4, 8], [4, 8]]
    four = data["depths"][0]["changes"][0]
    assert (four["n"], four["after"], four["rows"], four["outputs"]) == (
        4,
        3,
        [0, 1, 2],
        ["hidden", "logits"],
    )
    (cause,) = four["known"]
    assert (cause["what"], cause["commit"]) == ("repack matrix-matrix", "0c1e57098")
    assert data["depths"][0]["ranges"][0] == {"start": 1, "stop": 3, "letter": "a"}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_map_that_does_not_repeat_could_not_tell(
    as_json: bool, capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    double.map = replace(GEMMA, maps=(GEMMA.maps[0], unrepeated(GEMMA.maps[1], 3)))
    out = shown(capsys, *(["--json"] if as_json else []), code=2)
    if as_json:
        assert json.loads(out)["deterministic"] is False
    else:
        assert "not deterministic here: a second pass gave other bits at N = 3 (depth 512, 2 threads)" in out


def test_a_model_without_any_bits_could_not_tell(
    capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    bare = replace(GEMMA.maps[0], hidden=("",) * 64, logits=("",) * 64)
    double.map = replace(GEMMA, maps=(bare,), one_thread=())
    assert "there are no bits to compare" in shown(capsys, code=2)


def test_options_become_settings(capsys: pytest.CaptureFixture[str], double: type[Double]) -> None:
    shown(
        capsys,
        "--sizes",
        "1-9,600",
        "--depths",
        "0,4096",
        "--threads",
        "1",
        "--flash-attn=off",
        "--timeout=9",
    )
    asked = double.asked
    assert asked.map_sizes == (*range(1, 10), 600)
    assert asked.map_depths == (0, 4096)
    assert (asked.threads, asked.flash_attn, asked.timeout) == (1, "off", 9.0)
    assert (asked.n_batch, asked.n_ctx) == (600, 4696)
    assert double.closed == 1


def test_options_not_given_are_the_plugins_defaults(
    capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    shown(capsys)
    assert double.asked == Settings(target="gemma-3-270m")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--sizes", "0-3"], "argument --sizes: must be sizes such as"),
        (["--depths", "x"], "argument --depths: must be depths such as '0,512', not 'x'"),
        (["--env", "novalue"], "argument --env: must be K=V, not 'novalue'"),
    ],
)
def test_bad_values_name_their_option(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["kernels", "m", *argv])
    assert ended.value.code == 3
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("trouble", [ModelError("no model file /there.gguf"), BenchError("too deep")])
def test_trouble_is_told_without_a_traceback(
    trouble: Exception, capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    double.trouble = trouble
    assert cli.main(["kernels", "m"]) == 3
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"specdec kernels: {trouble}\n")
    assert double.closed == 1


def test_causes_are_those_of_the_backend_in_use() -> None:
    gpu = {"name": "CUDA0", "description": "NVIDIA H200", "type": "gpu"}
    hello = {**HELLO, "devices": [gpu, *HELLO["devices"]]}
    assert {one.backend for one in causes_in(hello, {"Q4_K": 1})(9)} == {"cuda"}
    assert {one.backend for one in causes_in(hello, {"Q4_K": 1}, gpu_layers=0)(8)} == {"cpu"}
    assert {one.backend for one in causes_in({**hello, "gpu_offload": False}, {"Q4_K": 1})(8)} == {"cpu"}


def test_arguments_have_the_plugins_help() -> None:
    parser = argparse.ArgumentParser()
    kernels.add_arguments(parser)
    told = " ".join(parser.format_help().split())
    assert "batch sizes N of the kernel map, such as 1-64 (default: 1-64)" in told
    assert "--env K=V environment variable of the worker; repeatable" in told
