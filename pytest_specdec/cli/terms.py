"""What a baseline, a replay or a file gives an account of speculation: curve, yields, rates, draft cost."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from statistics import mean
from statistics import median
from typing import Any
from typing import TypeVar

from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve
from pytest_specdec.imports.measured import curve_of
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.store import Entry


M = TypeVar("M", bound=Measurement)


@dataclass(frozen=True, slots=True)
class Known:
    """The terms of a ledger as far as they are known; times in ms, rates in tokens per second, by k.

    ``yields`` are tokens per round, bonus included; ``rates`` decode rates with speculation. ``plain_ms`` is
    the time per token without it, and ``plain_source`` says which one that is.
    """

    title: str
    curve: Curve
    yields: Mapping[int, float] = field(default_factory=dict)
    rates: Mapping[int, float] = field(default_factory=dict)
    draft_ms: float | None = None
    draft_cost: float | None = None
    plain_ms: float | None = None
    plain_source: str = ""
    remarks: tuple[str, ...] = ()


def of_entries(entries: Iterable[Entry], title: str, name: str, *, with_runs: bool = True) -> Known:
    """Collect the terms from a pair's kept measurements; `name` is the file's, for messages.

    Speculative runs count that share all settings but k: where there are several such sweeps, the longest.
    Without `with_runs`, yields and rates come from elsewhere.

    Raises:
        BadFile: there is no verify curve, or no speculative run.
    """
    kept = list(entries)
    runs, others = _sweep(kept) if with_runs else ({}, 0)
    ledger = max(_all(kept, LedgerRun), key=lambda one: len(one.ks), default=None)
    if with_runs and ledger is not None and len(ledger.ks) > len(runs):
        return _of_ledger(ledger, title, kept)
    if with_runs and not runs:
        told = "holds no speculative run: give --yields, --acceptance, --positions or --alpha"
        raise BadFile(name, None, told)
    curve, remarks = _curve(kept, runs, name)
    if others:
        remarks.append(f"other sweeps, with other settings, are left out: {others}")
    prefill = [s.draft_prefill_ms for run in runs.values() for s in run.speculations]
    if any(prefill):
        remarks.append(f"the draft's prefill, {mean(prefill):.1f} ms per prompt, is in no rate")
    method = next((run.method for run in runs.values()), "")
    method = method or next((cost.method for cost in _all(kept, DraftCost)), "")
    yields = {k: tokens for k, run in runs.items() if (tokens := _tokens_per_round(run)) is not None}
    speeds = {run.k: run for run in _all(kept, SpeedRun) if run.method == method}
    cost = next((one for one in _all(kept, DraftCost) if one.method == method and one.draft_ms), None)
    plain_ms, plain_source = _plain(kept, speeds)
    return Known(
        title=title,
        curve=curve,
        yields=yields,
        rates=_rates(runs, speeds),
        draft_ms=None if cost is None else median(cost.draft_ms),
        draft_cost=None if cost is None else median(cost.draft_ms) / median(cost.target_ms),
        plain_ms=plain_ms,
        plain_source=plain_source,
        remarks=tuple(remarks),
    )


def _of_ledger(run: LedgerRun, title: str, kept: Sequence[Entry]) -> Known:
    times = {1: run.plain_ms, **{k + 1: ms for k, ms in zip(run.ks, run.verify_ms, strict=True)}}
    sizes = sorted(times)
    verify = VerifyCurve(
        tuple(sizes), tuple(((times[n],),) for n in sizes), depth=run.depth, source=run.source
    )
    cost = next((one for one in _all(kept, DraftCost) if one.method == run.method and one.draft_ms), None)
    return Known(
        title=title,
        curve=curve_of("ledger", verify),
        yields=dict(zip(run.ks, run.tokens_per_round, strict=True)),
        rates=dict(zip(run.ks, run.tokens_per_s, strict=True)),
        draft_ms=None if cost is None else median(cost.draft_ms),
        draft_cost=None if cost is None else median(cost.draft_ms) / median(cost.target_ms),
        plain_ms=run.plain_ms,
        plain_source=f"T(1) at depth {run.depth}",
    )


def _sweep(entries: Sequence[Entry]) -> tuple[dict[int, SpeculativeRun], int]:
    """Return the runs of the longest sweep, by k, and how many other sweeps there are."""
    sweeps: dict[tuple[tuple[str, Any], ...], dict[int, SpeculativeRun]] = {}
    for entry in entries:
        if isinstance(entry.measurement, SpeculativeRun):
            rest = tuple(sorted((key, str(value)) for key, value in entry.settings.items() if key != "k"))
            sweeps.setdefault(rest, {})[entry.measurement.k] = entry.measurement
    if not sweeps:
        return {}, 0
    longest = max(sweeps.values(), key=len)
    return dict(sorted(longest.items())), len(sweeps) - 1


def _curve(
    entries: Sequence[Entry], runs: Mapping[int, SpeculativeRun], name: str
) -> tuple[Curve, list[str]]:
    """Return the curve nearest to the runs' mean depth, of all rows where there is one."""
    found = [(entry.key, one) for entry in entries if isinstance(one := entry.measurement, VerifyCurve)]
    if not found:
        raise BadFile(name, None, "holds no verify curve: measure one with specdec curve, or with cliff_at")
    depth = _mean_depth(runs.values())
    key, verify = min(
        found, key=lambda one: (one[1].rows != "all", abs(one[1].depth - (depth or 0)), -len(one[1].n))
    )
    remarks = []
    if depth is not None and abs(verify.depth - depth) > 0.5 * max(depth, 64):
        remarks.append(f"T(N) is that of depth {verify.depth}, the runs' mean depth is {depth}")
    return curve_of(key, verify), remarks


