"""``specdec baseline``: list, show, compare and accept baselines."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_specdec.cli import OK
from pytest_specdec.cli import UNDECIDED
from pytest_specdec.cli import USAGE
from pytest_specdec.reports import text
from pytest_specdec.store import Baseline
from pytest_specdec.store import BaselineError
from pytest_specdec.store import Entry
from pytest_specdec.store import NoBaseline
from pytest_specdec.store import Store
from pytest_specdec.store import build_differences
from pytest_specdec.store import build_id
from pytest_specdec.store import differences
from pytest_specdec.store import load_file
from pytest_specdec.store import model_differences
from pytest_specdec.store.summary import summary


_FOLDER = "SPECDEC_BASELINE_DIR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--baseline-dir",
        metavar="DIR",
        type=Path,
        default=Path(os.environ.get(_FOLDER) or "baselines"),
        help=f"where baselines live (default: ${_FOLDER}, or baselines)",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", parents=[shared], help="all machines, pairs and candidates")
    show = actions.add_parser("show", parents=[shared], help="what one baseline holds")
    show.add_argument("name", metavar="NAME", help="a file, MACHINE/PAIR, or a PAIR that one machine has")
    diff = actions.add_parser("diff", parents=[shared], help="what moved between two baselines")
    diff.add_argument("new", metavar="NEW", help="the newer one, as for show; often a candidate's file")
    diff.add_argument("old", metavar="OLD", nargs="?", help="the older one (default: NEW's own baseline)")
    accept = actions.add_parser("accept", parents=[shared], help="write a candidate into its baseline")
    accept.add_argument("candidate", metavar="CANDIDATE", type=Path, help="the file that a failed run left")


def run(args: argparse.Namespace) -> int:
    """Carry out ``args.action``.

    Exit codes: 0 done, 2 a baseline can't be read, written or used, 3 there is no such baseline.
    """
    actions: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "show": _show,
        "diff": _diff,
        "accept": _accept,
    }
    try:
        return actions[args.action](args)
    except BaselineError as error:
        print(f"specdec: {error}", file=sys.stderr)
        return USAGE if isinstance(error, NoBaseline) else UNDECIDED


def _list(args: argparse.Namespace) -> int:
    store = Store(args.baseline_dir)
    code = OK
    machines = store.machines()
    if not machines:
        print(f"no baselines in {store.root}; record one with: pytest --specdec-update=new")
    for machine in machines:
        print(machine)
        rows = []
        for pair in store.pairs(machine):
            try:
                rows.append([f"  {pair}", *_outline(store.require(machine, pair))])
            except BaselineError as error:
                rows.append([f"  {pair}", "", "", f"unusable: {error.problem}"])
                code = UNDECIDED
        for line in text.table(["  pair", "entries", "newest", "build"], rows, left=(0, 2, 3)):
            print(line)
    if candidates := store.candidates():
        print("candidates of failed runs (specdec baseline diff FILE, specdec baseline accept FILE)")
    for candidate in candidates:
        print(f"  {candidate}")
    return code


def _show(args: argparse.Namespace) -> int:
    baseline = _find(Store(args.baseline_dir), args.name)
    print(f"{baseline.pair} on {baseline.machine_name}  ({baseline.path})")
    for name, value in {**baseline.machine.hard, **baseline.machine.soft}.items():
        print(f"  {name}: {_word(value)}")
    for role, facts in baseline.models.items():
        print(f"{role}: {_model(facts)}")
    builds = {build_id(entry.build): entry.build for entry in baseline.entries.values()}
    for name, build in builds.items():
        print(f"build {name}: {_word(build['system_info'])}")
    stale = baseline.stale
    for key, entry in baseline.entries.items():
        print()
        print(f"{key}{'  (stale: measured with another model file)' if key in stale else ''}")
        print(f"  recorded {entry.recorded} with build {build_id(entry.build)}")
        print(f"  settings {' '.join(f'{name}={_word(value)}' for name, value in entry.settings.items())}")
        if entry.used_by:
            print(f"  used by {', '.join(map(_word, entry.used_by))}")
        for line in text.table(["", ""], [[f"  {n}", _figure(v)] for n, v in _numbers(entry)], left=(0,))[1:]:
            print(line)
    return OK


def _diff(args: argparse.Namespace) -> int:
    store = Store(args.baseline_dir)
    new = _find(store, args.new)
    old = _find(store, args.old) if args.old else store.require(new.machine_name, new.pair)
    print(f"old: {old.path}")
    print(f"new: {new.path}")
    for what, found in (
        ("machine", differences(old.machine, new.machine)),
        ("models", model_differences(old.models, new.models)),
    ):
        for difference in found:
            print(f"{what}: {difference}")
    told: set[str] = set()
    same = 0
    for key in sorted({*old.entries, *new.entries}):
        before, after = old.get(key), new.get(key)
        if before is None or after is None:
            print(f"\n{key}\n  only in the {'new' if before is None else 'old'} one")
            continue
        build = "; ".join(build_differences(before.build, after.build))
        if build and build not in told:
            told.add(build)
            print(f"build: {build}")
        if before.measurement == after.measurement:
            same += 1
            continue
        print(f"\n{key}")
        for line in _comparison(before, after):
            print(f"  {line}")
    if same:
        print(f"\n{text.plural(same, 'measurement')} exactly the same")
    return OK


def _accept(args: argparse.Namespace) -> int:
    report = Store(args.baseline_dir).accept(args.candidate)
    print(f"{report.path}: {len(report.added)} added, {len(report.replaced)} replaced")
    return OK


def _find(store: Store, name: str) -> Baseline:
    """The baseline behind a file name, MACHINE/PAIR or an unambiguous PAIR."""
    path = Path(name)
    if path.is_file():
        return load_file(path)
    machine, slash, pair = name.partition("/")
    if slash and not name.endswith(".json"):
        return store.require(machine, pair)
    owners = [machine for machine in store.machines() if name in store.pairs(machine)]
    if len(owners) == 1:
        return store.require(owners[0], name)
    if owners:
        problem = f"{len(owners)} machines have a baseline of {name}"
        raise NoBaseline(
            store.root, problem, f"say which: {', '.join(f'{owner}/{name}' for owner in owners)}"
        )
    known = [f"{machine}/{pair}" for machine in store.machines() for pair in store.pairs(machine)]
    problem = f"no file and no baseline {name!r}"
    raise NoBaseline(store.root, problem, f"known baselines: {', '.join(known[:20]) or 'none'}")


def _outline(baseline: Baseline) -> list[str]:
    entries = baseline.entries.values()
    newest = max(entries, key=lambda entry: entry.recorded, default=None)
    stale = f", {len(baseline.stale)} stale" if baseline.stale else ""
    if newest is None:
        return ["0", "", ""]
    return [f"{len(entries)}{stale}", newest.recorded, build_id(newest.build)]


def _comparison(before: Entry, after: Entry) -> Iterable[str]:
    old, new = dict(_numbers(before)), dict(_numbers(after))
    rows = []
    for name in [*old, *(name for name in new if name not in old)]:
        one, two = old.get(name), new.get(name)
        ratio = f"×{two / one:.3f}" if one and two and one != two else ""
        rows.append([name, _figure(one), "→", _figure(two), ratio])
    if all(row[1] == row[3] for row in rows):
        return ["other raw values, the same figures"]
    return text.table([""] * 5, rows, left=(0,))[1:]


def _numbers(entry: Entry) -> list[tuple[str, float]]:
    return list(summary(entry.measurement).items())


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, int) else f"{value:.4g}"


def _word(value: Any) -> str:
    # As JSON: control characters in a file must not reach the terminal.
    if value is None:
        return "none"
    return json.dumps(value, ensure_ascii=False)[1:-1] if isinstance(value, str) else json.dumps(value)


def _model(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "none"
    types = ", ".join(f"{_word(name)} × {count}" for name, count in facts["tensor_types"].items())
    size = f"{facts['size'] / 2**20:.1f} MiB" if facts["size"] is not None else "size unknown"
    return (
        f"{_word(facts['name'])} ({_word(facts['architecture'])}, {size}, SHA-256 {facts['sha256']}): {types}"
    )
