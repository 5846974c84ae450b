"""Files that commands are given: read whole, within reason, and turned into curves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from pytest_specdec.imports import read
from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve
from pytest_specdec.imports.measured import curve_of
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.store import Baseline
from pytest_specdec.store import load_file


MAX_BYTES: Final = 64 * 2**20
STDIN: Final = "-"


def curves(path: str) -> list[Curve]:
    """Return the curves of a file, or of standard input for "-".

    Raises:
        BadFile: it can't be read, or holds no curve.
        BaselineError: it is a damaged baseline.
    """
    text = text_of(path)
    if is_baseline(text):
        return baseline_curves(load_file(Path(path)))
    return read.curves(text, name_of(path))


def baseline_curves(baseline: Baseline) -> list[Curve]:
    """Return the verify curves of a baseline, named by their keys.

    Raises:
        BadFile: it has none.
    """
    found = [
        curve_of(key, entry.measurement)
        for key, entry in sorted(baseline.entries.items())
        if isinstance(entry.measurement, VerifyCurve)
    ]
    if not found:
        raise BadFile(str(baseline.path), None, "is a baseline without a verify curve")
    return found


def text_of(path: str) -> str:
    """Return a file's text.

    Raises:
        BadFile: it can't be read, is no text, or larger than any such file.
    """
    name = name_of(path)
    try:
        if path == STDIN:
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadFile(name, None, f"can't be read ({error.strerror or error})") from None
    if raw[:4] == b"GGUF":
        raise BadFile(name, None, f"is a model: measure it with specdec curve {path}")
    if len(raw) > MAX_BYTES:
        raise BadFile(name, None, f"has more than {MAX_BYTES >> 20} MiB: {read.KNOWN} is wanted")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadFile(name, line, "is no UTF-8 text") from None


def is_baseline(text: str) -> bool:
    """Say whether a text is a baseline's, whatever its state."""
    if not text.lstrip("\ufeff \t\r\n").startswith("{") or '"schema_version"' not in text:
        return False
    try:
        document = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "schema_version" in document


def name_of(path: str) -> str:
    """Return what messages call a file."""
    return "standard input" if path == STDIN else path
