"""Which term of the ledger moved: a change in tokens/s divided among T(N), draft, acceptance and overhead."""

from __future__ import annotations

import math
from collections.abc import Collection
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from pytest_specdec.theory import arguments
from pytest_specdec.theory.rounds import tokens_per_second


TERMS: Final = ("curve", "draft", "acceptance", "overhead")


@dataclass(frozen=True, slots=True)
class Terms:
    """What one arm's rounds yield and cost.

    `widths` is N to the number (or share) of rounds that verified N tokens, `verify_ms` T(N) of every such N;
    `draft_ms` and `overhead_ms` are per round.
    """

    tokens_per_round: float
    widths: Mapping[int, float]
    verify_ms: Mapping[int, float]
    draft_ms: float
    overhead_ms: float = 0.0

    @property
    def mean_verify_ms(self) -> float:
        """The mean over the rounds of T(N) at the width verified.

        Raises:
            ValueError: a width has no T(N), or there are no rounds.
        """
        return _mean_verify_ms(self.widths, self.verify_ms)

    @property
    def tokens_per_s(self) -> float:
        """The decode rate that these terms make: 1000 tokens per round / (verify + draft + overhead).

        Raises:
            ValueError: a term is out of range, or a width has no T(N).
        """
        draft = arguments.number("draft_ms", self.draft_ms, low=0.0)
        overhead = arguments.number("overhead_ms", self.overhead_ms, low=0.0)
        return tokens_per_second(self.tokens_per_round, self.mean_verify_ms + draft + overhead)


@dataclass(frozen=True, slots=True)
class Attribution:
    """Shares of the natural log of new / old tokens/s; the five add up to it."""

    curve: float
    draft: float
    acceptance: float
    overhead: float
    unexplained: float
    """What the measured ratio has beyond the one that the terms make."""

    @property
    def predicted(self) -> float:
        """New / old tokens/s as the terms make it."""
        return math.exp(self.curve + self.draft + self.acceptance + self.overhead)

    @property
    def measured(self) -> float:
        """New / old tokens/s."""
        return math.exp(self._total)

    def shares(self) -> dict[str, float]:
        """Return every term's share of the change, 1 for all of it; opposite changes have negative shares.

        Raises:
            ValueError: nothing changed.
        """
        total = self._total
        if total == 0:
            raise ValueError("tokens/s did not change, so there is nothing to attribute")
        return {name: getattr(self, name) / total for name in (*TERMS, "unexplained")}

    @property
    def _total(self) -> float:
        return math.fsum((self.curve, self.draft, self.acceptance, self.overhead, self.unexplained))


def attribute(old: Terms, new: Terms, measured_ratio: float) -> Attribution:
    """Divide the log of `measured_ratio`, new / old tokens/s, among the terms.

    Each term's share is its Shapley value (Shapley 1953): its effect on log tokens/s when it is exchanged for
    the new arm's, averaged over every order in which the four may be exchanged, so that none decides. The
    widths go with acceptance and T(N) with the curve. What the four together don't make is unexplained.

    Raises:
        ValueError: a term is out of range, `measured_ratio` is not positive, or either curve lacks a width
            that one of the arms verified.
    """
    measured = math.log(arguments.number("measured_ratio", measured_ratio, above=0.0))
    logs = {chosen: math.log(_mixed(old, new, chosen).tokens_per_s) for chosen in _subsets(TERMS)}
    shares = {name: _shapley(name, logs) for name in TERMS}
    predicted = logs[frozenset(TERMS)] - logs[frozenset()]
    return Attribution(**shares, unexplained=measured - predicted)


def _shapley(name: str, logs: Mapping[frozenset[str], float]) -> float:
    others = [other for other in TERMS if other != name]
    orders = math.factorial(len(TERMS))
    total = 0.0
    for before in _subsets(others):
        after = len(others) - len(before)
        weight = math.factorial(len(before)) * math.factorial(after) / orders
        total += weight * (logs[before | {name}] - logs[before])
    return total


def _mixed(old: Terms, new: Terms, chosen: Collection[str]) -> Terms:
    """Return the old terms with the chosen ones exchanged for the new arm's."""
    curve, draft, acceptance, overhead = (new if name in chosen else old for name in TERMS)
    return Terms(
        tokens_per_round=acceptance.tokens_per_round,
        widths=acceptance.widths,
        verify_ms=curve.verify_ms,
        draft_ms=draft.draft_ms,
        overhead_ms=overhead.overhead_ms,
    )


def _mean_verify_ms(widths: Mapping[int, float], verify_ms: Mapping[int, float]) -> float:
    if not widths:
        raise ValueError("widths must not be empty: no round verified anything")
    if lacking := sorted(n for n in widths if n not in verify_ms):
        raise ValueError(
            f"T(N) was not measured at N = {', '.join(map(str, lacking))}, which rounds verified"
        )
    rounds = [arguments.number("widths", count, above=0.0) for count in widths.values()]
    cost = [arguments.number("verify_ms", verify_ms[n], above=0.0) for n in widths]
    return math.fsum(r * ms for r, ms in zip(rounds, cost, strict=True)) / math.fsum(rounds)


def _subsets(names: Collection[str]) -> list[frozenset[str]]:
    return [frozenset(chosen) for size in range(len(names) + 1) for chosen in combinations(names, size)]
