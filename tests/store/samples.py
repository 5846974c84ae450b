"""Made measurements, machines and builds; the numbers mean nothing."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from datetime import date
from pathlib import Path
from typing import Any

from pytest_specdec.measurements import ArmPair
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import DepthMap
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Environment
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import ExactnessCase
from pytest_specdec.measurements import Generation
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import MemoryUse
from pytest_specdec.measurements import NoiseRun
from pytest_specdec.measurements import Parting
from pytest_specdec.measurements import ProbeResult
from pytest_specdec.measurements import PublishedAcceptance
from pytest_specdec.measurements import PublishedSpeed
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Structure
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import TokenMargin
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.store import Machine
from pytest_specdec.store import SaveReport
from pytest_specdec.store import Store
from pytest_specdec.store import build_identity


DAY = date(2026, 3, 14)
PAIR = "smollm2-135m--requantize-q2_k"


@dataclass(frozen=True, slots=True)
class Made:
    """What the bench hands over for one measurement."""

    key: str
    measurement: Measurement
    settings: dict[str, Any] = field(default_factory=lambda: {"k": 3, "threads": 2, "ratios": (1, 2)})
    used_by: frozenset[str] = frozenset({"tests/test_pair.py::test_pair"})


def curve(scale: float = 1.0) -> VerifyCurve:
    samples = tuple(
        tuple(tuple(scale * (10.0 + 5.0 * n + b / 7 + c / 3) for c in range(3)) for b in range(4))
        for n in (1, 2, 9)
    )
    return VerifyCurve(n=(1, 2, 9), samples_ms=samples, sentinel_ms=(9.75, 9.8125))


def speculative(accepted: tuple[int, ...] = (3, 1, 0)) -> SpeculativeRun:
    run = Speculation(
        prompt="code/fib",
        prompt_tokens=12,
        tokens=(5, 6, 7, 8, 9, 10, 11),
        drafted=(3, 3, 3),
        accepted=accepted,
        cut=False,
        draft_ms=(1.5, 1.25, 0.0),
        verify_ms=(20.5, 21.0, 19.0),
        prefill_ms=31.25,
        draft_prefill_ms=4.5,
        decode_ms=70.5,
        forward_ms=61.5,
        stop="limit",
    )
    return SpeculativeRun(k=3, method="two-model", speculations=(run,))


def decode() -> DecodeRun:
    return DecodeRun((Generation("code/fib", 12, (5, 6, 7, 8), 31.25, 60.0, 58.0, "eog"),))


def speed() -> SpeedRun:
    return SpeedRun(
        3, "two-model", (SpeedPair("code/fib", 9, 160.0, 9, 100.0), SpeedPair("list", 5, 80.0, 5, 50.0))
    )


def exactness() -> Exactness:
    margin = TokenMargin(position=4, token=17, best=16, margin=0.25, delta=0.5)
    parting = Parting(2, "useless", "clean", position=2, token=7, other=None, round=2)
    case = ExactnessCase(
        "code/fib",
        9,
        4,
        (margin,),
        0.5,
        0.25,
        3,
        (1, 4),
        (1, 2),
        (1, 3),
        steps=(2, 3),
        reasons=("step 1: clean passes of N = 4 have other bits than plain decoding from token 2 on",),
        partings=(parting,),
        invariant=9,
        refused="token 3: llama_decode returned -1",
    )
    return Exactness(3, "ngram", (case,))


def draft_cost() -> DraftCost:
    return DraftCost("two-model", (4.0, 4.5), (10.0, 10.5))


def timeline() -> Timeline:
    off = Stages("code/fib", False, 9, 30.0, 0.0, 0.0, 90.0, 2.0, 0.0, 0.0, 1.0, 123.0)
    on = Stages("code/fib", True, 9, 30.0, 4.0, 20.0, 60.0, 3.0, 1.0, 0.0, 2.0, 120.0)
    return Timeline(3, "two-model", (off, on))


def kernel_map() -> KernelMap:
    one = DepthMap(
        depth=0,
        threads=2,
        n=(1, 2, 4),
        hidden=("0", "00", "1111"),
        logits=("0", "00", "1111"),
        digests=("0a" * 8, "0b" * 8, "0c" * 8),
        repeated=(True, True, True),
        remainder=(0, 0, 0),
        content=(4,),
    )
    return KernelMap((one,), (), tokens="0d" * 8, flash_attn="on", forward_ms=12.5, wall_ms=13.25)


def structure() -> Structure:
    found = (
        ProbeResult("rollback", "sound", "bits agree", ("inside True",)),
        ProbeResult("eog", "fault", "x"),
    )
    return Structure(3, "two-model", found, "snapshot", 1.25)


def environment() -> Environment:
    return Environment(
        seconds=12.5,
        foreign_share=0.0625,
        steal_share=0.0,
        load=1.5,
        frequency_mhz=2450.0,
        governor="performance",
        on_battery=False,
        low_power=False,
        thermal_pressure="nominal",
        speed_limit=100,
        throttled=0,
        quota_cores=1.5,
        quota_throttled=0.25,
        virtualised=True,
    )


def noise() -> NoiseRun:
    pairs = tuple(ArmPair("list", 5, 80.0, 5, 80.0 + index / 4) for index in range(24))
    return NoiseRun(pairs, environment=environment())


def memory() -> MemoryUse:
    return MemoryUse(peak=2**29, total=24 * 2**30, where="memory of the machine")


def ledger() -> LedgerRun:
    return LedgerRun(
        method="two-model",
        depth=64,
        plain_ms=10.0,
        ks=(1, 2, 3, 5),
        fitted=3,
        verify_ms=(15.0, 20.0, 24.0, 34.0),
        drafted=(1.0, 2.0, 3.0, 4.9),
        tokens_per_round=(1.7, 2.1, 2.4, 2.8),
        tokens_per_s=(60.0, 57.0, 52.0, 44.0),
    )


def one_of_each() -> list[Made]:
    made: list[Measurement] = [curve(), speculative(), decode(), speed(), exactness(), draft_cost()]
    made += [timeline(), memory(), ledger(), kernel_map(), structure(), noise()]
    return [Made(f"{measurement.kind} k=3", measurement) for measurement in made]


def published_totals() -> list[Made]:
    made: list[Measurement] = [
        SpeculativeRun(3, "two-model", (), "published", PublishedAcceptance(0.5)),
        SpeculativeRun(7, "two-model", (), "published", PublishedAcceptance(0.25, rounds=64, tokens=197)),
        SpeedRun(3, "two-model", (), "published", PublishedSpeed(50.0, 60.0)),
    ]
    return [Made(f"{measurement.kind} published {n}", measurement) for n, measurement in enumerate(made)]


def hello(**changes: Any) -> dict[str, Any]:
    return {
        "protocol": 1,
        "python": "3.11.7",
        "llama_cpp_python": "0.3.36",
        "ggml_version": "0.9.4",
        "ggml_commit": "0c1e57098",
        "libraries": {"libllama.so": "ab" * 32, "libggml-cpu.so": "cd" * 32},
        "system_info": "CPU : SSE3 = 1 | AVX2 = 1 | ",
        "devices": [{"name": "CPU", "description": "AMD EPYC", "type": "cpu", "memory_total": 24 * 2**30}],
        "gpu_offload": False,
        **changes,
    }


def machine(**changes: Any) -> Machine:
    hard: dict[str, Any] = {
        "chip": "AMD EPYC 7763",
        "cores": 2,
        "gpu": None,
        "memory_gib": 24,
        "os_family": "linux",
        "backend": "cpu",
        "virtualised": True,
    }
    return Machine({**hard, **changes}, {"kernel": "6.1.0"})


def facts(name: str = "SmolLM2 135M", digest: str = "0") -> dict[str, Any]:
    return {
        "name": name,
        "architecture": "llama",
        "tensor_types": {"Q4_1": 210, "F32": 61},
        "size": 98_000_000,
        "sha256": digest * 64,
        "layers": 30,
        "quantisation": "Q4_1",
    }


def models(draft: str = "1") -> dict[str, Any]:
    return {"target": facts(), "draft": facts("SmolLM2 135M Q2_K", draft)}


def save(store: Store, *entries: Made, **changes: Any) -> SaveReport:
    arguments: dict[str, Any] = {
        "machine_name": "lab",
        "machine": machine(),
        "pair": PAIR,
        "models": models(),
        "build": build_identity(hello()),
        "entries": list(entries),
        "day": DAY,
        **changes,
    }
    return store.save(**arguments)


def leave_candidate(store: Store, *entries: Made, **changes: Any) -> Path:
    arguments: dict[str, Any] = {
        "machine_name": "lab",
        "machine": machine(),
        "pair": PAIR,
        "models": models(),
        "build": build_identity(hello()),
        "entries": list(entries),
        "day": DAY,
        **changes,
    }
    return store.write_candidate(**arguments)
