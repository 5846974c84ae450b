"""A requantised draft: built once, kept by content, never half; and the numbers of llama.cpp's types."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.derive import FTYPES
from pytest_specdec.models.derive import ftype_name
from pytest_specdec.models.derive import requantized
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.find import ModelRef


class Quantizer:
    """Writes a file that says what was asked of it, and counts."""

    def __init__(self) -> None:
        self.calls: list[tuple[Path, str]] = []

    def __call__(self, source: Path, destination: Path, ftype: str) -> None:
        self.calls.append((source, ftype))
        destination.write_bytes(b"GGUF" + ftype.encode() + source.read_bytes())


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def target(tmp_path: Path) -> ModelRef:
    path = tmp_path / "target.gguf"
    path.write_bytes(b"GGUF target")
    return ModelRef("target.gguf", path)


@pytest.fixture
def quantize() -> Quantizer:
    return Quantizer()


def files(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "derived").iterdir())


def test_it_is_built_once(target: ModelRef, quantize: Quantizer, cache: Path) -> None:
    made = requantized(target, "Q2_K", quantize, cache)

    assert made.name == "requantize:Q2_K"
    assert made.path.read_bytes() == b"GGUFQ2_KGGUF target"
    assert made.sha256 == sha256(b"GGUFQ2_KGGUF target").hexdigest()
    assert requantized(target, "q2_k", quantize, cache) == made
    assert quantize.calls == [(target.path, "Q2_K")]
    assert files(cache) == [made.path.name, made.path.with_suffix(".json").name]


def test_the_key_is_the_targets_content_and_the_type(
    target: ModelRef, quantize: Quantizer, cache: Path, tmp_path: Path
) -> None:
    made = requantized(target, "Q2_K", quantize, cache)
    (tmp_path / "moved.gguf").write_bytes(target.path.read_bytes())
    assert requantized(ModelRef("moved", tmp_path / "moved.gguf"), "Q2_K", quantize, cache) == made

    assert requantized(target, "Q4_0", quantize, cache).path != made.path
    target.path.write_bytes(b"GGUF another")
    assert requantized(target, "Q2_K", quantize, cache).path != made.path
    assert [ftype for _, ftype in quantize.calls] == ["Q2_K", "Q4_0", "Q2_K"]


def test_a_known_hash_is_not_taken_again(target: ModelRef, quantize: Quantizer, cache: Path) -> None:
    made = requantized(replace(target, sha256="ab" * 32), "Q2_K", quantize, cache)

    assert made.path.name == f"{'ab' * 8}-Q2_K.gguf"


@pytest.mark.parametrize(
    "damage", ["truncated", "changed", "gone", "receipt gone", "receipt", "other target"]
)
def test_what_is_not_what_was_built_is_built_again(
    target: ModelRef, quantize: Quantizer, cache: Path, damage: str
) -> None:
    made = requantized(target, "Q2_K", quantize, cache)
    receipt = made.path.with_suffix(".json")
    whole = made.path.read_bytes()
    match damage:
        case "truncated":
            made.path.write_bytes(whole[:-1])
        case "changed":
            made.path.write_bytes(whole[:-1] + b"!")
        case "gone":
            made.path.unlink()
        case "receipt gone":
            receipt.unlink()
        case "receipt":
            receipt.write_text("{")
        case "other target":
            receipt.write_text(json.dumps({**json.loads(receipt.read_text()), "target": "0" * 64}))

    assert requantized(target, "Q2_K", quantize, cache) == made
    assert made.path.read_bytes() == whole
    assert len(quantize.calls) == 2
    assert requantized(target, "Q2_K", quantize, cache) == made
    assert len(quantize.calls) == 2


def test_a_failure_passes_through_and_leaves_nothing(target: ModelRef, cache: Path) -> None:
    def failing(source: Path, destination: Path, ftype: str) -> None:
        destination.write_bytes(b"GGUF half")
        raise TimeoutError("the worker hangs")

    with pytest.raises(TimeoutError, match="the worker hangs"):
        requantized(target, "Q2_K", failing, cache)
    assert files(cache) == []


def test_a_failure_does_not_harm_what_is_there(target: ModelRef, quantize: Quantizer, cache: Path) -> None:
    made = requantized(target, "Q2_K", quantize, cache)
    made.path.with_suffix(".json").unlink()
    before = made.path.read_bytes()

    def interrupted(source: Path, destination: Path, ftype: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        requantized(target, "Q2_K", interrupted, cache)
    assert made.path.read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"GGU", b"text"])
def test_no_gguf_written(target: ModelRef, cache: Path, content: bytes | None) -> None:
    def nothing(source: Path, destination: Path, ftype: str) -> None:
        if content is not None:
            destination.write_bytes(content)

    with pytest.raises(ModelError, match=r"requantising .*target\.gguf to Q2_K wrote no GGUF file"):
        requantized(target, "Q2_K", nothing, cache)
    assert files(cache) == []


def test_many_build_at_once(target: ModelRef, quantize: Quantizer, cache: Path) -> None:
    def slow(source: Path, destination: Path, ftype: str) -> None:
        time.sleep(0.01)
        quantize(source, destination, ftype)

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: requantized(target, "Q2_K", slow, cache), range(16)))

    assert len(made) == 1
    one = made.pop()
    assert sha256_of(one.path, cache) == one.sha256
    assert len(files(cache)) == 2
    calls = len(quantize.calls)
    assert requantized(target, "Q2_K", quantize, cache) == one
    assert len(quantize.calls) == calls


def test_an_unwritable_cache(target: ModelRef, quantize: Quantizer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"cannot make the directory .*set SPECDEC_CACHE"):
        requantized(target, "Q2_K", quantize, tmp_path / "file")


def test_a_missing_target(quantize: Quantizer, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*gone\.gguf"):
        requantized(ModelRef("gone", tmp_path / "gone.gguf"), "Q2_K", quantize, cache)


# Types


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Q4_K", "did you mean Q4_K_S or Q4_K_M"),
        ("Q2K", "did you mean Q2_K"),
        ("tiny", r"known: F32, F16, .*BF16"),
        ("", "known: F32"),
    ],
)
def test_an_unknown_type(name: str, words: str, target: ModelRef, quantize: Quantizer, cache: Path) -> None:
    with pytest.raises(ModelError, match=f"unknown quantisation '{name}' in 'requantize:{name}'; {words}"):
        requantized(target, name, quantize, cache)
    assert quantize.calls == []


def test_spelling_of_types() -> None:
    assert {ftype_name(name.lower()) for name in FTYPES} == set(FTYPES)


def test_the_numbers_are_llama_cpps() -> None:
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed")
    # In a process of its own: importing it leaves files open.
    numbers = "{name: value for name, value in vars(llama_cpp).items() if 'FTYPE' in name}"
    code = f"import llama_cpp, json; print(json.dumps({numbers}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    constants = json.loads(done.stdout)

    assert {
        name: constants["LLAMA_FTYPE_ALL_F32" if name == "F32" else f"LLAMA_FTYPE_MOSTLY_{name}"]
        for name in FTYPES
    } == FTYPES


def test_the_numbers_are_the_gguf_packages() -> None:
    types = pytest.importorskip("gguf").LlamaFileType

    assert {name: int(types["ALL_F32" if name == "F32" else f"MOSTLY_{name}"]) for name in FTYPES} == FTYPES
