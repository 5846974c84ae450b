"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import math


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
