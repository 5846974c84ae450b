"""Facts about a GGUF file, read from its header without loading the model."""

from __future__ import annotations

import importlib
import json
import stat
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_specdec.models.cache import cache_dir
from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.errors import ModelNotFound


# LLAMA_FTYPE_GUESSED, a flag beside the number.
_GUESSED = 1024

_U64 = struct.Struct("=Q")

_NOT_A_MODEL = {
    "clip": "a vision projector (architecture clip)",
    "mmproj": "a vision projector",
    "adapter": "an adapter (LoRA)",
    "imatrix": "an importance matrix",
}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a GGUF file says about itself, and what it holds.

    `name` is the file's own title, or the file's stem. `parameters` counts the elements of all tensors,
    `tensor_types` the tensors by type ({"Q4_0": 180, "F32": 61}); the label `quantisation` (from
    `general.file_type`, as in "Q4_K_M") promises less than it seems to. `size` is in bytes, `vocabulary`
    and `context_length` in tokens; `tokenizer` is `tokenizer.ggml.model` ("gpt2", "llama"). None where
    the file is silent.
    """

    name: str
    architecture: str
    parameters: int
    layers: int | None
    vocabulary: int | None
    tensor_types: Mapping[str, int] = field(hash=False)
    size: int
    sha256: str
    tokenizer: str | None
    context_length: int | None
    quantisation: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a dict of JSON types."""
        return {**asdict(self), "tensor_types": dict(sorted(self.tensor_types.items()))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelFacts:
        """Rebuild the facts from `to_json()`'s dict; raises `ValueError` for one of another shape."""
        expected = {f.name: _JSON_TYPES[str(f.type)] for f in fields(cls)}
        if set(data) != set(expected):
            raise ValueError(f"model facts: keys {sorted(data)}, expected {sorted(expected)}")
        for key, types in expected.items():
            if not isinstance(data[key], types) or isinstance(data[key], bool):
                raise ValueError(f"model facts: {key} is {json.dumps(data[key], default=repr)}")
        counts = data["tensor_types"]
        if not all(isinstance(k, str) and type(n) is int for k, n in counts.items()):
            raise ValueError(f"model facts: tensor_types is {counts!r}")
        return cls(**{**data, "tensor_types": dict(counts)})


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
    "Mapping[str, int]": (Mapping,),
}


def describe(path: Path, *, cache: Path | None = None) -> ModelFacts:
    """Read the facts of a GGUF file.

    The hash is remembered in `cache` (default: `cache_dir()`). Raises `ModelNotFound` for a missing file
    and `ModelError` for one that is no complete model, or without the `gguf` package.
    """
    reader = open_gguf(path)
    return _facts(path, _gguf(path), reader, sha256_of(path, cache or cache_dir()))


def open_gguf(path: Path) -> Any:
    """Open a GGUF file with the `gguf` package's reader, arrays of metadata by their lengths only.

    Raises `ModelNotFound` for a missing file and `ModelError` for one that is no complete model of this byte
    order, or without the `gguf` package.
    """
    _check(path)
    reader = _read(path, _gguf(path))
    _refuse(path, reader)
    return reader


def _check(path: Path) -> None:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelError(f"{path} is a directory; give the .gguf file inside it")
        if not stat.S_ISREG(mode):
            raise ModelError(f"{path} is not a regular file")
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError as error:
        raise ModelNotFound(f"no model file {path}") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    if not magic:
        raise ModelError(f"{path} is empty; copy or download the model again")
    if magic != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file (it begins with {magic!r}); convert the model to GGUF")


def _gguf(path: Path) -> Any:
    try:
        return importlib.import_module("gguf")
    except ImportError as error:
        raise ModelError(
            f"reading {path} needs the gguf package ({error}); run: pip install 'pytest-specdec[llama]'"
        ) from error


