"""How exactness is measured: every prompt at one draft length, with the evidence of all steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_specdec.bench.procedures import Pair
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import ExactnessCase


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


def exactness(bench: Bench) -> Exactness:
    """Speculate on every prompt and hold the run against plain decoding, other drafts and clean passes.

    The worker keeps what doesn't depend on k, so that the next draft length costs less.
    """
    pair = Pair(bench)
    settings = bench.settings
    cases = []
    for index, (name, tokens) in enumerate(pair.prompts):
        bench.session.progress(
            f"exactness {pair.model.name} k={settings.k}: prompt {index + 1}/{len(pair.prompts)}"
        )
        answer = pair.speculative(tokens, settings.n_predict, settings.k, op="exact")
        cases.append(ExactnessCase.from_json({"prompt": name, **answer}))
    return Exactness(settings.k, bench.method, tuple(cases))
