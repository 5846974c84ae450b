"""What verification accepted: rates with their denominators, censored alpha, intervals by prompt."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from numpy.typing import NDArray

from pytest_specdec.theory import arguments
from pytest_specdec.theory import stats
from pytest_specdec.theory.arguments import FloatArray
from pytest_specdec.theory.arguments import IntArray


PromptId = int | str


@dataclass(frozen=True, slots=True)
class Shift:
    """How far an estimate moves when one prompt is left out."""

    prompt: PromptId
    shift: float


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance over the rounds of one run. Shares are nan where their denominator is 0."""

    rounds: int
    prompts: int
    drafted: int
    accepted: int
    tokens: int
    """Tokens produced: accepted ones and one bonus token per round that was not cut."""
    rejections: int
    """Rounds that ended in a rejection; the others are censored: accepted in full, or cut."""
    rate: float
    """Accepted / drafted tokens. Falls with the draft length by construction."""
    rate_interval: tuple[float, float]
    rate_leave_one_out: Shift | None
    length: float
    """Tokens per round, bonus included, over all rounds."""
    length_interval: tuple[float, float]
    length_leave_one_out: Shift | None
    length_macro: float
    """Mean over prompts of each prompt's tokens per round: one long generation cannot dominate it."""
    alpha: float
    """Per-token acceptance of the i.i.d. model, the censored maximum-likelihood estimate."""
    interval: tuple[float, float]
    """Interval of `alpha`, clustered by prompt."""
    leave_one_out: Shift | None
    """Largest shift of `alpha` by one prompt; None with a single prompt."""
    positions: tuple[float, ...]
    """Item i - 1: share of the rounds in `position_rounds` whose first i drafts were all accepted."""
    position_rounds: tuple[int, ...]
    """Item i - 1: rounds that drafted position i and were not cut before it."""
    position_intervals: tuple[tuple[float, float], ...]
    """Item i - 1: interval of `positions`, clustered by prompt."""
    conditionals: tuple[float, ...]
    """Item i - 1: the same share among the rounds in `conditional_rounds`."""
    conditional_rounds: tuple[int, ...]
    """Item i - 1: rounds of `position_rounds` whose first i - 1 drafts were accepted."""

    @classmethod
    def from_rounds(
        cls,
        drafted: ArrayLike,
        accepted: ArrayLike,
        prompt: Sequence[PromptId] | NDArray[np.int64] | NDArray[np.str_],
        cut: ArrayLike | None = None,
        *,
        confidence: float = 0.95,
    ) -> Acceptance:
        """Count rounds; all arrays have the shape (rounds,).

        Alpha maximises the likelihood alpha^A (1 - alpha)^R of A accepted tokens and R rejections, so it is
        A / (A + R). A round accepted in full or cut short ended without a rejection and adds to A only.

        The intervals are clustered by prompt, because the rounds of one text depend on each other: the
        delete-one-prompt jackknife of each ratio with Student's t (prompts - 1 degrees of freedom). It is
        deterministic, where a bootstrap is not, and keeps its coverage with few prompts, where a percentile
        bootstrap is too narrow. No interval is narrower than independent tokens (Wilson's) or rounds would
        make it, so prompts that agree by chance prove nothing. A single prompt says nothing about another:
        the interval is the whole range.

        Args:
            drafted: tokens drafted in each round; 0 where the source proposed nothing.
            accepted: how many of them were accepted, from the first on.
            prompt: which prompt each round belongs to, ints or strings.
            cut: True where the round ended after `accepted` tokens without a rejection and without a bonus
                token: end of generation inside the draft, or the token limit. Default: none.
            confidence: of the two-sided intervals.

        Raises:
            ValueError: an argument is empty, negative, not whole, of another length, or more was accepted
                than drafted.
        """
        draft_lengths = arguments.integers("drafted", drafted)
        taken = arguments.integers("accepted", accepted)
        arguments.same_length("accepted", taken, "drafted", len(draft_lengths))
        if (taken > draft_lengths).any():
            worst = int(np.argmax(taken > draft_lengths))
            raise ValueError(
                f"accepted must not exceed drafted, but round {worst} accepted {taken[worst]} "
                f"of {draft_lengths[worst]}"
            )
        was_cut = _flags(cut, len(draft_lengths))
        labels, cluster = _clusters(prompt, len(draft_lengths))
        confidence = arguments.number("confidence", confidence, above=0.0, below=1.0)

        rejected = ((taken < draft_lengths) & ~was_cut).astype(np.int64)
        produced = taken + ~was_cut
        ones = np.ones_like(taken)

        def estimate(top: IntArray, bottom: IntArray, limit: float, floor: _Floor) -> _Estimate:
            return _clustered(top, bottom, cluster, labels, confidence, limit, floor)

        alpha = estimate(taken, taken + rejected, 1.0, _wilson)
        rate = estimate(taken, draft_lengths, 1.0, _wilson)
        length = estimate(produced, ones, float(draft_lengths.max() + 1), _independent_rounds(produced))
        numbers = range(1, int(draft_lengths.max()) + 1)
        offered = [(draft_lengths >= i) & ~(was_cut & (taken < i)) for i in numbers]
        reached = [rows & (taken >= i - 1) for i, rows in zip(numbers, offered, strict=True)]
        kept = [int((taken >= i).sum()) for i in numbers]
        position_rounds = tuple(int(rows.sum()) for rows in offered)
        by_position = [
            estimate(((taken >= i) & rows).astype(np.int64), rows.astype(np.int64), 1.0, _wilson)
            for i, rows in zip(numbers, offered, strict=True)
        ]
        conditional_rounds = tuple(int(rows.sum()) for rows in reached)
        return cls(
            rounds=len(taken),
            prompts=len(labels),
            drafted=int(draft_lengths.sum()),
            accepted=int(taken.sum()),
            tokens=int(produced.sum()),
            rejections=int(rejected.sum()),
            rate=rate.value,
            rate_interval=rate.interval,
            rate_leave_one_out=rate.shift,
            length=length.value,
            length_interval=length.interval,
            length_leave_one_out=length.shift,
            length_macro=float(np.mean(_sums(produced, cluster) / _sums(ones, cluster))),
            alpha=alpha.value,
            interval=alpha.interval,
            leave_one_out=alpha.shift,
            positions=tuple(_share(top, bottom) for top, bottom in zip(kept, position_rounds, strict=True)),
            position_rounds=position_rounds,
            position_intervals=tuple(one.interval for one in by_position),
            conditionals=tuple(
                _share(top, bottom) for top, bottom in zip(kept, conditional_rounds, strict=True)
            ),
            conditional_rounds=conditional_rounds,
        )

    def to_json(self) -> dict[str, Any]:
        """Return builtin types only; what is undefined (nan) becomes None."""
        result: dict[str, Any] = {}
        for key, value in asdict(self).items():
            if isinstance(value, tuple):
                result[key] = [list(item) if isinstance(item, tuple) else _defined(item) for item in value]
            else:
                result[key] = _defined(value)
        return result


