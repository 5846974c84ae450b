"""``specdec baseline``: list, show, compare, accept and prune baselines, and move their anchors."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_specdec.cli import OK
from pytest_specdec.cli import UNDECIDED
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.words import figure
from pytest_specdec.cli.words import word
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
from pytest_specdec.store.upkeep import move_anchors
from pytest_specdec.store.upkeep import reasons
from pytest_specdec.store.upkeep import remove
from pytest_specdec.store.upkeep import unused


_FOLDER = "SPECDEC_BASELINE_DIR"
_MAX_DAYS = 36_500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    shared = argparse.ArgumentParser(add_help=False)
    add_folder(shared)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", parents=[shared], help="all machines, pairs and candidates")
    show = actions.add_parser("show", parents=[shared], help="what one baseline holds")
    show.add_argument("name", metavar="NAME", help="a file, MACHINE/PAIR, or a PAIR that one machine has")
    diff = actions.add_parser("diff", parents=[shared], help="what moved between two baselines")
    diff.add_argument("new", metavar="NEW", help="the newer one, as for show; often a candidate's file")
    diff.add_argument("old", metavar="OLD", nargs="?", help="the older one (default: NEW's own baseline)")
    accept = actions.add_parser("accept", parents=[shared], help="write a candidate into its baseline")
    accept.add_argument("candidate", metavar="CANDIDATE", type=Path, help="the file that a failed run left")
    accept.add_argument("--anchor", action="store_true", help="hold nothing against what was there first")
    anchor = actions.add_parser(
        "anchor", parents=[shared], help="let entries be held against what they hold now only"
    )
    anchor.add_argument("name", metavar="NAME", help="a baseline, as for show")
    anchor.add_argument("keys", metavar="KEY", nargs="*", help="keys of entries (default: all)")
    prune = actions.add_parser("prune", parents=[shared], help="remove entries that are of no use")
    prune.add_argument("names", metavar="NAME", nargs="*", help="baselines, as for show (default: all)")
    prune.add_argument(
        "--unused", action="store_true", help="those that no test of the last full run used (default)"
    )
    prune.add_argument(
        "--stale", action="store_true", help="those measured with another model file (default)"
    )
    prune.add_argument("--older-than", metavar="DAYS", type=_days, help="those recorded longer ago")
    prune.add_argument("--dry-run", action="store_true", help="show what would go, and remove nothing")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Declare the option that says where baselines live."""
    parser.add_argument(
        "--baseline-dir",
        metavar="DIR",
        type=Path,
        default=Path(os.environ.get(_FOLDER) or "baselines"),
        help=f"where baselines live (default: ${_FOLDER}, or baselines)",
    )


def run(args: argparse.Namespace) -> int:
    """Carry out ``args.action``.

    Exit codes: 0 done, 2 a baseline can't be read, written or used, 3 there is no such baseline.
    """
    actions: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "show": _show,
        "diff": _diff,
        "accept": _accept,
        "anchor": _anchor,
        "prune": _prune,
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
        print(f"  {name}: {word(value)}")
    for role, facts in baseline.models.items():
        print(f"{role}: {_model(facts)}")
    builds = {build_id(entry.build): entry.build for entry in baseline.entries.values()}
    for name, build in builds.items():
        print(f"build {name}: {word(build['system_info'])}")
    stale = baseline.stale
    for key, entry in baseline.entries.items():
        print()
        print(f"{key}{'  (stale: measured with another model file)' if key in stale else ''}")
        print(f"  recorded {entry.recorded} with build {build_id(entry.build)}")
        if entry.anchor:
            print(f"  anchor of {entry.anchor.recorded} with build {build_id(entry.anchor.build)}")
        print(f"  settings {' '.join(f'{name}={word(value)}' for name, value in entry.settings.items())}")
        if entry.used_by:
            print(f"  used by {', '.join(map(word, entry.used_by))}")
        for line in text.table(["", ""], [[f"  {n}", figure(v)] for n, v in _numbers(entry)], left=(0,))[1:]:
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
    report = Store(args.baseline_dir).accept(args.candidate, anchor=args.anchor)
    print(f"{report.path}: {len(report.added)} added, {len(report.replaced)} replaced")
    if report.anchored:
        where = ["--baseline-dir", str(args.baseline_dir)] if args.baseline_dir != Path("baselines") else []
        place = f"{report.path.parent.name}/{report.path.stem}"
        command = shlex.join(["specdec", "baseline", "anchor", *where, place])
        held = (
            f"{text.plural(len(report.anchored), 'measurement')} still held against what was recorded first"
        )
        print(f"{held}; to let that go: {command}")
    return OK


