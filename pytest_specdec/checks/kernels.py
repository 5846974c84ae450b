"""Limits on the kernel map: which batch sizes begin a kernel path; bits, so exact under any load."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_specdec.checks.remedies import ACCEPT
from pytest_specdec.checks.remedies import RECORD
from pytest_specdec.reports import kernels as report
from pytest_specdec.reports import text
from pytest_specdec.theory.classes import ClassMap
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import DepthMap
    from pytest_specdec.measurements import KernelMap
    from pytest_specdec.measurements import VerifyCurve
    from pytest_specdec.reports.kernels import Causes


def kernel_thresholds(
    live: KernelMap,
    *,
    ns: Sequence[int],
    depth: int = 0,
    limit: str = "",
    baseline: KernelMap | None = None,
    curve: VerifyCurve | None = None,
    known: Causes | None = None,
) -> Verdict:
    """Hold the thresholds at a depth against exactly these batch sizes.

    The value is the number of thresholds that are gone or new. A failure shows the paths expected, here and
    in `baseline`, what `known` says of the places that moved, and what T(N) does there where `curve` has it.
    """
    limit = limit or _written(ns, depth)
    metric = f"moved thresholds depth {depth}"
    here = live.at(depth)
    if here is None:
        depths = ", ".join(str(one.depth) for one in live.maps) or "none"
        because = f'no kernel map at depth {depth} (mapped: {depths}): specdec(map_depths="{depth}")'
        return _not_measured(metric, limit, because)
    if not report.outputs_of(here):
        because = "this model gives neither hidden states nor logits, so there are no bits to compare"
        return _not_measured(metric, limit, because)
    section = "\n".join(report.kernel_section(live, known=known))
    if unrepeated := report.unrepeated(here):
        because = (
            f"not deterministic here: a second pass over the same tokens gave other bits at "
            f"N = {text.sizes(unrepeated)} (depth {depth}), so no thresholds can be told"
        )
        return Verdict(Outcome.FAIL, metric, None, None, None, limit, because, section)
    if wrong := _out_of_reach(here, ns):
        return _not_measured(metric, limit, f"the limit is wrong: {wrong}", section)
    classes = report.classes_of(here)
    gone = sorted(set(ns) - set(classes.thresholds))
    new = sorted(set(classes.thresholds) - set(ns))
    found = _at(classes.thresholds)
    if not gone and not new:
        because = f"kernel paths change {found}, and nowhere else: {_span(here)}, depth {depth}"
        if gaps := [change.where() for change in classes.changes if change.after < change.n - 1]:
            because = f"{because} ({', '.join(gaps)}: the sizes between were not mapped)"
        return Verdict(Outcome.PASS, metric, 0.0, None, None, limit, because, section)
    told = [f"kernel paths change {found} at depth {depth}, not {_at(ns)}: {_moved(gone, new)}"]
    told += _costs(curve, [*gone, *new])
    told.append(f"if that is the new state, write {_written(classes.thresholds, depth)}")
    shown = [("expected", here, _expected(here.n, ns)), ("here", here, report.ranges_text(classes))]
    if baseline is not None and (before := baseline.at(depth)) is not None:
        shown.append(("baseline", before, report.ranges_text(report.classes_of(before))))
    lines = [*_side_by_side(shown), *_causes(here, live, gone, new, known), *report.facts(live, known=known)]
    value = float(len(gone) + len(new))
    return Verdict(Outcome.FAIL, metric, value, None, None, limit, "; ".join(told), "\n".join(lines))


def compare_kernels(
    live: KernelMap,
    stored: KernelMap,
    tolerance: float | None,
    limit: str,
    alpha: float | None = None,
    *,
    curve: VerifyCurve | None = None,
    known: Causes | None = None,
) -> Verdict:
    """Compare classes and thresholds at every depth that both maps have; `tolerance` and `alpha` don't apply.

    Rows that fall back, content-dependent sizes and repetition count too. Whether the raw bits are the
    baseline's is told, and decides nothing: another build may round otherwise on the same paths. The value is
    the number of differences.
    """
    metric = "kernel map"
    pairs = _pairs(live, stored)
    found = _grouped([(told, pair) for pair in pairs for told in pair.differences()], len(pairs))
    main = [pair for pair in pairs if pair.here in live.maps and pair.comparable]
    if not main and not found:
        why = f"the baseline's map has no depth with two batch sizes in common with this one: {RECORD}"
        return _not_measured(metric, limit, why)
    rows = [row for pair in pairs if pair in main or pair.differences() for row in pair.rows()]
    lines = _side_by_side(rows)
    if not found:
        paths = _grouped([(_at(pair.now.thresholds), pair) for pair in main], len(main))
        told = [f"the kernel map is the baseline's: paths change {', '.join(paths)}"]
        told += [_bits(live, stored, main), *_conditions(live, stored)]
        if better := _grouped([(told, pair) for pair in pairs for told in pair.better()], len(pairs)):
            told += [f"better: {', '.join(better)}", ACCEPT]
        return Verdict(Outcome.PASS, metric, 0.0, None, None, limit, "; ".join(told), "\n".join(lines))
    told = [f"the kernel map is not the baseline's: {', '.join(found)}"]
    told += [_bits(live, stored, main)] if main else []
    told += _costs(curve, [n for pair in main for n in (*pair.gone, *pair.new)])
    told += _conditions(live, stored)
    told.append(f"bits are exact, so something changed: compare builds and models, or {ACCEPT}")
    causes = [line for pair in main for line in _causes(pair.here, live, pair.gone, pair.new, known)]
    lines += [*dict.fromkeys(causes), *report.facts(live, known=known)]
    return Verdict(
        Outcome.FAIL, metric, float(len(found)), None, None, limit, "; ".join(told), "\n".join(lines)
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two maps of one depth over the batch sizes and outputs that both have, and that repeat in both."""

    one_thread: bool
    here: DepthMap
    before: DepthMap
    sizes: tuple[int, ...]
    outputs: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Whether there is anything to compare."""
        return len(self.sizes) > 1 and bool(self.outputs)

    @property
    def now(self) -> ClassMap:
        """The classes here."""
        return report.classes_of(self.here, sizes=self.sizes, outputs=self.outputs)

    @property
    def then(self) -> ClassMap:
        """The classes in the baseline."""
        return report.classes_of(self.before, sizes=self.sizes, outputs=self.outputs)

    @property
    def gone(self) -> list[int]:
        """The baseline's thresholds that are none here."""
        return sorted(set(self.then.thresholds) - set(self.now.thresholds))

    @property
    def new(self) -> list[int]:
        """The thresholds here that the baseline has not."""
        return sorted(set(self.now.thresholds) - set(self.then.thresholds))

    @property
    def where(self) -> str:
        """Which maps these are."""
        return f"depth {self.here.depth}{' with one thread' if self.one_thread else ''}"

    def differences(self) -> list[str]:
        """Say what is not the baseline's, one text each."""
        found = self._moved() if self.comparable else []
        common = set(self.here.n) & set(self.before.n)
        if dependent := (set(self.here.content) - set(self.before.content)) & common:
            found.append(f"row 0 of N = {text.sizes(dependent)} depends on the tokens behind it, did not")
        if independent := (set(self.before.content) - set(self.here.content)) & common:
            found.append(f"row 0 of N = {text.sizes(independent)} depended on the tokens behind it, does not")
        if lost := _repeats_only_in(self.before, self.here):
            found.append(f"not deterministic here: N = {text.sizes(lost)} do not repeat bit for bit, did")
        return found

    def better(self) -> list[str]:
        """Say what the baseline could not."""
        gained = _repeats_only_in(self.here, self.before)
        return [f"N = {text.sizes(gained)} repeat bit for bit, did not"] if gained else []

    def rows(self) -> list[tuple[str, DepthMap, str]]:
        """Return both maps, for the table."""
        if not self.comparable:
            return []
        return [
            ("here", self.here, report.ranges_text(self.now)),
            ("baseline", self.before, report.ranges_text(self.then)),
        ]

    def _moved(self) -> list[str]:
        now, then = self.now, self.then
        found = []
        if self.gone or self.new:
            found.append(_moved(self.gone, self.new))
        elif now.ranges != then.ranges:
            found.append(f"row 0's classes recur otherwise: {_letters(now)}, were {_letters(then)}")
        rest, was = _rest(self.here), _rest(self.before)
        if other := [n for n in self.sizes if rest[n] != was[n]]:
            words = [text.sizes({each[n] for n in other}) for each in (rest, was)]
            found.append(
                f"at N = {text.sizes(other)} other rows fall back to the path of a smaller batch: the last "
                f"{words[0]}, were {words[1]}"
            )
        return found


