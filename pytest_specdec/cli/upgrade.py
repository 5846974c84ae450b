"""`specdec upgrade`: an old build of llama.cpp and a new one side by side: is the upgrade safe?"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.cli import OK
from pytest_specdec.cli import REGRESSION
from pytest_specdec.cli import UNDECIDED
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.measuring import add_options
from pytest_specdec.cli.measuring import attempt
from pytest_specdec.cli.measuring import settled
from pytest_specdec.cli.measuring import tell
from pytest_specdec.settings import Settings
from pytest_specdec.values import Number
from pytest_specdec.values import Pairs
from pytest_specdec.values import Whole
from pytest_specdec.verdict import Outcome


if TYPE_CHECKING:
    from pytest_specdec.reports.upgrade import UpgradeReport


RUN = (
    "target",
    "draft",
    "heads",
    "method",
    "k",
    "prompts",
    "n_predict",
    "sizes",
    "map_sizes",
    "map_depths",
    "blocks",
    "calls",
    "threads",
    "n_ctx",
    "n_ubatch",
    "gpu_layers",
    "backend",
    "flash_attn",
    "use_extra_bufts",
)
GIB = 2**30
CODES = {Outcome.PASS: OK, Outcome.FAIL: REGRESSION}


@dataclass(frozen=True, slots=True)
class Ask:
    """What the command line asks for: both arms, and how they are compared."""

    old: Settings
    new: Settings
    env: Mapping[str, tuple[str, ...]]
    params: Mapping[str, tuple[str, ...]]
    pairs: int | None
    memory: float | None
    tolerance: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare both arms and the options that a comparison depends on."""
    for side, word in (("from", "old"), ("to", "new")):
        parser.add_argument(
            f"--{side}",
            dest=word,
            metavar="PYTHON",
            help=f"interpreter with the {word} llama-cpp-python (default: this one)",
        )
        for flag, told in (
            ("env", f"environment variable of the {word} worker"),
            ("param", f"setting of the {word} arm, such as n_ubatch=4"),
        ):
            parser.add_argument(
                f"--{side}-{flag}",
                dest=f"{word}_{flag}",
                action="append",
                default=[],
                metavar="K=V",
                help=f"{told}; repeatable",
            )
    add_options(parser, (*RUN, "timeout", "alpha"))
    parser.add_argument("--pairs", metavar="COUNT", help="pairs of requests to time (default: 16)")
    parser.add_argument(
        "--memory",
        metavar="GIB",
        help="memory that both arms together may take; under what they need, they take turns "
        "(default: what is free)",
    )
    parser.add_argument("--tolerance", metavar="SHARE", help="slowdown that is no regression (default: 0.05)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print. Exit codes: 0 safe, 1 regression, 2 could not tell, 3 usage."""
    report = attempt("upgrade", lambda progress: compare(asked(arguments), progress))
    if report is None:
        return USAGE
    from pytest_specdec.reports.upgrade import upgrade_json
    from pytest_specdec.reports.upgrade import upgrade_text

    tell(report, upgrade_text, upgrade_json, as_json=arguments.json)
    return CODES.get(report.outcome, UNDECIDED)


def asked(arguments: argparse.Namespace) -> Ask:
    """Turn the command line into two arms.

    Raises:
        ValueError: a value doesn't fit, or nothing tells the arms apart.
    """
    if not any((arguments.old, arguments.new, arguments.old_env, arguments.new_env)) and not (
        arguments.old_param or arguments.new_param
    ):
        raise ValueError(
            "nothing tells the arms apart: give --from PYTHON (the build in use), or --to PYTHON, "
            "--to-env K=V or --to-param K=V"
        )
    base = settled(arguments, RUN, ("timeout", "alpha"), rootdir=Path.cwd())
    arms = {}
    for word in ("old", "new"):
        python = getattr(arguments, word)
        env = Pairs().check(getattr(arguments, f"{word}_env"))
        params = Pairs().check(getattr(arguments, f"{word}_param"))
        arms[word] = replace(base.with_texts(params), python=python, env=env)
    return Ask(
        arms["old"],
        arms["new"],
        {word: tuple(getattr(arguments, f"{word}_env")) for word in arms},
        {word: tuple(getattr(arguments, f"{word}_param")) for word in arms},
        _read("--pairs", Whole(8), arguments.pairs),
        _read("--memory", Number(above=0), arguments.memory),
        _read("--tolerance", Number(above=0), arguments.tolerance),
    )


def compare(ask: Ask, progress: Callable[[str], None] | None = None) -> UpgradeReport:
    """Measure both arms in one run and judge; raises what the bench does."""
    from pytest_specdec.bench.session import BenchSession
    from pytest_specdec.bench.upgrade import PAIRS
    from pytest_specdec.bench.upgrade import compare as measure
    from pytest_specdec.checks.upgrade import judge

    sessions = {
        "old": BenchSession(ask.old, progress=progress),
        "new": BenchSession(ask.new, progress=progress),
    }
    try:
        comparison = measure(
            sessions["old"].bench(ask.old),
            sessions["new"].bench(ask.new),
            env=ask.env,
            params=ask.params,
            pairs=ask.pairs or PAIRS,
            memory_bytes=None if ask.memory is None else int(ask.memory * GIB),
        )
    finally:
        for session in sessions.values():
            session.close()
    limits: dict[str, Any] = {} if ask.tolerance is None else {"tolerance": ask.tolerance}
    return judge(comparison, alpha=ask.new.alpha, **limits)


def _read(flag: str, kind: Whole | Number, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return kind.read(text)
    except ValueError as error:
        raise ValueError(f"{flag} {error}") from None
