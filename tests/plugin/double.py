"""A bench that measures nothing: the conftest of the projects these tests run pytest in.

What it pretends to measure stands in `double.json` beside it; what it was asked is appended to `asked.log`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from typing import TypeVar

import pytest

from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.session import Recorded
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import ExactnessCase
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.models.describe import ModelFacts
from pytest_specdec.models.errors import ModelError
from pytest_specdec.run import BENCH
from pytest_specdec.settings import Settings


M = TypeVar("M", bound=Measurement)

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
        return f"{kind} k={k or self.settings.k} n_ubatch={self.settings.n_ubatch}"

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
        """Ten rounds on each of two prompts, two of three drafts right, unless told otherwise."""
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
                decode_ms=110.0,
                forward_ms=100.0,
                stop="limit",
            )
            for prompt in ("one", "two")
        )
        return self._made(SpeculativeRun(drafted, "two-model", runs), k)

    def sweep(self, ks: Iterable[int]) -> dict[int, SpeculativeRun]:
        """One run per draft length."""
        return {k: self.speculate(k) for k in ks}

    def decode(self) -> DecodeRun:
        """No prompt at all."""
        return self._made(DecodeRun(()), None)

    def speed(self, k: int | None = None, until: Callable[[SpeedRun], bool] | None = None) -> SpeedRun:
        """1.3 times as fast, unless told otherwise; looks at 8, 16 and 24 pairs."""
        factor = told(self.settings).get("speedup", 1.3)
        pairs = tuple(
            SpeedPair(f"p{i % 4}", 65, 1000.0, 65, 1000.0 / (factor * (1 + (i % 8 - 3.5) / 500)))
            for i in range(24)
        )
        for look in (8, 16, 24):
            run = SpeedRun(k or self.settings.k, "two-model", pairs[:look])
            if until is None or until(run):
                break
        note(self.settings, f"pairs={len(run.pairs)}")
        return self._made(run, k)

    def exactness(self, k: int | None = None) -> Exactness:
        """Same tokens everywhere."""
        case = ExactnessCase("one", 64, None, (), 0.0, 0.0, 0, (1, (k or self.settings.k) + 1))
        return self._made(Exactness(k or self.settings.k, "two-model", (case,)), k)

    def draft_cost(self) -> DraftCost:
        """A fifth of a pass."""
        return self._made(DraftCost("two-model", (2.0,) * 8, (10.0,) * 8), None)

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
