"""What the new arm is, accepts and writes against the old one: exact, under any load."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_specdec.checks.upgrade.kernels import other_bits
from pytest_specdec.checks.upgrade.pairs import plain_pairs
from pytest_specdec.checks.upgrade.pairs import speculative_pairs
from pytest_specdec.measurements import TextDifference
from pytest_specdec.reports import text
from pytest_specdec.reports.upgrade import Aspect
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.checks.upgrade.pairs import Run
    from pytest_specdec.measurements import Comparison
    from pytest_specdec.measurements import Speculation


# Texts named in one sentence.
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Counts:
    """Some rounds: how many, what they drafted, accepted and produced."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    produced: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.rounds + other.rounds,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            self.produced + other.produced,
        )

    @property
    def length(self) -> float:
        """Tokens per round, bonus included."""
        return self.produced / self.rounds if self.rounds else 0.0


def build(comparison: Comparison) -> Aspect:
    """Say what the two arms are; another build is no finding by itself."""
    old, new = comparison.old.facts, comparison.new.facts
    same = old.build == new.build
    parts = [f"the same on both sides: {old.build}" if same else f"{new.build}, was {old.build}"]
    for word, before, now in (("environment", old.env, new.env), ("parameters", old.params, new.params)):
        if before != now:
            parts.append(f"{word} {' '.join(now) or 'none'}, was {' '.join(before) or 'none'}")
    verdict = Verdict(Outcome.PASS, "build", None, None, None, "reported, never red", "; ".join(parts))
    return Aspect(verdict, judged=False)


def same_arms(comparison: Comparison) -> bool:
    """Whether both arms are one build in one environment with the same parameters."""
    old, new = comparison.old.facts, comparison.new.facts
    return (old.build, old.version, old.env, old.params) == (new.build, new.version, new.env, new.params)


def acceptance(comparison: Comparison, tolerance: float) -> Aspect:
    """Compare the counts of every prompt, exactly, as far as its text is the same on both arms.

    It fails when a round yields fewer tokens. A fall within the tolerance is no regression where the kernel
    maps prove other bits: drafts round otherwise too then, and turn at near ties of their own.
    """
    limit = "no fewer tokens per round"
    pairs: dict[str, tuple[Speculation, Speculation]] = {}
    for old, new in speculative_pairs(comparison):
        # Repetitions have the same counts.
        pairs.setdefault(old.prompt, (old, new))
    before = {prompt: _counts(old, new) for prompt, (old, new) in pairs.items()}
    now = {prompt: _counts(new, old) for prompt, (old, new) in pairs.items()}
    was, total = (sum(side.values(), Counts()) for side in (before, now))
    if not was.drafted or not total.drafted:
        why = "nothing was drafted on both arms within the same text: give it other prompts"
        return Aspect(Verdict(Outcome.NOT_MEASURED, "acceptance", None, None, None, limit, why))
    told = f"{total.accepted} of {text.plural(total.drafted, 'drafted token')} accepted"
    yields = f"{text.number(total.length)} tokens per round"
    differing = [prompt for prompt in pairs if before[prompt] != now[prompt]]
    outcome = Outcome.PASS
    if differing:
        outcome, word = _judge_counts(comparison, was, total, tolerance)
        told = f"{told}, were {was.accepted} of {was.drafted}"
        told = f"{told}; other counts on {len(differing)} of {text.plural(len(pairs), 'prompt')}"
        because = f"{yields}, were {text.number(was.length)}: {word}; {told}"
    else:
        because = f"{told}, {yields}: the same counts on {text.plural(len(pairs), 'prompt')}"
    if parted := sum(old.tokens != new.tokens for old, new in pairs.values()):
        because = f"{because}; on {text.plural(parted, 'prompt')} counted up to where the texts part"
    verdict = Verdict(
        outcome=outcome,
        metric="acceptance",
        value=total.length,
        low=None,
        high=None,
        limit=limit,
        because=because,
        section=_counts_table(before, now),
        baseline=was.length,
    )
    return Aspect(verdict, changed=bool(differing))


def near_tie(difference: TextDifference) -> bool:
    """Whether rounding explains a difference: its margin is no larger than the arms' logits differ there."""
    return difference.tie is not None and difference.tie.margin <= difference.tie.delta


