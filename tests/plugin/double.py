"""A bench that measures nothing: the conftest of the projects these tests run pytest in.

What it pretends to measure stands in `double.json` beside it; what it was asked is appended to `asked.log`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import TypeVar

import pytest

from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.session import Recorded
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.measurements import ArmPair
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import DepthMap
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Environment
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import ExactnessCase
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import NoiseRun
from pytest_specdec.measurements import ProbeResult
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Structure
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.models.describe import ModelFacts
from pytest_specdec.models.errors import ModelError
from pytest_specdec.run import BENCH
from pytest_specdec.settings import Settings


M = TypeVar("M", bound=Measurement)

PROMPTS = ("one", "two", "three", "four", "five", "six", "seven")
HELLO = {
    "protocol": 1,
    "python": "3.11.7",
    "llama_cpp_python": "0.0.1",
    "ggml_version": "0.0.2",
    "ggml_commit": "0123456789",
    "libraries": {"libllama.so": "0" * 64},
    "system_info": "CPU : NONE = 1",
    "devices": [
        {"name": "CPU", "description": "Abacus 1", "type": "cpu", "memory_total": 1, "memory_free": 1}
    ],
    "gpu_offload": False,
}


def pytest_configure(config: pytest.Config) -> None:
    """Put the double in the bench's place."""
    make: Any = Session
    config.stash[BENCH] = make


