"""Twenty thousand draws per source at temperature 1, and the planted bug that must not pass."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase

import pytest

from pytest_specdec.bench.session import BenchSession
from pytest_specdec.checks.sampling import same_distribution
from pytest_specdec.settings import Settings
from pytest_specdec.verdict import Outcome
from tests import tiny_models
from tests.real.test_heads import copying
from tests.real.test_heads import saved
from tests.real.test_heads import still


DRAWS = 20_000
# Whatever is drawn occurred before, so that prompt lookup drafts.
TEXT = f"{ascii_lowercase} {ascii_lowercase[::-1]} .,?"


# Texts are counted whole: longer ones have fewer tokens to choose from.
@pytest.mark.parametrize(("top_k", "n_predict"), [(2, 5), (5, 4)])
@pytest.mark.parametrize("fault", ["", "no_ratio=1"])
@pytest.mark.parametrize("source", ["two-model", "layerskip", "ngram", "medusa", "eagle"])
def test_twenty_thousand_draws(tmp_path: Path, source: str, fault: str, top_k: int, n_predict: int) -> None:
    target = tiny_models.write("llama-32", tmp_path / "target.gguf")
    draft = tiny_models.write("llama-32", tmp_path / "draft.gguf", noise=0.3)
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"text": TEXT, "template": "raw"}) + "\n")
    chosen = {
        "two-model": {"method": "two-model", "draft": str(draft)},
        "layerskip": {"method": "two-model", "draft": "layerskip:1"},
        "ngram": {"method": "ngram"},
        "medusa": {"method": "medusa"},
        "eagle": {"method": "eagle"},
    }
    if source in ("medusa", "eagle"):
        chosen[source]["heads"] = saved(tmp_path, still() if source == "medusa" else copying())
    env = (("SPECDEC_FAULTS", fault),) if fault else ()
    session = BenchSession(Settings(env=env, rootdir=tmp_path))
    try:
        settings = session.settings.merged(
            target=str(target), prompts="prompts.jsonl", threads=1, n_ctx=512, **chosen[source]
        )
        settings = settings.merged(temperature=1.0, top_k=top_k, n_predict=n_predict, k=2)
        verdict = same_distribution(session.bench(settings).distribution(DRAWS))
    finally:
        session.close()
    print(f"{source}: {verdict.because}")
    assert verdict.outcome is (Outcome.FAIL if fault else Outcome.PASS)
