"""Real models on a real llama.cpp; nothing here is asserted in milliseconds, only in ratios of one run."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import gguf  # noqa: F401  (pytester takes modules back out of sys.modules, and numpy can't load twice)
import jsonschema  # noqa: F401
import numpy  # noqa: F401
import pandas  # noqa: F401
import pytest

from pytest_specdec.bench.session import Bench
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.checks import conditions
from pytest_specdec.models.find import resolve
from pytest_specdec.settings import Settings


HERE = Path(__file__).parent

# Tiny models on one thread, counters: two of these files may run at a time.
SHARING = ("test_deaths.py", "test_drafts.py", "test_heads.py", "test_sampling.py", "test_structure.py")
TEXTS = ("the dog bit a man", "a kitten is in the garden", "we dance and they dine", "one two three one two")
SMOLLM2 = {"target": "smollm2-135m", "draft": "requantize:Q2_K"}
GEMMA = {"target": "gemma-3-270m"}
RULES = conditions.RULES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.real)
            if item.path.name not in SHARING:
                item.add_marker(pytest.mark.alone)


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the session: pytester gives every test another home."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def _shared_cache(model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_CACHE", str(model_cache))


@pytest.fixture(autouse=True)
def _on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine decide: these tests compare ratios and leave room for noise."""
    monkeypatch.setattr(conditions, "RULES", ())


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A file of four short texts for tiny models."""
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "template": "raw"}) + "\n" for text in TEXTS))
    return path


@pytest.fixture
def smollm2(model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_CACHE", str(model_cache))
    return resolve("smollm2-135m").path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """A bench of these settings; the test's benches share one worker per set of session settings."""
    sessions: list[BenchSession] = []

    def make(*, env: tuple[tuple[str, str], ...] = (), **settings: object) -> Bench:
        base = Settings(env=env, rootdir=tmp_path)
        session = BenchSession(base)
        sessions.append(session)
        return session.bench(base.merged(**settings))

    yield make
    for session in sessions:
        session.close()


@pytest.fixture
def gate(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run a test file with real models; worker and models are those of this process."""
    # A file written twice within a second, at one size, would be taken from its cached bytecode.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(source: str, *args: str) -> pytest.RunResult:
        head = "import pytest\nfrom pytest_specdec import *\n"
        pytester.makepyfile(test_pair=head + textwrap.dedent(source))
        return pytester.runpytest("-p", "no:xdist", "-p", "no:rerunfailures", "-W", "default", *args)

    return run