def _pairs(live: KernelMap, stored: KernelMap) -> list[Pair]:
    found = []
    for one_thread in (False, True):
        ours, theirs = ((each.one_thread if one_thread else each.maps) for each in (live, stored))
        before = {one.depth: one for one in theirs}
        for here in ours:
            if (old := before.get(here.depth)) is not None:
                dropped = {*report.unrepeated(here), *report.unrepeated(old)}
                sizes = tuple(n for n in here.n if n in old.n and n not in dropped)
                outputs = tuple(name for name in report.outputs_of(here) if name in report.outputs_of(old))
                found.append(Pair(one_thread, here, old, sizes, outputs))
    return found


def _repeats_only_in(one: DepthMap, other: DepthMap) -> list[int]:
    common = set(one.n) & set(report.unrepeated(other))
    return sorted(common - set(report.unrepeated(one)))


def _bits(live: KernelMap, stored: KernelMap, pairs: Sequence[Pair]) -> str:
    """Say which batches have the very bits of the baseline, as far as they are of the same tokens."""
    if live.tokens != stored.tokens:
        return "the baseline is of other tokens, so bits cannot be compared"
    found: dict[str, list[str]] = {}
    for pair in pairs:
        equal = [n for n in pair.sizes if _digest(pair.here, n) == _digest(pair.before, n)]
        found.setdefault(_bits_told(pair.sizes, equal), []).append(str(pair.here.depth))
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{told} (depth {', '.join(depths)})" for told, depths in found.items())


