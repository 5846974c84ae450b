"""Gate llama.cpp upgrades: is speculative decoding still lossless, sound and fast enough on this machine?"""

from __future__ import annotations

from pytest_specdec.fixtures import BoundBench
from pytest_specdec.marks import accept_at
from pytest_specdec.marks import accept_length
from pytest_specdec.marks import accept_rate
from pytest_specdec.marks import cliff_at
from pytest_specdec.marks import dip_at
from pytest_specdec.marks import kernel_thresholds
from pytest_specdec.marks import ledger_closes
from pytest_specdec.marks import lossless
from pytest_specdec.marks import max_draft_cost
from pytest_specdec.marks import max_verify_cost
from pytest_specdec.marks import memory_headroom
from pytest_specdec.marks import min_forward_share
from pytest_specdec.marks import min_speedup
from pytest_specdec.marks import no_cliff
from pytest_specdec.marks import plateau
from pytest_specdec.marks import specdec
from pytest_specdec.marks import structurally_sound
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
    "accept_at",
    "accept_length",
    "accept_rate",
    "cliff_at",
    "dip_at",
    "kernel_thresholds",
    "ledger_closes",
    "lossless",
    "max_draft_cost",
    "max_verify_cost",
    "memory_headroom",
    "min_forward_share",
    "min_speedup",
    "no_cliff",
    "plateau",
    "specdec",
    "structurally_sound",
    "within_baseline",
]
