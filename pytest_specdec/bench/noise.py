"""Pairs of plain decoding by two arms, and the same arm as both: what times differ by when nothing does."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.bench.procedures import LOOKS
from pytest_specdec.bench.procedures import PAIRS_PER_LOOK
from pytest_specdec.bench.procedures import WARM_TOKENS
from pytest_specdec.bench.procedures import Pair
from pytest_specdec.bench.procedures import check_rates
from pytest_specdec.bench.procedures import first_begins
from pytest_specdec.measurements import ArmPair
from pytest_specdec.measurements import NoiseRun


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench

# Decodes a prompt's tokens and says, as the worker does, which tokens came and in how many ms.
Arm = Callable[[list[int]], dict[str, Any]]
Prompts = Sequence[tuple[str, list[int]]]


def arm_of(bench: Bench) -> tuple[Arm, Prompts]:
    """Load the bench's target, warmed up: plain decoding as an arm, and the prompts' tokens."""
    pair = Pair(bench, drafting=False)
    n_predict = bench.settings.n_predict
    pair.plain(pair.prompts[0][1], min(WARM_TOKENS, n_predict))
    return lambda tokens: pair.plain(tokens, n_predict), pair.prompts


def pairs(first: Arm, second: Arm, prompts: Prompts, indices: Sequence[int]) -> list[ArmPair]:
    """Run the pairs of these numbers, counted from 0 over all looks.

    Prompts take turns; which arm begins alternates from pair to pair and flips from round to round, so that
    a prompt's consecutive pairs are ABBA.

    Raises:
        BenchError: a prompt's text ends after its first token, so that it has no decode rate.
    """
    count = len(prompts)
    found = []
    for index in indices:
        name, tokens = prompts[index % count]
        if first_begins(index, count):
            one = first(tokens)
            other = second(tokens)
        else:
            other = second(tokens)
            one = first(tokens)
        check_rates(name, one, other)
        found.append(
            ArmPair(name, len(one["tokens"]), one["decode_ms"], len(other["tokens"]), other["decode_ms"])
        )
    return found


def noise(bench: Bench) -> NoiseRun:
    """Plain decoding as both arms, over all the pairs that a speedup's looks may take."""
    arm, prompts = arm_of(bench)
    per_look = max(PAIRS_PER_LOOK, len(prompts))
    found: list[ArmPair] = []
    for index in range(LOOKS * per_look):
        bench.session.progress(f"noise {bench.pair}: pair {index + 1}/{LOOKS * per_look}")
        found += pairs(arm, arm, prompts, [index])
    return NoiseRun(tuple(found))
