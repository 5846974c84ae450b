"""An old build and a new one compared: everything that a verdict on an upgrade needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.bench.accounts import mean_depth
from pytest_specdec.bench.accounts import widths_of
from pytest_specdec.bench.arms import Arm
from pytest_specdec.bench.arms import Arms
from pytest_specdec.bench.beside import draft_cost_of
from pytest_specdec.bench.beside import speculation_of
from pytest_specdec.bench.beside import stages_of
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.procedures import Pair
from pytest_specdec.measurements import ArmFacts
from pytest_specdec.measurements import ArmResult
from pytest_specdec.measurements import Comparison
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import Generation
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import TextDifference
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import TokenMargin
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports.terminal import build_name


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


PAIRS = 16
CHUNK = 1 << 22


def compare(
    old: Bench,
    new: Bench,
    *,
    env: Mapping[str, tuple[str, ...]],
    params: Mapping[str, tuple[str, ...]],
    pairs: int = PAIRS,
    memory_bytes: int | None = None,
) -> Comparison:
    """Measure both arms in one run, interleaved.

    ``env`` and ``params`` say in words how the arms ("old", "new") differ beside their builds.
    ``memory_bytes`` limits what both arms together may take; by default the memory that is free.

    Raises:
        BenchError: the two don't speculate in the same way, or what a bench raises.
    """
    arms = Arms(old, new, memory_bytes=memory_bytes)
    # The first to load would pay for the disk.
    for bench in (old, new):
        _read_through(bench.session.rig.target(bench.settings).path)
    try:
        turns = arms.turns
        answers = arms.runs(max(pairs, len(new.prompts.prompts)))
        depth, widths = _visited(answers)
        sizes = tuple(sorted({*new.settings.sizes, 1, *widths}))
        curves = arms.curves(depth, sizes)
        maps: dict[Arm, KernelMap] = arms.each(lambda bench: bench.kernel_maps())
        facts = arms.each(_loaded)
        differences = _differences(arms, answers)
    finally:
        arms.close()

    def result(arm: Arm, bench: Bench) -> ArmResult:
        load_ms, peak = facts[arm]
        hello = bench.session.hello()
        about = ArmFacts(
            name=arm,
            build=_identity(hello),
            version=str(hello["llama_cpp_python"]),
            env=env[arm],
            params=params[arm],
            load_ms=load_ms,
            peak_bytes=peak,
        )
        return _result(about, bench, answers[arm], curves[arm], maps[arm])

    return Comparison(
        k=new.settings.k,
        method=new.method,
        old=result("old", old),
        new=result("new", new),
        differences=differences,
        turns=turns,
    )


def _read_through(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(CHUNK):
            pass


def _identity(hello: Mapping[str, Any]) -> str:
    """A build in words; equal words are one build."""
    parts = [build_name(hello)]
    for name in ("libraries", "system_info"):
        whole = json.dumps(hello.get(name), sort_keys=True).encode()
        parts.append(f"{name.replace('_', ' ')} {hashlib.sha256(whole).hexdigest()[:8]}")
    return ", ".join(parts)


def _loaded(bench: Bench) -> tuple[float, int | None]:
    pair = Pair(bench)
    return float(pair.target.facts["model"]["load_ms"]), pair.engine.request("memory")["peak"]


def _visited(answers: dict[Arm, list[dict[str, Any]]]) -> tuple[int, set[int]]:
    """The mean depth of all rounds on both arms, and every width that was verified."""
    speculations = [speculation_of(run) for runs in answers.values() for run in runs]
    widths = widths_of(speculations)
    if not widths:
        raise BenchError(
            "the prompts end before a round of speculation: choose longer ones (--specdec-prompts)"
        )
    return mean_depth(speculations), widths


def _result(
    facts: ArmFacts, bench: Bench, runs: Sequence[dict[str, Any]], curve: VerifyCurve, kernels: KernelMap
) -> ArmResult:
    k, method = bench.settings.k, bench.method
    cost = draft_cost_of(method, runs)
    return ArmResult(
        facts,
        curve,
        kernels,
        plain=tuple(
            DecodeRun((Generation.from_json({"prompt": run["prompt"], **run["plain"]}),)) for run in runs
        ),
        speculative=tuple(SpeculativeRun(k, method, (speculation_of(run),)) for run in runs),
        timelines=tuple(Timeline(k, method, tuple(stages_of(run))) for run in runs),
        draft=cost if method == "two-model" and cost.draft_ms else None,
    )


def _differences(arms: Arms, answers: dict[Arm, list[dict[str, Any]]]) -> tuple[TextDifference, ...]:
    """Every prompt's first differing token, plain and speculative, with the evidence for a near tie."""
    found = []
    seen: set[tuple[str, str]] = set()
    for old, new in zip(answers["old"], answers["new"], strict=True):
        for way in ("plain", "speculative"):
            mark = (old["prompt"], way)
            before, after = old[way]["tokens"], new[way]["tokens"]
            if mark in seen or before == after:
                continue
            seen.add(mark)
            place = next(
                (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
                min(len(before), len(after)),
            )
            ours = before[place] if place < len(before) else None
            theirs = after[place] if place < len(after) else None
            tie = None
            if ours is not None and theirs is not None:
                tie = _tie(arms, old["prompt"], before[: place + 1], theirs)
            found.append(TextDifference(old["prompt"], way, place, ours, theirs, tie))
    return tuple(found)


def _tie(arms: Arms, prompt: str, text: list[int], other: int) -> TokenMargin:
    """How far the two tokens lie apart on the new arm, and how far rounding may carry the arms apart.

    That is the largest difference between the arms' logits before that place: at the place itself twice the
    difference covers any margin by construction. Logits that differ by more than a quarter of what lies
    between the likeliest token and the last candidate are not rounding, whatever they do elsewhere.
    """

    def forced(arm: Arm, candidates: list[list[int]] | None) -> dict[str, Any]:
        pair = Pair(arms.awake(arm))
        tokens = dict(pair.prompts)[prompt]
        return pair.engine.request(
            "forced", context=pair.target.handle, tokens=tokens, text=text, candidates=candidates
        )

    before = forced("old", None)
    wanted = [*before["ids"][:-1], [*before["ids"][-1], other, text[-1]]]
    after = forced("new", wanted)
    place = len(text) - 1
    # The place itself counts only where nothing is before it.
    compared = range(place) if place else range(1)
    delta = max(
        abs(a - b) for i in compared for a, b in zip(before["values"][i], after["values"][i], strict=False)
    )
    spread = median(max(values) - min(values) for values in before["values"])
    margin = after["values"][place][-2] - after["values"][place][-1]
    return TokenMargin(place, text[-1], other, abs(margin), min(delta, spread / 4))