def _read(path: Path, gguf: Any) -> Any:
    reader = type("Reader", (gguf.GGUFReader,), {"_get_field_parts": _skip_arrays(gguf)})
    try:
        return reader(path)
    # The reader has no error type of its own: what it raises depends on where the damage is.
    except Exception as error:
        raise ModelError(
            f"{path} is truncated or damaged, or newer than the gguf package "
            f"({type(error).__name__}: {error}); copy or download it again, or upgrade gguf"
        ) from error


def _skip_arrays(gguf: Any) -> Any:
    # The reader makes numpy views of every array element: 25 s for the three arrays of a vocabulary of
    # 262,144 tokens, of which only the lengths are wanted. Without this method it is slow, not wrong.
    kinds = gguf.GGUFValueType
    plain = gguf.GGUFReader._get_field_parts

    def get_field_parts(self: Any, offset: int, kind: int) -> Any:
        if kind != kinds.ARRAY or self.byte_order != "I":
            return plain(self, offset, kind)
        item = self._get(offset, "u4")
        length = self._get(offset + 4, "u8")
        start = end = offset + 12
        if item[0] == kinds.STRING:
            data = memoryview(self.data)
            for _ in range(int(length[0])):
                end += 8 + _U64.unpack_from(data, end)[0]
        elif item[0] in self.gguf_scalar_to_np:
            end += int(length[0]) * self.gguf_scalar_to_np[item[0]]().itemsize
        else:
            return plain(self, offset, kind)
        return 12 + end - start, [item, length], [], [kinds.ARRAY, kinds(int(item[0]))]

    return get_field_parts


def _value(reader: Any, key: str, kind: type[Any]) -> Any:
    field = reader.fields.get(key)
    content = None if field is None else field.contents()
    return content if isinstance(content, kind) else None


def _refuse(path: Path, reader: Any) -> None:
    if reader.byte_order != "I":
        raise ModelError(f"{path} has the other byte order; convert it with gguf-convert-endian")
    architecture = _value(reader, "general.architecture", str)
    if architecture is None:
        raise ModelError(f"{path} has no general.architecture: not a model; give another file")
    for label in (architecture, _value(reader, "general.type", str)):
        if label in _NOT_A_MODEL:
            raise ModelError(f"{path} is {_NOT_A_MODEL[label]}, not a language model; give the model's file")
    parts = _value(reader, "split.count", int) or 1
    if parts > 1:
        raise ModelError(
            f"{path} is one of {parts} parts; join them with: llama-gguf-split --merge FIRST OUT"
        )
    if not reader.tensors:
        raise ModelError(f"{path} holds no tensors, only metadata (a vocabulary?); give the whole model")


def _facts(path: Path, gguf: Any, reader: Any, sha256: str) -> ModelFacts:
    architecture = _value(reader, "general.architecture", str)
    return ModelFacts(
        name=_value(reader, "general.name", str) or path.stem,
        architecture=architecture,
        parameters=sum(int(tensor.n_elements) for tensor in reader.tensors),
        layers=_value(reader, f"{architecture}.block_count", int),
        vocabulary=_vocabulary(reader, architecture),
        tensor_types=dict(sorted(Counter(tensor.tensor_type.name for tensor in reader.tensors).items())),
        size=len(reader.data),
        sha256=sha256,
        tokenizer=_value(reader, "tokenizer.ggml.model", str),
        context_length=_value(reader, f"{architecture}.context_length", int),
        quantisation=_label(gguf, _value(reader, "general.file_type", int)),
    )


def _vocabulary(reader: Any, architecture: str) -> int | None:
    tokens = reader.fields.get("tokenizer.ggml.tokens")
    if tokens is None:
        size: int | None = _value(reader, f"{architecture}.vocab_size", int)
        return size
    # parts: key length, key, type, item type, length, items
    return int(tokens.parts[4][0])


def _label(gguf: Any, file_type: int | None) -> str | None:
    if file_type is None:
        return None
    number = file_type & ~_GUESSED
    try:
        name: str = gguf.LlamaFileType(number).name
    except ValueError:
        return f"file type {number}"
    return name.removeprefix("MOSTLY_").removeprefix("ALL_")
