"""Frozen result types: what was measured, raw, JSON both ways, and as a data frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from dataclasses import is_dataclass
from statistics import median
from types import NoneType
from types import UnionType
from typing import TYPE_CHECKING
from typing import Any
from typing import ClassVar
from typing import Protocol
from typing import Self
from typing import get_args
from typing import get_origin
from typing import get_type_hints


if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray
    from pandas import DataFrame

# A field that has no place in the JSON of most measurements: left out where it is None.
RARE: Mapping[str, bool] = {"rare": True}


class Record:
    """JSON both ways for the frozen dataclasses below; a kind of measurement names itself in its JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Builtin types only."""
        kind = getattr(type(self), "kind", None)
        values = {
            own.name: _encode(value)
            for own in fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, own.name)) is not None or not own.metadata.get("rare")
        }
        return values if kind is None else {"kind": kind, **values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`; keys that are no field are left out.

        Raises:
            ValueError: a field is missing.
        """
        hints = get_type_hints(cls)
        values = {}
        for own in fields(cls):  # type: ignore[arg-type]
            if own.name in data:
                values[own.name] = _decode(data[own.name], hints[own.name])
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"{cls.__name__}: {error}") from None


class Measurement(Protocol):
    """What bench makes, checks judge, the store keeps and reports show."""

    kind: ClassVar[str]

    @property
    def source(self) -> str:
        """Where the numbers are from: "measured", "published"."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Builtin types only."""
        ...

    def to_frame(self) -> DataFrame:
        """One row per raw observation."""
        ...


@dataclass(frozen=True, slots=True)
class VerifyCurve(Record):
    """T(N): wall time in ms of one forward pass over N tokens of one sequence at ``depth``.

    ``samples_ms[i][b][c]`` is call c of block b at batch size ``n[i]``; within a block every N was visited
    once, in random order, so that column b is a pairing. ``rows`` says whether logits were asked for all
    N rows ("all", a verify pass) or the last one ("last", what ``llama-bench -p N`` measures).
    ``sentinel_ms`` is one fixed forward before each block and after the last.
    """

    kind: ClassVar[str] = "verify_curve"

    n: tuple[int, ...]
    samples_ms: tuple[tuple[tuple[float, ...], ...], ...]
    depth: int = 0
    rows: str = "all"
    sentinel_ms: tuple[float, ...] = ()
    source: str = "measured"

    def blocks_ms(self) -> NDArray[float64]:
        """Median over the calls of each block, shape (len(n), blocks), ms."""
        import numpy as np

        return np.array([[median(calls) for calls in blocks] for blocks in self.samples_ms], dtype=float)

    def medians_ms(self) -> dict[int, float]:
        """N to the median over all its calls, ms."""
        return {
            n: float(median([ms for calls in blocks for ms in calls]))
            for n, blocks in zip(self.n, self.samples_ms, strict=True)
        }

    def to_frame(self) -> DataFrame:
        """Columns n, block, call, ms."""
        import pandas as pd

        rows = [
            (n, b, c, ms)
            for n, blocks in zip(self.n, self.samples_ms, strict=True)
            for b, calls in enumerate(blocks)
            for c, ms in enumerate(calls)
        ]
        return pd.DataFrame(rows, columns=["n", "block", "call", "ms"])


@dataclass(frozen=True, slots=True)
class Generation(Record):
    """Plain greedy decoding of one prompt.

    ``decode_ms`` is the wall time after the target's prefill; the first token comes from the prefill, so
    the decode rate is (tokens − 1) ÷ decode time. ``stop`` is "limit", "eog" or "context".
    """

    prompt: str
    prompt_tokens: int
    tokens: tuple[int, ...]
    prefill_ms: float
    decode_ms: float
    forward_ms: float
    stop: str

    @property
    def tokens_per_s(self) -> float:
        """Decode rate, tokens per second; 0 when nothing came after the first token."""
        return (len(self.tokens) - 1) / self.decode_ms * 1000.0 if self.decode_ms > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Speculation(Record):
    """Speculative greedy decoding of one prompt, round by round.

    Per round r: ``drafted[r]`` tokens proposed, ``accepted[r]`` of them right, ``draft_ms[r]`` spent on
    proposing, ``verify_ms[r]`` on the target's forward pass. ``cut`` is set when the last round ended early
    (end of generation or token limit) without a rejection. ``decode_ms`` counts from the end of the
    target's prefill, the draft's prefill (``draft_prefill_ms``) included; ``forward_ms`` is the part of it
    spent inside llama.cpp.
    """

    prompt: str
    prompt_tokens: int
    tokens: tuple[int, ...]
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    cut: bool
    draft_ms: tuple[float, ...]
    verify_ms: tuple[float, ...]
    prefill_ms: float
    draft_prefill_ms: float
    decode_ms: float
    forward_ms: float
    stop: str

    @property
    def tokens_per_s(self) -> float:
        """Decode rate, tokens per second; 0 when nothing came after the first token."""
        return (len(self.tokens) - 1) / self.decode_ms * 1000.0 if self.decode_ms > 0 else 0.0


