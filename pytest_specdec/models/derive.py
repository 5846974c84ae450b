"""Draft models made from the target: requantised, or with fewer blocks; built once and kept in the cache."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

from pytest_specdec.models.cache import replacing
from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.layers import canonical
from pytest_specdec.models.layers import kept_blocks


# File names end at 255 bytes, with the hash and a temporary's own ending in them.
_LONGEST_STEM = 120

# llama.h, enum llama_ftype; without the types that need an importance matrix.
FTYPES: Mapping[str, int] = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q5_0": 8,
    "Q5_1": 9,
    "Q2_K": 10,
    "Q3_K_S": 11,
    "Q3_K_M": 12,
    "Q3_K_L": 13,
    "Q4_K_S": 14,
    "Q4_K_M": 15,
    "Q5_K_S": 16,
    "Q5_K_M": 17,
    "Q6_K": 18,
    "IQ4_NL": 25,
    "IQ3_S": 26,
    "IQ3_M": 27,
    "IQ4_XS": 30,
    "BF16": 32,
}


def ftype_name(name: str) -> str:
    """Return llama.cpp's spelling of a quantisation's name (case does not matter).

    Raises `ModelError` with the nearest known names for one that is not in `FTYPES`.
    """
    if name.upper() in FTYPES:
        return name.upper()
    near = difflib.get_close_matches(name.upper(), FTYPES, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(FTYPES)}"
    raise ModelError(f"unknown quantisation {name!r} in 'requantize:{name}'; {hint}")


def requantized(
    target: ModelRef, ftype: str, quantize: Callable[[Path, Path, str], None], cache: Path
) -> ModelRef:
    """Return the target requantised to `ftype` (a name of `FTYPES`), built on the first call.

    The file lies in `cache`, under the target's SHA-256 and the type; one that is not what was built is
    built again. `quantize(source, destination, ftype)` writes it; what that raises passes through, and
    leaves no file. Raises `ModelError` for an unknown type, an unreadable target, an unwritable cache, or
    when no GGUF was written.
    """
    ftype = ftype_name(ftype)

    def build(temporary: Path) -> None:
        quantize(target.path, temporary, ftype)

    return _derived(
        target, f"requantize:{ftype}", ftype, f"requantising {target.path} to {ftype}", build, cache
    )


def layerskipped(
    target: ModelRef,
    argument: str,
    blocks: int | None,
    write: Callable[[Path, Path, Sequence[int]], None],
    cache: Path,
) -> ModelRef:
    """Return the target with some of its `blocks` left out, built on the first call.

    `argument` is that of `layerskip:`; the file lies in `cache` under the target's SHA-256 and the blocks, so
    two spellings of one choice share it. `write(source, destination, kept)` writes it; what that raises
    passes through, and leaves no file. Raises `ModelError` for an argument that doesn't fit the blocks, a
    target that doesn't say how many it has, an unreadable target, an unwritable cache, or when no GGUF was
    written.
    """
    if blocks is None:
        raise ModelError(f"{target.path} doesn't say how many blocks it has; choose another draft")
    kept = kept_blocks(argument, blocks)
    one = canonical(kept, blocks)
    stem = f"layers-{one.replace('=', '-')}"
    if len(stem) > _LONGEST_STEM:
        stem = f"layers-{hashlib.sha256(one.encode()).hexdigest()[:16]}"

    def build(temporary: Path) -> None:
        write(target.path, temporary, kept)

    return _derived(target, f"layerskip:{one}", stem, f"leaving blocks out of {target.path}", build, cache)


def _derived(
    target: ModelRef, name: str, stem: str, doing: str, build: Callable[[Path], None], cache: Path
) -> ModelRef:
    origin = target.sha256 or sha256_of(target.path, cache)
    path = cache / "derived" / f"{origin[:16]}-{stem}.gguf"
    # The full hash of the target, and that of what was built: a file of the right name proves neither.
    receipt = path.with_suffix(".json")
    built = _receipt(receipt, origin)
    if built is None or not path.is_file() or sha256_of(path, cache) != built:
        _build(path, doing, build)
        built = sha256_of(path, cache, fresh=True)
        # Without a receipt it is built again next time: dear, but right.
        with contextlib.suppress(OSError), replacing(receipt) as temporary:
            temporary.write_text(json.dumps({"target": origin, "sha256": built}), encoding="utf-8")
    return ModelRef(name, path, built)


def _receipt(path: Path, origin: str) -> str | None:
    try:
        receipt = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(receipt, dict) or receipt.get("target") != origin:
        return None
    built = receipt.get("sha256")
    return built if isinstance(built, str) else None


def _build(path: Path, doing: str, build: Callable[[Path], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"cannot make the directory {path.parent}: {error.strerror or error}; "
            f"set SPECDEC_CACHE to another directory"
        ) from error
    with replacing(path) as temporary:
        build(temporary)
        if not _is_gguf(temporary):
            raise ModelError(f"{doing} wrote no GGUF file; is the target one?")


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except FileNotFoundError:
        return False
