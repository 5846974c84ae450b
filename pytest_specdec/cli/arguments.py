"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

from pytest_specdec.models.errors import ModelError


def add_ratio(parser: argparse.ArgumentParser) -> None:
    """Declare the ratio from which a step is a cliff."""
    told = "smallest T(N) ÷ T(size before) of a cliff (default: 1.4)"
    parser.add_argument("--ratio", type=_ratio, default=1.4, metavar="NUMBER", help=told)


def number(given: str, *, above: float = -math.inf, low: float = -math.inf) -> float:
    """Read a finite number greater than `above` and at least `low`.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        value = float(given)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {given!r}") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, not {given}")
    if value <= above or value < low:
        bound = f"above {above:g}" if above > -math.inf else f"at least {low:g}"
        raise argparse.ArgumentTypeError(f"must be {bound}, not {given}")
    return value


def count(given: str, told: str = "a whole number") -> int:
    """Read a whole number, 1 or more.

    Raises:
        argparse.ArgumentTypeError: it is none; the message says what is `told`.
    """
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"must be {told}, 1 or more, not {given!r}")
    return int(given)


def _ratio(given: str) -> float:
    return number(given, above=1.0)


def check_output(path: Path, source: Path) -> None:
    """Try whether a file can be written before minutes go into what it is to hold; nothing is left there.

    Directories that are missing will be made.

    Raises `ModelError` where it can't, and where it is the model that it is made from, or no regular file.
    """
    if path.is_dir():
        raise ModelError(f"{path} is a directory; give -o the name of a file in it")
    if path.exists():
        if not path.is_file():
            raise ModelError(f"{path} is not a regular file; give -o another name")
        if path.samefile(source):
            raise ModelError(f"{path} is the target itself; give -o another name")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from error
