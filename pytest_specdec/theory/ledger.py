"""The ledger of speculation: yield and cost of a round, fitted on some draft lengths and held against others.

Round time = k * draft + T(k + 1) + overhead. Two of its terms can be fitted on the rounds measured at some k;
the prediction for the other k is the test of the account. The formulas of one round and the advice built on
them are part of this module's surface.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pytest_specdec.theory import arguments
from pytest_specdec.theory import rounds
from pytest_specdec.theory.advice import Advice
from pytest_specdec.theory.advice import AdviceRow
from pytest_specdec.theory.advice import best_draft_length
from pytest_specdec.theory.rounds import ConcurrencyError
from pytest_specdec.theory.rounds import VerifyCost
from pytest_specdec.theory.rounds import at_depth
from pytest_specdec.theory.rounds import expected_rate
from pytest_specdec.theory.rounds import ideal_speedup
from pytest_specdec.theory.rounds import operations_factor
from pytest_specdec.theory.rounds import round_ms
from pytest_specdec.theory.rounds import solve_alpha
from pytest_specdec.theory.rounds import tokens_from_positions
from pytest_specdec.theory.rounds import tokens_per_round
from pytest_specdec.theory.rounds import tokens_per_second
from pytest_specdec.theory.rounds import verify_cost


__all__ = [
    "Advice",
    "AdviceRow",
    "Attribution",
    "ConcurrencyError",
    "FreeDraft",
    "Ledger",
    "LedgerRow",
    "Terms",
    "VerifyCost",
    "at_depth",
    "attribute",
    "best_draft_length",
    "expected_rate",
    "fit_overhead",
    "free_draft",
    "ideal_speedup",
    "operations_factor",
    "round_ms",
    "solve_alpha",
    "tokens_from_positions",
    "tokens_per_round",
    "tokens_per_second",
    "verify_cost",
]


def fit_overhead(ks: ArrayLike, round_ms: ArrayLike, verify_ms: ArrayLike) -> tuple[float, float]:
    """Fit (overhead_ms, draft_ms) to measured rounds, by least squares.

    The line is round - T(k + 1) = overhead + k * draft. Neither can be negative: where the best line has a
    negative term, the best one with that term 0 is returned.

    Args:
        ks: draft lengths, shape (runs,), at least two different ones.
        round_ms: measured time per round, shape (runs,).
        verify_ms: T(k + 1), shape (runs,).

    Raises:
        ValueError: an argument is empty, not finite, not positive or of another length, or all `ks` are
            equal.
    """
    lengths = arguments.integers("ks", ks, low=1)
    measured = arguments.floats("round_ms", round_ms, above=0.0)
    verify = arguments.floats("verify_ms", verify_ms, above=0.0)
    arguments.same_length("round_ms", measured, "ks", len(lengths))
    arguments.same_length("verify_ms", verify, "ks", len(lengths))
    if lengths.min() == lengths.max():
        raise ValueError(
            f"ks must hold two different k to tell overhead from draft cost, got {lengths.tolist()}"
        )
    k = lengths.astype(np.float64)
    rest = measured - verify
    draft = float(((k - k.mean()) * (rest - rest.mean())).sum() / ((k - k.mean()) ** 2).sum())
    overhead = float(rest.mean()) - draft * float(k.mean())
    if overhead >= 0.0 and draft >= 0.0:
        return overhead, draft
    edges = [(max(0.0, float(rest.mean())), 0.0), (0.0, max(0.0, float((k * rest).sum() / (k * k).sum())))]
    return min(edges, key=lambda terms: float(((rest - terms[0] - terms[1] * k) ** 2).sum()))


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One draft length: prediction against measurement."""

    k: int
    verify: VerifyCost
    tokens_per_round: float
    predicted_ms: float
    measured_ms: float
    fitted: bool
    """Whether this k was used in the fit; if not, it is a test of it."""

    @property
    def predicted(self) -> float:
        """Tokens per second by the ledger."""
        return rounds.tokens_per_second(self.tokens_per_round, self.predicted_ms)

    @property
    def measured(self) -> float:
        """Tokens per second as measured."""
        return rounds.tokens_per_second(self.tokens_per_round, self.measured_ms)

    @property
    def residual(self) -> float:
        """Predicted / measured rate - 1; positive when the ledger promises too much."""
        return self.measured_ms / self.predicted_ms - 1.0


