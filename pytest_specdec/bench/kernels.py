"""How the kernel map is taken: every batch size twice, its rows' bits, and what they are compared to."""

from __future__ import annotations

import hashlib
import random
import string
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.bench.procedures import check_sizes
from pytest_specdec.bench.procedures import text_tokens
from pytest_specdec.measurements import DepthMap
from pytest_specdec.measurements import KernelMap
from pytest_specdec.settings import Settings
from pytest_specdec.theory.classes import find_classes
from pytest_specdec.theory.remainder import find_remainder
from pytest_specdec.theory.remainder import small_batches
from pytest_specdec.theory.remainder import to_place


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


LETTERS = string.digits + string.ascii_lowercase + string.ascii_uppercase
# A request takes batches of so many tokens in all: progress shows, and a slow model keeps its time-out.
TOKENS_PER_REQUEST = 256
# With one thread, the sizes where attention splits by thread, and those around thresholds.
ONE_THREAD_SIZES = 16
# What the rows behind row 0 are must not depend on settings that a map isn't keyed by.
SEED = 0


def kernel_map(bench: Bench) -> KernelMap:
    """The map at the settings' depth, over their ``map_sizes``: one DepthMap, and one with one thread.

    Raises:
        BenchError: the sizes don't fit the batch or the context.
    """
    settings = bench.settings
    check_sizes(settings, settings.map_sizes, "map_sizes", lower="the depth or map_sizes")
    taken = _Taking(bench, settings)
    start = time.perf_counter()
    whole = taken.map(settings.map_sizes, content=True)
    wall_ms = (time.perf_counter() - start) * 1000.0
    made = KernelMap(
        maps=(whole,),
        tokens=_digest(" ".join(map(str, taken.text[: settings.depth + max(settings.map_sizes)]))),
        flash_attn=taken.facts["flash_attn"],
        forward_ms=taken.forward_ms,
        wall_ms=wall_ms,
    )
    if settings.n_threads == 1 or taken.facts["model"]["devices"] != ["CPU"]:
        return made
    alone = _Taking(bench, settings.merged(threads=1))
    start = time.perf_counter()
    fewer = alone.map(_sizes_of_interest(whole), content=False)
    wall_ms += (time.perf_counter() - start) * 1000.0
    return replace(made, one_thread=(fewer,), forward_ms=made.forward_ms + alone.forward_ms, wall_ms=wall_ms)


def joined(maps: Sequence[KernelMap]) -> KernelMap:
    """Maps of several depths as one."""
    return replace(
        maps[0],
        maps=tuple(one for each in maps for one in each.maps),
        one_thread=tuple(one for each in maps for one in each.one_thread),
        forward_ms=sum(each.forward_ms for each in maps),
        wall_ms=sum(each.wall_ms for each in maps),
    )


@dataclass
class _Found:
    """What was seen of one batch: digests of its rows, and two yes or no."""

    hidden: list[str]
    logits: list[str]
    repeated: bool
    content: bool

    @property
    def rows(self) -> list[str]:
        return [*map("".join, zip(self.hidden, self.logits, strict=True))]


