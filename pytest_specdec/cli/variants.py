"""`specdec variants`: every way to get drafts, side by side on one target."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.cli import OK
from pytest_specdec.cli import REGRESSION
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.measuring import add_options
from pytest_specdec.cli.measuring import attempt
from pytest_specdec.cli.measuring import settled
from pytest_specdec.cli.measuring import tell


if TYPE_CHECKING:
    from pytest_specdec.bench.variants import Asked
    from pytest_specdec.measurements import Variant
    from pytest_specdec.reports.variants import Account

    Found = list[tuple[Variant, Account]]


RUN = (
    "target",
    "k",
    "prompts",
    "n_predict",
    "blocks",
    "calls",
    "threads",
    "n_ctx",
    "gpu_layers",
    "backend",
    "flash_attn",
    "ngram_min",
    "ngram_max",
    "oracle_alpha",
    "oracle_ms",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "seed",
)
SESSION = ("env", "python", "timeout")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare target and drafts, and what a measurement of them depends on."""
    add_options(parser, (*RUN, *SESSION))
    parser.add_argument(
        "--draft",
        action="append",
        default=[],
        metavar="MODEL",
        help="draft model: a path, a name, or a derived one (requantize:Q2_K); repeatable",
    )
    parser.add_argument(
        "--heads",
        action="append",
        default=[],
        metavar="FILE",
        help="medusa or eagle heads, as written by specdec fit; repeatable",
    )
    parser.add_argument(
        "--oracle", action="store_true", help="the oracle too: what drafts of a given acceptance would bring"
    )
    parser.add_argument(
        "--no-lossless", dest="exact", action="store_false", help="leave exactness out: it takes longest"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Measure every variant and print. Exit codes: 0 fine, 1 one is not lossless, 3 usage."""
    found = attempt("variants", lambda progress: measure(arguments, progress))
    if found is None:
        return USAGE
    from pytest_specdec.reports.variants import variant_lines

    tell(found, variant_lines, to_json, as_json=arguments.json)
    return REGRESSION if any(variant.lossless == "fail" for variant, _ in found) else OK


def measure(arguments: argparse.Namespace, progress: Callable[[str], None] | None = None) -> Found:
    """Measure every variant that is asked for, one after the other; raises what the bench does."""
    from pytest_specdec.bench.variants import measure as one
    from pytest_specdec.checks.exactness import lossless
    from pytest_specdec.checks.variants import account

    settings = settled(arguments, RUN, SESSION, rootdir=Path.cwd())
    if not settings.target:
        raise ValueError("--target is missing: the model that drafts are for, a path or a name")
    found = []
    for asked in variants(arguments.draft, arguments.heads, oracle=arguments.oracle):
        variant = one(settings, asked, lossless if arguments.exact else None, progress)
        found.append((variant, account(variant)))
    return found


def variants(drafts: list[str], files: list[str], *, oracle: bool) -> list[Asked]:
    """Prompt lookup, every draft model, all heads, the oracle where it is wanted.

    Raises `ModelError` for a file of heads that can't be read.
    """
    from pytest_specdec.bench.variants import Asked
    from pytest_specdec.models.heads import read

    asked = [Asked("prompt lookup", {"method": "ngram"})]
    asked += [Asked(draft, {"method": "two-model", "draft": draft}) for draft in drafts]
    for name in files:
        path = Path(name).expanduser().absolute()
        method = read(path).method
        asked.append(Asked(f"{method} {path.name}", {"method": method, "heads": str(path)}))
    return [*asked, Asked("oracle", {"method": "oracle"})] if oracle else asked


def to_json(found: Found) -> dict[str, Any]:
    """Return every variant's account and its raw measurements, in builtin types."""
    return {"variants": [{**variant.to_json(), "account": _account(one)} for variant, one in found]}


def _account(one: Account) -> dict[str, Any]:
    acceptance = None if one.acceptance is None else one.acceptance.to_json()
    measured = None
    if one.measured is not None:
        value, low, high = one.measured
        measured = {"value": value, "low": low, "high": high if math.isfinite(high) else None}
    values = {name: getattr(one, name) for name in ("draft_ms", "c", "plain_ms", "verify_ms")}
    return {
        **values,
        "predicted": one.predicted,
        "free": one.free,
        "acceptance": acceptance,
        "measured": measured,
    }
