"""Speculation is the target's own on real models, in the steps the kernel map promises; faults are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.bench.session import Bench
from pytest_specdec.checks.exactness import lossless
from pytest_specdec.measurements import DepthMap
from pytest_specdec.measurements import ExactnessCase
from pytest_specdec.theory.classes import find_classes
from pytest_specdec.verdict import Outcome
from tests import tiny_models
from tests.real.conftest import GEMMA
from tests.real.conftest import SMOLLM2


PAIRS = {"smollm2": SMOLLM2, "gemma": GEMMA}
LENGTHS = (1, 3, 6, 7)

# Short, so that passes over the prompt don't cost more than the comparison; one repeats itself.
PROMPTS = {
    "rota": "Anna washes the cups.\nBen sweeps the floor.\nAnna washes the cups.\nBen sweeps",
    "code": "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n",
}

# Consistent faults, and whether the bits alone show them, before any token changes.
FAULTS = {
    "rollback_short=1": True,
    "rollback_none=1": True,
    "rollback_far=1": True,
    "hole=1": True,
    "k_shift=1": True,
    "keep_rejected=1": False,
    "accept_extra=1": False,
    "wrong_bonus=1": False,
    "wrong_row=1": False,
}

Make = Callable[..., Bench]


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    """A file of `PROMPTS`; "::rota" behind it selects one."""
    lines = [json.dumps({"id": name, "text": text, "template": "raw"}) for name, text in PROMPTS.items()]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def tiny(bench: Make, prompts: str, tmp_path: Path) -> Make:
    """A bench over a tiny model with random weights."""

    def make(kind: str, **settings: Any) -> Bench:
        path = tiny_models.write(kind, tmp_path / f"{kind}.gguf")
        values = {"target": str(path), "prompts": f"{prompts}::rota", "n_predict": 12, "k": 3}
        return bench(**{**values, **settings})

    return make


def promised(taken: DepthMap, k: int) -> int:
    """The step that has to decide at a draft length, by the map alone."""
    first = min(find_classes(taken.n, (taken.hidden, taken.logits), taken.remainder).thresholds, default=99)
    left = dict(zip(taken.n, taken.remainder, strict=True))
    if k + 1 in taken.content:
        return 3
    if k + 1 < first and not any(left[n] for n in taken.n if n <= k + 1):
        return 1
    return 3 if left[k + 1] else 2


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_steps_hold_wherever_the_kernel_map_promises_it(
    bench: Make, prompts: str, pair: dict[str, str]
) -> None:
    made = bench(**pair, prompts=f"{prompts}::rota", n_predict=12, map_sizes="1-8", depth=0)
    taken = made.kernel_map().maps[0]
    for k in LENGTHS:
        exactness = made.exactness(k)
        verdict = lossless(exactness)
        assert verdict.outcome is Outcome.PASS, f"{verdict.because}\n{verdict.section}"
        for case in exactness.cases:
            assert case.decided is not None
            assert case.decided <= promised(taken, k), (k, case.reasons)
            assert case.invariant == (len(case.plain) if 2 in case.steps else 0)


def test_a_row_that_another_kernel_computes_is_no_fault(bench: Make) -> None:
    # Where kernels work in fours, passes of 7 leave rows 4 to 6 to the one-row kernel: at one alignment only,
    # δ at a token that comes from such a row says nothing of the kernel that speculation chose it with.
    exactness = bench(**GEMMA, prompts="default::code", n_predict=64, k=6).exactness()
    verdict = lossless(exactness)
    assert verdict.outcome is Outcome.PASS, f"{verdict.because}\n{verdict.section}"


def faulty(case: ExactnessCase) -> tuple[int, int]:
    """The strictest step that failed, and the first round that showed it."""
    rounds = [one.round for one in case.partings if one.against in ("plain", "clean")]
    return min(one.step for one in case.partings), min(rounds)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_consistent_fault_shows_by_the_second_round(tiny: Make, fault: str) -> None:
    exactness = tiny("llama", env=(("SPECDEC_FAULTS", fault),)).exactness()
    case = exactness.cases[0]
    assert lossless(exactness).outcome is Outcome.FAIL
    step, first = faulty(case)
    assert step <= 2
    assert first <= 2
    if FAULTS[fault]:
        assert all(one.token == one.other for one in case.partings)
    if fault == "k_shift=1":
        assert case.plain == case.speculative


def test_drafts_are_as_useless_and_as_perfect_as_they_are_called(tiny: Make) -> None:
    # Each run's first bonus token is wrong: how far it got is how much was accepted before.
    case = tiny("llama", env=(("SPECDEC_FAULTS", "wrong_bonus=1"),)).exactness().cases[0]
    first = {one.drafts: (one.position, one.round) for one in case.partings if one.step == 2}
    assert first["useless"] == (1, 1)
    assert first["perfect"] == (4, 1)
    assert first["useless"] < first["mixed"] < first["perfect"]


@pytest.mark.parametrize("skew", [1, -1])
def test_a_host_apart_from_its_cache_is_structural(tiny: Make, skew: int) -> None:
    verdict = lossless(tiny("llama", env=(("SPECDEC_FAULTS", f"skew={skew}"),)).exactness())
    assert verdict.outcome is Outcome.FAIL
    assert "Cache and host disagree" in verdict.because
    assert "llama_decode returned -1" in verdict.because


@pytest.mark.parametrize("kind", ["llama", "gemma3", "qwen2vl", "moe-f32", "moe-q4_k"])
def test_without_a_fault_every_architecture_holds(tiny: Make, kind: str) -> None:
    made = tiny(kind)
    for k in LENGTHS:
        verdict = lossless(made.exactness(k))
        assert verdict.outcome is Outcome.PASS, f"{verdict.because}\n{verdict.section}"


def test_only_a_quantised_mixture_looks_at_the_tokens_behind(tiny: Make) -> None:
    behind = "row 0 of a batch of N = 8 depends on the tokens behind it"
    quantised, plain = (tiny(kind).exactness(7).cases[0] for kind in ("moe-q4_k", "moe-f32"))
    assert quantised.steps == (3,)
    assert f"step 2: {behind}" in quantised.reasons
    assert not any(behind in reason for reason in plain.reasons)


def test_states_that_cannot_forget_hold_too(tiny: Make) -> None:
    exactness = tiny("lfm2").exactness()
    assert lossless(exactness).outcome is Outcome.PASS
    # What a rollback decodes again are passes of their own widths.
    assert set(exactness.cases[0].widths) > {1}


def test_the_end_of_the_context_is_no_fault(tiny: Make) -> None:
    made = tiny("llama")
    length = made.decode().generations[0].prompt_tokens
    at_the_end = made.with_settings(n_ctx=256, n_predict=256 - length)
    exactness = at_the_end.exactness(7)
    case = exactness.cases[0]
    assert lossless(exactness).outcome is Outcome.PASS
    assert len(case.plain) > 32 >= case.invariant


@pytest.mark.parametrize(
    ("pair", "fault"), [(SMOLLM2, "k_shift=1"), (GEMMA, "accept_extra=1")], ids=["smollm2", "gemma"]
)
def test_a_sabotaged_gate_fails_and_names_the_step(
    gate: Callable[..., pytest.RunResult], prompts: str, pair: dict[str, str], fault: str
) -> None:
    result = gate(
        f"""
        @lossless()
        @specdec(**{pair!r}, n_predict=8, prompts={f"{prompts}::rota"!r}, k=3)
        def test_text(): pass
        """,
        f"--specdec-env=SPECDEC_FAULTS={fault}",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*lossless()*not the target's own*: step [12]: *"])