@dataclass(frozen=True, slots=True)
class DecodeRun(Record):
    """Plain decoding of every prompt, once each."""

    kind: ClassVar[str] = "decode"

    generations: tuple[Generation, ...]
    source: str = "measured"

    def to_frame(self) -> DataFrame:
        """One row per prompt."""
        import pandas as pd

        return pd.DataFrame(
            [
                (g.prompt, g.prompt_tokens, len(g.tokens), g.prefill_ms, g.decode_ms, g.tokens_per_s, g.stop)
                for g in self.generations
            ],
            columns=["prompt", "prompt_tokens", "tokens", "prefill_ms", "decode_ms", "tokens_per_s", "stop"],
        )


@dataclass(frozen=True, slots=True)
class PublishedAcceptance(Record):
    """What a source reports of a run whose rounds it doesn't list.

    ``rate`` is accepted ÷ drafted tokens. ``rounds`` and ``tokens``, where the source gives them, count
    target passes and all tokens, the one that comes from the prefill included.
    """

    rate: float
    rounds: int | None = None
    tokens: int | None = None

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens that a round produced, bonus included; None where the rounds are not known."""
        if not self.rounds or self.tokens is None:
            return None
        return (self.tokens - 1) / self.rounds


@dataclass(frozen=True, slots=True)
class SpeculativeRun(Record):
    """Speculative decoding of every prompt, once each, with draft length ``k``.

    A published run has totals in ``published`` and no speculations.
    """

    kind: ClassVar[str] = "speculative"

    k: int
    method: str
    speculations: tuple[Speculation, ...]
    source: str = "measured"
    published: PublishedAcceptance | None = field(default=None, metadata=RARE)

    @property
    def drafted(self) -> int:
        """Tokens drafted over all prompts."""
        return sum(sum(s.drafted) for s in self.speculations)

    @property
    def accepted(self) -> int:
        """Drafted tokens accepted over all prompts."""
        return sum(sum(s.accepted) for s in self.speculations)

    @property
    def rounds(self) -> int:
        """Target passes over all prompts."""
        return sum(len(s.drafted) for s in self.speculations)

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens that a round produced, bonus included; None without rounds."""
        if self.published is not None:
            return self.published.tokens_per_round
        return self._tokens / self.rounds if self.rounds else None

    @property
    def tokens_per_s(self) -> float | None:
        """Pooled decode rate; None where nothing was timed."""
        ms = sum(s.decode_ms for s in self.speculations)
        return self._tokens / ms * 1000.0 if ms > 0 else None

    @property
    def _tokens(self) -> int:
        return sum(max(len(s.tokens) - 1, 0) for s in self.speculations)

    def to_frame(self) -> DataFrame:
        """One row per round."""
        import pandas as pd

        rows = [
            (s.prompt, r, drafted, accepted, draft_ms, verify_ms)
            for s in self.speculations
            for r, (drafted, accepted, draft_ms, verify_ms) in enumerate(
                zip(s.drafted, s.accepted, s.draft_ms, s.verify_ms, strict=True)
            )
        ]
        return pd.DataFrame(rows, columns=["prompt", "round", "drafted", "accepted", "draft_ms", "verify_ms"])


@dataclass(frozen=True, slots=True)
class SpeedPair(Record):
    """Plain and speculative decoding of one prompt, run next to each other, ms after the target's prefill."""

    prompt: str
    plain_tokens: int
    plain_ms: float
    speculative_tokens: int
    speculative_ms: float

    @property
    def ratio(self) -> float:
        """Speculative ÷ plain decode rate."""
        plain = (self.plain_tokens - 1) / self.plain_ms
        return (self.speculative_tokens - 1) / self.speculative_ms / plain


