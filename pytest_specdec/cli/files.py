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


def curves(path: str, text: str) -> list[Curve]:
    """Return the curves of a file, given its text.

    Raises:
        BadFile: it holds no curve.
        BaselineError: it is a damaged baseline.
    """
    baseline = baseline_of(path, text)
    return read.curves(text, name_of(path)) if baseline is None else baseline_curves(baseline)


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
    """Return a file's text, that of standard input for "-".

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


def baseline_of(path: str, text: str) -> Baseline | None:
    """Return the baseline in a file whose text is one's, whatever its state; None for other texts.

    Raises:
        BadFile: it comes from standard input, where the baseline's own errors would have no file to name.
        BaselineError: it is damaged.
    """
    if not text.lstrip("\ufeff \t\r\n").startswith("{") or '"schema_version"' not in text:
        return None
    try:
        document = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "schema_version" not in document:
        return None
    if path == STDIN:
        raise BadFile(name_of(path), None, "is a baseline: name its file instead")
    return load_file(Path(path))


def name_of(path: str) -> str:
    """Return what messages call a file."""
    return "standard input" if path == STDIN else path
