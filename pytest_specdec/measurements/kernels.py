"""Which kernel path computed each row: the kernel map, without a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import ClassVar

from pytest_specdec.measurements.record import Record


if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class DepthMap(Record):
    """The bits of every row at one context depth, in batches of ``n[i]`` of the same tokens.

    ``hidden[i]`` and ``logits[i]`` have one letter per row of batch ``i``: for each row position, its
    distinct bit patterns over all N are numbered in order of appearance (0-9, a-z, A-Z; ``*`` beyond, equal
    to nothing), so that two batches computed row r alike exactly when their letters r are equal. ``""``
    where a model has no such output. ``digests[i]`` is a hash over the raw bits of the whole batch:
    comparable between builds while model, tokens and settings are the same.

    ``repeated[i]``: a second pass over the batch gave the same bits. ``remainder[i]``: how many of the last
    rows were computed apart from the others because they don't fill a block, proven by bits. ``content``:
    batch sizes at which row 0 depends on the tokens behind it.
    """

    depth: int
    threads: int
    n: tuple[int, ...]
    hidden: tuple[str, ...]
    logits: tuple[str, ...]
    digests: tuple[str, ...]
    repeated: tuple[bool, ...]
    remainder: tuple[int, ...]
    content: tuple[int, ...] = ()

    @property
    def deterministic(self) -> bool:
        """Whether every batch repeated bit for bit."""
        return all(self.repeated)


@dataclass(frozen=True, slots=True)
class KernelMap(Record):
    """The kernel map at every depth asked for.

    ``one_thread`` holds, on a CPU, maps taken with one thread over fewer batch sizes: attention doesn't split
    by thread there. ``tokens`` is a digest of the token list, ``flash_attn`` the resolved state ("on", "off",
    "auto" where llama.cpp doesn't tell). ``forward_ms`` is the time spent in forward passes, ``wall_ms`` all
    of it; neither is ever compared.
    """

    kind: ClassVar[str] = "kernel_map"

    maps: tuple[DepthMap, ...]
    one_thread: tuple[DepthMap, ...] = ()
    tokens: str = ""
    flash_attn: str = "auto"
    forward_ms: float = 0.0
    wall_ms: float = 0.0
    source: str = "measured"

    def at(self, depth: int) -> DepthMap | None:
        """The map at a depth, None where it was not taken."""
        return next((one for one in self.maps if one.depth == depth), None)

    def to_frame(self) -> DataFrame:
        """One row per depth, thread count and batch size."""
        import pandas as pd

        rows = [
            (one.depth, one.threads, n, hidden, logits, repeated, remainder, n in one.content)
            for one in (*self.maps, *self.one_thread)
            for n, hidden, logits, repeated, remainder in zip(
                one.n, one.hidden, one.logits, one.repeated, one.remainder, strict=True
            )
        ]
        columns = ["depth", "threads", "n", "hidden", "logits", "repeated", "remainder", "content"]
        return pd.DataFrame(rows, columns=columns)
