"""`specdec steps FILE`: what the shape of T(N) in a file says, whoever measured it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any
from typing import Final

from pytest_specdec.checks.conditions import disturbed
from pytest_specdec.cli import OK
from pytest_specdec.cli import USAGE
from pytest_specdec.cli import files
from pytest_specdec.cli.arguments import add_ratio
from pytest_specdec.cli.output import show
from pytest_specdec.imports import llama_bench
from pytest_specdec.imports import tables
from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve
from pytest_specdec.imports.curve import chosen
from pytest_specdec.imports.read import KNOWN
from pytest_specdec.reports.curve import cheapest
from pytest_specdec.reports.curve import curve_lines
from pytest_specdec.reports.curve import findings
from pytest_specdec.reports.curve import picture
from pytest_specdec.store import BaselineError


LAST_ROW_ONLY: Final = (
    "llama-bench asks for the logits of the last row only, a verify pass for those of all rows: T(N) is more "
    "than this, most for small models with large vocabularies (specdec curve MODEL measures both)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file and what to show of it."""
    parser.add_argument("file", metavar="FILE", help=f"{KNOWN}; - for standard input")
    told = "show the curve of this number, or those with this text in their names (default: all)"
    parser.add_argument("--curve", metavar="NUMBER|TEXT", help=told)
    parser.add_argument("--list", action="store_true", help="list the names of the curves only")
    add_ratio(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Read and print; what is wrong with the file goes to stderr."""
    try:
        text, name = files.text_of(arguments.file), files.name_of(arguments.file)
        found = pick(files.curves(arguments.file, text), arguments.curve, name)
    except (BadFile, BaselineError) as error:
        print(f"specdec steps: {error}", file=sys.stderr)
        return USAGE
    if arguments.json:
        data = [] if arguments.list else [to_json(curve, arguments.ratio) for curve in found]
        names = [curve.name for curve in found]
        told = {"file": arguments.file, "names": names} | ({} if arguments.list else {"curves": data})
        print(json.dumps(told, indent=1, allow_nan=False))
    elif arguments.list:
        show(f"{number}  {curve.name}" for number, curve in enumerate(found, 1))
    else:
        parts = [lines(curve, arguments.ratio) for curve in found]
        show(line for n, part in enumerate(parts) for line in ([""] if n else []) + part)
    return OK


def pick(found: Sequence[Curve], wanted: str | None, name: str) -> list[Curve]:
    """Return the wanted curves, all of them by default.

    Raises:
        BadFile: none has that number or name; the message lists them.
    """
    if wanted is None:
        return list(found)
    kept = chosen(found, wanted)
    if not kept:
        listed = "; ".join(f"{number}: {curve.name}" for number, curve in enumerate(found, 1))
        raise BadFile(name, None, f"no curve {wanted!r} among {listed}")
    return kept


def lines(curve: Curve, ratio: float) -> list[str]:
    """Return what the terminal shows of one curve: what it is, table, picture, findings."""
    verify, steps = curve.verify, curve.steps(ratio)
    title = f"{curve.name}: T(N)" if curve.name else "T(N)"
    return [
        f"{title}; {curve.origin}",
        "",
        *curve_lines(verify, steps, noise_ms=curve.noise_ms),
        "",
        *picture(verify, steps),
        "",
        *findings(verify, steps, more="repeat the benchmark more often, or on a quieter machine"),
        *remarks(curve),
    ]


def remarks(curve: Curve) -> list[str]:
    """Return what a reader has to know of how a curve was measured."""
    found = list(curve.remarks)
    if curve.verify.source == llama_bench.SOURCE:
        found.append(LAST_ROW_ONLY)
    if why := disturbed(curve.verify):
        found.append(why)
    return found


def to_json(curve: Curve, ratio: float) -> dict[str, Any]:
    """Return a curve and its steps in builtin types."""
    verify, steps = curve.verify, curve.steps(ratio)
    said = verify.source != tables.SOURCE
    return {
        "name": curve.name,
        "origin": curve.origin,
        "source": verify.source,
        "depth": verify.depth if said else None,
        "rows": verify.rows if said else None,
        "medians_ms": {str(n): ms for n, ms in verify.medians_ms().items()},
        "noise_ms": None if curve.noise_ms is None else list(curve.noise_ms),
        "steps": steps.to_json(),
        "safe_draft_length": steps.safe_draft_length,
        "cheapest_per_token": cheapest(verify),
        "remarks": remarks(curve),
    }
