"""What was decoded: plain and speculative runs, round by round, and their speeds."""

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
        return _tokens_per_s(self.tokens, self.decode_ms)


@dataclass(frozen=True, slots=True)
class Miss(Record):
    """A drafted token that the target rejected: the round, and how far it was from being right.

    ``rank`` is the token's place in the target's order (2: it came next to the chosen one), ``gap`` its
    log-probability under the chosen token's, in nats.
    """

    round: int
    rank: int
    gap: float


@dataclass(frozen=True, slots=True)
class Speculation(Record):
    """Speculative greedy decoding of one prompt, round by round.

    Per round r: ``drafted[r]`` tokens proposed, ``accepted[r]`` of them right, ``draft_ms[r]`` spent on
    proposing, ``verify_ms[r]`` on the target's forward pass. ``cut`` is set when the last round ended early
    (end of generation or token limit) without a rejection. ``decode_ms`` counts from the end of the
    target's prefill, the draft's prefill (``draft_prefill_ms``) included; ``forward_ms`` is the part of it
    spent inside llama.cpp. ``misses`` has the rejected token of every round that rejected one.
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
    misses: tuple[Miss, ...] | None = field(default=None, metadata=RARE)

    @property
    def drafted_token_ms(self) -> float | None:
        """Time per drafted token, ms; None where nothing was drafted."""
        drafted = sum(self.drafted)
        return sum(self.draft_ms) / drafted if drafted else None

    @property
    def tokens_per_s(self) -> float:
        """Decode rate, tokens per second; 0 when nothing came after the first token."""
        return _tokens_per_s(self.tokens, self.decode_ms)


@dataclass(frozen=True, slots=True)
class DecodeRun(Record):
    """Plain decoding of every prompt, once each."""

    kind: ClassVar[str] = "decode"

    generations: tuple[Generation, ...]
    source: str = "measured"
    environment: Environment | None = field(default=None, metadata=RARE)

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
    environment: Environment | None = field(default=None, metadata=RARE)

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
    environment: Environment | None = field(default=None, metadata=RARE)

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


def _tokens_per_s(tokens: tuple[int, ...], decode_ms: float) -> float:
    return (len(tokens) - 1) / decode_ms * 1000.0 if decode_ms > 0 else 0.0
