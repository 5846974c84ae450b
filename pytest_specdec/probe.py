"""What limits are decided with: the bench, the baseline, and the turns that measurements take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

from pytest_specdec.bench.beside import Beside
from pytest_specdec.bench.procedures import LOOKS
from pytest_specdec.bench.session import Bench
from pytest_specdec.causes import causes_in
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
from pytest_specdec.store import Entry
from pytest_specdec.store import build_differences
from pytest_specdec.store import build_identity
from pytest_specdec.verdict import Verdict


# Exact counters come first: they hold under any load and cost less than times. Kernel maps come after the
# curve, so that they can say what a threshold does to it.
COUNTED, COMPARED, CURVE, MAPPED, DRAFT, SPEED = range(6)


@dataclass(frozen=True, slots=True)
class Probe:
    """What a task works with.

    `lookup` gives the baseline's entry of a kind at a draft length; `no_baseline` says, where there is
    no baseline at all, which there are; `note` takes down that the test relies on the live measurement;
    `spent` says that the test's time is up. `beside` measures the old arm that takes the baseline's place,
    where there is one.
    """

    bench: Bench
    lookup: Callable[[Bench, str, int | None], Entry | None]
    no_baseline: Callable[[], str]
    note: Callable[[Bench, str, int | None], None]
    spent: Callable[[], bool]
    beside: Beside | None = None

    @property
    def error_rate(self) -> dict[str, Any]:
        """The user's error rate, for checks of times."""
        alpha = self.bench.settings.alpha
        return {} if alpha is None else {"alpha": alpha}

    @property
    def replays(self) -> bool:
        """Whether nothing can be measured beyond what is replayed."""
        return self.bench.session.replay is not None

    def stored(self, kind: str, k: int | None = None) -> Measurement | None:
        """Take the baseline's measurement of a kind."""
        entry = self.entry(kind, k)
        return None if entry is None else entry.measurement

    def entry(self, kind: str, k: int | None = None) -> Entry | None:
        """Take the baseline's entry of a kind."""
        return self.lookup(self.bench, kind, k)

    def other_build(self, entry: Entry) -> str:
        """Say what tells the build under test from the one that an entry was recorded with, if anything."""
        if self.replays:
            return ""
        return "; ".join(build_differences(entry.build, build_identity(self.bench.session.hello())))

    def used(self, kind: str, k: int | None = None) -> None:
        """Take down that the test relies on the live measurement."""
        self.note(self.bench, kind, k)

    def at_depth(self, depth: int) -> Probe:
        """Return the probe of another context depth."""
        beside = None if self.beside is None else self.beside.at_depth(depth)
        return replace(self, bench=self.bench.with_settings(depth=depth), beside=beside)

    @property
    def of_maps(self) -> dict[str, Any]:
        """What checks of kernel maps want beside the maps: T(N) where it is known, and known causes."""
        if self.replays:
            return {"curve": self.measured_curve()}
        hello, settings = self.bench.session.hello(), self.bench.settings
        target = self.bench.facts()["target"]
        known = None if target is None else causes_in(hello, target.tensor_types, settings.gpu_layers)
        return {"curve": self.measured_curve(), "known": known}

    def kernel_map(self) -> KernelMap:
        """Map the kernel paths at the settings' depth."""
        measured = self.bench.kernel_map()
        self.used(KernelMap.kind)
        return measured

    def structure(self) -> Structure:
        """Run the structural probes."""
        measured = self.bench.structure()
        self.used(Structure.kind)
        return measured

    def timeline(self) -> Timeline:
        """Account for the wall time of requests."""
        measured = self.bench.timeline()
        self.used(Timeline.kind)
        return measured

    def memory(self) -> MemoryUse:
        """Measure peak memory."""
        measured = self.bench.memory()
        self.used(MemoryUse.kind)
        return measured

    def ledger_run(self) -> LedgerRun:
        """Measure what a ledger is fitted on and held against."""
        measured = self.bench.ledger_run()
        self.used(LedgerRun.kind)
        return measured

    def measured_curve(self) -> VerifyCurve | None:
        """Take T(N) where it was measured before; nothing is measured for it."""
        found = self.bench.known(VerifyCurve.kind) or self.stored(VerifyCurve.kind)
        return found if isinstance(found, VerifyCurve) else None

    def curve(self) -> VerifyCurve:
        """Measure T(N)."""
        measured = self.bench.verify_curve()
        self.used(VerifyCurve.kind)
        return measured

    def draft_cost(self) -> DraftCost:
        """Measure what drafting a token costs."""
        measured = self.bench.draft_cost()
        self.used(DraftCost.kind)
        return measured

    def speculation(self) -> SpeculativeRun:
        """Count what is drafted and accepted."""
        measured = self.bench.speculate()
        self.used(SpeculativeRun.kind)
        return measured

    def noise(self) -> NoiseRun:
        """Time plain decoding against itself."""
        measured = self.bench.noise()
        self.used(NoiseRun.kind)
        return measured

    def exactness(self) -> Exactness:
        """Compare speculative with plain decoding."""
        measured = self.bench.exactness()
        self.used(Exactness.kind)
        return measured

    def speed(self, k: int | None, enough: Callable[[SpeedRun], bool], looks: int = LOOKS) -> SpeedRun:
        """Time pairs of plain and speculative decoding until a look is enough or the time is up."""
        measured = self.bench.speed(k, until=lambda run: enough(run) or self.spent(), looks=looks)
        self.used(SpeedRun.kind, k)
        return measured


@dataclass(frozen=True, slots=True)
class Task:
    """One verdict to come: the limit as written, the metric's name, its turn, and how it is decided."""

    limit: str
    metric: str
    turn: int
    decide: Callable[[Probe], Verdict]
