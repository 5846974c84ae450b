"""An old build and a new one as text and JSON: the verdict first, then every aspect with its evidence."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from typing import Any
from typing import Final

from pytest_specdec.reports import text
from pytest_specdec.verdict import Outcome


if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from pytest_specdec.measurements import Comparison
    from pytest_specdec.theory.attribution import Attribution
    from pytest_specdec.theory.attribution import Terms
    from pytest_specdec.theory.change import Change
    from pytest_specdec.verdict import Verdict


COLUMNS: Final = 110


class Conclusion(str, Enum):
    """The four answers to "may I upgrade?"."""

    SAME = "no difference"
    CHANGED = "a change worth knowing and no regression"
    REGRESSION = "regression"
    UNKNOWN = "could not tell"

    def __str__(self) -> str:
        return self.value


OUTCOMES: Final[Mapping[Conclusion, Outcome]] = {
    Conclusion.SAME: Outcome.PASS,
    Conclusion.CHANGED: Outcome.PASS,
    Conclusion.REGRESSION: Outcome.FAIL,
    Conclusion.UNKNOWN: Outcome.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing the two arms were compared in.

    `changed`: it differs and is not worse for it. An aspect that is not `judged` is reported and never red.
    """

    verdict: Verdict
    changed: bool = False
    judged: bool = True

    @property
    def word(self) -> str:
        """What became of it, in a word or two."""
        if not self.judged:
            return "reported"
        if self.verdict.outcome is Outcome.PASS:
            return "changed" if self.changed else "same"
        return _WORDS[self.verdict.outcome]


