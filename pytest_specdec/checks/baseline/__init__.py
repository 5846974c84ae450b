"""Limits against this machine's baseline, one module per metric."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.checks.baseline.acceptance import compare_acceptance
from pytest_specdec.checks.baseline.curve import compare_curves
from pytest_specdec.checks.baseline.draft_cost import compare_draft_cost
from pytest_specdec.checks.baseline.forward_share import compare_forward_shares
from pytest_specdec.checks.baseline.limits import not_measured
from pytest_specdec.checks.baseline.overhead import compare_overheads
from pytest_specdec.checks.baseline.speedup import compare_speed
from pytest_specdec.checks.baseline.speedup import settled
from pytest_specdec.checks.conditions import under_conditions
from pytest_specdec.checks.kernels import compare_kernels
from pytest_specdec.checks.remedies import RECORD
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import Measurement

__all__ = ["METRICS", "settled", "within_baseline"]


def within_baseline(
    live: Measurement,
    stored: Measurement | None,
    *,
    metric: str,
    tolerance: float | None = None,
    limit: str = "",
    alpha: float | None = None,
    **evidence: Any,
) -> Verdict:
    """Hold a measurement against the stored one.

    ``metric`` is one of ``METRICS``: "kernels" (classes and thresholds of the kernel map, exactly; ``curve``
    may be given for what they do to T(N)), "curve" (T(N)/T(1), and no new cliff), "acceptance" (each prompt's
    counts, exactly), "draft_cost" (t_draft/T(1)), "forward_share" (Amdahl's p, by prompt), "overhead" (ms per
    round beside drafting and verifying, by prompt) or "speedup".

    `tolerance` is the relative change allowed, by default the metric's in ``limits.ALLOWED``, where the
    absolute changes that never count stand too; it does not apply to counters. Times fail only when the
    bounds are clear of the limit. What got better is reported, never red. `alpha` is the one-sided error of a
    bound.

    Raises:
        ValueError: the metric is unknown, or a measurement is of another kind than the metric needs.
    """
    if metric not in METRICS:
        raise ValueError(f"within_baseline knows {', '.join(sorted(METRICS))}, not {metric!r}")
    kind, judge, name = METRICS[metric]
    limit = limit or f"within_baseline({metric!r})"
    for which, value in (("live", live), ("stored", stored)):
        if value is not None and not isinstance(value, kind):
            raise ValueError(
                f"within_baseline({metric!r}) compares {kind.kind}; the {which} measurement is {value.kind}"
            )
    if stored is None:
        return not_measured(name, limit, f"the baseline holds no {metric} for these settings: {RECORD}")
    verdict: Verdict = judge(live, stored, tolerance, limit, alpha, **evidence)
    return verdict if metric in COUNTED else under_conditions(verdict, live)


# Exact, whatever the machine is doing.
COUNTED = ("acceptance", "kernels")
METRICS: Mapping[str, tuple[type[Any], Callable[..., Verdict], str]] = {
    "kernels": (KernelMap, compare_kernels, "kernel map"),
    "curve": (VerifyCurve, compare_curves, "T(N)/T(1)"),
    "acceptance": (SpeculativeRun, compare_acceptance, "acceptance"),
    "draft_cost": (DraftCost, compare_draft_cost, "t_draft/T(1)"),
    "forward_share": (Timeline, compare_forward_shares, "forward share"),
    "overhead": (SpeculativeRun, compare_overheads, "overhead"),
    "speedup": (SpeedRun, compare_speed, "speedup"),
}
