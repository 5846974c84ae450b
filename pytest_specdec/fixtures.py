"""What tests may ask for: the bench bound to a test's settings, a maker of benches, the machine."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import TypeVar

import pytest

from pytest_specdec.limits import parse
from pytest_specdec.limits import stack
from pytest_specdec.run import RUN
from pytest_specdec.run import Run


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench
    from pytest_specdec.measurements import DecodeRun
    from pytest_specdec.measurements import Distribution
    from pytest_specdec.measurements import DraftCost
    from pytest_specdec.measurements import Exactness
    from pytest_specdec.measurements import KernelMap
    from pytest_specdec.measurements import MemoryUse
    from pytest_specdec.measurements import SpeculativeRun
    from pytest_specdec.measurements import SpeedRun
    from pytest_specdec.measurements import Structure
    from pytest_specdec.measurements import Timeline
    from pytest_specdec.measurements import VerifyCurve
    from pytest_specdec.models.describe import ModelFacts
    from pytest_specdec.settings import Settings
    from pytest_specdec.store import Machine
    from pytest_specdec.theory.ledger import Ledger
    from pytest_specdec.verdict import Verdict

T = TypeVar("T")


class BoundBench:
    """What a test can measure, with its own settings.

    A measurement is made once per session and then taken from the cache. When the model, the package or the
    permission to measure is missing, the test fails or is skipped, as `--specdec-missing` says. What goes
    wrong while measuring is raised: `EngineError`, `ModelError`, `PromptError` or `BenchError`.
    """

    def __init__(self, run: Run, settings: Settings) -> None:
        self._run = run
        self.settings = settings

    def with_settings(self, **changes: Any) -> BoundBench:
        """Return a bench with some settings replaced, as the mark `specdec` does.

        Raises:
            ValueError: a key is unknown or a value doesn't fit.
        """
        return BoundBench(self._run, self.settings.merged(**changes))

    def verify_curve(self, *, rows: str = "all") -> VerifyCurve:
        """Measure T(N) over the batch sizes; `rows="last"` measures what `llama-bench -p N` does."""
        return self._measure("verify_curve", lambda bench: bench.verify_curve(rows=rows))

    def decode(self) -> DecodeRun:
        """Decode every prompt without speculation."""
        return self._measure("decode", lambda bench: bench.decode())

    def speculate(self, k: int | None = None) -> SpeculativeRun:
        """Decode every prompt with draft length k (default: the settings')."""
        return self._measure("speculate", lambda bench: bench.speculate(k))

    def sweep(self, ks: Iterable[int]) -> dict[int, SpeculativeRun]:
        """Decode every prompt with each draft length."""
        return self._measure("sweep", lambda bench: bench.sweep(ks))

    def sweep_over(self, name: str, values: Iterable[Any]) -> dict[Any, SpeculativeRun]:
        """One run per value of a setting, such as temperature, top_p or repeat_penalty."""
        return self._measure("sweep", lambda bench: bench.sweep_over(name, values))

    def distribution(self, draws: int = 20_000, k: int | None = None) -> Distribution:
        """Texts of n_predict tokens drawn by speculation behind the first prompt, and their exact odds."""
        return self._measure("distribution", lambda bench: bench.distribution(draws, k))

    def speed(self, k: int | None = None, until: Callable[[SpeedRun], bool] | None = None) -> SpeedRun:
        """Time plain and speculative decoding in pairs, up to the first look at which `until` holds."""
        return self._measure("speed", lambda bench: bench.speed(k, until))

    def exactness(self, k: int | None = None) -> Exactness:
        """Compare speculative with plain decoding, token by token."""
        return self._measure("exactness", lambda bench: bench.exactness(k))

    def kernel_map(self, depths: Sequence[int] | None = None) -> KernelMap:
        """Map which kernel path computes each batch size (default: at the settings' `map_depths`)."""
        return self._measure("kernel_map", lambda bench: bench.kernel_maps(depths))

    def structure(self, k: int | None = None) -> Structure:
        """Run every structural probe on target and draft source."""
        return self._measure("structure", lambda bench: bench.structure(k))

    def timeline(self, k: int | None = None) -> Timeline:
        """Account for the wall time of each prompt's request, speculation off and on."""
        return self._measure("timeline", lambda bench: bench.timeline(k))

    def ledger(self, fit_on: Sequence[int] = (1, 3, 7), held_out: Sequence[int] = (2, 5)) -> Ledger:
        """Fit overhead and draft cost on some draft lengths and predict others, `held_out`."""
        from pytest_specdec.checks.accounts import ledger_of

        return ledger_of(self._measure("ledger", lambda bench: bench.ledger_run(fit_on, held_out)))

    def memory(self) -> MemoryUse:
        """Measure peak memory with speculation."""
        return self._measure("memory", lambda bench: bench.memory())

    def draft_cost(self) -> DraftCost:
        """Time drafting a token against the target's pass over one."""
        return self._measure("draft_cost", lambda bench: bench.draft_cost())

    def facts(self) -> dict[str, ModelFacts | None]:
        """Read what the model files of "target" and "draft" say of themselves."""
        return self._measure("facts", lambda bench: bench.facts())

    def check(self, *limits: pytest.MarkDecorator | pytest.Mark) -> tuple[Verdict, ...]:
        """Hold limits such as `cliff_at(9)` against what is measured, as marks do after the test.

        Fails or skips the test, or warns, as the marks would; else returns the verdicts.

        Raises:
            TypeError: no limit was given, or something that is none.
            ValueError: a limit's arguments don't fit.
        """
        from pytest_specdec import gate

        if not limits or not all(isinstance(limit, pytest.Mark | pytest.MarkDecorator) for limit in limits):
            raise TypeError(f"check takes limits such as cliff_at(9), not {limits!r}")
        parsed = [parse(limit) for limit in limits]
        return gate.hold(self._run, self._item(), parsed, self.settings)

    def _measure(self, what: str, take: Callable[[Bench], T]) -> T:
        from pytest_specdec import gate

        return gate.measure(self._run, self._item(), f"specdec.{what}()", self.settings, take)

    def _item(self) -> pytest.Item:
        if self._run.item is None:
            raise RuntimeError("measure inside a test: no test is running")
        return self._run.item


@pytest.fixture
def specdec(request: pytest.FixtureRequest) -> BoundBench:
    """Bench bound to this test's settings: measure with it, or hold limits with its `check`."""
    run = request.config.stash[RUN]
    return BoundBench(run, run.settings.merged(**stack(request.node).settings))


@pytest.fixture(scope="session")
def specdec_factory(request: pytest.FixtureRequest) -> Callable[..., BoundBench]:
    """Maker of benches: call it with settings, as the mark `specdec` takes them."""
    run = request.config.stash[RUN]
    return BoundBench(run, run.settings).with_settings


@pytest.fixture(scope="session")
def specdec_machine(request: pytest.FixtureRequest) -> Machine:
    """Machine that the llama.cpp under test runs on, as baselines know it."""
    from pytest_specdec import gate

    return gate.machine(request.config.stash[RUN])
