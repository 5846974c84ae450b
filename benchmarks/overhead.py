"""What the gate costs beside llama.cpp: wall time ÷ the sum of forward passes, over the ready-made suite.

On a quiet machine: ``python benchmarks/overhead.py [--target MODEL] [--draft MODEL] [-- PYTEST ARGS...]``.
The suite runs twice, as a user's does: it records a baseline, then holds it; the limit is for each run. Wall
time is all of pytest's, model loading and derivation included; forward passes are llama_decode and
llama_synchronize, of target and draft. ``--loop`` measures the speculation loop alone instead, as a share.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from pytest_specdec.bench.procedures import Pair
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.run import RUN
from pytest_specdec.settings import Settings


#: Wall time ÷ forward passes that a run of the suite may come to.
MOST = 1.15
SUITE = ("--pyargs", "pytest_specdec.suite", "-q", "-p", "no:cacheprovider")


@dataclass(frozen=True, slots=True)
class Cost:
    """One run of pytest: seconds in all and in forward passes, in how many workers, and how it ended."""

    wall_s: float
    forward_s: float
    workers: int
    status: int

    @property
    def ratio(self) -> float:
        """Wall time ÷ forward passes; infinite when there were none."""
        return self.wall_s / self.forward_s if self.forward_s else float("inf")

    @property
    def holds(self) -> bool:
        """Whether the run was green and cheap enough, and all its passes were counted."""
        return self.status == 0 and self.workers == 1 and self.ratio <= MOST

    def told(self) -> str:
        """One line on it."""
        line = (
            f"wall time {self.wall_s:.1f} s, forward passes {self.forward_s:.1f} s: {self.ratio:.3f} "
            f"(at most {MOST}), pytest ended with {self.status}"
        )
        if self.workers != 1:
            line = f"{line}; {self.workers} workers were started, and the passes of the last one count alone"
        return line


class Meter:
    """A pytest plugin that asks the worker what it spent before the worker ends."""

    def __init__(self) -> None:
        self.forward_s = 0.0
        self.workers = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Ask, where anything was measured."""
        run = session.config.stash[RUN]
        if run.measured:
            engine = run.session.rig.engine
            self.forward_s = engine.request("spent")["forward_ms"] / 1000.0
            self.workers = engine.generation


def run_of(args: Sequence[str]) -> Cost:
    """Run pytest in this process."""
    meter = Meter()
    started = time.perf_counter()
    status = pytest.main([*args], plugins=[meter])
    return Cost(time.perf_counter() - started, meter.forward_s, meter.workers, int(status))


def suite(target: str, draft: str, more: Sequence[str]) -> bool:
    """Record and hold in a folder of its own; print both costs, and say whether both hold."""
    with tempfile.TemporaryDirectory() as folder:
        # An ini file of its own: that of the folder it is run in may make errors of warnings.
        ini = Path(folder, "pytest.ini")
        ini.write_text("[pytest]\n")
        models = (f"--specdec-target={target}", f"--specdec-draft={draft}")
        args = [*SUITE, f"-c{ini}", *models, f"--specdec-baseline-dir={folder}/baselines", *more]
        costs = {"record": run_of([*args, "--specdec-update=new"]), "hold": run_of(args)}
    for name, cost in costs.items():
        print(f"{name}: {cost.told()}")
    return all(cost.holds for cost in costs.values())


def loop(target: str, draft: str, k: int, runs: int, n_predict: int) -> str:
    """Measure the speculation loop's own time: choosing tokens, comparing, rolling back, and Python."""
    session = BenchSession(Settings(rootdir=Path.cwd()))
    try:
        bench = session.bench(
            session.settings.merged(target=target, draft=draft or None, k=k, n_predict=n_predict)
        )
        pair = Pair(bench)
        pair.speculative(pair.prompts[0][1], 8, k)
        shares = []
        for _ in range(runs):
            for _name, tokens in pair.prompts:
                run = pair.speculative(tokens, n_predict, k)
                shares.append(1.0 - run["forward_ms"] / run["decode_ms"])
    finally:
        session.close()
    return (
        f"{bench.pair}, k = {k}: the loop's own time is {median(shares):.2%} of wall time "
        f"(median of {len(shares)} runs; {min(shares):.2%} to {max(shares):.2%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--draft", default="requantize:Q2_K")
    parser.add_argument("--loop", action="store_true", help="measure the speculation loop alone")
    parser.add_argument("--k", type=int, default=3, help="with --loop")
    parser.add_argument("--runs", type=int, default=5, help="with --loop")
    parser.add_argument("--n-predict", type=int, default=64, help="with --loop")
    parser.add_argument("pytest", nargs="*", metavar="PYTEST_ARG", help="after --: more for pytest")
    args = parser.parse_args()
    if args.loop:
        print(loop(args.target, args.draft, args.k, args.runs, args.n_predict))
    else:
        sys.exit(0 if suite(args.target, args.draft, args.pytest) else 1)


if __name__ == "__main__":
    main()
