"""Clean passes over a text, row by row: the bits, the choices, and how far the logits lie apart."""

from __future__ import annotations

import contextlib
import hashlib
import random
import weakref
from typing import Any
from typing import Iterator
from typing import Optional
from typing import Sequence

import numpy as np

from specdec_worker.binding import lib
from specdec_worker.model import Context


TOP = 50
# Alignments of the clean passes: kernels that work in fours leave up to three last rows to another one, so
# that of four consecutive rows one at least is the main kernel's.
ALIGNMENTS = 4
# llama.cpp pads the cells that attention looks at to a multiple of this.
CELLS = 256
CONTENT_DEPTH = 16
SEED = 1


class Rows:
    """The bits and the best token of each row that decides a token of a text, in the text's order."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self.best: list[int] = []

    def __call__(self, logits: Any) -> None:
        """Take the next row, float32 of shape (n_vocab,)."""
        self.hashes.append(_digest(logits))
        self.best.append(int(logits.argmax()))


class Kept(Rows):
    """With a copy of the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.logits: list[Any] = []

    def __call__(self, logits: Any) -> None:
        """Take the next row."""
        super().__call__(logits)
        self.logits.append(logits.copy())


class Reference(Rows):
    """One-token passes: the logits of each row's top candidates and, last, of the text's own token.

    Without a text it is the best token's: plain decoding.
    """

    def __init__(self, text: Optional[list[int]] = None) -> None:
        super().__init__()
        self._text = text
        self.ids: list[Any] = []
        self.values: list[Any] = []
        self.top: list[float] = []

    def __call__(self, logits: Any) -> None:
        """Take the next row."""
        super().__call__(logits)
        best = self.best[-1]
        count = min(TOP, logits.shape[0])
        chosen = np.argpartition(logits, -count)[-count:]
        self.ids.append(np.append(chosen, best if self._text is None else self._text[len(self.ids)]))
        self.values.append(logits[self.ids[-1]].astype(np.float64))
        self.top.append(float(logits[best]))


class Hidden(Rows):
    """The bits of hidden states instead; "" where the model gives none.

    They show another kernel that the logits of a short text may hide: the output head rounds its input.
    """

    def __call__(self, hidden: Any) -> None:
        """Take the next row, float32, or None."""
        self.hashes.append("" if hidden is None else _digest(hidden))


class Spread(Rows):
    """With each row's largest difference from the reference, over its candidates."""

    def __init__(self, reference: Reference) -> None:
        super().__init__()
        self._reference = reference
        self.difference: list[float] = []

    def __call__(self, logits: Any) -> None:
        """Take the next row."""
        place = len(self.difference)
        super().__call__(logits)
        self.difference.append(distance(logits, self._reference, place))


