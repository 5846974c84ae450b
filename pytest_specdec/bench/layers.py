"""Which blocks a model can do without: greedy, one at a time, by agreement with its own greedy text."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.procedures import Pair
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.layers import without
from pytest_specdec.models.layers import write_layers


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


# The context's role in the rig: neither target nor draft.
ROLE = "layers"


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that the target chose, `text`, and what stood before them, `before`."""

    before: list[int]
    text: list[int]


@dataclass(frozen=True, slots=True)
class Step:
    """One block that was left out, and the agreement without it and those before, 0 to 1."""

    block: int
    agreement: float


@dataclass(frozen=True, slots=True)
class Search:
    """What was found: agreements are shares of the text's tokens that are a copy's own first choice too.

    `chosen` has the steps in their order, with agreements on the text that was searched on. `held_out`,
    `first` and `itself` are on the other text: the copy found, the copy that keeps as many blocks from the
    first one on (None where that doesn't load), and the target itself, below 1 only where batches and single
    tokens differ.
    The last round tried `tried` of its `candidates`; `copies` were written in all, in `seconds` with text.
    """

    blocks: int
    wanted: int
    chosen: tuple[Step, ...]
    held_out: float
    first: float | None
    itself: float
    searched_tokens: int
    held_out_tokens: int
    how_held_out: str
    copies: int
    seconds: float
    tried: int
    candidates: int

    @property
    def stopped(self) -> bool:
        """Whether the budget ended it."""
        return self.tried < self.candidates or len(self.chosen) < self.wanted

    @property
    def skipped(self) -> tuple[int, ...]:
        """The blocks left out, ascending."""
        return tuple(sorted(step.block for step in self.chosen))

    @property
    def kept(self) -> tuple[int, ...]:
        """The blocks that stay, ascending."""
        return without(self.skipped, self.blocks)


class _NotLoaded(Exception):
    """llama.cpp makes no model of a copy: it expects other tensors at some block's new index."""


class _Copies:
    """Copies of the target, each on disk and loaded only while it is asked."""

    def __init__(self, bench: Bench, model: ModelRef, directory: Path) -> None:
        self._bench, self._model, self._directory = bench, model, directory
        self.made = 0

    def agreement(self, kept: Sequence[int], pieces: Sequence[Piece], beat: float = -1.0) -> float:
        rig = self._bench.session.rig
        self.made += 1
        path = self._directory / f"{self.made}.gguf"
        try:
            write_layers(self._model.path, path, kept)
            copy = ModelRef(f"{len(kept)} blocks of {self._model.name}", path)
            try:
                loaded = rig.context(copy, self._bench.settings, ROLE)
            except RequestRefused as refused:
                if refused.code != "load":
                    raise
                raise _NotLoaded(refused.message) from None
            try:
                return agreement(rig.engine.request, loaded.handle, pieces, beat)
            finally:
                rig.release(loaded)
        finally:
            path.unlink(missing_ok=True)


def agreement(
    request: Callable[..., dict[str, list[int]]], handle: int, pieces: Sequence[Piece], beat: float = -1.0
) -> float:
    """The share of the pieces' tokens that a context would have chosen, given all tokens before each.

    Stops after the piece with which it can't come out above `beat` any more; then it is what it could have
    come to, which is no more than `beat`.
    """
    count = sum(len(piece.text) for piece in pieces)
    wrong = 0
    for piece in pieces:
        best = request("agreement", context=handle, tokens=piece.before, text=piece.text)["best"]
        wrong += sum(one != other for one, other in zip(best, piece.text, strict=True))
        if (count - wrong) / count <= beat:
            break
    return (count - wrong) / count


