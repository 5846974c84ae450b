"""What `within_baseline` compares live: the measurements of an old arm and a new one, made side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.bench.arms import Arm
from pytest_specdec.bench.arms import Arms
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.procedures import LOOKS
from pytest_specdec.bench.procedures import PAIRS_PER_LOOK
from pytest_specdec.bench.procedures import speed_pair
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Generation
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports.terminal import build_name


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


class Beside:
    """Both arms' measurements of a kind, old first; each is made once."""

    def __init__(self, old: Bench, new: Bench) -> None:
        self._arms = Arms(old, new)
        self._old = old
        self._new = new
        self._depths: dict[int, Beside] = {old.settings.depth: self}
        self._known: dict[str, dict[Arm, Measurement]] = {}
        self._answers: dict[Arm, list[dict[str, Any]]] | None = None

    def at_depth(self, depth: int) -> Beside:
        """The same arms at another context depth; what was measured at it is kept."""
        if depth not in self._depths:
            self._depths[depth] = Beside(
                self._old.with_settings(depth=depth), self._new.with_settings(depth=depth)
            )
        return self._depths[depth]

    def builds(self) -> str:
        """The old arm's build and the new one's in words; empty where they are one."""
        old, new = (build_name(bench.session.hello()) for bench in (self._old, self._new))
        return "" if old == new else f"{old} → {new}"

    def both(self, kind: str) -> tuple[Measurement, Measurement]:
        """The old arm's measurement and the new one's."""
        if kind not in self._known:
            try:
                self._known[kind] = self._measure(kind)
            finally:
                # What comes next is the new arm's; the old one's threads must not spin beside it.
                self._arms.awake("new")
        return self._known[kind]["old"], self._known[kind]["new"]

    def _measure(self, kind: str) -> dict[Arm, Measurement]:
        settings = self._new.settings
        if kind == VerifyCurve.kind:
            return {**self._arms.curves(settings.depth, settings.sizes)}
        if kind == KernelMap.kind:
            return self._arms.each(lambda bench: bench.kernel_map())
        if self._answers is None:
            count = len(self._new.prompts.prompts)
            self._answers = self._arms.runs(max(LOOKS * PAIRS_PER_LOOK, count))
        return {arm: self._of_runs(kind, runs) for arm, runs in self._answers.items()}

    def _of_runs(self, kind: str, runs: list[dict[str, Any]]) -> Measurement:
        k, method = self._new.settings.k, self._new.method
        # Prompts take turns; counts need each of them once.
        once = runs[: len(self._new.prompts.prompts)]
        if kind == SpeculativeRun.kind:
            return SpeculativeRun(k, method, tuple(speculation_of(run) for run in once))
        if kind == SpeedRun.kind:
            return SpeedRun(
                k, method, tuple(speed_pair(run["prompt"], run["plain"], run["speculative"]) for run in runs)
            )
        if kind == Timeline.kind:
            return Timeline(k, method, tuple(stage for run in once for stage in stages_of(run)))
        if kind == DraftCost.kind:
            return draft_cost_of(method, runs)
        raise BenchError(f"{kind} is not compared between two arms")


def speculation_of(run: dict[str, Any]) -> Speculation:
    """The speculative half of a pair of requests."""
    return Speculation.from_json({"prompt": run["prompt"], **run["speculative"]})


def stages_of(run: dict[str, Any]) -> list[Stages]:
    """Where the wall time of both halves went, plain first."""
    found = []
    for speculating, way in ((False, "plain"), (True, "speculative")):
        own = {"prompt": run["prompt"], "speculating": speculating, "tokens": len(run[way]["tokens"])}
        found.append(Stages.from_json({**own, **run[way]["stages"]}))
    return found


def draft_cost_of(method: str, runs: Sequence[dict[str, Any]]) -> DraftCost:
    """What a drafted token cost in each pair of requests that drafted."""
    costs = [cost for run in runs if (cost := _cost(run)) is not None]
    return DraftCost(method, tuple(d for d, _ in costs), tuple(t for _, t in costs))


def _cost(run: dict[str, Any]) -> tuple[float, float] | None:
    """Ms per drafted token, and per plain token's pass; None where one of them has none."""
    generation = Generation.from_json({"prompt": run["prompt"], **run["plain"]})
    drafted = speculation_of(run).drafted_token_ms
    if drafted is None or len(generation.tokens) < 2 or not generation.forward_ms:
        return None
    return drafted, generation.forward_ms / (len(generation.tokens) - 1)
