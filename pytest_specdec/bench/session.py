"""The session's bench: every measurement once, cached by what affects it, failures too."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from functools import partial
from typing import Any
from typing import TypeVar

from pytest_specdec.bench import accounts
from pytest_specdec.bench import curve
from pytest_specdec.bench import distribution
from pytest_specdec.bench import exactness
from pytest_specdec.bench import fit
from pytest_specdec.bench import kernels
from pytest_specdec.bench import keys
from pytest_specdec.bench import layers
from pytest_specdec.bench import noise
from pytest_specdec.bench import probes
from pytest_specdec.bench import procedures
from pytest_specdec.bench import replayed
from pytest_specdec.bench.environment import Conditions
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.prompts import PromptSet
from pytest_specdec.bench.prompts import load_prompts
from pytest_specdec.bench.rig import Rig
from pytest_specdec.bench.rig import short_name
from pytest_specdec.engine.replay import Replay
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import Distribution
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
from pytest_specdec.models.describe import ModelFacts
from pytest_specdec.settings import Settings


M = TypeVar("M", bound=Measurement)


@dataclass
class Recorded:
    """A measurement of this session, and what a baseline needs to know of it."""

    key: str
    kind: str
    settings: dict[str, Any]
    measurement: Measurement
    pair: str
    models: dict[str, ModelFacts | None]
    used_by: set[str] = field(default_factory=set)


class BenchSession:
    """One worker and the cache of everything measured with it.

    ``progress`` is called with a short line whenever something starts. With ``replay`` everything is answered
    from there: nothing is measured, and no worker starts.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        progress: Callable[[str], None] | None = None,
        replay: Replay | None = None,
    ) -> None:
        self.settings = settings
        self.replay = replay
        self.progress = progress or _silent
        self._rig: Rig | None = None
        self.cache: dict[tuple[str, str], Recorded] = {}
        self.failures: dict[tuple[str, str], Exception] = {}
        self.conditions = Conditions()

    @property
    def rig(self) -> Rig:
        """The engine and what is loaded in it, started at first use."""
        if self._rig is None:
            self._rig = Rig(self.settings, lambda line: self.progress(line))
        return self._rig

    @property
    def recorded(self) -> dict[str, Recorded]:
        """Everything measured so far, by pair and key."""
        return {f"{pair} {key}": recorded for (pair, key), recorded in self.cache.items()}

    def bench(self, settings: Settings) -> Bench:
        """The bench bound to one test's settings."""
        return Bench(self, settings if self.replay is None else replayed.filled(settings, self.replay))

    def hello(self) -> dict[str, Any]:
        """Versions, build identity, system info and devices of the build under test."""
        return self.rig.hello() if self.replay is None else self.replay.hello()

    def close(self) -> None:
        """End the worker."""
        if self._rig is not None:
            self._rig.close()
            self._rig = None


