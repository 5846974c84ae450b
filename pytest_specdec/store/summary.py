"""What a person wants to know of a measurement, as a few named numbers."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from statistics import median
from typing import Any

from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import MemoryUse
from pytest_specdec.measurements import NoiseRun
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Structure
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import VerifyCurve


def summary(measurement: Measurement) -> dict[str, float]:
    """Names to numbers, in reading order; empty for a kind that nobody has summed up."""
    make = _SUMMARIES.get(measurement.kind)
    return make(measurement) if make else {}


def _curve(curve: VerifyCurve) -> dict[str, float]:
    return {f"T({n}) ms": ms for n, ms in curve.medians_ms().items()}


def _decode(run: DecodeRun) -> dict[str, float]:
    tokens = sum(max(len(g.tokens) - 1, 0) for g in run.generations)
    ms = sum(g.decode_ms for g in run.generations)
    return {"prompts": len(run.generations), **_rate("tokens/s", tokens * 1000.0, ms)}


def _speculative(run: SpeculativeRun) -> dict[str, float]:
    if run.published is not None:
        counts: dict[str, float | None] = {"acceptance rate": run.published.rate}
    else:
        counts = {
            "drafted": run.drafted,
            "accepted": run.accepted,
            "rounds": run.rounds,
            **_rate("acceptance rate", run.accepted, run.drafted),
        }
    counts |= {"tokens per round": run.tokens_per_round, "tokens/s": run.tokens_per_s}
    return {name: value for name, value in counts.items() if value is not None}


def _speed(run: SpeedRun) -> dict[str, float]:
    plain, speculative = run.plain_tokens_per_s(), run.speculative_tokens_per_s()
    speedup = median(pair.ratio for pair in run.pairs) if run.pairs else speculative / plain
    return {
        "pairs": len(run.pairs),
        "plain tokens/s": plain,
        "speculative tokens/s": speculative,
        "speedup": speedup,
    }


def _exactness(exactness: Exactness) -> dict[str, float]:
    cases = exactness.cases
    decided = [case.decided for case in cases]
    return {
        "prompts": len(cases),
        **{f"decided by step {step}": decided.count(step) for step in (1, 2, 3) if step in decided},
        "prompts that differ": sum(case.first_difference is not None for case in cases),
        "near ties": sum(len(case.margins) for case in cases),
        "largest difference": max((case.difference for case in cases), default=0.0),
        "largest noise": max((case.noise for case in cases), default=0.0),
    }


def _draft_cost(cost: DraftCost) -> dict[str, float]:
    ratios = [draft / target for draft, target in zip(cost.draft_ms, cost.target_ms, strict=True)]
    return {
        "draft ms": median(cost.draft_ms),
        "target ms": median(cost.target_ms),
        "draft cost": median(ratios),
    }


def _timeline(timeline: Timeline) -> dict[str, float]:
    return {
        "forward share": timeline.forward_share,
        "wall ms off": timeline.total_ms("wall_ms", speculating=False),
        "wall ms on": timeline.total_ms("wall_ms", speculating=True),
    }


def _memory(use: MemoryUse) -> dict[str, float]:
    return {"peak GiB": use.peak / 2**30, "headroom": use.headroom}


def _ledger(run: LedgerRun) -> dict[str, float]:
    return {f"tokens/s k={k}": rate for k, rate in zip(run.ks, run.tokens_per_s, strict=True)}


def _kernel_map(found: KernelMap) -> dict[str, float]:
    return {f"batches at depth {one.depth} repeated": float(sum(one.repeated)) for one in found.maps}


def _noise(run: NoiseRun) -> dict[str, float]:
    # When first needed: numpy takes longer to import than a baseline to read.
    from pytest_specdec.theory.noise import paired_floor

    floor = paired_floor(run.log_ratios())
    return {"pairs": len(run.pairs), **({} if floor is None else {"noise floor": floor})}


def _structure(found: Structure) -> dict[str, float]:
    return {"probes": len(found.probes), "faults": len(found.faults)}


def _rate(name: str, part: float, whole: float) -> dict[str, float]:
    return {name: part / whole} if whole else {}


_SUMMARIES: Mapping[str, Callable[[Any], dict[str, float]]] = {
    "verify_curve": _curve,
    "decode": _decode,
    "speculative": _speculative,
    "speed": _speed,
    "exactness": _exactness,
    "draft_cost": _draft_cost,
    "timeline": _timeline,
    "memory": _memory,
    "ledger": _ledger,
    "kernel_map": _kernel_map,
    "noise": _noise,
    "structure": _structure,
}