def halves(texts: Sequence[tuple[list[int], list[int]]]) -> tuple[list[Piece], list[Piece], str]:
    """Split (prompt, text) pairs into what is searched on and what is held out, and say how.

    Every other prompt; of a single one, the second half of its text. Raises `BenchError` where a half would
    have no tokens.
    """
    pieces = [Piece(prompt, text) for prompt, text in texts if text]
    if len(pieces) == 1:
        prompt, text = pieces[0].before, pieces[0].text
        middle = len(text) // 2
        rest = Piece([*prompt, *text[:middle]], text[middle:])
        searched, held_out, how = [Piece(prompt, text[:middle])], [rest], "the second half of its text"
    else:
        searched, held_out, how = pieces[::2], pieces[1::2], "every other prompt"
    if not held_out or not all(piece.text for piece in (*searched, *held_out)):
        raise BenchError("the prompts give too little text to hold half of it out; raise n_predict")
    return searched, held_out, how


def search(bench: Bench, wanted: int, budget_s: float) -> Search:
    """Leave out `wanted` blocks, each time the one without which the copy agrees best with the target's text.

    The text is the target's own, plain and greedy, for the prompts of these settings. After `budget_s`
    seconds, text included, no further copy is tried in the rounds, and the best that the last round found so
    far is taken. The first round goes from the middle outwards, the others begin with what was best in the
    one before. Copies that llama.cpp doesn't load don't take part.
    Raises `BenchError` for a `wanted` that leaves no block, when no copy loads, or when not one was tried.
    """
    started = monotonic()
    facts = bench.facts()["target"]
    blocks = (facts.layers if facts else None) or 0
    if not 1 <= wanted < blocks:
        raise BenchError(
            f"the target has {blocks} blocks: search for 1 to {blocks - 1} to skip, not {wanted}"
        )
    pair = Pair(bench, drafting=False)
    texts = []
    for index, (_, tokens) in enumerate(pair.prompts):
        bench.session.progress(f"the target's own text: prompt {index + 1}/{len(pair.prompts)}")
        texts.append((tokens, list(pair.plain(tokens, bench.settings.n_predict)["tokens"])))
    searched, held_out, how = halves(texts)
    itself = agreement(pair.engine.request, pair.target.handle, held_out)
    chosen: list[Step] = []
    order = sorted(range(blocks), key=lambda block: (abs(2 * block - blocks + 1), block))
    tried = candidates = 0
    with tempfile.TemporaryDirectory(prefix="specdec-layers-") as directory:
        copies = _Copies(bench, pair.model, Path(directory))
        while len(chosen) < wanted and tried == candidates:
            tried, candidates = 0, len(order)
            found: dict[int, float] = {}
            trouble = (
                f"the budget of {budget_s:g} s was over before one was tried; raise it, or lower n_predict"
            )
            while tried < candidates and monotonic() - started < budget_s:
                best = max(found.items(), key=lambda item: item[1], default=None)
                so_far = f"; best so far {best[0]}: {best[1]:.2f}" if best else ""
                bench.session.progress(
                    f"skipping block {len(chosen) + 1}/{wanted}: {tried + 1}/{candidates}{so_far}"
                )
                block = order[tried]
                kept = without([*(step.block for step in chosen), block], blocks)
                try:
                    found[block] = copies.agreement(kept, searched, best[1] if best else -1.0)
                except _NotLoaded as error:
                    trouble = str(error)
                tried += 1
            if not found and not (chosen and tried < candidates):
                raise BenchError(
                    f"{pair.model.name}: no copy with {blocks - len(chosen) - 1} blocks: {trouble}"
                )
            # What is best without one block is likely to be good without the next.
            order = sorted(found, key=found.__getitem__, reverse=True)
            chosen.extend(Step(block, found[block]) for block in order[:1])
            del order[:1]
        bench.session.progress("agreement on the text held out")
        kept = without([step.block for step in chosen], blocks)
        ours = copies.agreement(kept, held_out)
        first = None
        with contextlib.suppress(_NotLoaded):
            first = copies.agreement(range(len(kept)), held_out)
    return Search(
        blocks=blocks,
        wanted=wanted,
        chosen=tuple(chosen),
        held_out=ours,
        first=first,
        itself=itself,
        searched_tokens=sum(len(piece.text) for piece in searched),
        held_out_tokens=sum(len(piece.text) for piece in held_out),
        how_held_out=how,
        copies=copies.made,
        seconds=monotonic() - started,
        tried=tried,
        candidates=candidates,
    )
