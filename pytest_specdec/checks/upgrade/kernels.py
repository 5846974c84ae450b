"""Which kernel paths and bits the new arm has against the old one's: exact, and never a regression."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_specdec.reports import kernels as report
from pytest_specdec.reports import text
from pytest_specdec.reports.upgrade import Aspect
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict


if TYPE_CHECKING:
    from pytest_specdec.measurements import Comparison
    from pytest_specdec.measurements import DepthMap
    from pytest_specdec.measurements import KernelMap
    from pytest_specdec.reports.kernels import Causes
    from pytest_specdec.theory.classes import ClassMap


@dataclass(frozen=True, slots=True)
class Depth:
    """The maps that both arms took at one depth, over the batch sizes of both that repeat bit for bit.

    `paths` are the kernel paths of the old arm and of the new one, by the outputs that both have; `apart`
    says why raw bits can't be compared, "" where they can.
    """

    old: DepthMap
    new: DepthMap
    sizes: tuple[int, ...]
    paths: tuple[ClassMap, ClassMap]
    apart: str
    one_thread: bool

    @property
    def identical(self) -> list[int]:
        """The batch sizes at which every bit is the same; none where that can't be known."""
        before, now = (dict(zip(one.n, one.digests, strict=True)) for one in (self.old, self.new))
        return [n for n in self.sizes if not self.apart and before[n] == now[n]]

    @property
    def other(self) -> list[int]:
        """The batch sizes at which bits are known to differ."""
        same = self.identical
        return [n for n in self.sizes if not self.apart and n not in same]

    @property
    def new_thresholds(self) -> list[int]:
        """Those of the new arm that the old one has not."""
        old, new = self.paths
        return sorted(set(new.thresholds) - set(old.thresholds))

    @property
    def gone_thresholds(self) -> list[int]:
        """Those of the old arm that the new one has not."""
        old, new = self.paths
        return sorted(set(old.thresholds) - set(new.thresholds))

    @property
    def moved(self) -> str:
        """Which thresholds are new or gone, "" when none is."""
        parts = []
        for sizes, word in ((self.new_thresholds, "new"), (self.gone_thresholds, "gone")):
            if sizes:
                listed = ", ".join(map(str, sizes))
                many = len(sizes) > 1
                parts.append(f"threshold{'s' if many else ''} {listed} {'are' if many else 'is'} {word}")
        return ", ".join(parts)

    @property
    def bits(self) -> str:
        """At which batch sizes bits are the same, and at which not."""
        if self.apart:
            return f"bits can't be compared, {self.apart}"
        same, other = self.identical, self.other
        if not other:
            return f"bit-identical for N = {text.sizes(same)}"
        if not same:
            return f"other bits at every N of {text.sizes(other)}"
        return f"bit-identical for N = {text.sizes(same)}, other bits at N = {text.sizes(other)}"

    @property
    def label(self) -> str:
        """Where: "depth 0"."""
        return f"depth {self.old.depth}{', one thread' if self.one_thread else ''}"


def depths_of(old: KernelMap, new: KernelMap) -> list[Depth]:
    """Return what can be compared of two maps."""
    found = []
    for one_thread in (False, True):
        theirs, ours = ((each.one_thread if one_thread else each.maps) for each in (old, new))
        for before in theirs:
            now = next((one for one in ours if one.depth == before.depth), None)
            if now is None:
                continue
            here = report.outputs_of(now)
            outputs = [name for name in report.outputs_of(before) if name in here]
            dropped = {*report.unrepeated(before), *report.unrepeated(now)}
            sizes = tuple(n for n in before.n if n in now.n and n not in dropped)
            if outputs and sizes:
                was, is_ = (report.classes_of(one, sizes=sizes, outputs=outputs) for one in (before, now))
                apart = "" if old.tokens == new.tokens else "the maps are of other tokens"
                if not apart and here != report.outputs_of(before):
                    apart = "the maps are not of the same outputs"
                found.append(Depth(before, now, sizes, (was, is_), apart, one_thread))
    return found


def kernel_maps(comparison: Comparison, known: Causes | None = None) -> Aspect:
    """Say which thresholds moved and at which N both arms have the same bits.

    `known` gives what llama.cpp's source says about a batch size, for the thresholds that moved.
    """
    old, new = comparison.old.kernels, comparison.new.kernels
    limit = "other kernel paths or bits are no regression"
    depths = depths_of(old, new)
    if not depths:
        why = "the maps have no depth and batch size in common"
        return Aspect(Verdict(Outcome.NOT_MEASURED, "kernel map", None, None, None, limit, why), judged=False)
    conduct = _conduct(old, new)
    differing = [depth for depth in depths if depth.moved or depth.other]
    told = _grouped((depth.moved or "the thresholds are the same", depth) for depth in depths)
    told += _grouped((depth.bits, depth) for depth in depths if not depth.one_thread)
    told += conduct
    rows = [
        [str(one.depth), str(one.threads), which, report.ranges_text(paths)]
        for depth in depths
        for which, one, paths in zip(("old", "new"), (depth.old, depth.new), depth.paths, strict=True)
    ]
    lines = text.table(["depth", "threads", "", "kernel paths by N"], rows, left=(2, 3))
    lines += dict.fromkeys(line for depth in depths for line in _causes(comparison, depth, known))
    value = float(len(differing))
    verdict = Verdict(Outcome.PASS, "kernel map", value, None, None, limit, "; ".join(told), "\n".join(lines))
    return Aspect(verdict, changed=bool(differing or conduct))


def other_bits(comparison: Comparison) -> bool:
    """Whether the kernel maps prove that the two arms round differently somewhere."""
    return any(d.other or d.moved for d in depths_of(comparison.old.kernels, comparison.new.kernels))


def _causes(comparison: Comparison, depth: Depth, known: Causes | None) -> list[str]:
    """Return what the source says of the thresholds that moved, one line each."""
    lines = []
    for word, sizes, one, arm in (
        ("new", depth.new_thresholds, depth.new, comparison.new),
        ("gone", depth.gone_thresholds, depth.old, comparison.old),
    ):
        for n in sizes:
            after = max(m for m in depth.sizes if m < n)
            if told := report.causes_told(report.causes_of(after, n, one, arm.kernels, known)):
                lines.append(f"{n} is {word}: {'; '.join(told)}")
    return lines


def _conduct(old: KernelMap, new: KernelMap) -> list[str]:
    """Say at which N the new arm repeats, or depends on the tokens behind, otherwise than the old one."""
    told = []
    for before in old.maps:
        now = new.at(before.depth)
        if now is None:
            continue
        common = set(before.n) & set(now.n)
        for was, here, yes, no in (
            (report.unrepeated(before), report.unrepeated(now), "do not repeat bit for bit", "repeat again"),
            (
                before.content,
                now.content,
                "depend on the tokens behind",
                "depend on no tokens behind any more",
            ),
        ):
            for sizes, word in ((set(here) - set(was), yes), (set(was) - set(here), no)):
                if sizes & common:
                    told.append(f"new at depth {now.depth}: N = {text.sizes(sizes & common)} {word}")
    return told


def _grouped(told: Iterable[tuple[str, Depth]]) -> list[str]:
    """Say once what several depths have in common, with the depths unless all have it."""
    found: dict[str, list[str]] = {}
    for words, depth in told:
        found.setdefault(words, []).append(depth.label)
    if len(found) == 1:
        return list(found)
    return [f"{words} ({'; '.join(labels)})" for words, labels in found.items()]