@dataclass(frozen=True, slots=True)
class Ledger:
    """The account of a draft-length sweep."""

    overhead_ms: float
    draft_ms: float
    rows: tuple[LedgerRow, ...]
    plain_ms: float
    plain_source: str
    """Which T(1) `plain_ms` is."""

    @classmethod
    def fit(
        cls,
        curve: Mapping[int, float],
        yields: Mapping[int, float],
        measured: Mapping[int, float],
        fit_on: Iterable[int],
        *,
        flat: float | None = None,
        plain_ms: float | None = None,
        plain_source: str = "plain decoding",
        concurrency: int = 1,
    ) -> Ledger:
        """Fit overhead and draft cost on the draft lengths `fit_on` and predict all others of `measured`.

        Args:
            curve: T(N), N to ms, at the run's mean depth.
            yields: measured tokens per round by k.
            measured: measured tokens per second by k.
            fit_on: two or more k of `measured`; at least one must be left over.
            flat: read sizes that were not measured off a plateau (see `verify_cost`).
            plain_ms: time per token without speculation. Default: T(1) of `curve`.
            plain_source: where `plain_ms` comes from.
            concurrency: requests served at a time.

        Raises:
            ConcurrencyError: `concurrency` is more than 1.
            ValueError: an argument is empty, out of range, or lacks a k.
        """
        chosen = sorted({arguments.whole("fit_on", k, low=1) for k in fit_on})
        missing = [k for k in chosen if k not in measured]
        if missing:
            raise ValueError(f"fit_on: k={missing[0]} was not measured; measured k: {sorted(measured)}")
        if len(chosen) < 2 or len(chosen) == len(measured):
            raise ValueError(
                f"fit_on must name at least two k and leave at least one of {sorted(measured)} to test, "
                f"got {chosen}"
            )
        rounds.refuse_concurrency(concurrency)
        times = {k: _measured_round(k, yields, measured) for k in chosen}
        verify = [rounds.verify_cost(curve, k + 1, flat=flat).ms for k in chosen]
        overhead_ms, draft_ms = fit_overhead(chosen, [times[k] for k in chosen], verify)
        return cls._account(
            curve, yields, measured, draft_ms, overhead_ms, chosen, flat, plain_ms, plain_source
        )

    @classmethod
    def from_terms(
        cls,
        curve: Mapping[int, float],
        yields: Mapping[int, float],
        measured: Mapping[int, float],
        *,
        draft_ms: float,
        overhead_ms: float = 0.0,
        flat: float | None = None,
        plain_ms: float | None = None,
        plain_source: str = "plain decoding",
        concurrency: int = 1,
    ) -> Ledger:
        """Predict every k of `measured` from terms known otherwise; arguments and errors as for `fit`."""
        rounds.refuse_concurrency(concurrency)
        draft_ms = arguments.number("draft_ms", draft_ms, low=0.0)
        overhead_ms = arguments.number("overhead_ms", overhead_ms, low=0.0)
        return cls._account(curve, yields, measured, draft_ms, overhead_ms, [], flat, plain_ms, plain_source)

    @classmethod
    def _account(
        cls,
        curve: Mapping[int, float],
        yields: Mapping[int, float],
        measured: Mapping[int, float],
        draft_ms: float,
        overhead_ms: float,
        fitted: list[int],
        flat: float | None,
        plain_ms: float | None,
        plain_source: str,
    ) -> Ledger:
        if not measured:
            raise ValueError("measured must not be empty")
        if plain_ms is None:
            plain_ms, plain_source = rounds.verify_cost(curve, 1).ms, "T(1) of the verify curve"
        rows = []
        for k in sorted(measured):
            verify = rounds.verify_cost(curve, arguments.whole("measured: k", k, low=1) + 1, flat=flat)
            predicted_ms = rounds.round_ms(k, verify.ms, draft_ms, overhead_ms)
            measured_ms = _measured_round(k, yields, measured)
            rows.append(LedgerRow(k, verify, float(yields[k]), predicted_ms, measured_ms, k in fitted))
        plain_ms = arguments.number("plain_ms", plain_ms, above=0.0)
        return cls(overhead_ms, draft_ms, tuple(rows), plain_ms, plain_source)

    @property
    def tested(self) -> tuple[LedgerRow, ...]:
        """The rows that were not used in the fit."""
        return tuple(row for row in self.rows if not row.fitted)

    @property
    def worst(self) -> LedgerRow:
        """The tested row with the largest residual."""
        return max(self.tested, key=lambda row: abs(row.residual))

    def closes(self, within: float = 0.10) -> bool:
        """Whether every tested k was predicted within the share `within`."""
        return abs(self.worst.residual) <= arguments.number("within", within, low=0.0)

    def to_json(self) -> dict[str, Any]:
        """Return builtin types only."""
        rows = [
            asdict(row) | {"predicted": row.predicted, "measured": row.measured, "residual": row.residual}
            for row in self.rows
        ]
        return asdict(self) | {"rows": rows}