def _mean_depth(runs: Iterable[SpeculativeRun]) -> int | None:
    depths = [s.prompt_tokens + len(s.tokens) / 2 for run in runs for s in run.speculations]
    return round(mean(depths)) if depths else None


def _tokens_per_round(run: SpeculativeRun) -> float | None:
    if run.tokens_per_round is None and run.published is not None:
        # Every round of the sources seen drafts k tokens.
        return 1.0 + run.k * run.published.rate
    return run.tokens_per_round


def _rates(runs: Mapping[int, SpeculativeRun], speeds: Mapping[int, SpeedRun]) -> dict[int, float]:
    """Rates from one kind of run only: the runs' own, or, where one has none, those of the speed runs.

    The draft's prefill belongs to no round: the runs' own rates leave it out.
    """
    own = {}
    for k, run in runs.items():
        ms = sum(s.decode_ms - s.draft_prefill_ms for s in run.speculations)
        if ms > 0:
            own[k] = 1000.0 * sum(max(len(s.tokens) - 1, 0) for s in run.speculations) / ms
    if len(own) == len(runs):
        return own
    return {k: speeds[k].speculative_tokens_per_s() for k in runs if k in speeds}


def _plain(entries: Sequence[Entry], speeds: Mapping[int, SpeedRun]) -> tuple[float | None, str]:
    """Return ms per token of plain decoding, None where only T(1) tells it, and where it is from."""
    if speeds:
        source = next(iter(speeds.values())).source
        told = "plain decoding" if source == "measured" else f"plain decoding, {source}"
        return 1000.0 / median(run.plain_tokens_per_s() for run in speeds.values()), told
    for run in _all(entries, DecodeRun):
        tokens = sum(max(len(g.tokens) - 1, 0) for g in run.generations)
        if tokens:
            return sum(g.decode_ms for g in run.generations) / tokens, "plain decoding"
    return None, ""


def _all(entries: Iterable[Entry], kind: type[M]) -> list[M]:
    return [entry.measurement for entry in entries if isinstance(entry.measurement, kind)]