def _anchor(args: argparse.Namespace) -> int:
    store = Store(args.baseline_dir)
    machine, pair = _place(store, args.name)
    baseline = store.require(machine, pair)
    if unknown := [key for key in args.keys if baseline.get(key) is None]:
        raise NoBaseline(
            baseline.path, f"has no entry {unknown[0]!r}", "specdec baseline show lists its keys"
        )
    moved = move_anchors(store, machine, pair, args.keys or None)
    for key, day in moved.items():
        print(f"{word(key)}: held against {baseline.entries[key].recorded}, no longer against {day}")
    if not moved:
        print(f"{baseline.path}: every entry is its own anchor already")
    return OK


def _prune(args: argparse.Namespace) -> int:
    store = Store(args.baseline_dir)
    every = [(machine, pair) for machine in store.machines() for pair in store.pairs(machine)]
    code, found = OK, 0
    for machine, pair in [_place(store, name) for name in args.names] or every:
        try:
            found += _pruned(store, machine, pair, args)
        except BaselineError as error:
            print(f"specdec: {error}", file=sys.stderr)
            code = USAGE if isinstance(error, NoBaseline) else UNDECIDED
    if not found and code == OK:
        print("nothing to remove")
    return code


def _pruned(store: Store, machine: str, pair: str, args: argparse.Namespace) -> int:
    """Remove entries of one baseline, and name them; their number."""
    plainly = not (args.unused or args.stale or args.older_than is not None)
    found = reasons(
        store.require(machine, pair),
        last_run=unused(store, machine, pair) if args.unused or plainly else None,
        stale=args.stale or plainly,
        older_than=args.older_than,
    )
    keys = found if args.dry_run else remove(store, machine, pair, found)
    for key in keys:
        print(f"{machine}/{pair}: {'would remove' if args.dry_run else 'removed'} {word(key)}: {found[key]}")
    return len(keys)


def _find(store: Store, name: str) -> Baseline:
    """The baseline behind a file name, MACHINE/PAIR or an unambiguous PAIR."""
    path = Path(name)
    return load_file(path) if path.is_file() else store.require(*_place(store, name))


def _place(store: Store, name: str) -> tuple[str, str]:
    """Machine and pair of a baseline in the store: MACHINE/PAIR, an unambiguous PAIR, or its file."""
    path = Path(name)
    if path.is_file():
        folder = path.resolve().parent
        if folder.parent != store.root.resolve():
            problem = f"is not in the folder of baselines {store.root}"
            raise NoBaseline(path, problem, "name that with --baseline-dir")
        return folder.name, path.stem
    machine, slash, pair = name.partition("/")
    if slash and not name.endswith(".json"):
        return machine, pair
    owners = [machine for machine in store.machines() if name in store.pairs(machine)]
    if len(owners) == 1:
        return owners[0], name
    if owners:
        problem = f"{len(owners)} machines have a baseline of {name}"
        raise NoBaseline(
            store.root, problem, f"say which: {', '.join(f'{owner}/{name}' for owner in owners)}"
        )
    known = [f"{machine}/{pair}" for machine in store.machines() for pair in store.pairs(machine)]
    problem = f"no file and no baseline {name!r}"
    raise NoBaseline(store.root, problem, f"known baselines: {', '.join(known[:20]) or 'none'}")


def _days(given: str) -> int:
    # The last day of all would lie before the first that a calendar has.
    if not given.isdecimal() or int(given) > _MAX_DAYS:
        raise argparse.ArgumentTypeError(f"must be a number of days up to {_MAX_DAYS}, not {given!r}")
    return int(given)


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
        rows.append([name, figure(one), "→", figure(two), ratio])
    if all(row[1] == row[3] for row in rows):
        return ["other raw values, the same figures"]
    return text.table([""] * 5, rows, left=(0,))[1:]


def _numbers(entry: Entry) -> list[tuple[str, float]]:
    return list(summary(entry.measurement).items())


def _model(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "none"
    types = ", ".join(f"{word(name)} × {count}" for name, count in facts["tensor_types"].items())
    size = f"{facts['size'] / 2**20:.1f} MiB" if facts["size"] is not None else "size unknown"
    return (
        f"{word(facts['name'])} ({word(facts['architecture'])}, {size}, SHA-256 {facts['sha256']}): {types}"
    )
