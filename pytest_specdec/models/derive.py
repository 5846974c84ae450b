"""Draft models made from the target: a requantised copy, built once and kept in the cache directory."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path

from pytest_specdec.models.cache import replacing
from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.find import ModelRef


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
    origin = target.sha256 or sha256_of(target.path, cache)
    path = cache / "derived" / f"{origin[:16]}-{ftype}.gguf"
    # The full hash of the target, and that of what was built: a file of the right name proves neither.
    receipt = path.with_suffix(".json")
    built = _receipt(receipt, origin)
    if built is None or not path.is_file() or sha256_of(path, cache) != built:
        _build(target, path, ftype, quantize)
        built = sha256_of(path, cache, fresh=True)
        # Without a receipt it is built again next time: dear, but right.
        with contextlib.suppress(OSError), replacing(receipt) as temporary:
            temporary.write_text(json.dumps({"target": origin, "sha256": built}), encoding="utf-8")
    return ModelRef(f"requantize:{ftype}", path, built)


def _receipt(path: Path, origin: str) -> str | None:
    try:
        receipt = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(receipt, dict) or receipt.get("target") != origin:
        return None
    built = receipt.get("sha256")
    return built if isinstance(built, str) else None


def _build(target: ModelRef, path: Path, ftype: str, quantize: Callable[[Path, Path, str], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"cannot make the directory {path.parent}: {error.strerror or error}; "
            f"set SPECDEC_CACHE to another directory"
        ) from error
    with replacing(path) as temporary:
        quantize(target.path, temporary, ftype)
        if not _is_gguf(temporary):
            raise ModelError(f"requantising {target.path} to {ftype} wrote no GGUF file; is the target one?")


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except FileNotFoundError:
        return False