def _measured_round(k: int, yields: Mapping[int, float], measured: Mapping[int, float]) -> float:
    """Return the measured time of a round in ms: its tokens at the measured rate."""
    if k not in yields:
        raise ValueError(f"yields: nothing for k={k}")
    produced = arguments.number(f"yields[{k}]", yields[k], above=0.0, high=k + 1.0)
    return 1000.0 * produced / arguments.number(f"measured[{k}]", measured[k], above=0.0)


@dataclass(frozen=True, slots=True)
class FreeDraft:
    """What speculation would give if drafting cost nothing (c to 0)."""

    ms_per_token: float
    speedup: float


def free_draft(
    verify_ms: float, tokens_per_round: float, plain_ms: float, overhead_ms: float = 0.0
) -> FreeDraft:
    """Return the counterfactual of a free draft, the ceiling for any cheaper source with this yield.

    Args:
        verify_ms: T(k + 1).
        tokens_per_round: the yield, kept as it is.
        plain_ms: time per token without speculation; say which T(1) it is, they differ by some percent.
        overhead_ms: time per round that stays.

    Raises:
        ValueError: an argument is negative, or 0 where a time or yield is needed.
    """
    produced = arguments.number("tokens_per_round", tokens_per_round, above=0.0)
    plain_ms = arguments.number("plain_ms", plain_ms, above=0.0)
    ms_per_token = rounds.round_ms(0, verify_ms, 0.0, overhead_ms) / produced
    return FreeDraft(ms_per_token, plain_ms / ms_per_token)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one run's ledger; times in ms."""

    k: int
    tokens_per_round: float
    verify_ms: float
    draft_ms: float
    overhead_ms: float

    @property
    def round_ms(self) -> float:
        """Time per round."""
        return rounds.round_ms(self.k, self.verify_ms, self.draft_ms, self.overhead_ms)

    @property
    def tokens_per_s(self) -> float:
        """Decode rate."""
        return rounds.tokens_per_second(self.tokens_per_round, self.round_ms)


@dataclass(frozen=True, slots=True)
class Attribution:
    """How a change of the decode rate splits over the terms: the factors multiply to `factor`."""

    factor: float
    acceptance: float
    verify: float
    draft: float
    overhead: float

    @property
    def moved(self) -> str:
        """The term with the largest effect."""
        terms = {name: value for name, value in asdict(self).items() if name != "factor"}
        return max(terms, key=lambda name: abs(math.log(terms[name])))


def attribute(before: Terms, after: Terms) -> Attribution:
    """Attribute the change of the decode rate from `before` to `after` to the terms that moved.

    The factor of the round time is split in proportion to each term's difference in ms (the logarithmic-mean
    Divisia decomposition, Ang 2004), so the split is exact and does not depend on an order of the terms.

    Raises:
        ValueError: a yield is not positive, or a time is out of range.
    """
    old, new = before.round_ms, after.round_ms
    per_ms = 1.0 / old if old == new else math.log(new / old) / (new - old)
    yield_old = arguments.number("before.tokens_per_round", before.tokens_per_round, above=0.0)
    yield_new = arguments.number("after.tokens_per_round", after.tokens_per_round, above=0.0)
    acceptance = yield_new / yield_old
    verify = math.exp(-per_ms * (after.verify_ms - before.verify_ms))
    draft = math.exp(-per_ms * (after.k * after.draft_ms - before.k * before.draft_ms))
    overhead = math.exp(-per_ms * (after.overhead_ms - before.overhead_ms))
    return Attribution(acceptance * old / new, acceptance, verify, draft, overhead)