_WORDS: Final[Mapping[Outcome, str]] = {
    Outcome.FAIL: "regression",
    Outcome.INCONCLUSIVE: "unclear",
    Outcome.NOT_MEASURED: "not measured",
}


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """What judging a comparison found.

    `verify` is the paired change of T(N), new ÷ old; `speed` that of the speculative decode rate; `terms` the
    old and the new arm's. `attribution` is None where there is none, and `attribution_because` says why.
    """

    comparison: Comparison
    conclusion: Conclusion
    because: str
    aspects: tuple[Aspect, ...]
    tolerance: float
    verify: tuple[tuple[int, Change], ...] = ()
    speed: Change | None = None
    terms: tuple[Terms, Terms] | None = None
    attribution: Attribution | None = None
    attribution_because: str = ""

    @property
    def outcome(self) -> Outcome:
        """Pass, fail, or inconclusive where it could not be told."""
        return OUTCOMES[self.conclusion]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One per aspect."""
        return tuple(aspect.verdict for aspect in self.aspects)

    def aspect(self, metric: str) -> Aspect:
        """Return one aspect.

        Raises:
            KeyError: there is none of this name.
        """
        for one in self.aspects:
            if one.verdict.metric == metric:
                return one
        raise KeyError(metric)


def upgrade_text(report: UpgradeReport) -> list[str]:
    """Return the report for a terminal: verdict, arms, aspects, attribution, then the evidence."""
    comparison = report.comparison
    lines = [
        *_wrapped(f"{report.conclusion}: ", report.because, indent=2),
        "",
        *_arms(comparison),
        "",
        *_aspects(report.aspects),
        "",
        *attribution_lines(report),
    ]
    for one in report.aspects:
        if one.verdict.section:
            lines += ["", f"{one.verdict.metric}:", *one.verdict.section.splitlines()]
    return lines


def attribution_lines(report: UpgradeReport) -> list[str]:
    """Return which terms make the change in tokens/s, in percent of it, or why there is none to divide."""
    if report.attribution is None or report.terms is None:
        return [report.attribution_because]
    found = report.attribution
    old, new = report.terms
    values = {
        "curve": ("T(N)", old.mean_verify_ms, new.mean_verify_ms, "ms per round"),
        "draft": ("draft cost", old.draft_ms, new.draft_ms, "ms per round"),
        "acceptance": ("acceptance", old.tokens_per_round, new.tokens_per_round, "tokens per round"),
        "overhead": ("overhead", old.overhead_ms, new.overhead_ms, "ms per round"),
    }
    shares = found.shares()
    rows = []
    for name, (label, before, now, unit) in values.items():
        told = f"{text.number(now)} {unit}, was {text.number(before)}"
        rows.append([label, _percent(shares[name]), f"x {text.number(math.exp(getattr(found, name)))}", told])
    rest = f"x {text.number(math.exp(found.unexplained))}"
    rows.append(["unexplained", _percent(shares["unexplained"]), rest, ""])
    head = f"speculative decoding x {text.number(found.measured)} over all prompts; of that change come from"
    return [f"{head}:", *(f"  {row}" for row in text.table(["", "", "", ""], rows, left=(0, 3))[1:])]


def upgrade_json(report: UpgradeReport) -> dict[str, Any]:
    """Return verdict, aspects, changes and the raw comparison, in builtin types; an open bound is None."""
    medians = [arm.curve.medians_ms() for arm in (report.comparison.old, report.comparison.new)]
    attribution = None
    if report.attribution is not None and report.terms is not None:
        attribution = {
            "log": asdict(report.attribution),
            "shares": report.attribution.shares(),
            "predicted": report.attribution.predicted,
            "measured": report.attribution.measured,
            "old": _terms(report.terms[0]),
            "new": _terms(report.terms[1]),
        }
    return {
        "conclusion": report.conclusion.value,
        "outcome": report.outcome.value,
        "because": report.because,
        "tolerance": report.tolerance,
        "aspects": [{**one.verdict.to_json(), "word": one.word} for one in report.aspects],
        "verify_cost": [
            {"n": n, "old_ms": medians[0][n], "new_ms": medians[1][n], **_change(change)}
            for n, change in report.verify
        ],
        "speculative_decoding": None if report.speed is None else _change(report.speed),
        "attribution": attribution,
        "attribution_because": report.attribution_because,
        "comparison": report.comparison.to_json(),
    }


def _aspects(aspects: Sequence[Aspect]) -> list[str]:
    """Return one paragraph per aspect: name, word, and what was found beside them."""
    heads = text.table(["", ""], [[one.verdict.metric, one.word] for one in aspects], left=(0, 1))[1:]
    columns = 2 + max(map(text.width, heads), default=0)
    lines = []
    for head, one in zip(heads, aspects, strict=True):
        lines += _wrapped(text.pad(head, columns), one.verdict.because, indent=columns)
    return lines


def _wrapped(head: str, told: str, *, indent: int) -> list[str]:
    return textwrap.wrap(
        told,
        width=COLUMNS,
        initial_indent=head,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _arms(comparison: Comparison) -> list[str]:
    rows = []
    for which, arm in (("old", comparison.old.facts), ("new", comparison.new.facts)):
        rows.append([which, arm.name, "; ".join([arm.build, *arm.env, *arm.params])])
    lines = text.table(["", "", ""], rows, left=(0, 1, 2))[1:]
    lines.append(f"k = {comparison.k}, {comparison.method}")
    if comparison.turns:
        lines.append("the arms took turns: memory did not allow both to be loaded at once")
    return [*lines, *comparison.notes]


def _change(change: Change) -> dict[str, Any]:
    return {
        "ratio": change.value,
        "low": change.low if change.bounded else None,
        "high": change.high if change.bounded else None,
        "pairs": change.pairs,
    }


def _terms(terms: Terms) -> dict[str, Any]:
    return {
        "tokens_per_round": terms.tokens_per_round,
        "verify_ms": terms.mean_verify_ms,
        "draft_ms": terms.draft_ms,
        "overhead_ms": terms.overhead_ms,
        "widths": {str(n): rounds for n, rounds in sorted(terms.widths.items())},
    }


def _percent(share: float) -> str:
    # Adding 0 makes -0% a plain one.
    return f"{round(100 * share) + 0}%"
