"""Two arms in one run: one process awake at a time, everything that is timed interleaved."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal

from pytest_specdec.bench.curve import Blocks
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.procedures import WARM_TOKENS
from pytest_specdec.bench.procedures import Pair
from pytest_specdec.measurements import VerifyCurve


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


Arm = Literal["old", "new"]
# Two arms need twice what one took at its peak, and something to spare.
SPARE = 1.2


class Arms:
    """An old bench and a new one, each with its own worker.

    While one arm works, the other's process is stopped. Where memory holds one of them only, they take turns:
    the other's process is ended, and everything is loaded anew at each change.

    Raises:
        BenchError: the two don't speculate in the same way.
    """

    def __init__(self, old: Bench, new: Bench, *, memory_bytes: int | None = None) -> None:
        if (old.method, old.settings.k) != (new.method, new.settings.k):
            raise BenchError(
                f"the arms must speculate alike: {old.method} at k = {old.settings.k} and {new.method} at "
                f"k = {new.settings.k}"
            )
        self._benches: dict[Arm, Bench] = {"old": old, "new": new}
        self._memory_bytes = memory_bytes
        self._turns: bool | None = None

    @property
    def turns(self) -> bool:
        """Whether memory holds one arm only; found out by loading the old one."""
        if self._turns is None:
            # Loading the old arm must not ask again.
            self._turns = False
            pair = Pair(self.awake("old"))
            peak = pair.engine.request("memory")["peak"]
            free = _available() if self._memory_bytes is None else self._memory_bytes - (peak or 0)
            self._turns = bool(peak and free is not None and free < peak * SPARE)
        return self._turns

    def awake(self, arm: Arm) -> Bench:
        """The arm's bench, the other one's worker stopped, or ended where they take turns."""
        other = self._benches["new" if arm == "old" else "old"].session.rig.engine
        if self._turns:
            other.close()
        else:
            other.suspend()
        return self._benches[arm]

    def order(self, count: int) -> Iterator[tuple[int, Arm]]:
        """Each of ``count`` pairs' two arms: ABBA, or in blocks where every change costs a loading."""
        if self.turns:
            half = (count + 1) // 2
            yield from ((index, "old") for index in range(half))
            yield from ((index, "new") for index in range(count))
            yield from ((index, "old") for index in range(half, count))
            return
        for index in range(count):
            both: tuple[Arm, Arm] = ("old", "new") if index % 2 == 0 else ("new", "old")
            yield from ((index, arm) for arm in both)

    def each(self, take: Callable[[Bench], Any]) -> dict[Arm, Any]:
        """Something that needs no clock, on one arm after the other."""
        found: dict[Arm, Any] = {}
        for arm in ("old", "new"):
            found[arm] = take(self.awake(arm))
        return found

    def curves(self, depth: int, sizes: tuple[int, ...]) -> dict[Arm, VerifyCurve]:
        """T(N) on both arms, block by block in turn: blocks of the same index pair."""
        blocks: dict[Arm, Blocks] = {}
        for arm, bench in self._benches.items():
            blocks[arm] = Blocks(bench.with_settings(depth=depth, sizes=sizes))
        turns = self.turns
        for arm in ("old", "new"):
            self.awake(arm)
            blocks[arm].warm_up()
        for _, arm in self.order(self._benches["new"].settings.blocks):
            self.awake(arm)
            if turns:
                # A worker that was started for this block pays for its first passes.
                blocks[arm].warm_up()
            blocks[arm].add()
        found: dict[Arm, VerifyCurve] = {}
        for arm in ("old", "new"):
            self.awake(arm)
            found[arm] = blocks[arm].curve()
        return found

    def runs(self, count: int) -> dict[Arm, list[dict[str, Any]]]:
        """``count`` pairs of requests, prompts in turn: each arm's plain and speculative answers, by pair."""
        found: dict[Arm, list[dict[str, Any]]] = {"old": [{}] * count, "new": [{}] * count}
        warm: set[tuple[Arm, int]] = set()
        for index, arm in self.order(count):
            bench = self.awake(arm)
            settings = bench.settings
            bench.session.progress(f"{arm} build: requests {index + 1}/{count}")
            pair = Pair(bench)
            name, tokens = pair.prompts[index % len(pair.prompts)]
            if (arm, pair.engine.generation) not in warm:
                warm.add((arm, pair.engine.generation))
                pair.plain(tokens, min(WARM_TOKENS, settings.n_predict))
                pair.speculative(tokens, min(WARM_TOKENS, settings.n_predict), settings.k)
            ways: dict[str, Callable[[], dict[str, Any]]] = {
                "plain": partial(pair.plain, tokens, settings.n_predict),
                "speculative": partial(pair.speculative, tokens, settings.n_predict, settings.k),
            }
            answers: dict[str, Any] = {"prompt": name}
            for way in ways if index % 2 == 0 else reversed(ways):
                answers[way] = ways[way]()
            found[arm][index] = answers
        return found

    def close(self) -> None:
        """Let both go on; their sessions end them."""
        for bench in self._benches.values():
            bench.session.rig.engine.resume()


def _available() -> int | None:
    """Memory that is free for another process, the control group's limit counted; bytes."""
    found: list[int] = []
    with suppress(ImportError):
        import psutil

        found.append(int(psutil.virtual_memory().available))
    with suppress(OSError, ValueError):
        limit = int(_read("memory.max"))
        found.append(limit - int(_read("memory.current")))
    return min(found, default=None)


def _read(name: str) -> str:
    with open(f"/sys/fs/cgroup/{name}", encoding="ascii") as file:
        return file.read()
