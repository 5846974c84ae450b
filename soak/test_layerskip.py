"""Which blocks of SmolLM2 a draft can do without, held against keeping the first ones, on held-out text."""

from __future__ import annotations

from pathlib import Path

from pytest_specdec.bench.session import BenchSession
from pytest_specdec.settings import Settings


SECONDS = 900


def test_blocks_found_on_smollm2_beat_the_first_ones(tmp_path: Path) -> None:
    session = BenchSession(Settings(rootdir=tmp_path))
    try:
        settings = session.settings.merged(
            target="smollm2-135m", prompts="default::question,rewriting,list,prose", n_predict=64
        )
        found = session.bench(settings).search_layers(4, SECONDS)
    finally:
        session.close()
    print(f"without {found.skipped}: {found.held_out:.2f}, the first 26: {found.first}")
    assert len(found.skipped) == 4
    assert found.first is not None
    assert found.held_out > found.first + 0.1
