"""What commands that measure share: the plugin's options, progress on stderr, and how they end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import TextIO
from typing import TypeVar

from pytest_specdec.cli.output import printable
from pytest_specdec.cli.output import show
from pytest_specdec.reports.terminal import Progress
from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Option
from pytest_specdec.settings import Settings


T = TypeVar("T")


def add_options(
    parser: argparse.ArgumentParser, names: Iterable[str], *, flags: Mapping[str, str] | None = None
) -> None:
    """Declare options of the plugin under their own names, or those in `flags` (setting -> flag's word)."""
    for name in names:
        option = OPTIONS[name]
        default = "" if option.default in (None, ()) else f" (default: {option.kind.show(option.default)})"
        parser.add_argument(
            f"--{(flags or {}).get(name, name).replace('_', '-')}",
            dest=name,
            default=None,
            action="append" if option.kind.repeatable else "store",
            type=_argument(option),
            metavar=option.kind.metavar,
            help=option.help + default,
        )


def given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return those options that the command line has; repeatable ones checked as a whole."""
    found = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return {name: OPTIONS[name].kind.check(value) for name, value in found.items()}


def settled(
    arguments: argparse.Namespace,
    run: Iterable[str],
    session: Iterable[str],
    *,
    rootdir: Path | None = None,
    **named: Any,
) -> Settings:
    """Turn the command line's options into settings: of runs, of the session, and those `named` here.

    Raises:
        ValueError: a value doesn't fit.
    """
    base = Settings() if rootdir is None else Settings(rootdir=rootdir)
    return replace(base.merged(**named, **given(arguments, run)), **given(arguments, session))


def attempt(command: str, measure: Callable[[Callable[[str], None]], T]) -> T | None:
    """Measure, with progress on stderr; errors of the model or the build go there too, and give None."""
    progress = Progress(_writer(sys.stderr), terminal=sys.stderr.isatty())
    try:
        result = measure(progress)
    except errors() as error:
        progress.clear()
        print(f"specdec {command}: {error}", file=sys.stderr)
        return None
    progress.clear()
    return result


def tell(
    result: T,
    lines: Callable[[T], Iterable[str]],
    to_json: Callable[[T], Mapping[str, Any]],
    *,
    as_json: bool,
) -> None:
    """Print a result as lines, or as one JSON object."""
    if as_json:
        print(json.dumps(to_json(result), indent=1, allow_nan=False))
    else:
        show(lines(result))


def errors() -> tuple[type[Exception], ...]:
    """What measuring raises where models, settings or the build don't do."""
    from pytest_specdec.bench.errors import BenchError
    from pytest_specdec.bench.errors import NotMeasured
    from pytest_specdec.bench.prompts import PromptError
    from pytest_specdec.engine.protocol import EngineError
    from pytest_specdec.models.errors import ModelError

    return (BenchError, NotMeasured, PromptError, EngineError, ModelError, ValueError)


def _argument(option: Option) -> Callable[[str], Any]:
    def argument(word: str) -> Any:
        try:
            return option.kind.argument(word)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return argument


def _writer(stream: TextIO) -> Callable[[str], object]:
    def write(content: str) -> None:
        stream.write(printable(content, stream))
        stream.flush()

    return write
