"""The draft length to use, or not to speculate, with the reason in words."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from pytest_specdec.theory import arguments
from pytest_specdec.theory import rounds
from pytest_specdec.theory import steps
from pytest_specdec.theory.rounds import VerifyCost
from pytest_specdec.theory.steps import StepMap


# Speedups that differ by less are equal but for floating point.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """One draft length: what a round yields and costs, and the speedup over plain decoding."""

    k: int
    verify: VerifyCost
    tokens_per_round: float
    round_ms: float
    predicted: float
    """Tokens per second by the ledger."""
    measured: float | None
    """Tokens per second where this k was run."""
    speedup: float
    """Of the measured rate, where there is one, else of the predicted."""
    note: str
    """What the verify cost does at this place; empty where there is nothing to say."""

    @property
    def tokens_per_s(self) -> float:
        """The rate that counts: measured, else predicted."""
        return self.predicted if self.measured is None else self.measured


@dataclass(frozen=True, slots=True)
class Advice:
    """The best draft length among those whose verify cost was measured; 0 when none pays."""

    best_k: int
    speedup: float
    """Over plain decoding; 1.0 with `best_k` 0."""
    speculate: bool
    reason: str
    table: tuple[AdviceRow, ...]
    """All candidates, by k."""
    plain_ms: float
    """Time per token without speculation that the speedups refer to."""
    plain_source: str
    """Which T(1) that is."""

    @property
    def best_row(self) -> AdviceRow:
        """The best candidate, whether or not it pays."""
        return _best(self.table)

    def to_json(self) -> dict[str, Any]:
        """Return builtin types only."""
        return asdict(self) | {"table": [asdict(row) for row in self.table]}


def best_draft_length(
    curve: Mapping[int, float],
    draft_ms: float,
    positions: ArrayLike | None = None,
    alpha: float | None = None,
    overhead_ms: float = 0.0,
    candidates: Iterable[int] | None = None,
    *,
    yields: Mapping[int, float] | None = None,
    measured: Mapping[int, float] | None = None,
    plain_ms: float | None = None,
    plain_source: str = "plain decoding",
    flat: float | None = None,
    step_map: StepMap | None = None,
    concurrency: int = 1,
) -> Advice:
    """Return the draft length with the highest decode rate, or the advice not to speculate.

    Optimises over measured sizes, never over a fitted curve: T has cliffs and sawteeth, so the best k is
    often the last before one of them. Of equally good ones the shortest wins. The yield comes from exactly
    one of `positions`, `alpha` and `yields`.

    Args:
        curve: T(N), N to ms, at the run's mean depth.
        draft_ms: time per drafted token.
        positions: unconditional acceptance per position, shape (positions,).
        alpha: per-token acceptance of the i.i.d. model; approximate, as it varies with k and position.
        overhead_ms: time per round not explained by drafting and verifying.
        candidates: draft lengths to compare. Default: those of `measured`, or without it all; of these every
            k whose N = k + 1 is in `curve` and whose yield is known.
        yields: measured tokens per round by k.
        measured: measured tokens per second by k; they outrank the prediction, which leaves terms out.
        plain_ms: time per token without speculation. Default: T(1) of `curve`.
        plain_source: where `plain_ms` comes from, for the reason.
        flat: read sizes that were not measured off a plateau flat to this share (see `rounds.verify_cost`).
        step_map: the steps of `curve`, when better known than from its values alone (samples, noise).
        concurrency: requests served at a time.

    Raises:
        ConcurrencyError: `concurrency` is more than 1.
        ValueError: an argument is empty, not finite or out of range; no candidate is left; a candidate's N
            was not measured or its yield is not known.
    """
    rounds.refuse_concurrency(concurrency)
    sizes, times = rounds.curve_arrays(curve)
    draft_ms = arguments.number("draft_ms", draft_ms, low=0.0)
    overhead_ms = arguments.number("overhead_ms", overhead_ms, low=0.0)
    known = _Yields(positions, alpha, yields)
    if plain_ms is None:
        plain_ms, plain_source = rounds.verify_cost(curve, 1).ms, "T(1) of the verify curve"
    plain_ms = arguments.number("plain_ms", plain_ms, above=0.0)
    rates = {k: arguments.number("measured", rate, above=0.0) for k, rate in (measured or {}).items()}
    if candidates is None:
        chosen = [
            n - 1 for n in sizes.tolist() if n > 1 and known.has(n - 1) and (not rates or n - 1 in rates)
        ]
    else:
        chosen = sorted({arguments.whole("candidates", k, low=1) for k in candidates})
    if not chosen:
        raise ValueError("candidates: none left; a candidate k needs T(k + 1) and a yield")
    shape = steps.find_steps(sizes, times) if step_map is None else step_map
    table = []
    for k in chosen:
        verify = rounds.verify_cost(curve, k + 1, flat=flat)
        produced = known.at(k)
        cost = rounds.round_ms(k, verify.ms, draft_ms, overhead_ms)
        predicted = rounds.tokens_per_second(produced, cost)
        rate = rates.get(k)
        speedup = (predicted if rate is None else rate) * plain_ms / 1000.0
        table.append(
            AdviceRow(k, verify, produced, cost, predicted, rate, speedup, _note(verify, curve, shape))
        )
    best = _best(table)
    pays = best.speedup > 1.0 + _ROUNDING
    parts = [_arithmetic(best, draft_ms, overhead_ms, plain_ms, plain_source), best.note, *_sags(table)]
    if not pays:
        parts.insert(0, f"do not speculate: no draft length pays, the best of {len(table)} is k={best.k}")
    return Advice(
        best_k=best.k if pays else 0,
        speedup=best.speedup if pays else 1.0,
        speculate=pays,
        reason="; ".join(part for part in parts if part),
        table=tuple(table),
        plain_ms=plain_ms,
        plain_source=plain_source,
    )


class _Yields:
    """Tokens per round by k, from whichever source was given."""

    def __init__(
        self, positions: ArrayLike | None, alpha: float | None, yields: Mapping[int, float] | None
    ) -> None:
        if sum(source is not None for source in (positions, alpha, yields)) != 1:
            raise ValueError("positions, alpha, yields: give exactly one of them")
        self._alpha = None if alpha is None else arguments.number("alpha", alpha, low=0.0, high=1.0)
        self._positions = (
            None if positions is None else arguments.floats("positions", positions, low=0.0, high=1.0)
        )
        self._yields = None if yields is None else dict(yields)
        if self._yields == {}:
            raise ValueError("yields must not be empty")
        for k, tokens in (self._yields or {}).items():
            arguments.number(f"yields[{k}]", tokens, low=0.0, high=k + 1.0)

    def has(self, k: int) -> bool:
        if self._yields is not None:
            return k in self._yields
        return self._positions is None or k <= len(self._positions)

    def at(self, k: int) -> float:
        if self._alpha is not None:
            return rounds.tokens_per_round(self._alpha, k)
        if self._positions is not None:
            return rounds.tokens_from_positions(self._positions, k)
        if self._yields is None or k not in self._yields:
            raise ValueError(f"yields: nothing for the candidate k={k}")
        return float(self._yields[k])


def _best(table: Iterable[AdviceRow]) -> AdviceRow:
    rows = list(table)
    limit = max(row.speedup for row in rows) * (1.0 - _ROUNDING)
    return min((row for row in rows if row.speedup >= limit), key=lambda row: row.k)


def _note(verify: VerifyCost, curve: Mapping[int, float], shape: StepMap) -> str:
    """Say what the verify cost does at this size."""
    n = verify.n
    notes = []
    if n in shape.dips:
        after = next(step.n for step in shape.steps if step.after == n)
        costs = f"{curve[after]:.2f} against {curve[n]:.2f} ms"
        notes.append(f"N={n} is a dip: {after} tokens cost less ({costs})")
    for cliff in shape.cliffs:
        if cliff.after == n:
            notes.append(f"{n} is the last N before the cliff {_at(cliff)} ({cliff.ratio:.2f}x)")
        elif cliff.n <= n and not any(cliff.n < step.n <= n for step in (*shape.cliffs, *shape.drops)):
            notes.append(f"N={n} is behind the cliff {_at(cliff)} ({cliff.ratio:.2f}x)")
    if verify.plateau is not None:
        notes.append(verify.describe())
    return ", ".join(notes)


def _at(cliff: steps.Step) -> str:
    return cliff.where() if cliff.where().startswith("in") else f"at {cliff.where()}"


def _arithmetic(row: AdviceRow, draft_ms: float, overhead_ms: float, plain_ms: float, source: str) -> str:
    """Spell out how the speedup of `row` comes about."""
    cost = (
        f"k={row.k} yields {row.tokens_per_round:.2f} tokens in {row.round_ms:.2f} ms "
        f"(verify {row.verify.ms:.2f} + draft {row.k} x {draft_ms:.2f} + overhead {overhead_ms:.2f}), "
        f"{row.predicted:.2f} tokens/s"
    )
    rates = "predicted" if row.measured is None else f"predicted, {row.measured:.2f} measured"
    return f"{cost} {rates}, against {1000.0 / plain_ms:.2f} without ({source}): {row.speedup:.2f}x"


def _sags(table: list[AdviceRow]) -> list[str]:
    """Explain each k that is slower than its neighbours on both sides."""
    found = []
    for left, row, right in zip(table, table[1:], table[2:], strict=False):
        if row.speedup < min(left.speedup, right.speedup):
            why = row.note or f"T({row.verify.n}) rises by more than the yield from k={left.k}"
            found.append(f"k={row.k} sags ({row.speedup:.2f}x): {why}")
    return found
