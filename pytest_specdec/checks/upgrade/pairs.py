"""What ran next to each other on both arms, prompt by prompt, and its totals."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING
from typing import Protocol
from typing import TypeVar


if TYPE_CHECKING:
    from pytest_specdec.measurements import Generation
    from pytest_specdec.measurements import Speculation
    from pytest_specdec.measurements.comparison import Comparison

    PlainPairs = Sequence[tuple[Generation, Generation]]
    SpeculativePairs = Sequence[tuple[Speculation, Speculation]]


class Run(Protocol):
    """Decoding of one prompt, plain or speculative."""

    @property
    def prompt(self) -> str: ...  # noqa: D102

    @property
    def tokens(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def decode_ms(self) -> float: ...  # noqa: D102

    @property
    def tokens_per_s(self) -> float: ...  # noqa: D102


R = TypeVar("R", bound=Run)


def plain_pairs(comparison: Comparison) -> PlainPairs:
    """Return (old, new) for every prompt of every repetition that both arms decoded."""
    rounds = zip(comparison.old.plain, comparison.new.plain, strict=False)
    return [pair for old, new in rounds for pair in _matched(old.generations, new.generations)]


def speculative_pairs(comparison: Comparison) -> SpeculativePairs:
    """Return (old, new) for every prompt of every repetition that both arms speculated on."""
    rounds = zip(comparison.old.speculative, comparison.new.speculative, strict=False)
    return [pair for old, new in rounds for pair in _matched(old.speculations, new.speculations)]


def by_prompt(runs: Iterable[R]) -> dict[str, list[R]]:
    """Return every prompt's repetitions."""
    found: dict[str, list[R]] = {}
    for run in runs:
        found.setdefault(run.prompt, []).append(run)
    return found


def pooled_rate(runs: Iterable[Run]) -> float:
    """Return tokens/s over all prompts, each with the median time of its repetitions."""
    found = by_prompt(runs).values()
    tokens = sum(len(repeated[0].tokens) - 1 for repeated in found)
    return 1000 * tokens / sum(median(run.decode_ms for run in repeated) for repeated in found)


def drafting_ms(run: Speculation) -> float:
    """Return what drafting took, the draft's prefill included."""
    return sum(run.draft_ms) + run.draft_prefill_ms


def overhead_ms(run: Speculation) -> float:
    """Return what neither drafting nor verifying took."""
    return max(run.decode_ms - drafting_ms(run) - sum(run.verify_ms), 0.0)


def _matched(old: Sequence[R], new: Sequence[R]) -> list[tuple[R, R]]:
    mine = {run.prompt: run for run in new}
    return [(run, mine[run.prompt]) for run in old if run.prompt in mine]
