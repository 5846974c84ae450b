"""How exactness is measured: every prompt at one draft length, with the evidence of all steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.procedures import Pair
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import ExactnessCase


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


def exactness(bench: Bench) -> Exactness:
    """Speculate on every prompt and hold the run against plain decoding, other drafts and clean passes.

    The worker keeps what doesn't depend on k, so that the next draft length costs less.

    Raises:
        BenchError: the settings sample.
    """
    settings = bench.settings
    if settings.samples:
        raise BenchError(
            "lossless() holds greedy decoding: set temperature=0 and repeat_penalty=1; texts that are drawn "
            "are held by specdec.distribution() and same_distribution()"
        )
    pair = Pair(bench)
    cases = []
    for index, (name, tokens) in enumerate(pair.prompts):
        bench.session.progress(
            f"exactness {pair.model.name} k={settings.k}: prompt {index + 1}/{len(pair.prompts)}"
        )
        answer = pair.asked("exact", tokens, settings.n_predict, settings.k)
        cases.append(ExactnessCase.from_json({"prompt": name, **answer}))
    return Exactness(settings.k, bench.method, tuple(cases))
