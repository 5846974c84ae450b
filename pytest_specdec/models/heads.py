"""Heads on a target's hidden state, in safetensors files: read, checked, written, laid out for the worker.

Medusa's published layout: head i has residual SiLU blocks `i.j.linear.weight` and `i.j.linear.bias`, then an
output matrix `i.J.weight`; without these all heads share the target's own. EAGLE's `fc.weight` (on the next
token's embedding and the hidden state, in this order) and `fc.bias`, with residual SiLU blocks
`j.linear.weight`, `j.linear.bias` behind it. `d2t`, as in EAGLE-3, cuts the vocabulary: row r stands for
token r + d2t[r].
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.models.cache import replacing
from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.errors import ModelNotFound
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.matrices import embedding_folder
from pytest_specdec.models.matrices import output_matrix


if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensors = dict[str, NDArray[Any]]


#: Methods that draft from the target's hidden state.
METHODS = ("medusa", "eagle")
_PREFIX = re.compile(r"(medusa_heads?\.|medusa\.)")
_BLOCK = re.compile(r"(?:(\d+)\.)?(\d+)\.linear\.(weight|bias)")
_OWN = re.compile(r"(\d+)\.(\d+)\.weight")
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_CONVERT = (
    "convert it on a machine where you trust it: safetensors.torch.save_file(torch.load(FILE, "
    "weights_only=True), 'heads.safetensors')"
)


@dataclass(frozen=True, slots=True)
class Heads:
    """A file's heads: `tensors` by the layout's names, without a prefix; `origin` is its metadata.

    `count` heads (1 for eagle) of `blocks` residual blocks each read states of `width`; `rows` is the size of
    the vocabulary they choose from, None where that is the target's, and `own` says whether they bring output
    matrices.
    """

    method: str
    path: Path
    width: int
    count: int
    blocks: int
    rows: int | None
    own: bool
    tensors: Tensors
    origin: Mapping[str, str]


def read(path: Path) -> Heads:
    """Read heads and check their layout.

    Raises `ModelNotFound` for a missing file, and `ModelError` for a pickle, a file that is no safetensors, a
    layout that is neither Medusa's nor EAGLE's, or matrices that don't fit each other.
    """
    tensors, origin = _load(path)
    tensors = {_PREFIX.sub("", name, count=1): array for name, array in tensors.items()}
    cut = tensors.get("d2t")
    if cut is not None and (cut.ndim != 1 or cut.dtype.kind not in "iu"):
        raise ModelError(f"{path}: d2t must be a row of whole numbers, not {cut.dtype} of shape {cut.shape}")
    return _eagle(path, tensors, origin) if "fc.weight" in tensors else _medusa(path, tensors, origin)


def require() -> None:
    """Raise `ModelError` where the package that reads and writes heads is absent."""
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        raise ModelError("heads need safetensors; run: pip install 'pytest-specdec[heads]'") from error


def write(path: Path, tensors: Tensors, origin: Mapping[str, str]) -> None:
    """Write heads; `origin` goes into the metadata. Raises `ModelError` where that can't be done."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # An array in another order would be written as it lies in memory.
    ordered = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    try:
        with replacing(path) as temporary:
            save_file(ordered, temporary, metadata=dict(origin))
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise ModelError(f"cannot write {path}: {error}") from error


def digest(path: Path, cache: Path) -> str:
    """The first 16 hex digits of the file's SHA-256. Raises `ModelNotFound` and `ModelError`."""
    _exists(path)
    return sha256_of(path, cache)[:16]


def folders(heads: Heads, target: ModelRef, cache: Path) -> tuple[Path, ...]:
    """Folders with everything that the worker needs to run heads on a target, written on the first call.

    Raises `ModelError` for heads of another width or vocabulary than the target's, and an unwritable cache.
    """
    output = output_matrix(target.path)
    ids = _fitting(heads, output.width, output.rows, target.name)
    origin = (target.sha256 or sha256_of(target.path, cache))[:16]
    kept = _laid(cache / "heads" / f"{origin}-{digest(heads.path, cache)}", lambda: _stacked(heads))
    found = [kept]
    if ids is not None:
        found.append(_laid(cache / "vocabularies" / _name(ids), lambda: {"ids": ids}))
    if not heads.own:
        # Heads that choose from the same tokens share their rows.
        rows = slice(0, output.rows) if ids is None else ids
        name = f"{origin}-{'all' if ids is None else _name(ids)}"
        found.append(_laid(cache / "outputs" / name, lambda: {"output": output.take(rows)}))
    if heads.method == "eagle":
        found.append(embedding_folder(target, cache))
    return tuple(found)