@dataclass(frozen=True, slots=True)
class _Estimate:
    value: float
    interval: tuple[float, float]
    shift: Shift | None


# (sum of tops, sum of bottoms, confidence) -> interval of their ratio without clusters
_Floor = Callable[[int, int, float], tuple[float, float]]


def _clustered(
    top: IntArray,
    bottom: IntArray,
    cluster: IntArray,
    labels: Sequence[PromptId],
    confidence: float,
    limit: float,
    floor: _Floor,
) -> _Estimate:
    """Estimate sum(top) / sum(bottom) with a delete-one-cluster jackknife interval inside [0, limit]."""
    tops, bottoms = _sums(top, cluster), _sums(bottom, cluster)
    # A prompt without a denominator tells nothing and must not count as evidence.
    telling = np.flatnonzero(bottoms)
    total, weight = int(tops.sum()), int(bottoms.sum())
    if len(telling) == 0:
        return _Estimate(math.nan, (0.0, limit), None)
    value = total / weight
    if len(telling) == 1:
        return _Estimate(value, (0.0, limit), None)
    without = (total - tops[telling]) / (weight - bottoms[telling])
    largest = int(np.argmax(np.abs(without - value)))
    count = len(telling)
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    half = stats.student_t_quantile((1 + confidence) / 2, count - 1) * error
    low, high = floor(total, weight, confidence)
    interval = (max(0.0, min(low, value - half)), min(limit, max(high, value + half)))
    return _Estimate(value, interval, Shift(labels[telling[largest]], float(without[largest] - value)))


def _wilson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion of independent trials."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return min(share, centre - half), max(share, centre + half)


def _independent_rounds(produced: IntArray) -> _Floor:
    """Return the interval of the mean of `produced`, shape (rounds,), as though rounds were independent."""

    def interval(total: int, rounds: int, confidence: float) -> tuple[float, float]:
        error = float(np.std(produced, ddof=1)) / math.sqrt(rounds)
        half = NormalDist().inv_cdf((1 + confidence) / 2) * error
        return total / rounds - half, total / rounds + half

    return interval


def _flags(cut: ArrayLike | None, rounds: int) -> NDArray[np.bool_]:
    if cut is None:
        return np.zeros(rounds, dtype=np.bool_)
    flags = arguments.integers("cut", cut)
    arguments.same_length("cut", flags, "drafted", rounds)
    if (flags > 1).any():
        raise ValueError(f"cut must hold True or False, but holds {flags.max()}")
    return flags.astype(np.bool_)


def _clusters(
    prompt: Sequence[PromptId] | NDArray[np.int64] | NDArray[np.str_], rounds: int
) -> tuple[list[PromptId], IntArray]:
    """Return the prompts in order of appearance, as builtin values, and the index of each round's prompt."""
    ids: list[PromptId] = [label.item() if isinstance(label, np.generic) else label for label in prompt]
    if len(ids) != rounds:
        raise ValueError(f"prompt must have one row for each of the {rounds} of drafted, got {len(ids)}")
    for label in ids:
        if not isinstance(label, (int, str)):
            raise ValueError(f"prompt must hold ints or strings, but holds {label!r}")
    numbered = {label: i for i, label in enumerate(dict.fromkeys(ids))}
    return list(numbered), np.asarray([numbered[label] for label in ids], dtype=np.int64)


def _sums(values: IntArray, cluster: IntArray) -> FloatArray:
    """Return the sum per cluster, shape (clusters,)."""
    sums: FloatArray = np.bincount(cluster, weights=values).astype(np.float64)
    return sums


def _share(top: int, bottom: int) -> float:
    return top / bottom if bottom else math.nan


def _defined(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
