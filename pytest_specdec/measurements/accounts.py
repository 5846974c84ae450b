"""Where time and memory go."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import ClassVar

from pytest_specdec.measurements.environment import Environment
from pytest_specdec.measurements.record import RARE
from pytest_specdec.measurements.record import Record


if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class DraftCost(Record):
    """Steady decoding of the draft and one-token passes of the target, paired by block, ms per token.

    ``draft_ms`` and ``target_ms`` have one value per block; a draft source without a model costs what its
    proposals took.
    """

    kind: ClassVar[str] = "draft_cost"

    method: str
    draft_ms: tuple[float, ...]
    target_ms: tuple[float, ...]
    source: str = "measured"
    environment: Environment | None = field(default=None, metadata=RARE)

    def log_ratios(self) -> NDArray[float64]:
        """Natural log of draft ÷ target time per block, shape (blocks,)."""
        import numpy as np

        ratios: NDArray[float64] = np.asarray(self.draft_ms, dtype=float) / np.asarray(
            self.target_ms, dtype=float
        )
        return np.log(ratios)

    def to_frame(self) -> DataFrame:
        """One row per block."""
        import pandas as pd

        return pd.DataFrame({"draft_ms": self.draft_ms, "target_ms": self.target_ms})


@dataclass(frozen=True, slots=True)
class Stages(Record):
    """Where one request's wall time went, ms; everything but ``wall_ms`` adds up to it.

    ``target_forward_ms`` is plain decoding's or verification's passes; ``host_ms`` what nothing else accounts
    for: Python, comparing, bookkeeping.
    """

    prompt: str
    speculating: bool
    tokens: int
    target_prefill_ms: float
    draft_prefill_ms: float
    draft_forward_ms: float
    target_forward_ms: float
    sampling_ms: float
    rollback_ms: float
    wait_ms: float
    host_ms: float
    wall_ms: float


@dataclass(frozen=True, slots=True)
class Timeline(Record):
    """The stages of every prompt's request, speculation off and on, next to each other."""

    kind: ClassVar[str] = "timeline"

    k: int
    method: str
    requests: tuple[Stages, ...]
    source: str = "measured"
    environment: Environment | None = field(default=None, metadata=RARE)

    def total_ms(self, part: str, *, speculating: bool) -> float:
        """One stage over all prompts, for example ``total_ms("sampling_ms", speculating=True)``."""
        return float(sum(getattr(r, part) for r in self.requests if r.speculating is speculating))

    @property
    def forward_share(self) -> float:
        """Amdahl's p: decode-forward time ÷ request time with speculation off."""
        forward = self.total_ms("target_forward_ms", speculating=False)
        return forward / self.total_ms("wall_ms", speculating=False)

    def to_frame(self) -> DataFrame:
        """One row per request."""
        import pandas as pd

        return pd.DataFrame([request.to_json() for request in self.requests])


@dataclass(frozen=True, slots=True)
class MemoryUse(Record):
    """Peak memory of the worker with target, draft and their contexts in use, bytes.

    ``total`` is the memory it is taken from: the machine's, or the device's where the model is on a GPU.
    """

    kind: ClassVar[str] = "memory"

    peak: int
    total: int
    where: str
    source: str = "measured"

    @property
    def headroom(self) -> float:
        """The share of the memory that stays free at the peak."""
        return 1.0 - self.peak / self.total

    def to_frame(self) -> DataFrame:
        """One row."""
        import pandas as pd

        return pd.DataFrame([self.to_json()])


@dataclass(frozen=True, slots=True)
class LedgerRun(Record):
    """What a ledger is fitted on and held against, at one mean depth, per draft length.

    ``verify_ms[i]`` is the mean of T(N) over the rounds run with ``ks[i]``, N being what each round verified
    (a source may draft fewer than k); ``drafted[i]`` the mean drafted; ``tokens_per_round[i]`` counts the
    bonus; ``tokens_per_s[i]`` leaves the draft's prefill out, which belongs to no round. ``plain_ms`` is T(1)
    at ``depth``. The first ``fitted`` draft lengths fit overhead and draft cost, the others test them.
    """

    kind: ClassVar[str] = "ledger"

    method: str
    depth: int
    plain_ms: float
    ks: tuple[int, ...]
    fitted: int
    verify_ms: tuple[float, ...]
    drafted: tuple[float, ...]
    tokens_per_round: tuple[float, ...]
    tokens_per_s: tuple[float, ...]
    source: str = "measured"
    environment: Environment | None = field(default=None, metadata=RARE)

    def to_frame(self) -> DataFrame:
        """One row per draft length."""
        import pandas as pd

        return pd.DataFrame(
            {
                "k": self.ks,
                "fitted": [i < self.fitted for i in range(len(self.ks))],
                "verify_ms": self.verify_ms,
                "drafted": self.drafted,
                "tokens_per_round": self.tokens_per_round,
                "tokens_per_s": self.tokens_per_s,
            }
        )
