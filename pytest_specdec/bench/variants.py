"""Draft sources side by side: each measured by a worker of its own, so that memory is its own too."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_specdec.bench.accounts import mean_depth
from pytest_specdec.bench.accounts import widths_of
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.session import Bench
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.measurements import Exactness
from pytest_specdec.measurements import Variant
from pytest_specdec.models.find import parse
from pytest_specdec.models.layers import kept_blocks
from pytest_specdec.models.layers import weights
from pytest_specdec.settings import Settings
from pytest_specdec.verdict import Verdict


_UNTRIED = "was not asked for, or tokens are drawn, which lossless() doesn't judge"


@dataclass(frozen=True, slots=True)
class Asked:
    """A variant by its name, and the settings that choose it."""

    name: str
    changes: Mapping[str, Any]


def measure(
    settings: Settings,
    asked: Asked,
    lossless: Callable[[Exactness], Verdict] | None,
    progress: Callable[[str], None] | None = None,
) -> Variant:
    """Measure one variant: acceptance, T(N) where it was verified, speed, memory and exactness.

    ``lossless`` judges exactness; without it, and where tokens are drawn, that is left out.

    Raises:
        BenchError: the prompts end before a round of speculation, or what a bench raises.
    """
    settings = settings.merged(**asked.changes)
    session = BenchSession(settings, progress=progress)
    try:
        bench = session.bench(settings)
        run = bench.speculate()
        # One size is no curve.
        widths = sorted({1, 2} | widths_of(run.speculations))
        if not run.rounds:
            raise BenchError("the prompts end before a round of speculation: choose longer ones (--prompts)")
        depth = mean_depth(run.speculations)
        at_depth = bench.with_settings(depth=depth, sizes=",".join(map(str, widths)))
        speed = bench.speed()
        try:
            memory = bench.memory()
        except NotMeasured:
            memory = None
        verdict = None if lossless is None or settings.samples else lossless(bench.exactness())
        return Variant(
            name=asked.name,
            method=bench.method,
            k=settings.k,
            run=run,
            curve=at_depth.verify_curve(),
            speed=speed,
            memory=memory,
            lossless="not measured" if verdict is None else verdict.outcome.value,
            lossless_because=_UNTRIED if verdict is None else verdict.because,
            shared=_shared(bench),
        )
    finally:
        session.close()


def _shared(bench: Bench) -> float | None:
    draft = bench.settings.draft
    spec = parse(draft) if draft and bench.method == "two-model" else None
    if spec is None or spec.scheme != "layerskip":
        return None
    read = weights(bench.session.rig.target(bench.settings).path)
    return read.share(kept_blocks(spec.argument, len(read.blocks)))