def _bits_told(sizes: Sequence[int], equal: Sequence[int]) -> str:
    other = [n for n in sizes if n not in equal]
    if not other:
        return f"bit-identical at every N of {text.sizes(sizes)}"
    if not equal:
        return f"other bits at every N of {text.sizes(sizes)}"
    if max(equal) < other[0]:
        return f"bit-identical for N = {text.sizes(equal)}, other bits from {other[0]} on"
    return f"bit-identical for N = {text.sizes(equal)}, other bits at N = {text.sizes(other)}"


def _conditions(live: KernelMap, stored: KernelMap) -> list[str]:
    """Say which circumstances of mapping are not the baseline's, and which batches say nothing."""
    told = [note] if (note := report.nondeterminism(live)) else []
    if live.flash_attn != stored.flash_attn:
        told.append(f"flash attention is {live.flash_attn}, was {stored.flash_attn}")
    threads, were = (", ".join(sorted({str(one.threads) for one in each.maps})) for each in (live, stored))
    if threads != were:
        told.append(f"{threads} threads, were {were}")
    outputs, old = ({o for one in each.maps for o in report.outputs_of(one)} for each in (live, stored))
    if outputs != old:
        names = [_names(each) for each in (outputs, old)]
        told.append(f"bits of {names[0]} here, of {names[1]} in the baseline: compared by what both have")
    return told


def _names(outputs: Collection[str]) -> str:
    return " and ".join(report.OUTPUTS[name] for name in sorted(outputs)) or "nothing"