class _Taking:
    """One context at one depth, and the requests that map it."""

    def __init__(self, bench: Bench, settings: Settings) -> None:
        rig = bench.session.rig
        model = rig.target(settings)
        loaded = rig.context(model, settings, "target", embeddings=True)
        longest = max(settings.map_sizes)
        prompts = [(one.id, rig.tokens(loaded, model, one)) for one in bench.prompts.prompts]
        self.text = text_tokens(prompts, settings.depth + 2 * longest)
        rig.prove_rollback(loaded, self.text, model.name)
        self.facts = loaded.facts
        self.forward_ms = 0.0
        self._settings = settings
        self._request: Callable[..., dict[str, Any]] = rig.engine.request
        self._fixed: dict[str, Any] = {"context": loaded.handle, "depth": settings.depth}
        self._fresh = True
        self._found: dict[int, _Found] = {}
        threads = "1 thread" if settings.n_threads == 1 else f"{settings.n_threads} threads"
        where = f"kernel map {model.name}, depth {settings.depth}, {threads}"
        self._progress: Callable[[str], None] = lambda line: bench.session.progress(f"{where}: {line}")

    def map(self, sizes: Sequence[int], *, content: bool) -> DepthMap:
        """Take the map over these sizes."""
        behind: dict[tuple[int, int], list[str]] = {}
        for part in _parts(sizes):
            behind |= self._part(part, sizes, content)
        rows = {n: one.rows for n, one in self._found.items()}
        certain = find_remainder(rows, behind)
        room = self._settings.n_ctx - self._settings.depth
        pairs = [(s, n) for s, n in to_place(rows, certain) if s + n <= room]
        remainder = find_remainder(rows, behind, self._place(pairs))
        found = [self._found[n] for n in sizes]
        return DepthMap(
            depth=self._settings.depth,
            threads=self._settings.n_threads,
            n=tuple(sizes),
            hidden=letters([one.hidden for one in found]),
            logits=letters([one.logits for one in found]),
            digests=tuple(_digest(" ".join(one.rows)) for one in found),
            repeated=tuple(one.repeated for one in found),
            remainder=tuple(remainder[n] for n in sizes),
            content=tuple(n for n, one in zip(sizes, found, strict=True) if one.content),
        )

    def _part(
        self, part: Sequence[int], sizes: Sequence[int], content: bool
    ) -> dict[tuple[int, int], list[str]]:
        self._progress(f"N = {part[0]} to {part[-1]}")
        known = {n: one.rows for n, one in self._found.items()}
        probes = [
            {"m": m, "r": r, "first": [self._found[r].hidden[0], self._found[r].logits[0]]}
            for m in part
            for r in small_batches(known)
            if m > r and m + r in sizes
        ]
        answer = self._ask(
            "kernel_map",
            sizes=list(part),
            followers=self._followers(max(part) - 1) if content else [],
            repeat=True,
            remainder=probes,
        )
        for i, n in enumerate(part):
            self._found[n] = _Found(
                **answer["rows"][i], repeated=answer["repeated"][i], content=answer["content"][i]
            )
        return {(one["m"], one["r"]): _joined_rows(one["rows"]) for one in answer["behind"]}

    def _place(self, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], list[str]]:
        placed: dict[tuple[int, int], list[str]] = {}
        for pair in pairs:
            self._progress(f"N = {pair[1]} behind {pair[0]}")
            answer = self._ask("behind", pairs=[list(pair)])
            placed[pair] = _joined_rows(answer["rows"][0])
        return placed

    def _ask(self, op: str, **params: Any) -> dict[str, Any]:
        answer = self._request(op, **self._fixed, tokens=self.text, fresh=self._fresh, **params)
        self._fresh = False
        self.forward_ms += answer["forward_ms"]
        return answer

    def _followers(self, count: int) -> list[list[int]]:
        """What follows row 0 instead of its text: itself over and over, and anything of the vocabulary."""
        if not count:
            return []
        anything = random.Random(SEED)
        n_vocab = self.facts["model"]["n_vocab"]
        first = self.text[self._settings.depth]
        return [[first] * count, [anything.randrange(n_vocab) for _ in range(count)]]


def letters(batches: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """One letter per row: each row position's distinct digests, numbered in order of appearance.

    ``*`` stands for every one beyond those that have a letter, and ``""`` for a batch whose digests are
    empty: the model has no such output.
    """
    seen: list[dict[str, int]] = []
    named = []
    for digests in batches:
        if not any(digests):
            named.append("")
            continue
        seen += [{} for _ in range(len(digests) - len(seen))]
        numbers = [known.setdefault(one, len(known)) for known, one in zip(seen, digests, strict=False)]
        named.append("".join(LETTERS[i] if i < len(LETTERS) else "*" for i in numbers))
    return tuple(named)


def _joined_rows(rows: dict[str, list[str]]) -> list[str]:
    return [*map("".join, zip(rows["hidden"], rows["logits"], strict=True))]


def _parts(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The sizes in the order of the list; the smallest ones first by themselves, others rely on them."""
    part: list[int] = []
    for n in sizes:
        if part and ((part[0] <= 3 < n) or sum(part) + n > TOKENS_PER_REQUEST):
            yield tuple(part)
            part = []
        part.append(n)
    yield tuple(part)


def _sizes_of_interest(whole: DepthMap) -> tuple[int, ...]:
    classes = find_classes(whole.n, [whole.hidden, whole.logits], whole.remainder)
    around = {size for change in classes.changes for size in (change.after, change.n)}
    return tuple(n for n in whole.n if n <= ONE_THREAD_SIZES or n in around)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
