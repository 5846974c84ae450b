"""A copy of a model with some of its blocks: the draft that early exit and self-speculation begin with.

What a copy can't keep right: what llama.cpp derives from a block's index and not from the file. Gemma 2 and 3
have a sliding window (and Gemma 3 another RoPE base) in blocks told by a period, so a block that moves to
another index may get the other kind of attention; likewise NoPE layers of Llama 4 and SmolLM3 and the
attention interval of hybrids. Keeping the first blocks, or skipping whole periods, leaves all of them as they
were. Where the file has an array with one entry a block, the copy keeps each block's own.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytest_specdec import values
from pytest_specdec.models.describe import open_gguf
from pytest_specdec.models.errors import ModelError


_BLOCK = re.compile(r"blk\.(\d+)\.(.+)", re.DOTALL)
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf", re.IGNORECASE)
_U32, _U64 = struct.Struct("=I"), struct.Struct("=Q")
# GGUF: magic, version; then the numbers of tensors and of keys.
_COUNTS = 8
# Arrays that may be as long as there are blocks, and aren't one entry a block.
_NOT_PER_BLOCK = ("rope.dimension_sections", "classifier.output_labels")
# Outside the architecture's own keys, and one entry a block all the same.
_PER_BLOCK_PREFIXES = ("xielu.",)
# One tensor holds a part for every block.
_FOR_ALL_BLOCKS = ("per_layer_",)

# Scalars that count blocks from one end -> (number in the file, blocks kept, blocks in all) -> number now.
_COUNTED: Mapping[str, Callable[[int, Sequence[int], int], int]] = {
    "block_count": lambda _, kept, __: len(kept),
    "leading_dense_block_count": lambda number, kept, _: sum(one < number for one in kept),
    "nextn_predict_layers": lambda number, kept, count: sum(one >= count - number for one in kept),
    "attention.shared_kv_layers": lambda number, kept, count: sum(one >= count - number for one in kept),
}


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of weights that one token's pass reads: `blocks` has one number a block, `head` is the output's.

    The head is the embedding where the two are tied. Of experts only the share in use for one token counts.
    """

    blocks: tuple[int, ...]
    head: int

    def share(self, kept: Iterable[int]) -> float:
        """(kept blocks + head) ÷ (all blocks + head), by bytes."""
        return (sum(self.blocks[one] for one in kept) + self.head) / (sum(self.blocks) + self.head)


def kept_blocks(argument: str, count: int) -> tuple[int, ...]:
    """Return the blocks that `layerskip:ARGUMENT` keeps of `count`, 0-based and ascending.

    `12` keeps the first 12; `skip=5,9,11` keeps all but these. Raises `ModelError` for anything else, numbers
    out of range, a block named twice, or nothing kept.
    """
    how = f"in 'layerskip:{argument}'"
    words = argument.removeprefix("skip=").split(",")
    numbers = [int(word) for word in words if re.fullmatch(r"\s*\d{1,9}\s*", word, re.ASCII)]
    if len(numbers) != len(words) or (len(words) > 1 and not argument.startswith("skip=")):
        raise ModelError(
            f"cannot read the blocks {how}; write layerskip:12 to keep the first 12 blocks, or "
            "layerskip:skip=5,9,11 to leave out blocks 5, 9 and 11, counted from 0"
        )
    if not argument.startswith("skip="):
        if not 1 <= numbers[0] <= count:
            raise ModelError(
                f"the target has {count} blocks: keep 1 to {count} of them, not {numbers[0]} {how}"
            )
        return tuple(range(numbers[0]))
    return without(numbers, count)


