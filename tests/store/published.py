"""The published baseline, made of the article's tables in tests/data; run as a module, it writes the file."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from datetime import date
from typing import Any
from typing import Final

from pytest_specdec.bench import keys
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import PublishedAcceptance
from pytest_specdec.measurements import PublishedSpeed
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.store import Machine
from pytest_specdec.store.baseline import new_document
from pytest_specdec.store.document import check
from pytest_specdec.store.document import render
from pytest_specdec.store.published import PUBLISHED

from ..theory import published as article


MACHINE: Final = "apple-m5-pro-24gb-metal"
PAIR: Final = "qwen2.5-7b-instruct-q4-k-m--qwen2.5-0.5b-instruct-q4-k-m"
PATH: Final = PUBLISHED / MACHINE / f"{PAIR}.json"

METHOD: Final = "two-model"
COMMIT: Final = "8ed274ef4"
# The day the tables were copied; the article's own is not known.
DAY: Final = date(2026, 11, 29)
# The only run whose tokens the article counts.
COUNTED_K: Final = 7
COUNTED_TOKENS: Final = 197
# Draft lengths that fit the ledger; those that a plateau would have to tell T(k + 1) of are left out.
FIT_ON: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Stated:
    """A published measurement, and the settings that its source states."""

    measurement: Measurement
    settings: dict[str, Any]
    used_by: frozenset[str] = field(default=frozenset())

    @property
    def key(self) -> str:
        return keys.key(self.measurement.kind, self.settings)


def text() -> str:
    """Return the file's text."""
    machine = Machine(
        {
            "chip": "Apple M5 Pro",
            "cores": None,
            "gpu": "Apple M5 Pro",
            "memory_gib": 24,
            "os_family": "macos",
            "backend": "metal",
            "virtualised": None,
        },
        {
            "source": "a published article on four variants of speculative decoding, no work of this project",
            "verify_curve": "llama-bench -p N -n 0 -r 5: logits of the last row, random tokens",
            "speculative, speed": "llama-speculative -n 192 --temp 0 -c 2048; plain: llama-cli, 57.6 t/s",
            "draft_cost": "llama-bench: 354.95 tokens/s (draft), 58.57 (target)",
            "ledger": "put together from these tables",
        },
    )
    build: dict[str, Any] = {
        "llama_cpp_python": None,
        "ggml_version": None,
        "ggml_commit": COMMIT,
        "libraries": {},
        "system_info": f"llama.cpp build {COMMIT}, Metal",
    }
    facts = {
        "target": _facts("Qwen2.5-7B Q4_K_M", "Qwen2.5 7B Instruct"),
        "draft": _facts("Qwen2.5-0.5B Q4_K_M", "Qwen2.5 0.5B Instruct"),
    }
    document = new_document(MACHINE, machine, PAIR, facts, build, entries(), DAY)
    check(document, PATH)
    return render(document)


def entries() -> list[Stated]:
    """Return the measurements that the tables hold."""
    curve, rates = article.article_curve(), article.article_rates()
    run = {"method": METHOD, "n_ctx": 2048, "n_predict": 192}
    found = [
        Stated(
            VerifyCurve(
                tuple(curve), tuple(((ms,),) for ms in curve.values()), rows="last", source="published"
            ),
            {"depth": 0},
        ),
        Stated(
            DraftCost(
                METHOD, (round(article.DRAFT_MS, 3),), (round(article.TARGET_MS, 3),), source="published"
            ),
            {"depth": 0, "method": METHOD},
        ),
        Stated(_ledger(curve, rates), {"method": METHOD}),
    ]
    for row in article.table("sweep_m5pro_metal_qwen25_7b_q4_k_m"):
        k = int(row["k"])
        rate = round(float(row["accept_pct_reported"]) / 100.0, 6)
        counts = PublishedAcceptance(rate)
        if k == COUNTED_K:
            rounds, accepted = article.article_counts(k)
            assert 1 + rounds + accepted == COUNTED_TOKENS
            counts = PublishedAcceptance(rate, rounds=rounds, tokens=COUNTED_TOKENS)
        speed = PublishedSpeed(1000.0 / article.PLAIN_MS, rates[k])
        found += [
            Stated(SpeculativeRun(k, METHOD, (), "published", counts), {**run, "k": k}),
            Stated(SpeedRun(k, METHOD, (), "published", speed), {**run, "k": k}),
        ]
    return found


def _ledger(curve: dict[int, float], rates: dict[int, float]) -> LedgerRun:
    ks = (*FIT_ON, *(k for k in rates if k not in FIT_ON and k + 1 in curve))
    yields = article.article_yields()
    return LedgerRun(
        method=METHOD,
        depth=0,
        plain_ms=article.PLAIN_MS,
        ks=ks,
        fitted=len(FIT_ON),
        verify_ms=tuple(curve[k + 1] for k in ks),
        drafted=tuple(float(k) for k in ks),
        tokens_per_round=tuple(yields[k] for k in ks),
        tokens_per_s=tuple(rates[k] for k in ks),
        source="published",
    )


def _facts(row: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in article.table("draft_cost_small_models") if one["model"] == row]
    return {
        "name": name,
        "architecture": "qwen2",
        "tensor_types": {},
        "size": round(float(found["size_MiB"]) * 2**20),
        "sha256": None,
        "parameters": round(float(found["params_M"]) * 1e6),
        "quantisation": "Q4_K_M",
    }


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text(), encoding="utf-8")