class Clean:
    """Clean passes over one text behind its prompt: one token at a time, and in batches of any width.

    ``reference`` holds the one-token passes where they have been made, as plain decoding makes them.
    """

    def __init__(
        self, context: Context, prompt: list[int], text: list[int], reference: Optional[Reference] = None
    ) -> None:
        self._context = context
        self._prompt = prompt
        self._text = text
        self._wide: dict[tuple[int, int, bool], Spread] = {}
        self._states: dict[tuple[int, int, bool], list[str]] = {}
        self.one = reference or Reference(text)
        if reference is None:
            self._pass(1, 0, False, self.one)

    def wide(self, width: int, offset: int = 0, *, padded: bool = False) -> Spread:
        """Passes of ``width`` tokens, the first of them over ``offset`` tokens of the text where not 0.

        ``padded`` makes this first pass ``width`` wide too and takes the padding back, the only rollback
        here. The last one is always padded: rows don't see what is behind them.
        """
        key = (width, offset, padded)
        if key not in self._wide:
            taken = Spread(self.one)
            self._pass(width, offset, padded, taken)
            self._wide[key] = taken
        return self._wide[key]

    def other_bits(self, width: int) -> Optional[int]:
        """The first token for which passes of ``width`` have other bits than one-token passes.

        Where the text runs over the end of the padded cache, a batch that does so looks at more cells than
        its first rows need; of two alignments one has such a batch.
        """
        start, end = len(self._prompt), len(self._prompt) + len(self._text)
        for offset in (0, 1) if start // CELLS != end // CELLS else (0,):
            at = first_difference(self.one.hashes, self.wide(width, offset).hashes)
            if at is None:
                at = first_difference(self._hidden(1, 0, False), self._hidden(width, offset, False))
            if at is not None:
                return at
        return None

    def unlike_rows(self, width: int) -> Optional[int]:
        """The first token whose bits depend on the row of a batch of ``width`` that it is."""
        at = first_difference(self.wide(width).hashes, self.wide(width, 1, padded=True).hashes)
        if at is None:
            at = first_difference(self._hidden(width, 0, False), self._hidden(width, 1, True))
        return at

    def repeats(self, width: int) -> bool:
        """Whether passes of ``width`` over the text give the same bits once more."""
        again = Rows()
        self._pass(width, 0, False, again)
        return again.hashes == (self.one if width == 1 else self.wide(width)).hashes

    def delta(self, widths: Sequence[int]) -> Any:
        """The largest logit difference at each token over widths and alignments, float64 of shape (tokens,).

        A width whose passes have the logits of one-token passes at two alignments adds nothing.
        """
        found = np.zeros(len(self._text))
        for width in widths:
            if width == 1 or all(self.wide(width, at).hashes == self.one.hashes for at in (0, 1)):
                continue
            for offset in range(min(width, ALIGNMENTS)):
                found = np.maximum(found, self.wide(width, offset).difference)
        return found

    def _hidden(self, width: int, offset: int, padded: bool) -> list[str]:
        key = (width, offset, padded)
        if key not in self._states:
            taken = Hidden()
            self._pass(width, offset, padded, taken)
            self._states[key] = taken.hashes
        return self._states[key]

    def _pass(self, width: int, offset: int, padded: bool, take: Rows) -> None:
        context = self._context
        context.clear()
        context.prefill(self._prompt)
        hidden = isinstance(take, Hidden)
        take(None if hidden else context.logits((len(self._prompt) - 1) % context.n_batch))
        fed = self._text[:-1]
        start = 0
        with _hidden_states(context) if hidden else contextlib.nullcontext():
            while start < len(fed):
                first = offset > 0 and start == 0
                batch = fed[start : start + (offset if first else width)]
                kept = context.past + len(batch)
                padding = min(width - len(batch), context.n_ctx - kept) if padded or not first else 0
                context.decode(batch + [batch[-1]] * padding, "all", save=padded and first)
                for row in range(len(batch)):
                    take(context.hidden(row) if hidden else context.logits(row))
                start += len(batch)
                if start < len(fed):
                    context.rollback(kept)


@contextlib.contextmanager
def _hidden_states(context: Context) -> Iterator[None]:
    """Passes give hidden states in here, some architectures then no logits."""
    lib.llama_set_embeddings(context.handle, True)
    try:
        yield
    finally:
        lib.llama_set_embeddings(context.handle, context.embeddings)


_content: weakref.WeakKeyDictionary[Context, dict[int, bool]] = weakref.WeakKeyDictionary()


def content_dependent(context: Context, prompt: list[int], width: int) -> bool:
    """Whether the bits of row 0 of a batch change with the tokens behind it; found out once per context.

    Behind it come its own token over and over, random tokens, and text.
    """
    known = _content.setdefault(context, {})
    if width not in known:
        start = prompt[: min(CONTENT_DEPTH, len(prompt) - 1)]
        token = prompt[len(start)]
        draw = random.Random(SEED)
        followers = [
            [token] * (width - 1),
            [draw.randrange(context.model.n_vocab) for _ in range(width - 1)],
            (prompt * width)[len(start) + 1 :][: width - 1],
        ]
        found = set()
        for behind in followers:
            context.clear()
            context.prefill(start)
            with _hidden_states(context):
                context.decode([token, *behind], "all", save=False)
                hidden = context.hidden(0)
                found.add(_digest(context.logits(0) if hidden is None else hidden))
        known[width] = len(found) > 1
    return known[width]


def _digest(values: Any) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()


def distance(logits: Any, reference: Reference, place: int) -> float:
    """The largest difference of a row's logits from the reference's candidates at that place."""
    return float(np.abs(logits[reference.ids[place]] - reference.values[place]).max())


def first_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> Optional[int]:
    """The first place at which two sequences differ, their end included; None where they don't."""
    for place, (one, other) in enumerate(zip(ours, theirs)):
        if one != other:
            return place
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))