def _laid(folder: Path, make: Callable[[], Tensors]) -> Path:
    """The folder, with a .npy file of each array; written where one is missing."""
    import numpy as np

    done = folder / "done"
    try:
        names = done.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        names = []
    if names and all((folder / name).is_file() for name in names):
        return folder
    arrays = make()
    try:
        for name, array in arrays.items():
            with replacing(folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        with replacing(done) as temporary:
            temporary.write_text("\n".join(f"{name}.npy" for name in arrays), encoding="utf-8")
    except OSError as error:
        raise ModelError(
            f"cannot write into {folder}: {error.strerror or error}; set SPECDEC_CACHE to another directory"
        ) from error
    return folder


def _name(ids: NDArray[Any]) -> str:
    return hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()[:16]


def _fitting(heads: Heads, width: int, rows: int, target: str) -> NDArray[Any] | None:
    import numpy as np

    if heads.width != width:
        raise ModelError(
            f"{heads.path}: these heads read hidden states of width {heads.width}, and {target} has {width}: "
            f"they are another model's; fit some with: specdec fit {heads.method} --target {target}"
        )
    cut = heads.tensors.get("d2t")
    if cut is None:
        if heads.rows is not None and heads.rows != rows:
            raise ModelError(
                f"{heads.path}: these heads choose from {heads.rows} tokens without d2t, and {target} has "
                f"{rows}: another vocabulary"
            )
        return None
    ids = np.arange(len(cut)) + cut.astype(np.int64)
    if len(ids) == 0 or ids.min() < 0 or ids.max() >= rows or (heads.rows or len(ids)) != len(ids):
        raise ModelError(
            f"{heads.path}: d2t names tokens {ids.min() if len(ids) else '-'} to "
            f"{ids.max() if len(ids) else '-'} in {len(ids)} rows, which don't fit the {rows} tokens of "
            f"{target}{'' if heads.rows is None else f' or the {heads.rows} rows of the output matrices'}"
        )
    return ids


def _stacked(heads: Heads) -> Tensors:
    import numpy as np

    def stack(kind: str, head: str) -> NDArray[Any]:
        shape = (heads.width, heads.width) if kind == "weight" else (heads.width,)
        found = [heads.tensors[f"{head}{j}.linear.{kind}"] for j in range(heads.blocks)]
        return np.array(found, dtype=np.float32).reshape(len(found), *shape)

    if heads.method == "eagle":
        bias = heads.tensors.get("fc.bias", np.zeros(heads.width))
        return {
            "fc_weight": heads.tensors["fc.weight"].astype(np.float32),
            "fc_bias": bias.astype(np.float32),
            "weight": stack("weight", ""),
            "bias": stack("bias", ""),
        }
    arrays = {
        kind: np.stack([stack(kind, f"{i}.") for i in range(heads.count)]) for kind in ("weight", "bias")
    }
    if heads.own:
        for i in range(heads.count):
            arrays[f"output{i}"] = heads.tensors[f"{i}.{heads.blocks}.weight"].astype(np.float32)
    return arrays


def _medusa(path: Path, tensors: Tensors, origin: Mapping[str, str]) -> Heads:
    blocks = [m for name in tensors if (m := _BLOCK.fullmatch(name)) and m[1] is not None]
    outputs = [m for name in tensors if (m := _OWN.fullmatch(name))]
    count = len({int(m[1]) for m in blocks})
    deep = len({int(m[2]) for m in blocks})
    first = tensors.get("0.0.linear.weight")
    if first is None or first.ndim != 2:
        raise _strange(path, tensors)
    width = first.shape[1]
    wanted = {
        f"{i}.{j}.linear.{kind}": (width, width) if kind == "weight" else (width,)
        for i in range(count)
        for j in range(deep)
        for kind in ("weight", "bias")
    }
    rows = None
    if outputs:
        own = tensors.get(f"0.{deep}.weight")
        rows = None if own is None or own.ndim != 2 else own.shape[0]
        wanted |= {f"{i}.{deep}.weight": (rows or 0, width) for i in range(count)}
    _check(path, tensors, wanted)
    cut = tensors.get("d2t")
    size = len(cut) if rows is None and cut is not None else rows
    return Heads("medusa", path, width, count, deep, size, bool(outputs), tensors, origin)


def _eagle(path: Path, tensors: Tensors, origin: Mapping[str, str]) -> Heads:
    if any("self_attn" in name for name in tensors):
        raise ModelError(
            f"{path}: this EAGLE head has attention layers, which don't run here; what runs is fc and "
            "residual SiLU blocks behind it, as written by: specdec fit eagle"
        )
    first = tensors["fc.weight"]
    if first.ndim != 2 or first.shape[1] != 2 * first.shape[0]:
        raise ModelError(
            f"{path}: fc.weight has shape {first.shape}; EAGLE's is (width, 2 x width), on the token's "
            "embedding and the hidden state (EAGLE-3's, on three layers' states, doesn't run here)"
        )
    width = first.shape[0]
    blocks = [m for name in tensors if (m := _BLOCK.fullmatch(name)) and m[1] is None]
    deep = len({int(m[2]) for m in blocks})
    wanted: dict[str, tuple[int, ...]] = {"fc.weight": (width, 2 * width)}
    if "fc.bias" in tensors:
        wanted["fc.bias"] = (width,)
    for j in range(deep):
        wanted |= {f"{j}.linear.weight": (width, width), f"{j}.linear.bias": (width,)}
    _check(path, tensors, wanted)
    cut = tensors.get("d2t")
    return Heads("eagle", path, width, 1, deep, None if cut is None else len(cut), False, tensors, origin)


def _check(path: Path, tensors: Tensors, wanted: Mapping[str, tuple[int, ...]]) -> None:
    import numpy as np

    for name, shape in wanted.items():
        if name not in tensors:
            raise ModelError(f"{path}: {name} is missing")
        if tensors[name].shape != shape:
            raise ModelError(f"{path}: {name} has shape {tensors[name].shape}, not {shape}")
        if tensors[name].dtype.kind != "f":
            raise ModelError(f"{path}: {name} is of type {tensors[name].dtype}, not a floating point one")
        if not np.isfinite(tensors[name]).all():
            raise ModelError(f"{path}: {name} has values that are not finite: the fit or the file went wrong")
    unknown = sorted(set(tensors) - set(wanted) - {"d2t", "t2d"})
    if unknown:
        raise ModelError(f"{path}: {', '.join(unknown[:5])} is in no layout that runs here")


def _strange(path: Path, tensors: Tensors) -> ModelError:
    names = ", ".join(sorted(tensors)[:5]) or "nothing"
    return ModelError(
        f"{path} has neither Medusa's 0.0.linear.weight nor EAGLE's fc.weight (it begins with {names}); fit "
        "heads with: specdec fit medusa or specdec fit eagle"
    )


def _exists(path: Path) -> None:
    if not path.exists():
        raise ModelNotFound(
            f"no file of heads {path}; fit some with: specdec fit medusa or specdec fit eagle"
        )
    if not path.is_file():
        raise ModelError(f"{path} is not a regular file; give the .safetensors file")


def _load(path: Path) -> tuple[Tensors, Mapping[str, str]]:
    _exists(path)
    try:
        with path.open("rb") as file:
            magic = file.read(9)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    # A safetensors file begins with the length of its JSON header, which may look like a pickle.
    if magic.startswith(_PICKLES) and magic[8:] != b"{":
        raise ModelError(f"{path} is a pickle: reading it could run any code, so it isn't read; {_CONVERT}")
    require()
    from safetensors import SafetensorError
    from safetensors import safe_open

    try:
        with safe_open(path, framework="np") as file:
            origin, names = file.metadata() or {}, list(file.keys())
            return {name: file.get_tensor(name) for name in names}, origin
    except (SafetensorError, OSError, ValueError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} is no safetensors file, or a damaged one ({error})") from error
    except (TypeError, AttributeError) as error:
        raise ModelError(
            f"{path} has a type that numpy doesn't know ({error}); save the heads as float16 or float32"
        ) from error
