"""How far rejected drafts were from being right, and whether longer drafts or another sampler would help."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING
from typing import Final

from pytest_specdec.reports import text


if TYPE_CHECKING:
    from pytest_specdec.measurements import SpeculativeRun


#: A rejected token this far below the chosen one, in nats, was half as likely.
NEAR: Final = math.log(2)
#: From this share on a finding is said to be frequent.
OFTEN: Final = 1 / 3
FEWEST: Final = 10


def miss_lines(run: SpeculativeRun, *, drawn: bool = False) -> list[str]:
    """Return what the rejections of a run say; nothing where none are known. `drawn`: tokens were drawn.

    The gap is a difference of log-probabilities at temperature 1, so exp(-gap) is how much likelier the
    chosen token was.
    """
    misses = [miss for one in run.speculations for miss in one.misses or ()]
    if not misses:
        return []
    second = sum(miss.rank == 2 for miss in misses)
    five = sum(miss.rank <= 5 for miss in misses)
    near = sum(miss.gap <= NEAR for miss in misses)
    count = len(misses)
    lines = [
        f"{text.plural(count, 'rejection')}: the drafted token was the target's second choice in {second}, "
        f"among its five likeliest in {five}; half as likely as the chosen one or more in {near} "
        f"(median gap {text.number(median(miss.gap for miss in misses))} nats)"
    ]
    if count < FEWEST:
        return lines
    # Whether drawing would help is a question to greedy decoding.
    return [*lines, _longer(run), *([] if drawn else [_sampler(near, count)])]


def _longer(run: SpeculativeRun) -> str:
    drafting = [
        (drafted, accepted)
        for one in run.speculations
        for drafted, accepted in zip(one.drafted, one.accepted, strict=True)
        if drafted
    ]
    full = sum(drafted == accepted for drafted, accepted in drafting)
    told = f"{full} of {text.plural(len(drafting), 'round')} accepted their whole draft"
    if full >= OFTEN * len(drafting):
        return f"{told}: longer drafts would be accepted further, where T(N) allows (specdec advise)"
    return f"{told}: longer drafts would add little"


def _sampler(near: int, count: int) -> str:
    if near >= OFTEN * count:
        return (
            "rejections sit close: sampling at a temperature would accept part of them, greedy decoding can't"
        )
    return "rejections are not close: another sampler would not save them, a better draft would"
