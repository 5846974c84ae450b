"""Acceptance with a real draft: the counts follow from the tokens, and a model accepts itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_specdec.bench.procedures import Pair
from pytest_specdec.bench.session import Bench
from tests.real.conftest import SMOLLM2


@pytest.mark.parametrize("k", range(1, 8))
def test_counts_are_what_the_draft_would_have_said(bench: Callable[..., Bench], k: int) -> None:
    """Each round again, from scratch: the draft's own greedy continuation held against the text."""
    made = bench(**SMOLLM2, k=k, n_predict=20, prompts="default::code", threads=1)
    (run,) = made.speculate().speculations
    pair = Pair(made)
    (_, prompt), *_ = pair.prompts
    assert pair.draft is not None
    at = 1
    for drafted, accepted in zip(run.drafted, run.accepted, strict=True):
        if drafted:
            text = [*prompt, *run.tokens[:at]]
            said = pair.engine.request("decode", context=pair.draft.handle, tokens=text, n_predict=drafted)[
                "tokens"
            ]
            right = 0
            while right < drafted and run.tokens[at + right] == said[right]:
                right += 1
            assert accepted == right
        at += accepted + 1
    assert at == len(run.tokens)


def test_plain_decoding_gives_the_same_tokens(bench: Callable[..., Bench]) -> None:
    made = bench(**SMOLLM2, k=4, n_predict=24, prompts="default::code,list", threads=1)
    plain = {run.prompt: run.tokens for run in made.decode().generations}
    assert {run.prompt: run.tokens for run in made.speculate().speculations} == plain


@pytest.mark.parametrize("k", [1, 3, 7])
def test_a_model_accepts_itself(gate: Callable[..., pytest.RunResult], k: int) -> None:
    result = gate(
        f"""
        @accept_rate(1.0)
        @specdec(target="smollm2-135m", draft="smollm2-135m", k={k}, threads=1, n_predict=24,
                 prompts="default::code,list")
        def test_self(): pass
        """
    )
    result.assert_outcomes(passed=1)


def test_a_rate_out_of_reach_fails_with_its_counts(gate: Callable[..., pytest.RunResult]) -> None:
    result = gate(
        """
        @accept_rate(0.99)
        @specdec(target="gemma-3-270m", k=3, n_predict=32, prompts="default::code")
        def test_lookup(): pass
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*accept_rate\(0\.99\).*\d+ of \d+ drafted tokens.*"])


def test_end_of_generation_inside_a_draft_ends_the_text(bench: Callable[..., Bench]) -> None:
    """Both ways stop at the same token, also where the draft foresaw it."""
    made = bench(target="smollm2-135m", draft="smollm2-135m", k=7, n_predict=160, threads=1)
    prompts = [{"id": "short", "kind": "question", "text": "Say only the word: yes", "template": "chat"}]
    made = made.with_settings(prompts=_file(made, prompts))
    (plain,) = made.decode().generations
    (run,) = made.speculate().speculations
    assert run.tokens == plain.tokens
    assert (run.stop, plain.stop) == ("eog", "eog")


def _file(made: Bench, prompts: list[dict[str, str]]) -> str:
    import json

    path = made.session.settings.rootdir / "prompts.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in prompts))
    return str(path)
