"""Gate llama.cpp upgrades: is speculative decoding still lossless, sound and fast enough on this machine?"""

from __future__ import annotations

from pytest_specdec.fixtures import BoundBench
from pytest_specdec.marks import accept_length
from pytest_specdec.marks import accept_rate
from pytest_specdec.marks import cliff_at
from pytest_specdec.marks import lossless
from pytest_specdec.marks import max_draft_cost
from pytest_specdec.marks import max_verify_cost
from pytest_specdec.marks import min_speedup
from pytest_specdec.marks import no_cliff
from pytest_specdec.marks import specdec
from pytest_specdec.marks import within_baseline
from pytest_specdec.run import SpecdecWarning
from pytest_specdec.settings import Settings
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


__all__ = [
    "BoundBench",
    "Outcome",
    "Settings",
    "SpecdecWarning",
    "Verdict",
    "accept_length",
    "accept_rate",
    "cliff_at",
    "lossless",
    "max_draft_cost",
    "max_verify_cost",
    "min_speedup",
    "no_cliff",
    "specdec",
    "within_baseline",
]