@dataclass(frozen=True, slots=True)
class PublishedSpeed(Record):
    """Decode rates that a source reports, tokens per second, without the runs behind them."""

    plain_tokens_per_s: float
    speculative_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class SpeedRun(Record):
    """Interleaved pairs of plain and speculative decoding, in ABBA order per prompt.

    A published run has its rates in ``published`` and no pairs.
    """

    kind: ClassVar[str] = "speed"

    k: int
    method: str
    pairs: tuple[SpeedPair, ...]
    source: str = "measured"
    published: PublishedSpeed | None = field(default=None, metadata=RARE)

    def log_ratios(self) -> NDArray[float64]:
        """Natural log of speculative ÷ plain decode rate, shape (pairs,)."""
        import numpy as np

        return np.log([pair.ratio for pair in self.pairs])

    def plain_tokens_per_s(self) -> float:
        """Pooled plain decode rate."""
        if self.published is not None:
            return self.published.plain_tokens_per_s
        return sum(p.plain_tokens - 1 for p in self.pairs) / sum(p.plain_ms for p in self.pairs) * 1000.0

    def speculative_tokens_per_s(self) -> float:
        """Pooled speculative decode rate."""
        if self.published is not None:
            return self.published.speculative_tokens_per_s
        tokens = sum(p.speculative_tokens - 1 for p in self.pairs)
        return tokens / sum(p.speculative_ms for p in self.pairs) * 1000.0

    def to_frame(self) -> DataFrame:
        """One row per pair."""
        import pandas as pd

        return pd.DataFrame(
            [
                (p.prompt, p.plain_tokens, p.plain_ms, p.speculative_tokens, p.speculative_ms, p.ratio)
                for p in self.pairs
            ],
            columns=["prompt", "plain_tokens", "plain_ms", "speculative_tokens", "speculative_ms", "ratio"],
        )


@dataclass(frozen=True, slots=True)
class TokenMargin(Record):
    """A speculative token that is not the clean one-token pass's maximum at its position.

    ``margin`` is how far its logit lies under that maximum; ``delta`` the largest logit difference between
    the clean passes at that position, over the top candidates.
    """

    position: int
    token: int
    best: int
    margin: float
    delta: float


@dataclass(frozen=True, slots=True)
class ExactnessCase(Record):
    """Speculative against plain decoding of one prompt, with the evidence for every difference.

    ``first_difference`` is the index of the first token that differs from plain decoding (None: same
    tokens). ``margins`` lists the tokens of the speculative text that a clean pass at N = 1 over that very
    text would not have chosen. ``noise`` is the largest logit difference between clean passes of the widths
    used, ``difference`` the largest between the speculative run's own logits and the clean pass at N = 1,
    both over the top candidates.
    """

    prompt: str
    tokens: int
    first_difference: int | None
    margins: tuple[TokenMargin, ...]
    noise: float
    difference: float
    difference_at: int
    widths: tuple[int, ...]
    plain: tuple[int, ...] = ()
    speculative: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Exactness(Record):
    """Every prompt's comparison at one draft length."""

    kind: ClassVar[str] = "exactness"

    k: int
    method: str
    cases: tuple[ExactnessCase, ...]
    source: str = "measured"

    def to_frame(self) -> DataFrame:
        """One row per prompt."""
        import pandas as pd

        return pd.DataFrame(
            [
                (c.prompt, c.tokens, c.first_difference, len(c.margins), c.noise, c.difference)
                for c in self.cases
            ],
            columns=["prompt", "tokens", "first_difference", "near_ties", "noise", "difference"],
        )


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


KINDS: Mapping[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        VerifyCurve,
        DecodeRun,
        SpeculativeRun,
        SpeedRun,
        Exactness,
        DraftCost,
        Timeline,
        MemoryUse,
        LedgerRun,
    )
}


def from_json(data: Mapping[str, Any]) -> Measurement:
    """Rebuild a measurement of any kind.

    Raises:
        ValueError: the kind is unknown.
    """
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"unknown kind of measurement {kind!r}; known: {', '.join(sorted(KINDS))}")
    measurement: Measurement = KINDS[kind].from_json(data)
    return measurement


def _encode(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any, hint: Any) -> Any:
    if value is None:
        return None
    if get_origin(hint) is UnionType:
        hint = next(arg for arg in get_args(hint) if arg is not NoneType)
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return tuple(_decode(entry, item) for entry in value)
    if is_dataclass(hint) and isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_json(value)
    return value
