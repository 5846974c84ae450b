"""Exactness over more text than the tests take: 50 prompts, every draft length, every fault, real models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_specdec.bench.prompts import load_prompts
from pytest_specdec.bench.session import Bench
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.checks.exactness import lossless
from pytest_specdec.settings import Settings
from pytest_specdec.verdict import Outcome


PAIRS = {
    "smollm2": {"target": "smollm2-135m", "draft": "requantize:Q2_K"},
    "gemma": {"target": "gemma-3-270m"},
}
LENGTHS = range(1, 9)
PROMPTS = 50
# Of a variation, but for one: the prompt goes in some twenty times per draft length.
WORDS = 30
LONG = 4

FAULTS = (
    "rollback_short=1",
    "rollback_none=1",
    "rollback_far=1",
    "keep_rejected=1",
    "hole=1",
    "k_shift=1",
    "accept_extra=1",
    "wrong_bonus=1",
    "wrong_row=1",
)


@dataclass(frozen=True)
class Lot:
    """Prompts that run together, and how many tokens each generates."""

    name: str
    prompts: str
    n_predict: int


def variations() -> list[dict[str, str]]:
    """Texts made of the shipped ones, as many as bring them to `PROMPTS`: cut, turned round, joined, raw."""
    shipped = load_prompts().prompts
    made: list[dict[str, str]] = []
    for own, other in zip(shipped, (*shipped[1:], shipped[0]), strict=True):
        words = own.text.split()
        turned = "raw" if own.template == "chat" else "chat"
        for way, text, template in (
            ("start", " ".join(words[: len(words) // 2]), "raw"),
            ("end", " ".join(words[len(words) // 2 :]), "chat"),
            ("short", f"In one sentence: {own.text}", "chat"),
            ("twice", f"{' '.join(words[:12])}\n{' '.join(words[:12])}\n{' '.join(words[:6])}", "raw"),
            ("joined", f"{' '.join(words[-WORDS // 2 :])}\n\n{other.text}", "chat"),
            (turned, own.text, turned),
        ):
            cut = text if len(made) == LONG else " ".join(text.split()[:WORDS])
            made.append({"id": f"{own.id}-{way}", "kind": own.kind, "text": cut, "template": template})
    return made[: PROMPTS - len(shipped)]


@pytest.fixture(scope="module")
def lots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lot]:
    path = tmp_path_factory.mktemp("prompts") / "variations.jsonl"
    rows = variations()
    assert len(rows) + len(load_prompts().prompts) == PROMPTS
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return {
        "shipped": Lot("shipped", "default", 32),
        "variations": Lot("variations", str(path), 12),
    }


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchSession]:
    """One worker: what doesn't depend on the draft length is kept there."""
    made = BenchSession(Settings(rootdir=tmp_path_factory.mktemp("root")))
    yield made
    made.close()


def judged(bench: Bench) -> tuple[str, list[int]]:
    """Hold one draft length; return what it says and the step that decided each prompt."""
    exactness = bench.exactness()
    verdict = lossless(exactness)
    assert verdict.outcome is Outcome.PASS, f"{verdict.because}\n{verdict.section}"
    for case in exactness.cases:
        for margin in case.margins:
            assert margin.margin <= 2 * margin.delta
    return verdict.because, [case.decided or 0 for case in exactness.cases]


@pytest.mark.parametrize("lot", ["shipped", "variations"])
@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize("pair", PAIRS)
def test_every_text_is_the_targets_own(
    session: BenchSession, lots: dict[str, Lot], pair: str, k: int, lot: str
) -> None:
    """Every test runs 8 or 42 prompts; the output has the near ties and the steps."""
    chosen = lots[lot]
    settings = session.settings.merged(**PAIRS[pair], prompts=chosen.prompts, n_predict=chosen.n_predict, k=k)
    because, steps = judged(session.bench(settings))
    print(f"{pair} {lot}: {because}")
    if pair == "smollm2":
        # One class for every N; one-token attention splits by thread from 256 tokens on.
        assert max(steps) <= 2
        assert lot == "variations" or max(steps) == 1


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_a_bit_exact_step(tmp_path: Path, pair: str, fault: str) -> None:
    session = BenchSession(Settings(env=(("SPECDEC_FAULTS", fault),), rootdir=tmp_path))
    try:
        settings = session.settings.merged(**PAIRS[pair], prompts="default::code", n_predict=12, k=3)
        exactness = session.bench(settings).exactness()
    finally:
        session.close()
    verdict = lossless(exactness)
    print(f"{pair} {fault}: {verdict.because}")
    assert verdict.outcome is Outcome.FAIL
    partings = exactness.cases[0].partings
    assert min(parting.step for parting in partings) <= 2
    assert min(parting.round for parting in partings if parting.against != "useless") <= 2
