"""What commands write to a terminal, whatever its encoding."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO


# What a terminal without block characters gets in their place.
_BLOCKS = "▁▂▃▄▅▆▇█▕±…"
_ASCII = "__..oo##|~."


def show(lines: Iterable[str]) -> None:
    """Print lines."""
    print("\n".join(printable(line, sys.stdout) for line in lines))


def printable(line: str, stream: TextIO) -> str:
    """Replace what the stream's encoding lacks; block characters become ASCII ones of about their height."""
    encoding = stream.encoding or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        ascii_line = line.translate(str.maketrans(_BLOCKS, _ASCII))
        return ascii_line.encode(encoding, "replace").decode(encoding)
    return line
