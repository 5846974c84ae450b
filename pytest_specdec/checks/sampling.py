"""Does speculation draw from the target's own distribution?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_specdec.reports import text
from pytest_specdec.theory.distribution import g_test
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import Distribution

#: A sound source is failed this often.
ALPHA = 0.001
# Texts shown.
SHOWN = 8


def same_distribution(drawn: Distribution, *, alpha: float = ALPHA, limit: str = "") -> Verdict:
    """Hold drawn texts against their exact odds by a G-test, with false alarms at the rate `alpha`."""
    limit = limit or f"same_distribution(alpha={alpha:g})"
    found = g_test(drawn.counts, drawn.odds)
    counts = (
        f"{text.plural(found.draws, 'draw')} of {text.plural(len(drawn.texts), 'text')} behind "
        f"{drawn.prompt!r} (k = {drawn.k}, {drawn.method}, temperature {drawn.temperature:g})"
    )
    if found.impossible:
        outcome = Outcome.FAIL
        because = f"{counts}: {found.impossible} of them the target never says at these settings"
    elif found.df == 0:
        outcome = Outcome.NOT_MEASURED
        because = f"{counts} tell nothing: one text has all the odds; raise the temperature"
    else:
        told = f"G = {text.number(found.g)}, {text.plural(found.df, 'degree')} of freedom, p = {found.p:.2g}"
        outcome = Outcome.FAIL if found.p < alpha else Outcome.PASS
        verb = "are not the target's own distribution" if found.p < alpha else "fit the target's odds"
        because = f"{counts} {verb}: {told}"
    return Verdict(outcome, "distribution", found.p, None, None, limit, because, _section(drawn))


def _section(drawn: Distribution) -> str:
    rows = sorted(
        zip(drawn.texts, drawn.counts, drawn.odds, strict=True),
        key=lambda row: -abs(row[1] - row[2] * drawn.draws),
    )
    cells = [
        [" ".join(map(str, tokens)), str(count), f"{odds * drawn.draws:.1f}"]
        for tokens, count, odds in rows[:SHOWN]
    ]
    return "\n".join(text.table(["tokens", "drawn", "expected"], cells, left=(0,)))
