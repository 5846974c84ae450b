"""Planted deaths: the ways in which a process ends, or stops to answer, done for real."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import BinaryIO
from typing import Optional

from specdec_worker.faults import Faults


# More than any machine has, and less than a length may be.
ENDLESS = 2**62
_answers: Optional[BinaryIO] = None


def begin(faults: Faults, answers: BinaryIO) -> None:
    """Do what is planted for the start; ``answers`` is the pipe that some deaths need."""
    global _answers
    _answers = answers
    if faults.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if faults.slow_start:
        time.sleep(faults.slow_start)


def strike(faults: Faults) -> None:
    """Die, or go silent, as planted for a forward pass."""
    if faults.abort:
        ctypes.CDLL(None).abort()
    if faults.segfault:
        ctypes.string_at(0)
    if faults.kill:
        os.kill(os.getpid(), signal.SIGKILL)
    if faults.oom:
        # C++'s operator new, as a std::vector calls it; nothing below catches what it throws.
        name = "libc++.1.dylib" if sys.platform == "darwin" else "libstdc++.so.6"
        ctypes.CDLL(name)._Znwm(ctypes.c_size_t(ENDLESS))
    if faults.garbage and _answers is not None:
        _answers.write(b"\x00\xff no answer\n")
        _answers.flush()
    if faults.close_pipe and _answers is not None:
        _answers.close()
    while faults.hang or faults.garbage or faults.close_pipe:
        time.sleep(3600)
    while faults.freeze:
        # Holds the interpreter: no other thread of this process runs again.
        ctypes.PyDLL(None).sleep(3600)