def texts(comparison: Comparison) -> Aspect:
    """Hold every text of the new arm against the old one's: the same tokens, or parted at a near tie."""
    limit = "the same tokens, or a near tie"
    found = {(one.prompt, one.text): one for one in comparison.differences}
    lengths: dict[tuple[str, str], int] = {}
    both: dict[str, Sequence[tuple[Run, Run]]]
    both = {"plain": plain_pairs(comparison), "speculative": speculative_pairs(comparison)}
    for which, pairs in both.items():
        for old, new in pairs:
            place = (new.prompt, which)
            lengths[place] = len(new.tokens)
            at = _parts_at(old.tokens, new.tokens)
            if at is not None and place not in found:
                a, b = (run.tokens[at] if at < len(run.tokens) else None for run in (old, new))
                found[place] = TextDifference(new.prompt, which, at, a, b)
    if not any(lengths.values()):
        why = "the arms have no text in common: give both the same prompts"
        return Aspect(Verdict(Outcome.NOT_MEASURED, "texts", None, None, None, limit, why))
    every = f"{text.plural(sum(lengths.values()), 'token')} in {text.plural(len(lengths), 'text')}"
    differences = list(found.values())
    faults = [one for one in differences if not near_tie(one)]
    if faults:
        many = "is" if len(faults) == 1 else "are"
        because = (
            f"{len(faults)} of {text.plural(len(lengths), 'text')} {many} not the old arm's, and rounding "
            f"does not explain it: {_told(faults)}"
        )
    elif differences:
        part = "parts" if len(differences) == 1 else "part"
        because = (
            f"{every}: {len(differences)} {part} from the old arm's at a near tie ({_told(differences)})"
        )
    else:
        because = f"{every} are the same"
    verdict = Verdict(
        outcome=Outcome.FAIL if faults else Outcome.PASS,
        metric="texts",
        value=float(len(differences)),
        low=None,
        high=None,
        limit=limit,
        because=because,
        section=_differences_table(differences) if differences else "",
    )
    return Aspect(verdict, changed=bool(differences))


def _judge_counts(
    comparison: Comparison, was: Counts, total: Counts, tolerance: float
) -> tuple[Outcome, str]:
    kinds = [{(run.k, run.method) for run in arm.speculative} for arm in (comparison.old, comparison.new)]
    if kinds[0] != kinds[1]:
        return Outcome.PASS, "another draft length or method, so that only times can be compared"
    fall = 1 - (total.produced * was.rounds) / (was.produced * total.rounds)
    # Whole numbers decide which is more; the share may round to nothing.
    if total.produced * was.rounds >= was.produced * total.rounds:
        return Outcome.PASS, "no fewer"
    if fall > tolerance:
        return Outcome.FAIL, f"{fall:.1%} fewer"
    if not other_bits(comparison):
        return Outcome.FAIL, f"{fall:.1%} fewer, and the kernel maps show no other bits to explain it"
    return Outcome.PASS, f"{fall:.1%} fewer, which other bits may do at near ties of the draft"


def _counts(run: Speculation, beside: Speculation) -> Counts:
    """Count the rounds within the text that both arms have; all of them where the texts are the same."""
    at = _parts_at(run.tokens, beside.tokens)
    if at is None:
        return Counts(len(run.drafted), sum(run.drafted), sum(run.accepted), max(len(run.tokens) - 1, 0))
    total, end = Counts(), 1
    for drafted, accepted in zip(run.drafted, run.accepted, strict=True):
        end += accepted + 1
        if end > at:
            break
        total += Counts(1, drafted, accepted, accepted + 1)
    return total


def _parts_at(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the first position at which two texts differ, None when they don't."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))


def _told(differences: Sequence[TextDifference]) -> str:
    told = []
    for one in differences[:SHOWN]:
        where = f"{one.prompt!r} ({one.text}) at {one.position}"
        if one.tie is None:
            told.append(f"{where}, no evidence of a near tie")
        else:
            margin = text.against(one.tie.margin, one.tie.delta, 3)
            sign = "<=" if near_tie(one) else ">"
            told.append(f"{where}, margin {margin} {sign} δ = {text.number(one.tie.delta, 3)}")
    return "; ".join([*told, "..."] if len(differences) > SHOWN else told)


def _differences_table(differences: Sequence[TextDifference]) -> str:
    rows = [
        [
            one.prompt,
            one.text,
            str(one.position),
            "end" if one.old_token is None else str(one.old_token),
            "end" if one.new_token is None else str(one.new_token),
            "-" if one.tie is None else text.number(one.tie.margin, 3),
            "-" if one.tie is None else text.number(one.tie.delta, 3),
            "near tie" if near_tie(one) else "no near tie",
        ]
        for one in differences
    ]
    header = ["prompt", "text", "token", "old", "new", "margin", "δ", ""]
    return "\n".join(text.table(header, rows, left=(0, 1, 7)))


def _counts_table(before: Mapping[str, Counts], now: Mapping[str, Counts]) -> str:
    rows = []
    for prompt, old in before.items():
        new = now[prompt]
        fewer = new.produced * old.rounds < old.produced * new.rounds
        rows.append(
            [
                prompt,
                str(new.rounds),
                str(old.rounds),
                f"{new.accepted}/{new.drafted}",
                f"{old.accepted}/{old.drafted}",
                "" if old == new else "fewer" if fewer else "other",
            ]
        )
    header = ["prompt", "rounds", "were", "accepted", "was", ""]
    return "\n".join(text.table(header, rows, left=(0, 5)))