class Session:
    """Stands in for a bench session."""

    def __init__(self, settings: Settings, *, progress: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self.progress = progress
        self.recorded: dict[str, Recorded] = {}
        self.asked = False
        self.replay = None

    def bench(self, settings: Settings) -> Bench:
        """The bench bound to one test's settings."""
        return Bench(self, settings)

    def hello(self) -> dict[str, Any]:
        """What a worker would say."""
        if not self.asked:
            note(self.settings, "hello")
        self.asked = True
        if "hello" in told(self.settings).get("missing", []):
            raise NotMeasured("no llama-cpp-python in the double", missing=True)
        return HELLO

    def close(self) -> None:
        """Log the end."""
        note(self.settings, "close")


class Bench:
    """Stands in for a bench: same methods, made-up numbers."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self.session = session
        self.settings = settings

    @property
    def pair(self) -> str:
        """The pair's name in baselines."""
        return f"{Path(self.settings.target or 'none').stem}--{self.settings.draft or 'none'}"

    def key(self, kind: str, k: int | None = None) -> str:
        """The key of a measurement."""
        depth = f" depth={self.settings.depth}" if kind == "kernel_map" else ""
        return f"{kind} k={k or self.settings.k} n_ubatch={self.settings.n_ubatch}{depth}"

    def with_settings(self, **changes: Any) -> Bench:
        """The same session with other settings."""
        return Bench(self.session, self.settings.merged(**changes))

    def known(self, kind: str) -> Measurement | None:
        """What was measured of a kind."""
        found = self.session.recorded.get(f"{self.pair} {self.key(kind)}")
        return None if found is None else found.measurement

    def kernel_map(self) -> KernelMap:
        """Thresholds at 4 and 8, unless told otherwise."""
        thresholds = told(self.settings).get("thresholds", [4, 8])
        n = self.settings.map_sizes
        letters = tuple(str(sum(size >= at for at in thresholds)) * size for size in n)
        return self._made(
            KernelMap(
                (
                    DepthMap(
                        depth=self.settings.depth,
                        threads=1,
                        n=n,
                        hidden=letters,
                        logits=letters,
                        digests=tuple(f"{ord(row[0]):016x}" for row in letters),
                        repeated=(True,) * len(n),
                        remainder=(0,) * len(n),
                    ),
                ),
                forward_ms=1.0,
                wall_ms=1.0,
            ),
            None,
        )

    def structure(self, k: int | None = None) -> Structure:
        """Sound, unless told of a fault."""
        fault = told(self.settings).get("fault", "")
        outcome = "fault" if fault else "sound"
        return self._made(
            Structure(k or self.settings.k, "two-model", (ProbeResult("rollback", outcome, fault),)), k
        )

    def facts(self) -> dict[str, ModelFacts | None]:
        """Made-up facts."""
        note(self.settings, "facts")
        facts = ModelFacts("toy", "llama", 1, 1, 1, {"F32": 1}, 1, "0" * 64, None, None, None)
        return {"target": facts, "draft": None}

    def verify_curve(self, *, rows: str = "all") -> VerifyCurve:
        """10 ms up to 8 tokens, then 16 ms, unless told otherwise."""
        ms = told(self.settings).get("curve", {})
        sizes = self.settings.sizes
        samples = tuple(
            tuple((float(ms.get(str(n), 10 if n < 9 else 16)) + block / 1000,) for block in range(8))
            for n in sizes
        )
        return self._made(VerifyCurve(sizes, samples, rows=rows), None)

    def speculate(self, k: int | None = None) -> SpeculativeRun:
        """Ten rounds on each prompt, two of three drafts right, 1 ms of overhead, unless told otherwise."""
        drafted = k or self.settings.k
        right = min(drafted, told(self.settings).get("accepted", 2))
        runs = tuple(
            Speculation(
                prompt=prompt,
                prompt_tokens=5,
                tokens=tuple(range(10 * (right + 1) + 1)),
                drafted=(drafted,) * 10,
                accepted=(right,) * 10,
                cut=False,
                draft_ms=(1.0,) * 10,
                verify_ms=(10.0,) * 10,
                prefill_ms=1.0,
                draft_prefill_ms=0.0,
                decode_ms=110.0 + 10 * told(self.settings).get("overhead", 1.0),
                forward_ms=100.0,
                stop="limit",
            )
            for prompt in PROMPTS
        )
        return self._made(SpeculativeRun(drafted, "two-model", runs), k)

    def sweep(self, ks: Iterable[int]) -> dict[int, SpeculativeRun]:
        """One run per draft length."""
        return {k: self.speculate(k) for k in ks}

    def decode(self) -> DecodeRun:
        """No prompt at all."""
        return self._made(DecodeRun(()), None)

    def speed(
        self, k: int | None = None, until: Callable[[SpeedRun], bool] | None = None, looks: int = 3
    ) -> SpeedRun:
        """1.3 times as fast, unless told otherwise; looks after every 8 pairs."""
        factor = told(self.settings).get("speedup", 1.3)
        pairs = tuple(
            SpeedPair(f"p{i % 4}", 65, 1000.0, 65, 1000.0 / (factor * (1 + (i % 8 - 3.5) / 500)))
            for i in range(8 * looks)
        )
        for look in range(1, looks + 1):
            run = SpeedRun(k or self.settings.k, "two-model", pairs[: 8 * look])
            if until is None or until(run):
                break
        note(self.settings, f"pairs={len(run.pairs)}")
        return self._made(run, k)

    def noise(self) -> NoiseRun:
        """Pairs that differ by up to 1 %, unless told of more."""
        spread = told(self.settings).get("noise", 0.01)
        pairs = tuple(
            ArmPair(f"p{i % 4}", 65, 1000.0, 65, 1000.0 * (1 + spread * (i % 8 - 3.5) / 3.5))
            for i in range(24)
        )
        return self._made(NoiseRun(pairs), None)

    def exactness(self, k: int | None = None) -> Exactness:
        """Same tokens everywhere."""
        case = ExactnessCase("one", 64, None, (), 0.0, 0.0, 0, (1, (k or self.settings.k) + 1))
        return self._made(Exactness(k or self.settings.k, "two-model", (case,)), k)

    def draft_cost(self) -> DraftCost:
        """A fifth of a pass, unless told otherwise."""
        ms = 10.0 * told(self.settings).get("draft", 0.2)
        return self._made(DraftCost("two-model", (ms,) * 8, (10.0,) * 8), None)

    def timeline(self, k: int | None = None) -> Timeline:
        """Forwards are 70 % of a request, unless told otherwise."""
        forward = 100.0 * told(self.settings).get("share", 0.7)
        requests = tuple(
            Stages(f"p{i}", speculating, 65, 5.0, 0.0, 0.0, forward, 0.0, 0.0, 0.0, 95.0 - forward, 100.0)
            for i in range(8)
            for speculating in (False, True)
        )
        return self._made(Timeline(k or self.settings.k, "two-model", requests), k)

    def _made(self, measurement: M, k: int | None) -> M:
        kind = measurement.kind
        note(self.settings, f"{kind} target={self.settings.target} k={k or self.settings.k}")
        plan = told(self.settings)
        if "slow" in plan:
            note(self.settings, "begin")
            time.sleep(plan["slow"])
            note(self.settings, "end")
        if kind in plan.get("missing", []):
            raise NotMeasured(f"no model for {kind}", missing=True)
        if kind in plan.get("broken", []):
            raise ModelError(f"{kind}: toy.gguf is truncated")
        if kind in plan.get("crash", []):
            raise WorkerDied("the worker died of SIGABRT", request=kind, log=["GGML_ASSERT(n < 8) failed"])
        if "environment" in plan and hasattr(measurement, "environment"):
            known: Any = measurement
            measurement = replace(known, environment=Environment(**plan["environment"]))
        if self.session.progress is not None:
            self.session.progress(f"measuring {kind}")
        place = f"{self.pair} {self.key(kind, k)}"
        before = self.session.recorded.get(place)
        self.session.recorded[place] = Recorded(
            self.key(kind, k),
            kind,
            {"k": k or self.settings.k},
            measurement,
            self.pair,
            self.facts(),
            before.used_by if before else set(),
        )
        return measurement


def told(settings: Settings) -> dict[str, Any]:
    """What to pretend."""
    path = settings.rootdir / "double.json"
    plan: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return plan


def note(settings: Settings, line: str) -> None:
    """Log what was asked, with the process that asked."""
    with open(settings.rootdir / "asked.log", "a", encoding="utf-8") as log:
        log.write(f"{os.getpid()} {line}\n")
