"""A model's embedding and output matrices, dequantised from its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specdec.models.cache import replacing
from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.describe import open_gguf
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.find import ModelRef


if TYPE_CHECKING:
    from numpy import float32
    from numpy import int64
    from numpy.typing import NDArray


EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
# Rows dequantised at a time: 16 bytes for each of 4 million weights.
_WEIGHTS = 4_000_000


class Matrix:
    """One matrix of a model's file, a row a token, read in parts.

    Raises:
        ModelError: the file has no such matrix, or its type can't be dequantised.
    """

    def __init__(self, path: Path, name: str) -> None:
        tensors = {tensor.name: tensor for tensor in open_gguf(path).tensors}
        # A tied head is the embedding.
        found = tensors.get(name, tensors.get(EMBEDDING))
        if found is None or len(found.shape) != 2:
            raise ModelError(f"{path} has no matrix {name}: heads can't be fitted or run on this model")
        self.name = str(found.name)
        self._path = path
        self._tensor = found
        self.width, self.rows = (int(size) for size in found.shape)

    def take(self, ids: NDArray[int64] | slice) -> NDArray[float32]:
        """Some rows, float32 of shape (len(ids), width)."""
        import gguf
        import numpy as np

        try:
            rows = gguf.quants.dequantize(self._tensor.data[ids], self._tensor.tensor_type)
        except (NotImplementedError, KeyError, ValueError) as error:
            raise ModelError(
                f"{self._path}: {self.name} is of type {self._tensor.tensor_type.name}, which can't be "
                f"dequantised ({error}); use the model in another quantisation"
            ) from error
        return np.ascontiguousarray(rows, dtype=np.float32).reshape(-1, self.width)

    def parts(self) -> Iterator[tuple[int, NDArray[float32]]]:
        """All rows in order, in parts, each with the number of its first."""
        step = max(1, _WEIGHTS // self.width)
        for start in range(0, self.rows, step):
            yield start, self.take(slice(start, start + step))


def output_matrix(path: Path) -> Matrix:
    """The matrix from hidden states to logits; the embedding where the two are tied."""
    return Matrix(path, OUTPUT)


def embedding_folder(target: ModelRef, cache: Path) -> Path:
    """A folder with the target's whole embedding as ``embedding.npy``, float16, written on the first call.

    Raises `ModelError` for a file without one, or an unwritable cache.
    """
    import numpy as np

    folder = cache / "embeddings" / (target.sha256 or sha256_of(target.path, cache))[:16]
    path = folder / "embedding.npy"
    if path.is_file():
        return folder
    matrix = Matrix(target.path, EMBEDDING)
    try:
        # Written, not mapped: a full disk is an error then, and not the end of the process.
        with replacing(path) as temporary, temporary.open("wb") as file:
            head = {"descr": "<f2", "fortran_order": False, "shape": (matrix.rows, matrix.width)}
            np.lib.format.write_array_header_1_0(file, head)
            for _, rows in matrix.parts():
                file.write(rows.astype("<f2").tobytes())
    except OSError as error:
        raise ModelError(
            f"cannot write {path}: {error.strerror or error}; it takes {matrix.rows * matrix.width / 5e5:.0f}"
            " MB there, or set SPECDEC_CACHE to another directory"
        ) from error
    return folder
