"""``specdec history``: the figures of green runs over time, and what changed from one to the next."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from collections.abc import Sequence

from pytest_specdec.cli import OK
from pytest_specdec.cli import UNDECIDED
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.baseline import add_folder
from pytest_specdec.cli.output import show
from pytest_specdec.cli.words import figure
from pytest_specdec.cli.words import word
from pytest_specdec.reports import text
from pytest_specdec.store import BaselineError
from pytest_specdec.store import NoBaseline
from pytest_specdec.store import Store
from pytest_specdec.store.history import Damaged
from pytest_specdec.store.history import Green
from pytest_specdec.store.history import read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments."""
    parser.add_argument("pair", metavar="PAIR", nargs="?", help="pair of models (default: all)")
    parser.add_argument("--machine", metavar="NAME", help="machine (default: all)")
    parser.add_argument("--json", action="store_true", help="print the runs as JSON")
    add_folder(parser)


def run(args: argparse.Namespace) -> int:
    """Print the history of green runs.

    Exit codes: 0 done, 2 a file can't be read or holds nothing but damaged lines, 3 there is no such history.
    """
    try:
        return _history(Store(args.baseline_dir), args)
    except BaselineError as error:
        print(f"specdec: {error}", file=sys.stderr)
        return USAGE if isinstance(error, NoBaseline) else UNDECIDED


def _history(store: Store, args: argparse.Namespace) -> int:
    machines = [args.machine] if args.machine else store.histories()
    found: list[tuple[str, Green]] = []
    damaged = 0
    for machine in machines:
        path = store.history_path(machine)
        for line in read(path):
            if isinstance(line, Damaged):
                damaged += 1
                print(f"specdec: {path}:{line.line}: {line.problem}; skipped", file=sys.stderr)
            else:
                found.append((machine, line))
    chosen = [(machine, line) for machine, line in found if args.pair in (None, line.pair)]
    if not chosen and damaged:
        return UNDECIDED
    if not chosen:
        raise _nothing(store, args, [line for _, line in found])
    if args.json:
        print(json.dumps([{"machine": machine, **line.to_json()} for machine, line in chosen], indent=1))
        return OK
    places = dict.fromkeys((machine, line.pair) for machine, line in chosen)
    for machine, pair in places:
        show([f"{word(pair)} on {machine}"])
        lines = [line for of, line in chosen if (of, line.pair) == (machine, pair)]
        for key in dict.fromkeys(key for line in lines for key in line.figures):
            show(["", f"  {word(key)}", *_table(key, [line for line in lines if key in line.figures])])
        show([""])
    return OK


def _nothing(store: Store, args: argparse.Namespace, others: Sequence[Green]) -> NoBaseline:
    if others:
        known = ", ".join(dict.fromkeys(word(line.pair) for line in others))
        return NoBaseline(
            store.root, f"no green run of the pair {args.pair} is kept", f"known pairs: {known}"
        )
    where = f" of machine {args.machine}" if args.machine else ""
    known = ", ".join(store.histories())
    remedy = (
        f"known machines: {known}" if args.machine and known else "keep it with pytest --specdec-history=true"
    )
    return NoBaseline(store.root, f"no history of green runs{where}", remedy)


def _table(key: str, lines: Sequence[Green]) -> Iterable[str]:
    """One row per run: when, the figures, and what is another build or version than in the row before."""
    names = list(dict.fromkeys(name for line in lines for name in line.figures[key]))
    rows = []
    before: Green | None = None
    for line in lines:
        figures = [figure(line.figures[key].get(name)) for name in names]
        rows.append([f"  {line.at}", *figures, "; ".join(_changes(before, line))])
        before = line
    header = ["  when (UTC)", *map(word, names), "changed"]
    return text.table(header, rows, left=(0, len(header) - 1))


def _changes(before: Green | None, line: Green) -> Iterable[str]:
    for label, old, new in (
        ("build", before and before.build, line.build),
        ("pytest-specdec", before and before.plugin, line.plugin),
    ):
        if old is None:
            yield f"{label} {word(new)}"
        elif old != new:
            yield f"{label} {word(old)} → {word(new)}"
