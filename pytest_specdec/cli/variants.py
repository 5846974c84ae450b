"""`specdec variants`: every way to get drafts, side by side on one target."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.cli import OK
from pytest_specdec.cli import REGRESSION
from pytest_specdec.cli import UNDECIDED
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.measuring import add_options
from pytest_specdec.cli.measuring import attempt
from pytest_specdec.cli.measuring import errors
from pytest_specdec.cli.measuring import settled
from pytest_specdec.cli.measuring import tell


if TYPE_CHECKING:
    from pytest_specdec.bench.variants import Asked
    from pytest_specdec.measurements import Variant
    from pytest_specdec.models.find import ModelRef
    from pytest_specdec.reports.variants import Account


@dataclass(frozen=True, slots=True)
class Result:
    """Variants with their accounts, and the names of those that couldn't be measured, with the reason."""

    found: list[tuple[Variant, Account]]
    failed: list[tuple[str, str]]
    drawn: bool


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
    """Measure every variant and print.

    Exit codes: 0 fine, 1 one is not lossless, 2 one could not be measured, 3 usage, or none could.
    """
    result = attempt("variants", lambda progress: measure(arguments, progress))
    if result is None:
        return USAGE
    tell(result, lines, to_json, as_json=arguments.json)
    if any(variant.lossless == "fail" for variant, _ in result.found):
        return REGRESSION
    if result.failed:
        return UNDECIDED if result.found else USAGE
    return OK


def lines(result: Result) -> list[str]:
    """Return what the terminal shows."""
    from pytest_specdec.reports.variants import variant_lines

    return variant_lines(result.found, result.failed, drawn=result.drawn)


def measure(arguments: argparse.Namespace, progress: Callable[[str], None] | None = None) -> Result:
    """Measure every variant that is asked for, one after the other; what one can't do ends only that one.

    Raises what files of heads and a target do that can't be used.
    """
    from pytest_specdec.bench.variants import measure as one
    from pytest_specdec.checks.exactness import lossless
    from pytest_specdec.checks.variants import account
    from pytest_specdec.models.find import resolve

    settings = settled(arguments, RUN, SESSION, rootdir=Path.cwd())
    if not settings.target:
        raise ValueError("--target is missing: the model that drafts are for, a path or a name")
    target = resolve(settings.target)
    found, failed = [], []
    for asked in variants(target, arguments.draft, arguments.heads, oracle=arguments.oracle):
        try:
            variant = one(settings, asked, lossless if arguments.exact else None, progress)
        except errors() as error:
            failed.append((asked.name, str(error)))
        else:
            found.append((variant, account(variant)))
    return Result(found, failed, settings.samples)


def variants(target: ModelRef, drafts: list[str], files: list[str], *, oracle: bool) -> list[Asked]:
    """Prompt lookup, every draft model, all heads, the oracle where it is wanted.

    Heads that say they were fitted for another file have that in their name.

    Raises `ModelError` for a file of heads that can't be read.
    """
    from pytest_specdec.bench.variants import Asked
    from pytest_specdec.models.cache import cache_dir
    from pytest_specdec.models.cache import sha256_of
    from pytest_specdec.models.heads import read

    own = target.sha256 or sha256_of(target.path, cache_dir())
    asked = [Asked("prompt lookup", {"method": "ngram"})]
    asked += [Asked(draft, {"method": "two-model", "draft": draft}) for draft in drafts]
    for name in files:
        path = Path(name).expanduser().absolute()
        heads = read(path)
        told = f"{heads.method} {path.name}"
        if heads.origin.get("sha256", own) != own:
            told += f", fitted for {heads.origin.get('target', 'another file')}"
        asked.append(Asked(told, {"method": heads.method, "heads": str(path)}))
    return [*asked, Asked("oracle", {"method": "oracle"})] if oracle else asked


def to_json(result: Result) -> dict[str, Any]:
    """Return every variant's account and its raw measurements, in builtin types."""
    return {
        "variants": [{**variant.to_json(), "account": _account(one)} for variant, one in result.found],
        "failed": [{"name": name, "because": because} for name, because in result.failed],
    }


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
        "shared": one.shared,
        "acceptance": acceptance,
        "measured": measured,
    }
