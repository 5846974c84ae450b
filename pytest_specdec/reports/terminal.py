"""What a terminal shows around the tests: header line, progress, summary table; no colours."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from pytest_specdec.reports import text
from pytest_specdec.verdict import Verdict


HEADER = ("test", "metric", "measured", "limit", "baseline", "verdict")
# The least that is left of a column when the table has to shrink: enough to tell rows apart.
LEAST = {"test": 14, "metric": 10, "limit": 11}


def header_line(
    build: Mapping[str, Any] | None,
    device: str | None = None,
    machine: str | None = None,
    baseline: str | None = None,
    digest: str | None = None,
) -> str:
    """Return one line on what is under test.

    Args:
        build: the build's identity, keys llama_cpp_python, ggml_version and ggml_commit; None without one.
        device: what computes, such as `device_name` gives.
        machine: name of this machine's baselines.
        baseline: which baseline the run is held against, in a few words.
        digest: what tells this build from others of its version.
    """
    parts = [build_name(build)]
    if digest:
        parts.append(f"build {digest}")
    if device:
        parts.append(device)
    if machine:
        parts.append(f"machine {machine}")
    parts.append(f"baseline {baseline}" if baseline else "no baseline")
    return f"specdec: {', '.join(parts)}"


def build_name(build: Mapping[str, Any] | None) -> str:
    """Return a build of llama.cpp in a few words: package version, ggml version and commit."""
    if not build or not build.get("llama_cpp_python"):
        return "no llama-cpp-python (pip install 'pytest-specdec[llama]')"
    name = f"llama-cpp-python {build['llama_cpp_python']}"
    ggml = str(build.get("ggml_version") or "")
    # A hash is long enough with nine digits; what follows it ("-dirty") stays.
    commit = re.sub(r"\b([0-9a-f]{9})[0-9a-f]+", r"\1", str(build.get("ggml_commit") or ""))
    inner = " ".join(part for part in (f"ggml {ggml}" if ggml else "", commit) if part)
    return f"{name} ({inner})" if inner else name


def device_name(hello: Mapping[str, Any], *, gpu_layers: int = -1) -> str:
    """Return the devices that compute, from a worker's hello: GPUs where layers go to them, else the CPU."""
    devices: Sequence[Mapping[str, Any]] = hello.get("devices") or ()
    gpus = [device for device in devices if device.get("type") in ("gpu", "igpu")]
    used = gpus if gpus and gpu_layers != 0 and hello.get("gpu_offload") is not False else []
    used = used or [device for device in devices if device.get("type") == "cpu"]
    names = []
    for device in used:
        name, told = str(device.get("name") or ""), str(device.get("description") or "").strip()
        names.append(f"{name} {told}".strip() if told != name else name)
    return " + ".join(names) or "unknown device"


def summary_table(rows: Iterable[tuple[str, Verdict]], *, width: int | None = None) -> list[str]:
    """Return a header and one line per (test, verdict), in the order given, within `width` columns.

    Without `width`, the terminal's (COLUMNS, else 80). Names and limits are cut where the table is too wide,
    numbers and verdicts never. The column of baselines appears when a verdict has one.
    """
    table = [_cells(test, verdict) for test, verdict in rows]
    if not table:
        return []
    shown = [i for i, name in enumerate(HEADER) if name != "baseline" or any(row[i] for row in table)]
    lines = [[row[i] for i in shown] for row in (list(HEADER), *table)]
    names = [HEADER[i] for i in shown]
    columns = shutil.get_terminal_size((80, 24)).columns if width is None else width
    wanted = [max(text.width(line[i]) for line in lines) for i in range(len(names))]
    least = sum(min(LEAST.get(name, w), w) for name, w in zip(names, wanted, strict=True))
    gap = "  " if least + 2 * (len(names) - 1) <= columns else " "
    widths = _fitted(names, wanted, columns - len(gap) * (len(names) - 1))
    return [
        gap.join(_cell(line[i], names[i], widths[i]) for i in range(len(names))).rstrip() for line in lines
    ]


def measured(verdict: Verdict) -> str:
    """Return the value and its bounds, "1.22 (1.19-1.25)"; exact counters have no bounds."""
    if verdict.value is None:
        return "-"
    value = text.number(verdict.value)
    if float(verdict.value).is_integer() and verdict.low is None and verdict.high is None:
        value = str(int(verdict.value))
    if verdict.low is None and verdict.high is None:
        return value
    low = float("-inf") if verdict.low is None else verdict.low
    high = float("inf") if verdict.high is None else verdict.high
    return f"{value} ({text.interval(low, high)})"


class Progress:
    """Says what is being measured: one line rewritten in place on a terminal, now and then a line elsewhere.

    Args:
        write: writes text and flushes.
        terminal: whether `write` goes to a terminal that obeys carriage returns.
        begin: called before the first line after each `clear`, to end a line that somebody else has begun.
        every: seconds between lines where there is no terminal; the first one comes after that time.
        columns: width of the terminal; asked anew for each line by default.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        *,
        terminal: bool,
        begin: Callable[[], object] | None = None,
        every: float = 30.0,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size((80, 24)).columns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._terminal = terminal and os.environ.get("TERM") != "dumb"
        self._begin = begin
        self._every = every
        self._columns = columns
        self._clock = clock
        self._shown = 0
        self._last = clock()

    def __call__(self, line: str) -> None:
        """Show one line."""
        if self._terminal:
            self._rewrite(line)
        elif self._clock() - self._last >= self._every:
            self._last = self._clock()
            if self._begin is not None:
                self._begin()
            self._write(f"{line}\n")

    def clear(self) -> None:
        """Take the line away: what comes next starts at the left margin."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
        self._shown = 0

    def _rewrite(self, line: str) -> None:
        if not self._shown and self._begin is not None:
            self._begin()
        # The last column stays empty: a full line would wrap, and \r not come back to its start.
        line = text.shorten(line, max(1, self._columns() - 1))
        blanks = " " * max(0, self._shown - text.width(line))
        self._write(f"\r{line}{blanks}")
        self._shown = max(1, text.width(line))


def _cells(test: str, verdict: Verdict) -> list[str]:
    baseline = "" if verdict.baseline is None else text.number(verdict.baseline)
    return [test, verdict.metric, measured(verdict), verdict.limit, baseline, verdict.outcome.value]


def _cell(content: str, name: str, columns: int) -> str:
    # Of a test's name the end tells most: its function and parameters.
    return text.pad(text.shorten(content, columns, keep="end" if name == "test" else "start"), columns)


def _fitted(names: Sequence[str], wanted: Sequence[int], room: int) -> list[int]:
    """Shrink the widest of the columns that may be cut until they fit or all are at their least."""
    widths = list(wanted)
    while sum(widths) > room:
        spare = {i: widths[i] for i, name in enumerate(names) if widths[i] > LEAST.get(name, widths[i])}
        if not spare:
            break
        widths[max(spare, key=lambda i: spare[i])] -= 1
    return widths