def without(skipped: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the blocks of `count` that are left without some, 0-based and ascending.

    Raises `ModelError` for none skipped or all of them, a number out of range, or one that appears twice.
    """
    if not skipped:
        raise ModelError(f"no blocks to skip; name at least one of 0 to {count - 1}")
    outside = [one for one in skipped if not 0 <= one < count]
    if outside:
        wrong = ", ".join(map(str, outside))
        raise ModelError(f"the target has {count} blocks: skip some of 0 to {count - 1}, not {wrong}")
    twice = sorted({one for one in skipped if list(skipped).count(one) > 1})
    if twice:
        raise ModelError(f"block {', '.join(map(str, twice))} is named twice; name each block to skip once")
    if len(skipped) == count:
        raise ModelError(f"that skips all {count} blocks; leave at least one")
    return tuple(one for one in range(count) if one not in skipped)


def canonical(kept: Sequence[int], count: int) -> str:
    """Return the one spelling of a choice of blocks, as an argument of `layerskip:`."""
    if list(kept) == list(range(len(kept))):
        return str(len(kept))
    return "skip=" + ",".join(str(one) for one in range(count) if one not in kept)


def ranges(blocks: Iterable[int]) -> str:
    """Return ascending numbers for people: "0-4, 6, 8-11"."""
    return values.ranges(blocks, ", ")


def weights(path: Path) -> Weights:
    """Read how many bytes each block has, and the output head.

    Raises `ModelError` for a file that `write_layers` couldn't copy either.
    """
    source = _Source(path)
    blocks = [0.0] * source.count
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in source.reader.tensors}
    for name, size in sizes.items():
        match = _BLOCK.fullmatch(name)
        if match:
            blocks[int(match[1])] += size * (source.experts_in_use if "_exps." in name else 1.0)
    head = sizes.get("output.weight", sizes.get("token_embd.weight", 0))
    return Weights(tuple(round(size) for size in blocks), head)


def write_layers(source: Path, destination: Path, kept: Sequence[int]) -> None:
    """Write a GGUF with the blocks `kept` (0-based, ascending) of another one.

    Metadata and tensors are copied byte for byte, but for the number of blocks, arrays with one entry a
    block, scalars that count blocks from either end, and `general.name`. `destination` is written in place.
    Raises `ModelError` for a choice that isn't one, a file in several parts, without blocks, or with tensors
    that serve all blocks at once, and when the destination can't be written.
    """
    model = _Source(source)
    model.check(kept)
    if destination.exists() and destination.samefile(source):
        raise ModelError(f"{destination} is the model to copy from; give the copy another name")
    keys, tensors = model.keys(kept), model.tensors(kept)
    try:
        with destination.open("wb") as out:
            out.write(model.raw(0, _COUNTS))
            out.write(_U64.pack(len(tensors)) + _U64.pack(len(keys)))
            out.writelines(keys)
            at = 0
            for name, tensor in tensors:
                dims = b"".join(_U64.pack(int(n)) for n in tensor.shape)
                kind = _U32.pack(len(tensor.shape)) + dims + _U32.pack(int(tensor.tensor_type))
                out.write(_string(name) + kind + _U64.pack(at))
                at += model.padded(int(tensor.n_bytes))
            out.write(bytes(model.padded(out.tell()) - out.tell()))
            for _, tensor in tensors:
                size = int(tensor.n_bytes)
                out.write(model.raw(int(tensor.data_offset), int(tensor.data_offset) + size))
                out.write(bytes(model.padded(size) - size))
    except OSError as error:
        raise ModelError(
            f"cannot write {destination}: {error.strerror or error}; it takes about "
            f"{len(model.reader.data) * len(kept) / model.count / 1e6:.0f} MB there"
        ) from error


class _Source:
    """A model's file, and what of it belongs to blocks."""

    def __init__(self, path: Path) -> None:
        part = _PART.search(path.name)
        if part and int(part[1]) > 1:
            raise ModelError(
                f"{path} is one of {int(part[1])} parts; join them with: llama-gguf-split --merge FIRST OUT"
            )
        self.path = path
        self.reader = open_gguf(path)
        self.architecture = self._text("general.architecture") or ""
        count = self._number(f"{self.architecture}.block_count")
        found = {int(match[1]) for tensor in self.reader.tensors if (match := _BLOCK.fullmatch(tensor.name))}
        if not found or count is None:
            raise ModelError(
                f"{path} ({self.architecture}) has no tensors of numbered blocks (blk.0...) or doesn't say "
                "how many blocks there are: none can be left out; choose another draft"
            )
        if max(found) >= count:
            raise ModelError(
                f"{path} says {count} blocks and has tensors of block {max(found)}: convert the model again"
            )
        self.count = count
        self._data = memoryview(self.reader.data)

    @property
    def experts_in_use(self) -> float:
        """The share of a mixture's experts that one token goes through."""
        experts = self._number(f"{self.architecture}.expert_count")
        used = self._number(f"{self.architecture}.expert_used_count")
        return used / experts if experts and used else 1.0

    def check(self, kept: Sequence[int]) -> None:
        if not kept or not all(0 <= one < self.count for one in kept):
            raise ModelError(f"{self.path} has {self.count} blocks: keep some of 0 to {self.count - 1}")
        if any(one >= two for one, two in pairwise(kept)):
            raise ModelError(f"blocks to keep go up and appear once each: {', '.join(map(str, kept))}")
        for tensor in self.reader.tensors:
            if tensor.name.startswith(_FOR_ALL_BLOCKS) and len(kept) < self.count:
                raise ModelError(
                    f"{self.path}: the tensor {tensor.name} serves all blocks at once, so none can be left "
                    "out; choose another draft"
                )

    def raw(self, start: int, stop: int) -> memoryview:
        return self._data[start:stop]

    def padded(self, size: int) -> int:
        alignment = int(self.reader.alignment)
        return -(-size // alignment) * alignment

    def tensors(self, kept: Sequence[int]) -> list[tuple[str, Any]]:
        """New name and tensor of everything that stays, in the file's order."""
        places = {one: place for place, one in enumerate(kept)}
        found = []
        for tensor in self.reader.tensors:
            match = _BLOCK.fullmatch(tensor.name)
            if match is None:
                found.append((tensor.name, tensor))
            elif int(match[1]) in places:
                found.append((f"blk.{places[int(match[1])]}.{match[2]}", tensor))
        return found

    def keys(self, kept: Sequence[int]) -> list[bytes]:
        """Every key and value as the copy has it, in the file's order."""
        title = self._text("general.name") or self.path.stem
        marked = f"{title} (blocks {ranges(kept)} of {self.count})"
        name = _string("general.name") + _U32.pack(self._kind("STRING")) + _string(marked)
        found = [] if "general.name" in self.reader.fields else [name]
        for field, start, stop in self._fields():
            # parts: key's length, key, type, then the value
            value = start + sum(int(part.nbytes) for part in field.parts[:3])
            head, content = bytes(self.raw(start, value)), bytes(self.raw(value, stop))
            if field.name == "general.name":
                found.append(name)
            else:
                found.append(head + self._changed(field, content, kept))
        return found

    def _fields(self) -> Iterator[tuple[Any, int, int]]:
        fields = [field for field in self.reader.fields.values() if not field.name.startswith("GGUF.")]
        starts = [int(field.offset) for field in fields]
        stops = [*starts[1:], int(self.reader.tensors[0].field.offset)]
        yield from zip(fields, starts, stops, strict=True)

    def _changed(self, field: Any, content: bytes, kept: Sequence[int]) -> bytes:
        own = field.name.removeprefix(f"{self.architecture}.")
        if own == field.name and not own.startswith(_PER_BLOCK_PREFIXES):
            return content
        if field.types[0] == self._kind("ARRAY"):
            if own in _NOT_PER_BLOCK or len(content) < 12 or _U64.unpack_from(content, 4)[0] != self.count:
                return content
            items = self._items(_U32.unpack_from(content)[0], content)
            return content[:4] + _U64.pack(len(kept)) + b"".join(items[one] for one in kept)
        number = self._number(field.name)
        if own not in _COUNTED or number is None:
            return content
        # Another byte order than this machine's is refused: the type stays, whatever its width.
        return _COUNTED[own](number, kept, self.count).to_bytes(len(content), sys.byteorder)

    def _items(self, kind: int, content: bytes) -> list[bytes]:
        start, items = 12, []
        if kind == self._kind("STRING"):
            for _ in range(self.count):
                stop = start + 8 + _U64.unpack_from(content, start)[0]
                items.append(content[start:stop])
                start = stop
            return items
        # Scalars; an array of arrays would need its items' lengths, and no model has one.
        width, rest = divmod(len(content) - start, self.count)
        if rest or kind == self._kind("ARRAY"):
            raise ModelError(f"{self.path} has an array of arrays for its blocks, which can't be cut")
        return [content[start + one * width : start + (one + 1) * width] for one in range(self.count)]

    def _kind(self, name: str) -> int:
        from gguf import GGUFValueType

        return int(GGUFValueType[name])

    def _value(self, key: str) -> Any:
        field = self.reader.fields.get(key)
        return None if field is None else field.contents()

    def _number(self, key: str) -> int | None:
        value = self._value(key)
        return value if type(value) is int else None

    def _text(self, key: str) -> str | None:
        value = self._value(key)
        return value if isinstance(value, str) else None


def _string(content: str) -> bytes:
    data = content.encode()
    return _U64.pack(len(data)) + data
