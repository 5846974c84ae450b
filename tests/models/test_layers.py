"""Copies with some of a model's blocks: every byte from where it should be, and what can't be copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.derive import layerskipped
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.layers import canonical
from pytest_specdec.models.layers import kept_blocks
from pytest_specdec.models.layers import ranges
from pytest_specdec.models.layers import weights
from pytest_specdec.models.layers import without
from pytest_specdec.models.layers import write_layers
from tests import tiny_models


KINDS = ("llama", "llama-32", "gemma3", "moe-q4_k", "qwen2vl", "mamba", "lfm2")
KEPT = (0, 2, 3, 5)
BLOCKS = 6


def copied(source: Path, kept: tuple[int, ...] = KEPT) -> gguf.GGUFReader:
    path = source.with_name("copy.gguf")
    write_layers(source, path, kept)
    return gguf.GGUFReader(path)


def tensors(reader: gguf.GGUFReader) -> dict[str, tuple[Any, list[int], bytes]]:
    return {t.name: (t.tensor_type, t.shape.tolist(), t.data.tobytes()) for t in reader.tensors}


def keys(reader: gguf.GGUFReader) -> dict[str, tuple[Any, Any]]:
    return {n: (f.types, f.contents()) for n, f in reader.fields.items() if not n.startswith("GGUF.")}


def bare(path: Path, fill: Callable[[Any], None], blocks: int | None = 4, alignment: int = 0) -> Path:
    """A file of numbered blocks with one small tensor each, and what `fill` adds."""
    writer = gguf.GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    if blocks is not None:
        writer.add_block_count(blocks)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def numbered(writer: Any, blocks: int = 4) -> None:
    writer.add_tensor("token_embd.weight", np.full((3, 8), 9, np.float32))
    for block in range(blocks):
        writer.add_tensor(f"blk.{block}.ffn_up.weight", np.full((5, 7), block, np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_those_of_the_kept_blocks(kind: str, tmp_path: Path) -> None:
    source = tiny_models.write(kind, tmp_path / "m.gguf", blocks=BLOCKS)
    before, after = tensors(gguf.GGUFReader(source)), tensors(copied(source))
    expected = {}
    for name, content in before.items():
        if not name.startswith("blk."):
            expected[name] = content
            continue
        _, block, rest = name.split(".", 2)
        if int(block) in KEPT:
            expected[f"blk.{KEPT.index(int(block))}.{rest}"] = content
    assert after == expected
    assert list(after) == list(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_is_the_same_but_for_blocks_and_name(kind: str, tmp_path: Path) -> None:
    source = tiny_models.write(kind, tmp_path / "m.gguf", blocks=BLOCKS)
    before, after = keys(gguf.GGUFReader(source)), keys(copied(source))
    architecture = before["general.architecture"][1]
    assert list(before) == list(after)
    changed = {name for name in before if before[name] != after[name]}
    lists = {"lfm2.attention.head_count_kv"} if kind == "lfm2" else set()
    assert changed == {"general.name", f"{architecture}.block_count"} | lists
    assert all(before[name][0] == after[name][0] for name in before)
    assert after[f"{architecture}.block_count"][1] == len(KEPT)
    assert after["general.name"][1] == f"tiny {kind} (blocks 0, 2-3, 5 of 6)"
    for name in lists:
        assert after[name][1] == [before[name][1][block] for block in KEPT]


def test_all_blocks_are_the_same_tensors(tmp_path: Path) -> None:
    source = tiny_models.write("moe-q4_k", tmp_path / "m.gguf")
    assert tensors(copied(source, (0, 1))) == tensors(gguf.GGUFReader(source))


def test_a_tied_head(tmp_path: Path) -> None:
    source = bare(tmp_path / "m.gguf", numbered)
    after = tensors(copied(source, (1, 3)))
    assert list(after) == ["token_embd.weight", "blk.0.ffn_up.weight", "blk.1.ffn_up.weight"]
    assert np.frombuffer(after["blk.1.ffn_up.weight"][2], np.float32)[0] == 3


def test_alignment_and_odd_sizes(tmp_path: Path) -> None:
    source = bare(tmp_path / "m.gguf", numbered, alignment=256)
    reader = copied(source, (1, 3))
    assert reader.alignment == 256
    assert all(tensor.data_offset % 256 == 0 for tensor in reader.tensors)
    assert [tensor.data.max() for tensor in reader.tensors] == [9, 1, 3]


def test_arrays_of_one_entry_a_block_are_cut_and_others_not(tmp_path: Path) -> None:
    kinds = gguf.GGUFValueType

    def fill(writer: Any) -> None:
        writer.add_head_count_kv([1, 2, 3, 4])
        writer.add_feed_forward_length([10, 20, 30, 40])
        writer.add_array("llama.attention.sliding_window_pattern", [True, False, True, True])
        writer.add_key_value("llama.scale", [0.5, 1.5, 2.5, 3.5], kinds.ARRAY, kinds.FLOAT64)
        writer.add_key_value("llama.small", [1, 2, 3, 4], kinds.ARRAY, kinds.UINT8)
        writer.add_array("llama.names", ["one", "", "three", "four"])
        writer.add_array("xielu.alpha_p", [0.25, 1.25, 2.25, 3.25])
        writer.add_rope_dimension_sections([8, 4, 4, 0])
        writer.add_array("llama.longer", [1, 2, 3, 4, 5])
        writer.add_array("tokenizer.ggml.tokens", ["a", "b", "c", "d"])
        numbered(writer)

    source = bare(tmp_path / "m.gguf", fill)
    before, after = keys(gguf.GGUFReader(source)), keys(copied(source, (0, 2, 3)))
    cut = {name: after[name][1] for name in before if before[name][1] != after[name][1]}
    assert cut == {
        "llama.block_count": 3,
        "llama.attention.head_count_kv": [1, 3, 4],
        "llama.feed_forward_length": [10, 30, 40],
        "llama.attention.sliding_window_pattern": [True, True, True],
        "llama.scale": [0.5, 2.5, 3.5],
        "llama.small": [1, 3, 4],
        "llama.names": ["one", "three", "four"],
        "xielu.alpha_p": [0.25, 2.25, 3.25],
    }
    assert all(after[name][0] == before[name][0] for name in before)


@pytest.mark.parametrize(
    ("kept", "dense", "predict", "shared"), [((0, 1), 2, 0, 0), ((1, 3), 1, 1, 1), ((2, 3), 0, 1, 2)]
)
def test_scalars_that_count_blocks_from_an_end(
    kept: tuple[int, ...], dense: int, predict: int, shared: int, tmp_path: Path
) -> None:
    def fill(writer: Any) -> None:
        writer.add_leading_dense_block_count(2)
        writer.add_nextn_predict_layers(1)
        writer.add_shared_kv_layers(2)
        numbered(writer)

    after = keys(copied(bare(tmp_path / "m.gguf", fill), kept))
    assert after["llama.leading_dense_block_count"][1] == dense
    assert after["llama.nextn_predict_layers"][1] == predict
    assert after["llama.attention.shared_kv_layers"][1] == shared


def test_a_file_without_a_name_gets_one(tmp_path: Path) -> None:
    after = keys(copied(bare(tmp_path / "m.gguf", numbered), (0, 1)))
    assert after["general.name"][1] == "m (blocks 0-1 of 4)"


def test_weights_are_bytes_a_token_reads(tmp_path: Path) -> None:
    found = weights(bare(tmp_path / "tied.gguf", numbered))
    assert (found.blocks, found.head) == ((140,) * 4, 96)
    assert found.share((0, 1)) == pytest.approx((280 + 96) / (560 + 96))

    mixture = tiny_models.write("moe-f32", tmp_path / "moe.gguf")
    reader = gguf.GGUFReader(mixture)
    own = [t for t in reader.tensors if t.name.startswith("blk.0.")]
    experts = sum(t.n_bytes for t in own if "_exps" in t.name)
    rest = sum(t.n_bytes for t in own) - experts
    # 2 of 4 experts for each token
    assert weights(mixture).blocks[0] == rest + experts // 2
    assert weights(mixture).head == next(t.n_bytes for t in reader.tensors if t.name == "output.weight")


# What can't be copied


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ((), "has 4 blocks: keep some of 0 to 3"),
        ((0, 4), "has 4 blocks: keep some of 0 to 3"),
        ((-1,), "has 4 blocks: keep some of 0 to 3"),
        ((1, 0), "go up and appear once each: 1, 0"),
        ((1, 1), "go up and appear once each: 1, 1"),
    ],
)
def test_a_choice_that_is_none(kept: tuple[int, ...], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        copied(bare(tmp_path / "m.gguf", numbered), kept)
    assert not (tmp_path / "copy.gguf").exists()


def test_a_file_in_parts(tmp_path: Path) -> None:
    def parts(writer: Any) -> None:
        writer.add_uint16("split.count", 3)
        numbered(writer)

    with pytest.raises(ModelError, match="one of 3 parts; join them with: llama-gguf-split"):
        copied(bare(tmp_path / "m.gguf", parts), (0,))
    with pytest.raises(ModelError, match="one of 3 parts; join them with: llama-gguf-split"):
        copied(bare(tmp_path / "m-00001-of-00003.gguf", numbered), (0,))
    copied(bare(tmp_path / "m-00001-of-00001.gguf", numbered), (0,))


def shared(writer: Any) -> None:
    numbered(writer)
    writer.add_tensor("per_layer_token_embd.weight", np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("fill", "blocks", "words"),
    [
        (lambda w: w.add_tensor("enc.blk.0.x", np.zeros(4, np.float32)), 1, "no tensors of numbered blocks"),
        (numbered, None, "doesn't say how many blocks"),
        (numbered, 3, "says 3 blocks and has tensors of block 3: convert the model again"),
        (shared, 4, "per_layer_token_embd.weight serves all blocks at once"),
    ],
)
def test_a_model_without_blocks_of_its_own(
    fill: Callable[[Any], None], blocks: int | None, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=words):
        copied(bare(tmp_path / "m.gguf", fill, blocks), (0,))


def test_the_source_is_not_written_over(tmp_path: Path) -> None:
    source = bare(tmp_path / "m.gguf", numbered)
    (tmp_path / "link.gguf").symlink_to(source)
    before = source.read_bytes()
    for destination in (source, tmp_path / "link.gguf"):
        with pytest.raises(ModelError, match="is the model to copy from; give the copy another name"):
            write_layers(source, destination, (0,))
    assert source.read_bytes() == before


def test_no_place_to_write(tmp_path: Path) -> None:
    source = bare(tmp_path / "m.gguf", numbered)
    with pytest.raises(ModelError, match=r"cannot write .*copy\.gguf: No such file"):
        write_layers(source, tmp_path / "no" / "copy.gguf", (0,))


# Names


@pytest.mark.parametrize(
    ("argument", "kept", "one"),
    [
        ("3", (0, 1, 2), "3"),
        ("6", (0, 1, 2, 3, 4, 5), "6"),
        ("skip=5,1", (0, 2, 3, 4), "skip=1,5"),
        ("skip= 1 , 5", (0, 2, 3, 4), "skip=1,5"),
        ("skip=4,5", (0, 1, 2, 3), "4"),
        ("skip=0", (1, 2, 3, 4, 5), "skip=0"),
    ],
)
def test_what_an_argument_keeps(argument: str, kept: tuple[int, ...], one: str) -> None:
    assert kept_blocks(argument, 6) == kept
    assert canonical(kept, 6) == one
    assert kept_blocks(one, 6) == kept


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("0", "keep 1 to 6 of them, not 0 in 'layerskip:0'"),
        ("7", "keep 1 to 6 of them, not 7"),
        ("skip=", "write layerskip:12 to keep the first 12 blocks, or layerskip:skip=5,9,11"),
        ("skip=1,,2", "cannot read the blocks in 'layerskip:skip=1,,2'"),
        ("1,2", "cannot read the blocks"),
        ("-1", "cannot read the blocks"),
        ("skip=a", "cannot read the blocks"),
        ("twelve", "cannot read the blocks"),
        ("skip=6", "the target has 6 blocks: skip some of 0 to 5, not 6"),
        ("skip=1,2,1", "block 1 is named twice"),
        ("skip=0,1,2,3,4,5", "skips all 6 blocks; leave at least one"),
    ],
)
def test_an_argument_that_fits_no_blocks(argument: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        kept_blocks(argument, 6)


def test_nothing_skipped() -> None:
    with pytest.raises(ModelError, match="no blocks to skip; name at least one of 0 to 5"):
        without([], 6)


def test_ranges_for_people() -> None:
    assert ranges((0, 1, 2, 4, 6, 7)) == "0-2, 4, 6-7"


# Kept in the cache


def test_two_spellings_of_a_choice_share_a_file(tmp_path: Path) -> None:
    target = ModelRef("m", bare(tmp_path / "m.gguf", numbered))
    cache = tmp_path / "cache"
    written: list[tuple[int, ...]] = []

    def write(source: Path, destination: Path, kept: Any) -> None:
        written.append(tuple(kept))
        write_layers(source, destination, kept)

    made = layerskipped(target, "skip=3,1", 4, write, cache)
    assert (made.name, made.sha256) == ("layerskip:skip=1,3", sha256_of(made.path, cache, fresh=True))
    assert layerskipped(target, "skip=1,3", 4, write, cache) == made
    first = layerskipped(target, "2", 4, write, cache)
    assert first.name == "layerskip:2"
    assert layerskipped(target, "skip=2,3", 4, write, cache) == first
    assert written == [(0, 2), (0, 1)]

    made.path.write_bytes(made.path.read_bytes()[:-1])
    assert layerskipped(target, "skip=1,3", 4, write, cache) == made
    assert len(written) == 3


def test_a_long_list_of_blocks_is_a_file_name_too(tmp_path: Path) -> None:
    target = ModelRef("m", bare(tmp_path / "m.gguf", lambda w: numbered(w, 200), 200))
    lists = [",".join(map(str, range(start, 200, 2))) for start in (0, 1)]
    made = {layerskipped(target, f"skip={one}", 200, write_layers, tmp_path / "c").path for one in lists}
    assert len(made) == 2
    assert all(len(path.name) < 100 for path in made)


def test_a_target_that_says_no_number_of_blocks(tmp_path: Path) -> None:
    target = ModelRef("m", bare(tmp_path / "m.gguf", numbered, None))
    with pytest.raises(ModelError, match="doesn't say how many blocks it has"):
        layerskipped(target, "2", None, write_layers, tmp_path / "cache")
