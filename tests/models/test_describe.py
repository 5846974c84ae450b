"""Facts of a GGUF file, and files that are none, or not whole, or no language model."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_specdec.models.describe import ModelFacts
from pytest_specdec.models.describe import describe
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.errors import ModelNotFound
from pytest_specdec.models.find import resolve


gguf = pytest.importorskip("gguf")

GEMMA = {"Q5_0": 81, "Q4_K": 27, "Q8_0": 10, "Q6_K": 9, "F32": 109}
Change = Callable[[Any], None]


def write(
    path: Path, *changes: Change, architecture: str = "llama", tokens: int = 40, tensors: bool = True
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(3)
    writer.add_context_length(128)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([f"token {n}" for n in range(tokens)])
        writer.add_token_scores([0.5] * tokens)
        writer.add_token_types([1] * tokens)
    for change in changes:
        change(writer)
    if tensors:
        # The last one fills its block: what is cut off the file's end is data, not padding.
        writer.add_tensor("b", np.zeros((4, 64), np.float16))
        data = gguf.quants.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor("c", data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor("a", np.zeros((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_the_facts(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "m.gguf", lambda w: w.add_name("Tiny"), lambda w: w.add_file_type(7))

    assert describe(path, cache=cache) == ModelFacts(
        name="Tiny",
        architecture="llama",
        parameters=8 * 32 + 4 * 64 + 2 * 64,
        layers=3,
        vocabulary=40,
        tensor_types={"F16": 1, "F32": 1, "Q8_0": 1},
        size=path.stat().st_size,
        sha256=sha256(path.read_bytes()).hexdigest(),
        tokenizer="gpt2",
        context_length=128,
        quantisation="Q8_0",
    )


def test_what_a_file_does_not_say_is_none_and_its_name_the_files(tmp_path: Path, cache: Path) -> None:
    facts = describe(write(tmp_path / "silent.gguf", tokens=0), cache=cache)

    assert facts.name == "silent"
    assert (facts.vocabulary, facts.tokenizer, facts.quantisation) == (None, None, None)


def test_the_vocabulary_of_a_file_without_tokens(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "m.gguf", lambda w: w.add_vocab_size(77), tokens=0)

    assert describe(path, cache=cache).vocabulary == 77


@pytest.mark.parametrize(
    ("number", "label"),
    [(0, "F32"), (1, "F16"), (10, "Q2_K"), (15, "Q4_K_M"), (1024 + 15, "Q4_K_M"), (999, "file type 999")],
)
def test_the_quantisation_label(tmp_path: Path, cache: Path, number: int, label: str) -> None:
    path = write(tmp_path / "m.gguf", lambda w: w.add_file_type(number))

    assert describe(path, cache=cache).quantisation == label


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smollm2-135m", ("llama", 30, 49152, "gpt2", 8192, "Q4_1", {"Q4_1": 210, "F32": 61, "Q8_0": 1})),
        (
            "gemma-3-270m",
            ("gemma3", 18, 262144, "llama", 32768, "Q4_K_M", GEMMA),
        ),
    ],
)
def test_the_models_of_the_data_packages(name: str, expected: tuple[object, ...], cache: Path) -> None:
    try:
        path = resolve(name, cache=cache).path
    except ModelNotFound as missing:
        pytest.skip(str(missing))
    facts = describe(path, cache=cache)

    assert expected == (
        facts.architecture,
        facts.layers,
        facts.vocabulary,
        facts.tokenizer,
        facts.context_length,
        facts.quantisation,
        facts.tensor_types,
    )


def test_arrays_are_skipped_and_what_follows_them_is_still_read(tmp_path: Path, cache: Path) -> None:
    def arrays(writer: Any) -> None:
        for name, kind in [
            ("strings", "STRING"),
            ("bytes", "UINT8"),
            ("doubles", "FLOAT64"),
            ("flags", "BOOL"),
        ]:
            value = {"STRING": ["", "ä", "c" * 300], "BOOL": [True, False, True]}.get(kind, [1, 2, 3])
            writer.add_key_value(f"odd.{name}", value, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType[kind])
        writer.add_array("odd.nested", [[1, 2], [3, 4]])
        writer.add_name("after")

    assert describe(write(tmp_path / "m.gguf", arrays), cache=cache).name == "after"


def test_the_work_does_not_grow_with_the_vocabulary(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    real = gguf.GGUFReader._get

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(self, *args, **kwargs)

    monkeypatch.setattr(gguf.GGUFReader, "_get", counting)
    seen = []
    for tokens in (10, 3000):
        calls = 0
        describe(write(tmp_path / f"{tokens}.gguf", tokens=tokens), cache=cache)
        seen.append(calls)

    assert seen[0] == seen[1] > 0


def test_json_both_ways(tmp_path: Path, cache: Path) -> None:
    facts = describe(write(tmp_path / "m.gguf", tokens=0), cache=cache)

    data = facts.to_json()

    assert ModelFacts.from_json(json.loads(json.dumps(data))) == facts
    assert list(data["tensor_types"]) == sorted(data["tensor_types"])
    assert len({facts, replace(facts, size=1), ModelFacts.from_json(data)}) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"size": "7"},
        {"size": None},
        {"size": True},
        {"layers": 1.5},
        {"name": None},
        {"tensor_types": [1]},
        {"tensor_types": {"F32": "1"}},
        {"extra": 1},
    ],
)
def test_json_of_another_shape_is_refused(tmp_path: Path, cache: Path, change: dict[str, object]) -> None:
    data = describe(write(tmp_path / "m.gguf"), cache=cache).to_json()

    with pytest.raises(ValueError, match=f"model facts: .*{next(iter(change))}"):
        ModelFacts.from_json({**data, **change})
    data.pop("sha256")
    with pytest.raises(ValueError, match="model facts: keys"):
        ModelFacts.from_json(data)


# What is no model


def refused(path: Path, cache: Path, words: str, error: type[ModelError] = ModelError) -> None:
    with pytest.raises(error, match=words) as caught:
        describe(path, cache=cache)
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path: Path, cache: Path) -> None:
    refused(tmp_path / "m.gguf", cache, "no model file", ModelNotFound)


def test_a_directory(tmp_path: Path, cache: Path) -> None:
    refused(tmp_path, cache, r"is a directory; give the \.gguf file inside it")


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in the file system")
def test_a_pipe(tmp_path: Path, cache: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", cache, "not a regular file")


def test_an_empty_file(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "m.gguf").touch()
    refused(tmp_path / "m.gguf", cache, "is empty; copy or download")


def test_a_text_file(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "m.gguf").write_text("version https://example.org/spec/v1\n")
    refused(tmp_path / "m.gguf", cache, r"is not a GGUF file \(it begins with b'vers'\); convert")


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1])
def test_a_truncated_file(tmp_path: Path, cache: Path, share: float) -> None:
    whole = write(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "m.gguf"
    path.write_bytes(whole[: max(4, int(len(whole) * share) - 1)])

    refused(path, cache, "is truncated or damaged.*copy or download it again")


def test_a_file_of_a_newer_format(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "m.gguf")
    path.write_bytes(b"GGUF\x63" + path.read_bytes()[5:])

    refused(path, cache, "or newer than the gguf package.*99.*upgrade gguf")


def test_an_array_longer_than_the_file_ends_at_once(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "m.gguf")
    length = (40).to_bytes(8, "little")
    for kind in gguf.GGUFValueType.STRING, gguf.GGUFValueType.FLOAT32:
        found = path.read_bytes().replace(
            int(kind).to_bytes(4, "little") + length, int(kind).to_bytes(4, "little") + b"\xff" * 7 + b"\x7f"
        )
        (tmp_path / "long.gguf").write_bytes(found)
        assert found != path.read_bytes()
        refused(tmp_path / "long.gguf", cache, "is truncated or damaged")


@pytest.mark.parametrize(
    ("architecture", "kind", "words"),
    [
        ("clip", None, r"a vision projector \(architecture clip\)"),
        ("clip", "mmproj", r"a vision projector \(architecture clip\)"),
        ("llama", "adapter", r"an adapter \(LoRA\)"),
        ("imatrix", "imatrix", "an importance matrix"),
    ],
)
@pytest.mark.parametrize("tensors", [True, False])
def test_what_is_no_language_model_is_named(
    tmp_path: Path, cache: Path, architecture: str, kind: str | None, words: str, tensors: bool
) -> None:
    path = tmp_path / "m.gguf"
    changes: list[Change] = [] if kind is None else [lambda w: w.add_type(kind)]
    write(path, *changes, architecture=architecture, tensors=tensors)

    refused(path, cache, f"is {words}, not a language model; give the model's file")


def test_a_file_without_tensors(tmp_path: Path, cache: Path) -> None:
    refused(write(tmp_path / "m.gguf", tensors=False), cache, "holds no tensors, only metadata")


def test_a_file_without_architecture(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"general.architecture", b"general.architectural"[:20]))

    refused(path, cache, r"has no general\.architecture")


def test_one_part_of_a_split_model(tmp_path: Path, cache: Path) -> None:
    def part(writer: Any) -> None:
        writer.add_uint16("split.count", 3)

    refused(
        write(tmp_path / "m.gguf", part), cache, "is one of 3 parts; join them with: llama-gguf-split --merge"
    )


def test_the_other_byte_order(tmp_path: Path, cache: Path) -> None:
    other = gguf.GGUFEndian.BIG if sys.byteorder == "little" else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", endianess=other)
    writer.add_array("numbers", [1, 2, 3])
    writer.add_tensor("a", np.zeros((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    refused(tmp_path / "m.gguf", cache, "has the other byte order; convert it with gguf-convert-endian")


def test_without_gguf_the_extra_is_named(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "m.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)

    refused(path, cache, r"needs the gguf package .*pip install 'pytest-specdec\[llama\]'")
