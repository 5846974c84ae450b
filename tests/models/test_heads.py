"""Files of heads: the published layouts, what is refused, and what the worker gets."""

from __future__ import annotations

import pickle
import resource
import sys
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pytest_specdec.models import heads
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.errors import ModelNotFound
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.matrices import Matrix
from pytest_specdec.models.matrices import embedding_folder
from pytest_specdec.models.matrices import output_matrix
from tests import tiny_models


WIDTH, TOKENS = 64, 320
Tensors = dict[str, NDArray[Any]]


def numbers(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def medusa(count: int = 2, blocks: int = 1, width: int = WIDTH, rows: int = 0, prefix: str = "") -> Tensors:
    found: Tensors = {}
    for i in range(count):
        for j in range(blocks):
            found[f"{prefix}{i}.{j}.linear.weight"] = numbers(width, width)
            found[f"{prefix}{i}.{j}.linear.bias"] = numbers(width)
        if rows:
            found[f"{prefix}{i}.{blocks}.weight"] = numbers(rows, width)
    return found


def eagle(width: int = WIDTH) -> Tensors:
    return {
        "fc.weight": numbers(width, 2 * width),
        "fc.bias": numbers(width),
        "0.linear.weight": numbers(width, width),
        "0.linear.bias": numbers(width),
    }


@pytest.fixture
def target(tmp_path: Path) -> ModelRef:
    return ModelRef("tiny", tiny_models.write("llama", tmp_path / "target.gguf"))


def saved(folder: Path, tensors: Tensors) -> Path:
    path = folder / "heads.safetensors"
    save_file(tensors, path)
    return path


def arrays(folder: Path) -> Tensors:
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


def laid_out(folders: tuple[Path, ...]) -> Tensors:
    return {name: array for folder in folders for name, array in arrays(folder).items()}


def of(target: ModelRef, name: str) -> NDArray[Any]:
    (found,) = [t for t in gguf.GGUFReader(target.path).tensors if t.name == name]
    return np.asarray(found.data)


@pytest.mark.parametrize("prefix", ["", "medusa_heads.", "medusa_head."])
@pytest.mark.parametrize("blocks", [1, 2])
def test_medusa_in_the_published_layout(tmp_path: Path, target: ModelRef, prefix: str, blocks: int) -> None:
    tensors = medusa(3, blocks, rows=TOKENS, prefix=prefix)
    found = heads.read(saved(tmp_path, tensors))
    assert (found.method, found.count, found.blocks, found.width) == ("medusa", 3, blocks, WIDTH)
    (folder,) = heads.folders(found, target, tmp_path / "cache")
    laid = arrays(folder)
    assert laid["weight"].shape == (3, blocks, WIDTH, WIDTH)
    assert laid["bias"].shape == (3, blocks, WIDTH)
    for i in range(3):
        assert (laid[f"output{i}"] == tensors[f"{prefix}{i}.{blocks}.weight"]).all()
        for j in range(blocks):
            assert (laid["weight"][i, j] == tensors[f"{prefix}{i}.{j}.linear.weight"]).all()
            assert (laid["bias"][i, j] == tensors[f"{prefix}{i}.{j}.linear.bias"]).all()
    assert "output" not in laid
    assert "ids" not in laid


def test_heads_without_a_matrix_share_the_targets(tmp_path: Path, target: ModelRef) -> None:
    folders = heads.folders(heads.read(saved(tmp_path, medusa())), target, tmp_path / "cache")
    assert (laid_out(folders)["output"] == of(target, "output.weight")).all()


def test_a_cut_vocabulary_takes_its_rows(tmp_path: Path, target: ModelRef) -> None:
    ids = np.array([3, 40, 41, 300])
    tensors = {**medusa(), "d2t": ids - np.arange(4)}
    laid = laid_out(heads.folders(heads.read(saved(tmp_path, tensors)), target, tmp_path / "cache"))
    assert (laid["ids"] == ids).all()
    assert (laid["output"] == of(target, "output.weight")[ids]).all()


def test_eagle_brings_the_embedding(tmp_path: Path, target: ModelRef) -> None:
    tensors = eagle()
    found = heads.read(saved(tmp_path, tensors))
    assert (found.method, found.blocks) == ("eagle", 1)
    own, _, embedding = heads.folders(found, target, tmp_path / "cache")
    assert (arrays(own)["fc_weight"] == tensors["fc.weight"]).all()
    assert arrays(own)["weight"].shape == (1, WIDTH, WIDTH)
    laid = arrays(embedding)["embedding"]
    assert laid.dtype == np.float16
    assert np.allclose(laid, of(target, "token_embd.weight"), rtol=1e-3, atol=1e-6)
    assert embedding_folder(target, tmp_path / "cache") == embedding


def test_folders_are_written_once_and_anew_for_other_heads(tmp_path: Path, target: ModelRef) -> None:
    path = saved(tmp_path, medusa())
    first = heads.folders(heads.read(path), target, tmp_path / "cache")
    stamp = (first[0] / "weight.npy").stat().st_mtime_ns
    assert heads.folders(heads.read(path), target, tmp_path / "cache") == first
    assert (first[0] / "weight.npy").stat().st_mtime_ns == stamp
    path = saved(tmp_path, medusa(3))
    assert heads.folders(heads.read(path), target, tmp_path / "cache")[0] != first[0]


def test_heads_of_the_same_tokens_share_the_output_matrix(tmp_path: Path, target: ModelRef) -> None:
    ids = np.array([3, 40, 41, 300])
    cut = {"d2t": ids - np.arange(4)}
    first = heads.folders(heads.read(saved(tmp_path, {**medusa(), **cut})), target, tmp_path / "cache")
    other = heads.folders(heads.read(saved(tmp_path, {**medusa(3), **cut})), target, tmp_path / "cache")
    assert first[0] != other[0]
    assert first[1:] == other[1:]
    whole = heads.folders(heads.read(saved(tmp_path, medusa())), target, tmp_path / "cache")
    assert whole[-1] not in first
    assert len(laid_out(whole)["output"]) == TOKENS


@pytest.mark.parametrize("gone", ["weight.npy", "output.npy", "ids.npy", "embedding.npy"])
def test_what_was_deleted_from_the_cache_is_made_again(tmp_path: Path, target: ModelRef, gone: str) -> None:
    ids = np.array([3, 40, 41, 300])
    found = heads.read(saved(tmp_path, {**eagle(), "d2t": ids - np.arange(4)}))
    before = laid_out(heads.folders(found, target, tmp_path / "cache"))
    (path,) = (tmp_path / "cache").rglob(gone)
    path.unlink()
    after = laid_out(heads.folders(found, target, tmp_path / "cache"))
    assert set(before) == set(after) >= {"fc_weight", "embedding"}
    assert all((before[name] == after[name]).all() for name in before)


def test_a_folder_that_was_not_finished_is_written_again(tmp_path: Path, target: ModelRef) -> None:
    path = saved(tmp_path, medusa())
    folder = heads.folders(heads.read(path), target, tmp_path / "cache")[0]
    (folder / "done").unlink()
    (folder / "weight.npy").write_bytes(b"half")
    heads.folders(heads.read(path), target, tmp_path / "cache")
    assert arrays(folder)["weight"].shape == (2, 1, WIDTH, WIDTH)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    tensors = {name: np.asfortranarray(array) for name, array in medusa().items()}
    heads.write(path, tensors, {"target": "tiny"})
    found = heads.read(path)
    assert found.origin == {"target": "tiny"}
    assert set(found.tensors) == set(tensors)
    assert all((found.tensors[name] == tensors[name]).all() for name in tensors)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (medusa(width=32), "hidden states of width 32, and tiny has 64: they are another model's"),
        (medusa(rows=100), "choose from 100 tokens without d2t, and tiny has 320: another vocabulary"),
        ({**medusa(), "d2t": np.array([0, 400])}, "d2t names tokens 0 to 401 in 2 rows"),
        ({**medusa(rows=5), "d2t": np.array([0, 1])}, "in 2 rows, which don't fit the 320 tokens of tiny or"),
        ({**medusa(), "d2t": np.array([], dtype=np.int64)}, "d2t names tokens - to - in 0 rows"),
        (eagle(width=32), "hidden states of width 32"),
    ],
)
def test_heads_of_another_model_are_refused(
    tmp_path: Path, target: ModelRef, tensors: Tensors, words: str
) -> None:
    found = heads.read(saved(tmp_path, tensors))
    with pytest.raises(ModelError, match=words):
        heads.folders(found, target, tmp_path / "cache")
    assert not (tmp_path / "cache" / "heads").exists()


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"lm_head.weight": numbers(4, 4)}, "neither Medusa's 0.0.linear.weight nor EAGLE's fc.weight"),
        ({**medusa(), "1.0.linear.bias": numbers(3)}, r"1\.0\.linear\.bias has shape \(3,\), not \(64,\)"),
        ({**medusa(), "2.0.linear.weight": numbers(WIDTH, WIDTH)}, r"2\.0\.linear\.bias is missing"),
        ({**medusa(), "norm.weight": numbers(WIDTH)}, "norm.weight is in no layout that runs here"),
        ({**medusa(), "d2t": numbers(4)}, "d2t must be a row of whole numbers, not float32"),
        ({**medusa(), "d2t": np.array(3)}, r"d2t must be a row of whole numbers, not int64 of shape \(\)"),
        ({**medusa(), "0.1.weight": np.array(3.0)}, r"0\.1\.weight has shape \(\), not \(0, 64\)"),
        ({**medusa(), "1.0.linear.bias": np.full(WIDTH, np.nan, np.float32)}, "values that are not finite"),
        (
            {**eagle(), "fc.bias": np.full(WIDTH, np.inf, np.float32)},
            "values that are not finite",
        ),
        ({**medusa(1), "0.0.linear.bias": np.zeros(WIDTH, np.int8)}, "is of type int8, not a floating"),
        (
            {**eagle(), "layers.0.self_attn.q_proj.weight": numbers(4, 4)},
            "has attention layers, which don't run",
        ),
        ({**eagle(), "fc.weight": numbers(WIDTH, 3 * WIDTH)}, r"EAGLE's is \(width, 2 x width\)"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, tensors: Tensors, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        heads.read(saved(tmp_path, tensors))


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    plain, zipped = tmp_path / "heads.bin", tmp_path / "heads.pt"
    plain.write_bytes(pickle.dumps(Trap()))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Trap()))
    for path in (plain, zipped):
        with pytest.raises(
            ModelError, match=r"is a pickle: reading it could run any code.*safetensors\.torch"
        ):
            heads.read(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("low", [0x80, 0x50])
def test_a_header_as_long_as_a_pickles_mark_is_none(tmp_path: Path, low: int) -> None:
    """The length comes first: 0x0280 looks like a pickle, 0x04034b50 (too long a header) like a zip file."""
    path = tmp_path / "heads.safetensors"
    for pad in range(2000):
        save_file(medusa(1), path, metadata={"target": "x" * pad})
        size = int.from_bytes(path.read_bytes()[:8], "little")
        if size & 0xFF == low and (low != 0x80 or 2 <= size >> 8 <= 5):
            break
    assert path.read_bytes()[0] == low
    assert heads.read(path).count == 1


def test_a_full_disk_is_told(tmp_path: Path, target: ModelRef) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    tensors = medusa(3)
    path = saved(tmp_path, eagle())
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(ModelError, match=r"cannot write .*mine"):
            heads.write(tmp_path / "mine.safetensors", tensors, {})
        with pytest.raises(ModelError, match=r"cannot write .*it takes"):
            embedding_folder(target, tmp_path / "cache")
        with pytest.raises(ModelError, match=r"cannot write into .*set SPECDEC_CACHE"):
            heads.folders(heads.read(path), target, tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "mine.safetensors").exists()
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, medusa())
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(
        ModelError, match=r"heads need safetensors; run: pip install 'pytest-specdec\[heads\]'"
    ):
        heads.read(path)


def test_damage_is_told(tmp_path: Path) -> None:
    path = saved(tmp_path, medusa())
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelError, match="is no safetensors file, or a damaged one"):
        heads.read(path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="is no safetensors file, or a damaged one"):
        heads.read(path)
    with pytest.raises(ModelNotFound, match=r"no file of heads .*specdec fit medusa"):
        heads.read(tmp_path / "absent.safetensors")
    with pytest.raises(ModelError, match="is not a regular file"):
        heads.read(tmp_path)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "moe-q4_k"])
def test_a_matrix_is_read_in_parts_and_by_rows(tmp_path: Path, kind: str) -> None:
    path = tiny_models.write(kind, tmp_path / "m.gguf")
    matrix = output_matrix(path)
    parts = np.concatenate([rows for _, rows in matrix.parts()])
    assert parts.shape == (matrix.rows, matrix.width)
    assert (matrix.take(np.array([7, 2])) == parts[[7, 2]]).all()
    assert Matrix(path, "absent.weight").name == "token_embd.weight"


def test_a_file_without_an_embedding_has_no_matrix(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(1)
    writer.add_tensor("blk.0.attn_norm.weight", numbers(WIDTH))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"has no matrix output\.weight"):
        output_matrix(tmp_path / "m.gguf")
