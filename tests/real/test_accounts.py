"""The accounts of real runs: stages add up, the ledger predicts, Amdahl closes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_specdec.bench.session import Bench
from pytest_specdec.checks.accounts import STAGES
from pytest_specdec.checks.accounts import ledger_closes
from pytest_specdec.checks.accounts import ledger_of
from pytest_specdec.checks.accounts import ledger_table
from pytest_specdec.checks.accounts import memory_headroom
from pytest_specdec.checks.accounts import min_forward_share
from pytest_specdec.checks.baseline import within_baseline
from pytest_specdec.theory import amdahl
from pytest_specdec.verdict import Outcome
from tests.real.conftest import GEMMA
from tests.real.conftest import SMOLLM2


# Single passes vary by a tenth on a shared machine; an account that is wrong is farther off.
WITHIN = 0.25
WATCHES = ("The night watch", "The morning watch", "The pilot", "The keeper of the light")


def _prompts(folder: Path, *texts: str) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "template": "raw"}) + "\n" for text in texts))
    return str(path)


def test_stages_add_up_to_the_wall_time(bench: Callable[..., Bench]) -> None:
    timeline = bench(**SMOLLM2, k=3, n_predict=24, prompts="default::code,list").timeline()
    parts = [part for part in STAGES if part != "wall_ms"]
    for request in timeline.requests:
        assert sum(getattr(request, part) for part in parts) == pytest.approx(request.wall_ms)
        assert all(getattr(request, part) >= 0 for part in parts)
        assert (request.draft_forward_ms > 0) == request.speculating
    assert 0 < timeline.forward_share < 1


def test_a_wait_is_a_stage_of_its_own(bench: Callable[..., Bench]) -> None:
    made = bench(
        **SMOLLM2, env=(("SPECDEC_FAULTS", "sleep_round_ms=20"),), n_predict=12, prompts="default::list"
    )
    timeline = made.timeline()
    assert timeline.total_ms("wait_ms", speculating=False) == 0
    rounds = sum(len(s.drafted) for s in made.speculate().speculations)
    assert timeline.total_ms("wait_ms", speculating=True) >= 20 * rounds


@pytest.mark.parametrize(
    ("pair", "prompts"),
    [(SMOLLM2, "default::code"), (GEMMA, "default::repeat")],
    ids=["smollm2", "gemma"],
)
def test_a_ledger_fitted_on_three_draft_lengths_predicts_two_others(
    bench: Callable[..., Bench], pair: dict[str, str], prompts: str
) -> None:
    run = bench(**pair, n_predict=24, prompts=prompts).ledger_run()
    print(ledger_table(ledger_of(run)))
    verdict = ledger_closes(run, within=WITHIN)
    assert verdict.outcome is Outcome.PASS, verdict.long_repr()
    # One term falsified: the passes of the draft lengths held out, three times as dear as they are.
    false = replace(
        run, verify_ms=(*run.verify_ms[: run.fitted], *(3 * ms for ms in run.verify_ms[run.fitted :]))
    )
    verdict = ledger_closes(false, within=WITHIN)
    assert verdict.outcome is Outcome.FAIL
    assert "held out" in verdict.section
    assert "were measured" in verdict.because


@pytest.mark.parametrize(
    ("words", "n_predict"), [(300, 12), (12, 96)], ids=["long prompt, short answer", "the reverse"]
)
def test_the_amdahl_closure(bench: Callable[..., Bench], tmp_path: Path, words: int, n_predict: int) -> None:
    """What p with speculation off and the factor on its forwards predict is what is measured."""
    texts = [f"{who} wrote: all is quiet at the harbour. " * (words // 10 + 1) for who in WATCHES]
    made = bench(**GEMMA, k=3, n_predict=n_predict, prompts=_prompts(tmp_path, *texts))
    timeline = made.timeline()
    on = [timeline.total_ms(part, speculating=True) for part in ("target_forward_ms", "draft_forward_ms")]
    closure = amdahl.close(
        request_ms_off=timeline.total_ms("wall_ms", speculating=False),
        forward_ms_off=timeline.total_ms("target_forward_ms", speculating=False),
        request_ms_on=timeline.total_ms("wall_ms", speculating=True),
        forward_ms_on=sum(on),
    )
    assert closure.closes(WITHIN), closure
    assert (timeline.forward_share > 0.6) == (words < n_predict)
    assert min_forward_share(timeline, p=0.999).outcome is Outcome.FAIL
    assert min_forward_share(timeline, p=0.01).outcome is Outcome.PASS


def test_rounds_that_wait_are_overhead(bench: Callable[..., Bench]) -> None:
    """Bounds need seven prompts at least; the shipped set has more."""
    sound = bench(**SMOLLM2, n_predict=6).speculate()
    waits = bench(**SMOLLM2, n_predict=6, env=(("SPECDEC_FAULTS", "sleep_round_ms=20"),)).speculate()
    assert within_baseline(sound, sound, metric="overhead").outcome is Outcome.PASS
    verdict = within_baseline(waits, sound, metric="overhead")
    assert verdict.outcome is Outcome.FAIL, verdict.long_repr()
    assert verdict.value is not None
    assert verdict.baseline is not None
    assert verdict.value > verdict.baseline + 15


def test_memory_leaves_room(bench: Callable[..., Bench]) -> None:
    use = bench(**SMOLLM2, n_predict=8, prompts="default::list").memory()
    assert 100 * 2**20 < use.peak < use.total
    assert memory_headroom(use, share=0.10).outcome is Outcome.PASS
    verdict = memory_headroom(use, share=1.0)
    assert verdict.outcome is Outcome.FAIL
    assert "GiB" in verdict.because