class Bench:
    """What can be measured with one test's settings.

    Every method raises `NotMeasured` when something is absent, `BenchError` for settings that can't work,
    `ModelError` and `PromptError` for bad files, and `EngineError` when llama.cpp fails.
    """

    def __init__(self, session: BenchSession, settings: Settings) -> None:
        self.session = session
        self.settings = settings

    @property
    def method(self) -> str:
        """The draft source: two-model, ngram, medusa, eagle or oracle."""
        return keys.method(self.settings)

    @property
    def prompts(self) -> PromptSet:
        """The prompts of these settings."""
        return load_prompts(self.settings.prompts)

    @property
    def pair(self) -> str:
        """The pair's name in baselines: target and draft, "none" without a draft model."""
        draft = short_name(self.settings.draft) if self.settings.draft else "none"
        return f"{short_name(self.settings.target or 'none')}--{draft}"

    def with_settings(self, **changes: Any) -> Bench:
        """The same session with other settings."""
        return Bench(self.session, self.settings.merged(**changes))

    def key(self, kind: str, k: int | None = None) -> str:
        """The key under which a measurement of these settings is kept."""
        values = self._canonical(kind, self._at(k))
        if kind == LedgerRun.kind:
            values["k"] = _roles(accounts.FIT_ON, accounts.HELD_OUT)
        replay = self.session.replay
        return (
            keys.key(kind, values) if replay is None else replayed.answer(replay, self.pair, kind, values).key
        )

    def known(self, kind: str) -> Measurement | None:
        """What was measured of a kind with these settings so far; None where nothing was."""
        found = self.session.cache.get((self._place(), keys.key(kind, self._canonical(kind, self.settings))))
        return None if found is None else found.measurement

    def facts(self) -> dict[str, ModelFacts | None]:
        """What the model files say of themselves."""
        if self.session.replay is not None:
            raise NotMeasured(f"the replay of {self.session.replay.name} has no model files to read")
        return self.session.rig.facts(self.settings, draft=bool(self.settings.draft))

    def verify_curve(self, *, rows: str = "all") -> VerifyCurve:
        """T(N) over the grid of batch sizes; ``rows="last"`` measures what ``llama-bench -p N`` does."""
        enough = self.settings.blocks

        def made() -> VerifyCurve:
            return curve.verify_curve(self, rows)

        values = self._canonical("verify_curve", self.settings, rows)
        found = self._once("verify_curve", values, VerifyCurve, made)
        if len(found.samples_ms[0]) < enough:
            found = self._once("verify_curve", values, VerifyCurve, made, again=True)
        return found

    def decode(self) -> DecodeRun:
        """Plain decoding of every prompt."""
        return self._once(
            "decode", self._canonical("decode", self.settings), DecodeRun, lambda: procedures.decode(self)
        )

    def speculate(self, k: int | None = None) -> SpeculativeRun:
        """Speculative decoding of every prompt with draft length k (default: the settings')."""
        bench = self._with_k(k)
        values = self._canonical("speculative", bench.settings)
        return self._once("speculative", values, SpeculativeRun, lambda: procedures.speculate(bench))

    def sweep(self, ks: Iterable[int]) -> dict[int, SpeculativeRun]:
        """One run per draft length."""
        return {k: self.speculate(k) for k in ks}

    def sweep_over(self, name: str, values: Iterable[Any]) -> dict[Any, SpeculativeRun]:
        """One run per value of a setting, such as temperature, top_p or repeat_penalty.

        Raises:
            ValueError: there is no such setting, or a value doesn't fit.
        """
        return {value: self.with_settings(**{name: value}).speculate() for value in values}

    def distribution(self, draws: int = 20_000, k: int | None = None) -> Distribution:
        """Texts of n_predict tokens drawn by speculation behind the first prompt, and their exact odds."""
        return distribution.distribution(self._with_k(k), draws)

    def speed(
        self,
        k: int | None = None,
        until: Callable[[SpeedRun], bool] | None = None,
        looks: int = procedures.LOOKS,
    ) -> SpeedRun:
        """Interleaved plain and speculative decoding.

        Looks after each of ``looks`` rounds of pairs (8 a round, or one per prompt when there are more);
        stops at the first look at which ``until`` holds, at the last one otherwise.
        """
        bench = self._with_k(k)
        values = self._canonical("speed", bench.settings)
        run = self._once("speed", values, SpeedRun, lambda: procedures.speed(bench, None))
        again = self.session.replay is None
        while again and (until is None or not until(run)) and procedures.more_looks(bench, run, looks):
            more = partial(procedures.speed, bench, run)
            run = self._once("speed", values, SpeedRun, more, again=True)
        return run

    def noise(self) -> NoiseRun:
        """Plain decoding against itself: what times differ by here when nothing does."""
        values = self._canonical("noise", self.settings)
        return self._once("noise", values, NoiseRun, lambda: noise.noise(self))

    def exactness(self, k: int | None = None) -> Exactness:
        """Speculative against plain decoding, token by token, with the evidence for each difference."""
        bench = self._with_k(k)
        values = self._canonical("exactness", bench.settings)
        return self._once("exactness", values, Exactness, lambda: exactness.exactness(bench))

    def kernel_map(self) -> KernelMap:
        """Which kernel path computed each row, over the batch sizes of the map, at the settings' depth."""
        values = self._canonical("kernel_map", self.settings)
        return self._once("kernel_map", values, KernelMap, lambda: kernels.kernel_map(self))

    def kernel_maps(self, depths: Sequence[int] | None = None) -> KernelMap:
        """The kernel map at several depths (default: the settings' ``map_depths``) in one."""
        wanted = self.settings.map_depths if depths is None else depths
        return kernels.joined([self.with_settings(depth=depth).kernel_map() for depth in wanted])

    def structure(self, k: int | None = None) -> Structure:
        """What the structural probes find in target and draft source."""
        bench = self._with_k(k)
        values = self._canonical("structure", bench.settings)
        return self._once("structure", values, Structure, lambda: probes.structure(bench))

    def draft_cost(self) -> DraftCost:
        """Time per drafted token against time per plain token."""
        values = self._canonical("draft_cost", self.settings)
        return self._once("draft_cost", values, DraftCost, lambda: procedures.draft_cost(self))

    def search_layers(self, count: int, budget_s: float = 600.0) -> layers.Search:
        """Which ``count`` blocks the target does best without, tried for so many seconds; not kept."""
        return layers.search(self, count, budget_s)

    def fit(self, wanted: fit.Wanted) -> fit.Fit:
        """Heads fitted on the target's own text, written, and tried on these prompts; not kept."""
        return fit.fit(self, wanted)

    def timeline(self, k: int | None = None) -> Timeline:
        """Where the wall time of each prompt's request goes, speculation off and on."""
        bench = self._with_k(k)
        values = self._canonical("timeline", bench.settings)
        return self._once("timeline", values, Timeline, lambda: accounts.timeline(bench))

    def memory(self) -> MemoryUse:
        """Peak memory with speculation."""
        values = self._canonical("memory", self.settings)
        return self._once("memory", values, MemoryUse, lambda: accounts.memory(self))

    def ledger_run(
        self, fit_on: Sequence[int] = accounts.FIT_ON, held_out: Sequence[int] = accounts.HELD_OUT
    ) -> LedgerRun:
        """What a ledger is fitted on (draft lengths ``fit_on``) and held against (``held_out``).

        Raises:
            ValueError: fewer than two draft lengths to fit on, or one that appears twice.
        """
        ks = (*fit_on, *held_out)
        if len(fit_on) < 2 or len(set(ks)) < len(ks):
            raise ValueError(
                f"fit_on needs two draft lengths or more, each of fit_on and held_out once: {ks}"
            )
        values = {**self._canonical("ledger", self.settings), "k": _roles(fit_on, held_out)}
        run = self._once("ledger", values, LedgerRun, lambda: accounts.ledger(self, fit_on, held_out))
        return run if self.session.replay is None else replayed.ledger_of(run, fit_on, held_out)

    def _at(self, k: int | None) -> Settings:
        return self.settings if k is None else self.settings.merged(k=k)

    def _with_k(self, k: int | None) -> Bench:
        return self if k is None else type(self)(self.session, self._at(k))

    def _canonical(self, kind: str, settings: Settings, rows: str = "all") -> dict[str, Any]:
        return keys.canonical(kind, settings, prompts=load_prompts(settings.prompts), rows=rows)

    def _once(
        self, kind: str, values: dict[str, Any], cls: type[M], make: Callable[[], M], *, again: bool = False
    ) -> M:
        if self.session.replay is not None:
            return self._replayed(self.session.replay, kind, values, cls)
        name = keys.key(kind, values)
        place = (self._place(), name)
        if place in self.session.failures:
            raise self.session.failures[place]
        known = self.session.cache.get(place)
        if known is None or again:
            try:
                measurement = self.session.conditions.during(place, make)
            except Exception as error:
                # The next test would only wait for the same end.
                self.session.failures[place] = error
                raise
            known = Recorded(
                name, kind, values, measurement, self.pair, self.facts(), known.used_by if known else set()
            )
            self.session.cache[place] = known
        self.session.conditions.used(place)
        assert isinstance(known.measurement, cls)
        return known.measurement

    def _replayed(self, replay: Replay, kind: str, values: dict[str, Any], cls: type[M]) -> M:
        entry = replayed.answer(replay, self.pair, kind, values)
        place = (self._place(), entry.key)
        if place not in self.session.cache:
            models: dict[str, ModelFacts | None] = {"target": None, "draft": None}
            self.session.cache[place] = Recorded(
                entry.key, kind, dict(entry.settings), entry.measurement, self.pair, models
            )
        assert isinstance(entry.measurement, cls)
        return entry.measurement

    def _place(self) -> str:
        return f"{self.settings.target}--{self.settings.draft}"


def _roles(fit_on: Sequence[int], held_out: Sequence[int]) -> str:
    return ",".join(map(str, fit_on)) + "/" + ",".join(map(str, held_out))


def _silent(_line: str) -> None:
    return None
