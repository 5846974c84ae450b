"""`specdec fit {medusa,eagle}`: heads for a target, from what it says itself, and what they are worth."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.cli import OK
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.arguments import check_output
from pytest_specdec.cli.arguments import count
from pytest_specdec.cli.measuring import add_options
from pytest_specdec.cli.measuring import attempt
from pytest_specdec.cli.measuring import settled
from pytest_specdec.cli.measuring import tell
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.find import resolve
from pytest_specdec.models.heads import METHODS
from pytest_specdec.models.heads import read


if TYPE_CHECKING:
    from pytest_specdec.bench.fit import Fit
    from pytest_specdec.theory.acceptance import Acceptance
    from pytest_specdec.theory.tree import Shape


RUN = (
    "target",
    "k",
    "prompts",
    "n_predict",
    "n_ctx",
    "threads",
    "gpu_layers",
    "backend",
    "flash_attn",
    "use_extra_bufts",
    "seed",
)
SESSION = ("env", "python", "timeout")
TOKENS = 32000
HEADS = 3
VOCABULARY = 4096


@dataclass(frozen=True, slots=True)
class Result:
    """The fit, its acceptance on other prompts, and the best chain and tree; None without ranks."""

    fit: Fit
    acceptance: Acceptance
    shapes: tuple[Shape, Shape] | None
    cliff: int | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the method, the target, texts and sizes."""
    parser.add_argument("method", choices=METHODS, help="heads of one hidden state, or a feature-level head")
    add_options(parser, (*RUN, *SESSION))
    parser.add_argument(
        "--texts",
        default="fitting",
        metavar="FILE",
        help="prompts whose continuations heads are fitted on; --prompts are those they are tried on "
        "(default: fitting, a set that comes with the package)",
    )
    parser.add_argument(
        "--tokens", type=count, default=TOKENS, metavar="N", help=f"tokens to fit on (default: {TOKENS})"
    )
    parser.add_argument(
        "--heads", type=count, default=HEADS, metavar="N", help=f"Medusa heads (default: {HEADS})"
    )
    parser.add_argument(
        "--vocabulary",
        type=count,
        default=VOCABULARY,
        metavar="N",
        help="likeliest tokens that heads choose from: a whole output matrix may cost more than it brings "
        f"(default: {VOCABULARY})",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write here (default: METHOD.safetensors in this directory)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Fit, write and print; errors of the model or the build go to stderr."""
    result = attempt("fit", lambda progress: make(arguments, progress))
    if result is None:
        return USAGE
    tell(result, lines, to_json, as_json=arguments.json)
    return OK


def make(arguments: argparse.Namespace, progress: Callable[[str], None] | None = None) -> Result:
    """Fit the heads and try them; raises what models and the bench do."""
    from pytest_specdec.bench.fit import Wanted
    from pytest_specdec.bench.session import BenchSession
    from pytest_specdec.checks.acceptance import acceptance_of
    from pytest_specdec.theory.steps import find_steps
    from pytest_specdec.theory.tree import best_shapes
    from pytest_specdec.theory.tree import depth
    from pytest_specdec.theory.tree import parents

    settings = settled(arguments, RUN, SESSION, rootdir=Path.cwd())
    if not settings.target:
        raise ValueError("--target is missing: the model to fit heads for, a path or a name")
    path = Path(arguments.output or f"{arguments.method}.safetensors").expanduser().absolute()
    check_output(path, resolve(settings.target).path)
    if path.exists():
        try:
            read(path)
        except ModelError as error:
            raise ModelError(f"{path} exists and has no heads in it; give -o another name") from error
    wanted = Wanted(
        method=arguments.method,
        texts=arguments.texts,
        tokens=arguments.tokens,
        heads=arguments.heads,
        vocabulary=arguments.vocabulary,
        path=path,
    )
    session = BenchSession(settings, progress=progress)
    try:
        found = session.bench(settings).fit(wanted)
    finally:
        session.close()
    steps = find_steps(found.curve.n, found.curve.blocks_ms())
    seen = acceptance_of(found.run)
    assert seen is not None
    times = found.curve.medians_ms()
    costs = [ms for one in found.run.speculations if (ms := one.drafted_token_ms) is not None]
    shapes = None
    if found.ranks and costs:
        steps_of = parents if found.method == "eagle" else depth
        shapes = best_shapes(found.ranks, sorted(times), times.__getitem__, median(costs), steps_of)
    return Result(found, seen, shapes, steps.cliffs[0].n if steps.cliffs else None)


def lines(result: Result) -> list[str]:
    """Return what the terminal shows."""
    from pytest_specdec.reports.fit import position_line
    from pytest_specdec.reports.fit import rank_lines
    from pytest_specdec.reports.fit import tree_lines

    fit = result.fit
    cut = "all" if fit.rows == fit.vocabulary else f"the {fit.rows} likeliest"
    return [
        f"{fit.path}: {fit.method}, {fit.size / 1e6:.1f} MB, fitted on {fit.fitted} tokens of {fit.texts} "
        f"texts ({fit.text_s:.0f} s for the texts, {fit.fit_s:.0f} s for the fit)",
        f"drafts from {cut} of {fit.vocabulary} tokens: {fit.covered:.0%} of the tokens held out are "
        "among them",
        position_line(result.acceptance, fit.constant),
        *rank_lines(fit.ranks),
        *([] if result.shapes is None else tree_lines(*result.shapes, result.cliff)),
        f"to draft with them: --specdec-method={fit.method} --specdec-heads={fit.path}",
    ]


def to_json(result: Result) -> dict[str, Any]:
    """Return the fit in builtin types; sizes in bytes, times in seconds."""
    fit = result.fit
    names = (
        "method",
        "size",
        "texts",
        "fitted",
        "rows",
        "vocabulary",
        "covered",
        "constant",
        "text_s",
        "fit_s",
    )
    shapes = None
    if result.shapes is not None:
        shapes = {
            name: {"nodes": [list(path) for path in one.nodes], "tokens": one.tokens, "speedup": one.speedup}
            for name, one in zip(("chain", "tree"), result.shapes, strict=True)
        }
    return {
        "path": str(fit.path),
        **{name: getattr(fit, name) for name in names},
        "acceptance": result.acceptance.to_json(),
        "run": fit.run.to_json(),
        "curve": fit.curve.to_json(),
        "ranks": [list(row) for row in fit.ranks],
        "shapes": shapes,
    }
