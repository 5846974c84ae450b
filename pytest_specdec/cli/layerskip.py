"""`specdec layerskip TARGET`: a draft of some of the target's blocks, chosen or searched for."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.cli import OK
from pytest_specdec.cli import UNDECIDED
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.arguments import check_output
from pytest_specdec.cli.arguments import count
from pytest_specdec.cli.arguments import number
from pytest_specdec.cli.measuring import add_options
from pytest_specdec.cli.measuring import attempt
from pytest_specdec.cli.measuring import settled
from pytest_specdec.cli.measuring import tell
from pytest_specdec.models.cache import cache_dir
from pytest_specdec.models.cache import replacing
from pytest_specdec.models.derive import layerskipped
from pytest_specdec.models.describe import describe
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.find import resolve
from pytest_specdec.models.layers import canonical
from pytest_specdec.models.layers import kept_blocks
from pytest_specdec.models.layers import ranges
from pytest_specdec.models.layers import weights
from pytest_specdec.models.layers import write_layers
from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Settings


if TYPE_CHECKING:
    from pytest_specdec.bench.layers import Search


RUN = ("prompts", "n_predict", "n_ctx", "threads", "gpu_layers", "backend", "flash_attn", "use_extra_bufts")
SESSION = ("env", "python", "timeout")
BUDGET_S = 600.0


@dataclass(frozen=True, slots=True)
class Found:
    """A search's result, and the copy's measured draft cost c."""

    search: Search
    cost: float


@dataclass(frozen=True, slots=True)
class Result:
    """The copy: its file and size in bytes, which of the target's blocks it has, and how they were found.

    `shared` is the part of the target's bytes that one of its passes reads.
    """

    model: str
    path: Path
    size: int
    kept: tuple[int, ...]
    blocks: int
    shared: float
    found: Found | None = None

    @property
    def draft(self) -> str:
        """The name that makes this copy from the target."""
        return f"layerskip:{canonical(self.kept, self.blocks)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the model, the three ways to choose blocks, and the options that a search depends on."""
    parser.add_argument("model", metavar="TARGET", help=OPTIONS["target"].help)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--keep", type=_count, metavar="N", help="keep the first N blocks")
    choice.add_argument(
        "--skip", metavar="LIST", help="leave out these blocks, such as 5,9,11; the first is 0"
    )
    told = "search for the blocks to leave out, so many of them, by agreement with the target's own text"
    choice.add_argument("--search", type=_count, metavar="COUNT", help=told)
    parser.add_argument("-o", "--output", metavar="FILE", help="write here (default: into the cache)")
    parser.add_argument(
        "--budget",
        type=lambda given: number(given, above=0),
        default=BUDGET_S,
        metavar="SECONDS",
        help=f"end a search after so long, with what it has (default: {BUDGET_S:g})",
    )
    add_options(parser, (*RUN, *SESSION))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Write the copy and print; errors of the model or the build go to stderr.

    A search that its budget ended before it had skipped as many blocks as it was to is undecided.
    """
    result = attempt("layerskip", lambda progress: make(arguments, progress))
    if result is None:
        return USAGE
    tell(result, lines, to_json, as_json=arguments.json)
    return UNDECIDED if result.found is not None and result.found.search.stopped else OK


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Turn the command line into settings.

    Raises:
        ValueError: a value doesn't fit.
    """
    return settled(arguments, RUN, SESSION, target=arguments.model)


def make(arguments: argparse.Namespace, progress: Callable[[str], None] | None = None) -> Result:
    """Choose the blocks and write the copy; raises what models and the bench do."""
    settings = settings_from(arguments)
    target = resolve(arguments.model)
    facts = describe(target.path)
    blocks = facts.layers
    if blocks is None:
        raise ModelError(f"{target.path} doesn't say how many blocks it has; choose another model")
    path = None
    if arguments.output is not None:
        path = Path(arguments.output).expanduser()
        check_output(path, target.path)
    found = None
    if arguments.search is None:
        argument = str(arguments.keep) if arguments.skip is None else f"skip={arguments.skip}"
    else:
        found = _search(settings, arguments.search, arguments.budget, progress)
        argument = canonical(found.search.kept, blocks)
    kept = kept_blocks(argument, blocks)
    if path is None:
        path = layerskipped(target, argument, blocks, write_layers, cache_dir()).path
    else:
        _write(target.path, path, kept)
    shared = weights(target.path).share(kept)
    return Result(arguments.model, path, path.stat().st_size, kept, blocks, shared, found)


