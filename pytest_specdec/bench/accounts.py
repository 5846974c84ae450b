"""Where time and memory go: the timeline of requests, peak memory, and what a ledger is fitted on."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from statistics import mean
from statistics import median
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.procedures import WARM_TOKENS
from pytest_specdec.bench.procedures import Pair
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import MemoryUse
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Timeline


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


# Draft lengths that fit overhead and draft cost, and those between them that test them.
FIT_ON = (1, 3, 7)
HELD_OUT = (2, 5)
# Every draft length is run this often, all of them in turn, so that drift meets them alike.
TURNS = 4


def timeline(bench: Bench) -> Timeline:
    """Every prompt plain and speculating in turn, the order alternating."""
    pair = Pair(bench)
    settings = bench.settings
    for run in (pair.plain, lambda tokens, n: pair.speculative(tokens, n, settings.k)):
        run(pair.prompts[0][1], min(WARM_TOKENS, settings.n_predict))
    requests: list[Stages] = []
    for index, (name, tokens) in enumerate(pair.prompts):
        bench.session.progress(f"timeline {pair.model.name}: prompt {index + 1}/{len(pair.prompts)}")
        for speculating in (False, True) if index % 2 == 0 else (True, False):
            answer: dict[str, Any]
            if speculating:
                answer = pair.speculative(tokens, settings.n_predict, settings.k)
            else:
                answer = pair.plain(tokens, settings.n_predict)
            own = {"prompt": name, "speculating": speculating, "tokens": len(answer["tokens"])}
            requests.append(Stages.from_json({**own, **answer["stages"]}))
    return Timeline(settings.k, bench.method, tuple(requests))


def memory(bench: Bench) -> MemoryUse:
    """Speculate over every prompt, then ask for the peak.

    Raises:
        NotMeasured: the platform does not tell.
    """
    bench.speculate()
    pair = Pair(bench)
    answer = pair.engine.request("memory")
    used = set(pair.target.facts["model"]["devices"])
    gpus = [d for d in answer["devices"] if d["type"] == "gpu" and d["name"] in used and d["memory_total"]]
    if gpus:
        tightest = min(gpus, key=lambda d: d["memory_free"] / d["memory_total"])
        total = tightest["memory_total"]
        return MemoryUse(total - tightest["memory_free"], total, tightest["description"])
    total = max((d["memory_total"] for d in answer["devices"] if d["type"] == "cpu"), default=0)
    if not answer["peak"] or not total:
        raise NotMeasured("this platform does not tell a process's peak memory")
    return MemoryUse(answer["peak"], total, "memory of the machine")


def ledger(bench: Bench, fit_on: Sequence[int], held_out: Sequence[int]) -> LedgerRun:
    """Runs at every draft length in turn, and T(N) at their mean depth for every N they verified."""
    ks = [*fit_on, *held_out]
    counted = {k: bench.speculate(k) for k in ks}
    speculations = [s for run in counted.values() for s in run.speculations]
    depth = mean_depth(speculations)
    sizes = tuple(sorted({1} | widths_of(speculations)))
    if depth + max(sizes) > bench.settings.n_ctx:
        raise BenchError(f"a mean depth of {depth} and N = {max(sizes)} exceed n_ctx: raise n_ctx")
    curve = bench.with_settings(depth=depth, sizes=",".join(map(str, sizes))).verify_curve().medians_ms()
    rates: dict[int, list[float]] = {k: [] for k in ks}
    pair = Pair(bench)
    for turn in range(TURNS):
        for k in ks if turn % 2 == 0 else reversed(ks):
            bench.session.progress(f"ledger {pair.model.name} k={k}: turn {turn + 1}/{TURNS}")
            rates[k].append(_rate(pair, bench.settings.n_predict, k))
    drafted = {k: [n for s in counted[k].speculations for n in s.drafted] for k in ks}
    if not all(drafted[k] and min(rates[k]) > 0 for k in ks):
        raise BenchError(
            "the prompts end before a round of speculation: choose longer ones (--specdec-prompts)"
        )
    tokens = {k: sum(len(s.tokens) - 1 for s in counted[k].speculations) for k in ks}
    return LedgerRun(
        method=bench.method,
        depth=depth,
        plain_ms=curve[1],
        ks=tuple(ks),
        fitted=len(fit_on),
        verify_ms=tuple(mean(curve[n + 1] for n in drafted[k]) for k in ks),
        drafted=tuple(mean(drafted[k]) for k in ks),
        tokens_per_round=tuple(tokens[k] / len(drafted[k]) for k in ks),
        tokens_per_s=tuple(median(rates[k]) for k in ks),
    )


def _rate(pair: Pair, n_predict: int, k: int) -> float:
    """Tokens per second over all prompts, the draft's prefill left out; 0 when nothing was decoded."""
    runs = [pair.speculative(tokens, n_predict, k) for _, tokens in pair.prompts]
    ms = sum(run["decode_ms"] - run["draft_prefill_ms"] for run in runs)
    return float(sum(len(run["tokens"]) - 1 for run in runs) / ms * 1000.0) if ms > 0 else 0.0


def widths_of(speculations: Iterable[Speculation]) -> set[int]:
    """Every N that was verified."""
    return {drafted + 1 for one in speculations for drafted in one.drafted}


def mean_depth(speculations: Iterable[Speculation]) -> int:
    """The context's mean length over all rounds, in tokens; 0 without rounds."""
    lengths = []
    for one in speculations:
        at = one.prompt_tokens
        for accepted in one.accepted:
            lengths.append(at)
            at += accepted + 1
    return round(mean(lengths)) if lengths else 0
