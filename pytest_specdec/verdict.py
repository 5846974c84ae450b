"""What a check decides about one limit: the value every room above passes on and reports show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Outcome(str, Enum):
    """The four answers a check can give."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Verdict:
    """One limit, held against one measurement.

    ``value`` is the point estimate and ``low``/``high`` its bounds, all in the unit of ``metric``; exact
    counters have no bounds. ``limit`` is the mark as the user wrote it, ``because`` one sentence that says
    what moved and why, ``section`` the evidence, several lines long, shown under a failure.
    """

    outcome: Outcome
    metric: str
    value: float | None
    low: float | None
    high: float | None
    limit: str
    because: str
    section: str = ""
    baseline: float | None = None
    policy_skip: bool = False

    @property
    def measured(self) -> bool:
        """Whether anything was measured."""
        return self.outcome is not Outcome.NOT_MEASURED

    def long_repr(self) -> str:
        """The failure text: limit, reason, evidence."""
        head = f"{self.limit}: {self.outcome.value}: {self.because}"
        return f"{head}\n{self.section}" if self.section else head

    def to_json(self) -> dict[str, Any]:
        """Builtin types only, fit for ``user_properties``."""
        return {
            "outcome": self.outcome.value,
            "metric": self.metric,
            "value": _plain(self.value),
            "low": _plain(self.low),
            "high": _plain(self.high),
            "limit": self.limit,
            "because": self.because,
            "section": self.section,
            "baseline": _plain(self.baseline),
            "policy_skip": self.policy_skip,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Verdict:
        """The inverse of :meth:`to_json`."""
        return cls(**{**data, "outcome": Outcome(data["outcome"])})


def worst(verdicts: Iterable[Verdict]) -> Outcome:
    """An item's outcome: any fail, else all not measured, else any doubt (inconclusive), else pass."""
    outcomes = [verdict.outcome for verdict in verdicts]
    if Outcome.FAIL in outcomes:
        return Outcome.FAIL
    if outcomes and all(outcome is Outcome.NOT_MEASURED for outcome in outcomes):
        return Outcome.NOT_MEASURED
    if Outcome.INCONCLUSIVE in outcomes or Outcome.NOT_MEASURED in outcomes:
        return Outcome.INCONCLUSIVE
    return Outcome.PASS


def _plain(value: float | None) -> float | None:
    # A float subclass (numpy.float64) in user_properties ends an xdist run.
    return None if value is None else float(value)