def _search(settings: Settings, count: int, budget_s: float, progress: Callable[[str], None] | None) -> Found:
    from pytest_specdec.bench.session import BenchSession
    from pytest_specdec.theory.stats import hodges_lehmann

    session = BenchSession(settings, progress=progress)
    try:
        bench = session.bench(settings)
        search = bench.search_layers(count, budget_s)
        draft = f"layerskip:{canonical(search.kept, search.blocks)}"
        cost = bench.with_settings(draft=draft, method="two-model").draft_cost()
    finally:
        session.close()
    c = math.exp(hodges_lehmann(cost.log_ratios()))
    return Found(search, c)


def _write(source: Path, path: Path, kept: tuple[int, ...]) -> None:
    try:
        with replacing(path) as temporary:
            write_layers(source, temporary, kept)
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from error


def lines(result: Result) -> list[str]:
    """Return what the terminal shows: the search if there was one, then the copy."""
    share = len(result.kept) / result.blocks
    return [
        *([] if result.found is None else _found_lines(result.found)),
        f"{result.path}: blocks {ranges(result.kept)} of {result.model}, {len(result.kept)} of "
        f"{result.blocks} ({share:.0%}), {result.size / 1e6:.1f} MB",
        f"as a draft of this target: {result.draft}",
        f"draft cost c is measured by: specdec variants --target {result.model} --draft {result.draft}"
        if result.found is None
        else f"draft cost c = {result.found.cost:.2f}: one-token passes, copy ÷ target, measured in turn",
        f"computed, not measured: with weights and cache shared with the target, c ≈ {result.shared:.2f} = "
        f"bytes of ({len(result.kept)} blocks + output head) ÷ ({result.blocks} blocks + output head), and "
        "neither the copy's memory nor its prefill",
    ]


def _found_lines(found: Found) -> list[str]:
    search = found.search
    count = len(search.kept)
    ended = []
    if search.stopped:
        ended = [
            f"ended by the budget: {len(search.chosen)} of {search.wanted} blocks; the last round had tried "
            f"{search.tried} of {search.candidates}"
        ]
    first = "   -" if search.first is None else f"{search.first:.2f}"
    steps = ", ".join(f"{step.block} ({step.agreement:.2f})" for step in search.chosen)
    return [
        f"left out one by one, with the agreement on {search.searched_tokens} tokens: {steps}",
        *ended,
        f"agreement with the target's own greedy text on {search.held_out_tokens} tokens held out "
        f"({search.how_held_out}):",
        f"  {search.held_out:.2f}  without blocks {ranges(search.skipped)}",
        f"  {first}  keeping the first {count}, without {ranges(range(count, search.blocks))}",
        f"  {search.itself:.2f}  the target in the same batches",
        f"{search.copies} copies in {search.seconds:.0f} s",
    ]


def to_json(result: Result) -> dict[str, Any]:
    """Return the copy and the search in builtin types; sizes in bytes, times in seconds."""
    data: dict[str, Any] = {
        "model": result.model,
        "path": str(result.path),
        "draft": result.draft,
        "size": result.size,
        "blocks": result.blocks,
        "kept": list(result.kept),
        "share": len(result.kept) / result.blocks,
        "draft_cost_if_shared": {"computed": result.shared, "measured": None},
    }
    if result.found is not None:
        search = result.found.search
        data["search"] = {
            **asdict(search),
            "chosen": [asdict(step) for step in search.chosen],
            "skipped": list(search.skipped),
            "stopped": search.stopped,
        }
        data["draft_cost"] = result.found.cost
    return data


def _count(given: str) -> int:
    return count(given, "a number of blocks")
