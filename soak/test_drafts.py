"""Draft sources on real models: the oracle's ledger, where prompt lookup pays, heads, every source exact."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_specdec.bench.fit import Fit
from pytest_specdec.bench.fit import Wanted
from pytest_specdec.bench.session import Bench
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.checks.acceptance import acceptance_of
from pytest_specdec.checks.accounts import ledger_of
from pytest_specdec.checks.accounts import ledger_table
from pytest_specdec.checks.exactness import lossless
from pytest_specdec.checks.speed import answer
from pytest_specdec.checks.speed import min_speedup
from pytest_specdec.cli.fit import HEADS
from pytest_specdec.cli.fit import TOKENS
from pytest_specdec.cli.fit import VOCABULARY
from pytest_specdec.reports.fit import position_line
from pytest_specdec.settings import Settings
from pytest_specdec.verdict import Outcome


TARGETS = ("smollm2-135m", "gemma-3-270m")
# Tokens to fit on and to choose from, where more than the command's own are needed for a factor of three.
MORE = {("smollm2-135m", "medusa"): (48000, 8192)}
Make = Callable[..., Bench]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Make]:
    session = BenchSession(Settings(rootdir=tmp_path))

    def make(**settings: object) -> Bench:
        return session.bench(session.settings.merged(**settings))

    yield make
    session.close()


@pytest.fixture(scope="session")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Fit]:
    """Heads, fitted once for a target and a method."""
    known: dict[tuple[str, str], Fit] = {}

    def fitted(target: str, method: str) -> Fit:
        if (target, method) not in known:
            folder = tmp_path_factory.mktemp("heads")
            session = BenchSession(Settings(rootdir=folder))
            tokens, vocabulary = MORE.get((target, method), (TOKENS, VOCABULARY))
            wanted = Wanted(method, "fitting", tokens, HEADS, vocabulary, folder / "heads.safetensors")
            try:
                known[target, method] = session.bench(session.settings.merged(target=target)).fit(wanted)
            finally:
                session.close()
        return known[target, method]

    return fitted


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7, 0.9])
def test_the_ledger_of_an_oracle_closes(made: Make, alpha: float) -> None:
    """Fitted on four draft lengths, the round costs of the other four are within 5 % of those measured."""
    chosen = {"method": "oracle", "oracle_alpha": alpha, "oracle_ms": 1.0}
    # Eight draft lengths, five times over: two prompts are minutes.
    bench = made(target=TARGETS[0], prompts="default::code,list", n_predict=40, **chosen)
    run = bench.ledger_run((1, 3, 5, 8), (2, 4, 6, 7))
    ledger = ledger_of(run)
    print(f"alpha {alpha}\n{ledger_table(ledger)}")
    for row in ledger.rows:
        assert abs(row.residual) <= 0.05, row


def test_prompt_lookup_pays_on_text_that_repeats_and_not_on_prose(made: Make) -> None:
    repeats = made(target=TARGETS[0], method="ngram", prompts="default::repeat", n_predict=128, k=3)
    verdict = min_speedup(repeats.speed(), x=1.2, prove=True)
    print(verdict.because)
    assert verdict.outcome is Outcome.PASS
    prose = made(target=TARGETS[0], method="ngram", prompts="default::prose", n_predict=128, k=3)
    run = prose.speed()
    print(min_speedup(run, x=1.2, prove=True).because)
    assert min_speedup(run, x=1.2, prove=True).outcome is Outcome.FAIL
    assert "do not speculate" in answer(run)


@pytest.mark.parametrize("method", ["medusa", "eagle"])
@pytest.mark.parametrize("target", TARGETS)
def test_heads_know_more_than_the_most_frequent_token(
    heads: Callable[[str, str], Fit], target: str, method: str
) -> None:
    found = heads(target, method)
    seen = acceptance_of(found.run)
    assert seen is not None
    print(
        f"{target} {method}: {position_line(seen, found.constant)}; {found.rows} tokens, {found.covered:.0%}"
    )
    assert seen.positions[0] >= 3 * found.constant


@pytest.mark.parametrize("source", ["ngram", "requantize:Q2_K", "layerskip:12", "medusa", "eagle"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_source_is_lossless(
    made: Make, heads: Callable[[str, str], Fit], target: str, source: str
) -> None:
    chosen: dict[str, object] = {"method": source}
    if ":" in source:
        chosen = {"method": "two-model", "draft": source}
    elif source in ("medusa", "eagle"):
        chosen["heads"] = str(heads(target, source).path)
    verdict = lossless(
        made(target=target, prompts="default::code,prose", n_predict=32, k=3, **chosen).exactness()
    )
    print(f"{target} {source}: {verdict.because}")
    assert verdict.outcome is Outcome.PASS, verdict.section
