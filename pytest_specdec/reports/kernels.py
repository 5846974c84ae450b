"""The kernel map as text: kernel paths as ranges of N, thresholds with causes, what else the bits tell."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Final

from pytest_specdec.reports import text
from pytest_specdec.theory.classes import ClassMap
from pytest_specdec.theory.classes import find_classes


if TYPE_CHECKING:
    from pytest_specdec.measurements import DepthMap
    from pytest_specdec.measurements import KernelMap
    from pytest_specdec.theory.classes import Change
    from pytest_specdec.theory.thresholds import Known

    # What the source says about a batch size, such as theory.thresholds.known with all but n filled in.
    Causes = Callable[[int], Sequence[Known]]


OUTPUTS: Final[Mapping[str, str]] = {"hidden": "hidden state", "logits": "logits"}


def outputs_of(one: DepthMap) -> tuple[str, ...]:
    """Return which of "hidden" and "logits" a map has letters of."""
    return tuple(name for name in OUTPUTS if any(getattr(one, name)))


def classes_of(
    one: DepthMap, *, sizes: Collection[int] | None = None, outputs: Sequence[str] | None = None
) -> ClassMap:
    """Return the classes of a map, of some of its batch sizes and outputs only where they are given.

    Raises:
        ValueError: the map has none of the sizes.
    """
    kept = [i for i, n in enumerate(one.n) if sizes is None or n in sizes]
    patterns = [getattr(one, name) for name in (outputs_of(one) if outputs is None else outputs)]
    return find_classes(
        [one.n[i] for i in kept],
        [[pattern[i] for i in kept] for pattern in patterns],
        [one.remainder[i] for i in kept],
    )


def ranges_text(classes: ClassMap) -> str:
    """Write the kernel paths as "1-3 | 4-7 | 8-64"."""
    return " | ".join(span(one.start, one.stop) for one in classes.ranges)


def span(start: int, stop: int) -> str:
    """Write a range of batch sizes: "4-7", or "4"."""
    return str(start) if start == stop else f"{start}-{stop}"


def kernel_section(measured: KernelMap, *, known: Causes | None = None) -> list[str]:
    """Return the map: paths per depth, thresholds, rows that fall back, content-dependent N, repetition.

    The map with one thread is shown where it has other thresholds. `known` gives the causes to name.
    """
    return [*paths_table(measured), *facts(measured, known=known)]


def facts(measured: KernelMap, *, known: Causes | None = None) -> list[str]:
    """Return everything but the paths themselves."""
    lines = [
        *_thresholds(measured, known),
        *_told("remainder: ", _by_depth(measured.maps, remainder_told)),
        *_told("content-dependent: ", _by_depth(measured.maps, _content)),
    ]
    repeated = nondeterminism(measured)
    return [*lines, repeated or "every batch repeated bit for bit"]


def paths_table(measured: KernelMap) -> list[str]:
    """Return the paths as ranges, one row per depth; the map with one thread has a row where it differs."""
    rows = [_row(one, classes_of(one)) for one in measured.maps]
    for one in measured.one_thread:
        beside = measured.at(one.depth)
        if beside is None or classes_of(beside, sizes=one.n).thresholds != classes_of(one).thresholds:
            rows.append(_row(one, classes_of(one)))
    rows.sort(key=lambda row: int(row[0]))
    return text.table(["depth", "threads", "kernel paths by N"], rows, left=(2,))


def nondeterminism(measured: KernelMap) -> str:
    """Say at which N a second pass gave other bits, "" where every one repeated."""
    found = [
        f"N = {text.sizes(n)} (depth {one.depth}, {text.plural(one.threads, 'thread')})"
        for one in (*measured.maps, *measured.one_thread)
        if (n := unrepeated(one))
    ]
    if not found:
        return ""
    return f"not deterministic here: a second pass gave other bits at {', '.join(found)}"


def unrepeated(one: DepthMap) -> list[int]:
    """Return the batch sizes whose second pass gave other bits."""
    return [n for n, same in zip(one.n, one.repeated, strict=True) if not same]


def causes_of(after: int, n: int, one: DepthMap, measured: KernelMap, known: Causes | None) -> list[Known]:
    """Return what the source says about a change in (after, n] of one map.

    A cause that applies to another map of the same measurement, where nothing changes there, is none.
    """
    if known is None:
        return []
    others = [
        other
        for other in (*measured.maps, *measured.one_thread)
        if other is not one and {after, n} <= set(other.n) and n not in classes_of(other).thresholds
    ]
    return [
        cause
        for size in range(after + 1, n + 1)
        for cause in known(size)
        if cause.applies(one.depth, one.threads)
        and not any(cause.applies(other.depth, other.threads) for other in others)
    ]


def causes_told(causes: Iterable[Known], *, gap: bool = False) -> list[str]:
    """Name causes: "repack matrix-matrix (ggml-cpu/repack.cpp; …)"; in a gap of the list, with their N."""
    told = []
    for cause in causes:
        knob = f"; {cause.knob} moves it" if cause.knob else ""
        told.append(f"{f'{cause.n}, ' if gap else ''}{cause.told[:-1]}{knob})")
    return list(dict.fromkeys(told))


def remainder_told(one: DepthMap) -> str:
    """Say which batches compute their last rows as a smaller batch, "" where none does."""
    by_rows: dict[int, list[int]] = {}
    for n, rows in zip(one.n, one.remainder, strict=True):
        if rows:
            by_rows.setdefault(rows, []).append(n)
    parts = [
        f"the last {'row' if rows == 1 else f'{rows} rows'} of N = {text.sizes(n)}"
        for rows, n in sorted(by_rows.items())
    ]
    return f"{', '.join(parts)}, computed as a smaller batch" if parts else ""


def _thresholds(measured: KernelMap, known: Causes | None) -> list[str]:
    lines: dict[tuple[int, str, str], list[int]] = {}
    for one in measured.maps:
        classes, outputs = classes_of(one), outputs_of(one)
        for change in classes.changes:
            causes = causes_of(change.after, change.n, one, measured, known)
            parts = causes_told(causes, gap=change.after + 1 < change.n)
            parts += [*_details(change, outputs), *_returns(change, classes)]
            told = f": {'; '.join(parts)}" if parts else ""
            lines.setdefault((change.n, change.where(), told), []).append(one.depth)
    if not lines:
        return ["thresholds: none"]
    shown = []
    for (_, where, told), depths in sorted(lines.items(), key=lambda item: (item[0][0], item[1])):
        at = "" if len(depths) == len(measured.maps) else f" at depth {', '.join(map(str, depths))}"
        shown.append(f"  {where}{at}{told}")
    return ["thresholds:", *shown]


def _details(change: Change, outputs: Sequence[str]) -> list[str]:
    """Say what is special about a change: rows other than row 0 only, one of the outputs only."""
    told = []
    if 0 not in change.rows:
        word = "row" if len(change.rows) == 1 else "rows"
        told.append(f"{word} {text.sizes(change.rows)} only, row 0 keeps its path")
    if len(change.patterns) < len(outputs):
        told.append(f"{' and '.join(OUTPUTS[outputs[p]] for p in change.patterns)} only")
    return told


def _returns(change: Change, classes: ClassMap) -> list[str]:
    """Say where row 0 goes back to the bits of an earlier range."""
    index = next(i for i, one in enumerate(classes.ranges) if one.start == change.n)
    here = classes.ranges[index]
    earlier = [one for one in classes.ranges[:index] if one.letter == here.letter]
    if not earlier or classes.ranges[index - 1].letter == here.letter:
        return []
    return [f"row 0 as at N = {span(earlier[-1].start, earlier[-1].stop)}"]


def _content(one: DepthMap) -> str:
    if not one.content:
        return ""
    return (
        f"at N = {text.sizes(one.content)} row 0 depends on the tokens behind it (a mixture of experts "
        "chooses kernels per expert): speculation can be held to near ties only there"
    )


def _by_depth(maps: Iterable[DepthMap], tell: Callable[[DepthMap], str]) -> dict[str, list[int]]:
    """Return what is told of maps with the depths that it is told of; what all share has no depths."""
    found: dict[str, list[int]] = {}
    every = list(maps)
    for one in every:
        found.setdefault(tell(one), []).append(one.depth)
    return {told: [] if len(depths) == len(every) else depths for told, depths in found.items() if told}


def _told(head: str, found: Mapping[str, Sequence[int]]) -> list[str]:
    return [
        f"{head}{told}" + (f" (depth {', '.join(map(str, depths))})" if depths else "")
        for told, depths in found.items()
    ]


def _row(one: DepthMap, classes: ClassMap) -> list[str]:
    return [str(one.depth), str(one.threads), ranges_text(classes)]