def _out_of_reach(here: DepthMap, ns: Sequence[int]) -> str:
    """Say which of `ns` the map can't show as thresholds, and how it can."""
    lacking = [n for n in sorted(ns) if n not in here.n or n == here.n[0]]
    if not lacking:
        return ""
    wanted = text.sizes({*here.n, *(m for n in lacking for m in (n - 1, n) if m > 0)})
    listed = " and ".join(map(str, lacking))
    return f'N = {listed} cannot show on a map of N = {text.sizes(here.n)}: specdec(map_sizes="{wanted}")'


def _moved(gone: Sequence[int], new: Sequence[int]) -> str:
    parts = []
    for word, sizes in (("gone", gone), ("new", new)):
        if sizes:
            parts.append(f"{_listed(sizes)} {'is' if len(sizes) == 1 else 'are'} {word}")
    return ", ".join(parts)


def _costs(curve: VerifyCurve | None, ns: Sequence[int]) -> list[str]:
    """Say what T(N) does at each place, where it was measured."""
    if curve is None:
        return []
    medians = curve.medians_ms()
    steps = [
        f"T({n})/T({before}) = {text.number(medians[n] / medians[before])}"
        for before, n in pairwise(sorted(medians))
        if n in ns
    ]
    return [f"{', '.join(steps)} at depth {curve.depth}"] if steps else []


def _causes(
    here: DepthMap, live: KernelMap, gone: Sequence[int], new: Sequence[int], known: Causes | None
) -> list[str]:
    """Return what the source says of the places that moved, one line each."""
    lines = []
    for n in (*gone, *new):
        before = max(m for m in here.n if m < n)
        # Where a threshold is gone nothing changes in other maps either, which tells nothing of its cause.
        among = replace(live, maps=(here,), one_thread=()) if n in gone else live
        causes = report.causes_told(report.causes_of(before, n, here, among, known))
        word = "gone" if n in gone else "new"
        lines += [f"{n} is {word}: {'; '.join(causes)}"] if causes else []
    return lines


def _grouped(told: Iterable[tuple[str, Pair]], every: int) -> list[str]:
    """Return each text once, with the maps it is told of unless it is told of all `every`."""
    found: dict[str, list[str]] = {}
    for what, pair in told:
        found.setdefault(what, []).append(pair.where)
    return [what if len(at) == every else f"{what} ({', '.join(at)})" for what, at in found.items()]


def _side_by_side(shown: Sequence[tuple[str, DepthMap, str]]) -> list[str]:
    ordered = sorted(shown, key=lambda row: row[1].depth)
    rows = [[str(one.depth), str(one.threads), which, ranges] for which, one, ranges in ordered]
    return text.table(["depth", "threads", "", "kernel paths by N"], rows, left=(2, 3))


def _expected(sizes: Sequence[int], ns: Sequence[int]) -> str:
    starts = [sizes[0], *(n for n in sizes[1:] if n in ns)]
    stops = [*(max(m for m in sizes if m < start) for start in starts[1:]), sizes[-1]]
    return " | ".join(report.span(a, b) for a, b in zip(starts, stops, strict=True))


def _rest(one: DepthMap) -> dict[int, int]:
    return dict(zip(one.n, one.remainder, strict=True))


def _digest(one: DepthMap, n: int) -> str:
    return one.digests[one.n.index(n)]


def _letters(classes: ClassMap) -> str:
    return " ".join(one.letter for one in classes.ranges)


def _at(ns: Sequence[int]) -> str:
    return f"at N = {_listed(sorted(set(ns)))}" if ns else "nowhere"


def _listed(ns: Sequence[int]) -> str:
    words = [str(n) for n in ns]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _span(here: DepthMap) -> str:
    return f"N = {text.sizes(here.n)}"


def _written(ns: Sequence[int], depth: int) -> str:
    at = [f"depth={depth}"] if depth else []
    return f"kernel_thresholds({', '.join([*map(str, sorted(ns)), *at])})"


def _not_measured(metric: str, limit: str, because: str, section: str = "") -> Verdict:
    return Verdict(Outcome.NOT_MEASURED, metric, None, None, None, limit, because, section)
