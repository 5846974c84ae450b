"""What the speculation loop itself costs: wall time not spent inside llama.cpp, as a share of wall time.

Run it on a quiet machine: ``python benchmarks/overhead.py [--target MODEL] [--draft MODEL] [--k 3]``.
The time inside llama.cpp is that of llama_decode and llama_synchronize, target and draft; the rest is
choosing tokens, comparing, rolling back, and Python.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from pytest_specdec.bench.procedures import Pair
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--draft", default="requantize:Q2_K")
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--n-predict", type=int, default=64)
    args = parser.parse_args()
    session = BenchSession(Settings(rootdir=Path.cwd()))
    try:
        bench = session.bench(
            session.settings.merged(
                target=args.target, draft=args.draft or None, k=args.k, n_predict=args.n_predict
            )
        )
        pair = Pair(bench)
        pair.speculative(pair.prompts[0][1], 8, args.k)
        shares = []
        for _ in range(args.runs):
            for _name, tokens in pair.prompts:
                run = pair.speculative(tokens, args.n_predict, args.k)
                shares.append(1.0 - run["forward_ms"] / run["decode_ms"])
    finally:
        session.close()
    print(
        f"{bench.pair}, k = {args.k}: the loop's own time is {median(shares):.2%} of wall time "
        f"(median of {len(shares)} runs; {min(shares):.2%} to {max(shares):.2%})"
    )


if __name__ == "__main__":
    main()
