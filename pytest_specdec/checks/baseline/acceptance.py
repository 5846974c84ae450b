"""The acceptance counts of every prompt against the baseline's: exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_specdec.checks.baseline.limits import SHOWN
from pytest_specdec.checks.baseline.limits import not_measured
from pytest_specdec.checks.remedies import ACCEPT
from pytest_specdec.checks.remedies import RECORD
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.reports import text
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Counts:
    """What one prompt's rounds drafted, accepted and produced."""

    prompt: str
    rounds: int
    drafted: int
    accepted: int
    produced: int

    def better_than(self, other: Counts) -> bool:
        """Whether a larger share was accepted, and a round gave no fewer tokens."""
        more = self.accepted * max(other.drafted, 1) > other.accepted * max(self.drafted, 1)
        return more and self.produced * other.rounds >= other.produced * self.rounds


def compare_acceptance(
    live: SpeculativeRun,
    stored: SpeculativeRun,
    tolerance: float | None,
    limit: str,
    alpha: float | None = None,
) -> Verdict:
    """Compare each prompt's counts exactly; `tolerance` and `alpha` do not apply to counters."""
    metric = f"acceptance k={live.k}"
    if (live.k, live.method) != (stored.k, stored.method):
        why = f"measured {live.method} at k = {live.k}, the baseline has {stored.method} at k = {stored.k}"
        return not_measured(metric, limit, f"{why}; acceptance is comparable at one k only: {RECORD}")
    if live.published is not None or stored.published is not None:
        return _compare_published(live, stored, metric, limit)
    now, then = _counts(live), _counts(stored)
    if [one.prompt for one in now] != [one.prompt for one in then]:
        why = f"the baseline was measured on other prompts ({text.plural(len(then), 'prompt')}): {RECORD}"
        return not_measured(metric, limit, why)
    pairs = list(zip(now, then, strict=True))
    changed = [(new, old) for new, old in pairs if new != old]
    better = [(new, old) for new, old in changed if new.better_than(old)]
    rest = [pair for pair in changed if pair not in better]
    if rest:
        outcome = Outcome.FAIL
        because = f"acceptance is not the baseline's on {_prompts_told(rest, len(pairs))}"
        if better:
            because = f"{because}; better on {_prompts_told(better, len(pairs))}"
        because = f"{because}; counts are exact, so something changed: compare builds and models, or {ACCEPT}"
    elif better:
        outcome = Outcome.PASS
        because = f"better: more is accepted on {_prompts_told(better, len(pairs))}; {ACCEPT}"
    else:
        outcome = Outcome.PASS
        total = f"{live.accepted} of {text.plural(live.drafted, 'drafted token')} accepted"
        where = f"{text.plural(len(pairs), 'prompt')}, k = {live.k}"
        because = f"{total} on {where}: each prompt's counts are the baseline's"
    rows = [
        [
            new.prompt,
            str(new.rounds),
            str(old.rounds),
            f"{new.accepted}/{new.drafted}",
            f"{old.accepted}/{old.drafted}",
            "" if new == old else "better" if new.better_than(old) else "changed",
        ]
        for new, old in pairs
    ]
    header = ["prompt", "rounds", "were", "accepted", "was", ""]
    section = "\n".join(text.table(header, rows, left=(0, 5)))
    return Verdict(
        outcome=outcome,
        metric=metric,
        value=live.accepted / live.drafted if live.drafted else None,
        low=None,
        high=None,
        limit=limit,
        because=because,
        section=section,
        baseline=stored.accepted / stored.drafted if stored.drafted else None,
    )


def _compare_published(live: SpeculativeRun, stored: SpeculativeRun, metric: str, limit: str) -> Verdict:
    """Compare totals, which is all that published runs have."""
    if live.published is None or stored.published is None:
        which = "measured run" if live.published is not None else "baseline"
        why = f"published totals have no counts per prompt to hold against those of the {which}"
        return not_measured(metric, limit, f"{why}: {RECORD}")
    now, then = live.published, stored.published
    rates = f"acceptance rate {text.against(now.rate, then.rate)}, was {text.number(then.rate)} (published)"
    outcome = Outcome.PASS
    if now == then:
        because = f"acceptance rate {text.number(now.rate)} (published, k = {live.k}) is the baseline's"
    elif now.rate > then.rate:
        because = f"better: {rates}; {ACCEPT}"
    else:
        outcome = Outcome.FAIL
        because = f"published totals are not the baseline's: {rates}; {ACCEPT}"
    return Verdict(outcome, metric, now.rate, None, None, limit, because, baseline=then.rate)


def _counts(run: SpeculativeRun) -> list[Counts]:
    return [
        Counts(
            one.prompt,
            len(one.drafted),
            sum(one.drafted),
            sum(one.accepted),
            sum(one.accepted) + len(one.drafted) - (1 if one.cut else 0),
        )
        for one in run.speculations
    ]


def _prompts_told(pairs: Sequence[tuple[Counts, Counts]], total: int) -> str:
    shown = "; ".join(
        f"{new.prompt!r}: {new.accepted} of {new.drafted}, was {old.accepted} of {old.drafted}"
        + (f", in {new.rounds} rounds, was {old.rounds}" if new.rounds != old.rounds else "")
        for new, old in pairs[:SHOWN]
    )
    more = "; ..." if len(pairs) > SHOWN else ""
    return f"{len(pairs)} of {text.plural(total, 'prompt')} ({shown}{more})"
