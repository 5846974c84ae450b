"""Ledger, forward share and headroom: both sides, with the words a user reads."""

from __future__ import annotations

from dataclasses import replace

from pytest_specdec.checks.accounts import ledger_closes
from pytest_specdec.checks.accounts import memory_headroom
from pytest_specdec.checks.accounts import min_forward_share
from pytest_specdec.checks.accounts import timeline_table
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import MemoryUse
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Timeline
from pytest_specdec.verdict import Outcome


def run() -> LedgerRun:
    """A ledger that closes exactly: 2 ms overhead, 3 ms per drafted token."""
    ks, verify, tokens = (1, 2, 3, 5, 7), (12.0, 14.0, 16.0, 20.0, 30.0), (1.6, 2.0, 2.2, 2.4, 2.5)
    rates = tuple(1000 * t / (2.0 + 3.0 * k + v) for k, v, t in zip(ks, verify, tokens, strict=True))
    return LedgerRun("two-model", 64, 10.0, ks, 3, verify, tuple(map(float, ks)), tokens, rates)


def timeline() -> Timeline:
    off = Stages("a", False, 9, 30.0, 0.0, 0.0, 60.0, 6.0, 0.0, 0.0, 4.0, 100.0)
    on = Stages("a", True, 9, 30.0, 4.0, 20.0, 30.0, 8.0, 1.0, 0.0, 7.0, 100.0)
    return Timeline(3, "two-model", (off, on))


def test_a_ledger_that_closes() -> None:
    verdict = ledger_closes(run())
    assert verdict.outcome is Outcome.PASS
    assert verdict.value is not None
    assert abs(verdict.value) < 1e-6
    assert "overhead 2.00 ms per round, draft 3.00 ms per token" in verdict.section


def test_a_term_that_is_wrong_opens_it() -> None:
    verify = run().verify_ms
    verdict = ledger_closes(replace(run(), verify_ms=(*verify[:4], 2 * verify[4])))
    assert verdict.outcome is Outcome.FAIL
    assert "at k = 7" in verdict.because
    assert "more than 10% off" in verdict.because
    assert "cheaper than T(8)" in verdict.because


def test_the_forward_share() -> None:
    assert min_forward_share(timeline(), p=0.6).outcome is Outcome.PASS
    verdict = min_forward_share(timeline(), p=0.61)
    assert verdict.outcome is Outcome.FAIL
    assert "60.0% of the request time is decode forwards, less than 61%" in verdict.because
    assert "more than 2.50 times as fast" in verdict.because


def test_the_timeline_shows_both_sides() -> None:
    lines = timeline_table(timeline()).splitlines()
    assert any(line.split()[:3] == ["draft", "forward", "0.0"] for line in lines)
    assert lines[-1].split() == ["wall", "time", "100.0", "100.0%", "100.0", "100.0%"]


def test_headroom() -> None:
    use = MemoryUse(peak=9 * 2**30, total=10 * 2**30, where="memory of the machine")
    assert memory_headroom(use, share=0.1).outcome is Outcome.PASS
    verdict = memory_headroom(use, share=0.11)
    assert verdict.outcome is Outcome.FAIL
    assert "9.00 GiB of 10.00 GiB (memory of the machine): 10.0% stay free, less than 11%" in verdict.because
