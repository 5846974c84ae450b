"""Kernel maps as a machine would give them, from the path that computes each batch size."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from typing import Final

from pytest_specdec.measurements import DepthMap
from pytest_specdec.measurements import KernelMap


# Path of each batch size: a row of a batch has the bits of its path, so equal paths are equal bits.
Paths = Mapping[int, str]


def ranges(told: str) -> dict[int, str]:
    """Turn "1-3 a | 4-7 b" into the path of each batch size."""
    found: dict[int, str] = {}
    for part in told.split("|"):
        sizes, path = part.split()
        first, _, last = sizes.partition("-")
        found |= dict.fromkeys(range(int(first), int(last or first) + 1), path)
    return found


def depth_map(
    paths: Paths | str,
    *,
    depth: int = 0,
    threads: int = 2,
    remainder: Mapping[int, int] | None = None,
    rows: Mapping[int, Callable[[int], str]] | None = None,
    logits: Paths | str | None = None,
    **fields: Any,
) -> DepthMap:
    """A map of one depth.

    The last `remainder[n]` rows of a batch have the bits of a path of their own; `rows[n]` says the path of
    each row of a batch where the rows differ. `logits` are computed as hidden states are unless it says
    otherwise.
    """
    hidden_paths = ranges(paths) if isinstance(paths, str) else paths
    logit_paths = hidden_paths if logits is None else ranges(logits) if isinstance(logits, str) else logits
    sizes = tuple(hidden_paths)
    rest = dict.fromkeys(sizes, 0) | dict(remainder or {})

    def bits(of: Paths, n: int) -> list[str]:
        own = (rows or {}).get(n)
        return [f"small {rest[n]}" if row >= n - rest[n] else own(row) if own else of[n] for row in range(n)]

    hidden, logit = ([bits(of, n) for n in sizes] for of in (hidden_paths, logit_paths))
    digests = [
        hashlib.sha256(repr(pair).encode()).hexdigest()[:16] for pair in zip(hidden, logit, strict=True)
    ]
    values: dict[str, Any] = {
        "depth": depth,
        "threads": threads,
        "n": sizes,
        "hidden": letters(hidden),
        "logits": letters(logit),
        "digests": tuple(digests),
        "repeated": (True,) * len(sizes),
        "remainder": tuple(rest[n] for n in sizes),
    }
    return DepthMap(**{**values, **fields})


def letters(bits: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Number the distinct bits of each row position in order of appearance."""
    alphabet = string.digits + string.ascii_lowercase + string.ascii_uppercase
    seen: dict[int, dict[str, str]] = {}
    written = []
    for batch in bits:
        word = ""
        for row, value in enumerate(batch):
            known = seen.setdefault(row, {})
            word += known.setdefault(value, alphabet[len(known)])
        written.append(word)
    return tuple(written)


def unrepeated(one: DepthMap, *sizes: int) -> DepthMap:
    """The map with batches whose second pass gave other bits."""
    return replace(one, repeated=tuple(n not in sizes for n in one.n))


# Gemma 3 270M Q4_K_M on a CPU with two threads: repacked matrices from 4, which leave N mod 4 rows to
# another kernel, tiled ones from 8; tiled attention from 64 shows in the rows behind row 0. In a longer
# context attention splits among threads for one token.
REST: Final = {5: 1, 6: 2, 7: 3}
TILED: Final = {64: lambda row: "c" if row == 0 else "d"}
GEMMA: Final = KernelMap(
    maps=(
        depth_map("1-3 a | 4-7 b | 8-64 c", remainder=REST, rows=TILED),
        depth_map("1 s | 2-3 a | 4-7 b | 8-64 c", depth=512, remainder=REST, rows=TILED),
    ),
    one_thread=(
        depth_map("1-3 a | 4-7 b | 8-16 c", threads=1, remainder=REST),
        depth_map("1-3 a | 4-7 b | 8-16 c", depth=512, threads=1, remainder=REST),
    ),
    tokens="text",
    flash_attn="on",
    forward_ms=7400.0,
    wall_ms=8100.0,
)
# The same without tiled matrices, as GGML_CPU_TILED_MM=0 has it.
_STILL_TILED_ATTENTION: Final = {64: lambda row: "b" if row == 0 else "d"}
UNTILED: Final = replace(
    GEMMA,
    maps=(
        depth_map("1-3 a | 4-64 b", remainder=REST, rows=_STILL_TILED_ATTENTION),
        depth_map("1 s | 2-3 a | 4-64 b", depth=512, remainder=REST, rows=_STILL_TILED_ATTENTION),
    ),
    one_thread=(
        depth_map("1-3 a | 4-16 b", threads=1, remainder=REST),
        depth_map("1-3 a | 4-16 b", depth=512, threads=1, remainder=REST),
    ),
)
