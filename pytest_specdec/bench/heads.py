"""Heads in the making: fitted on states that the target had, and held against what it said."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from pytest_specdec.theory.heads import Block
from pytest_specdec.theory.heads import Linear
from pytest_specdec.theory.heads import fit_eagle
from pytest_specdec.theory.heads import fit_medusa
from pytest_specdec.theory.heads import ranks_of


if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import bool_
    from numpy import float32
    from numpy import int64
    from numpy.typing import NDArray

    from pytest_specdec.models.matrices import Matrix

    Floats = NDArray[float32]


# Of every so many prompts one is held out from fitting, to end it in time.
EVERY = 8


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens that the target said after a prompt, and the hidden state that chose each, (n, width).

    ``prompt`` is its number. The first token of a text is left out, as if it belonged to the prompt: the
    prompt's pass gives no state.
    """

    prompt: int
    tokens: NDArray[int64]
    states: Floats


class Maker:
    """Heads that draft ``places`` tokens from ``rows`` of the output matrix; a subclass says how.

    ``number`` has each token's row, -1 for those that can't be drafted.
    """

    def __init__(
        self, rows: Floats, number: NDArray[int64], places: int, progress: Callable[[str], None]
    ) -> None:
        self._rows = rows
        self._number = number
        self._places = places
        self._progress = progress

    def fitted(self, texts: Sequence[Text]) -> dict[str, Any]:
        """Fit, and return the tensors by the layout's names."""
        raise NotImplementedError

    def ahead(self, place: int, states: Floats, before: NDArray[int64]) -> tuple[Floats, Floats, Floats]:
        """For states of ``place`` and the token behind each: states to go on with, and what chooses.

        What chooses are other states and an output matrix.
        """
        raise NotImplementedError

    def ranks(self, text: Text) -> Iterator[tuple[int, ...]]:
        """For each state, the rank of the token at every place that heads draft; 0: it can't be drafted."""
        count = len(text.tokens) - self._places
        if count < 1:
            return
        found = np.zeros((count, self._places), dtype=np.int64)
        states = text.states[:count]
        for place in range(self._places):
            states, choosing, rows = self.ahead(place, states, text.tokens[place : place + count])
            wanted = self._number[text.tokens[1 + place : 1 + place + count]]
            found[:, place] = ranks_of(choosing, wanted, rows)
        for row in found.tolist():
            yield tuple(row)


class MedusaMaker(Maker):
    """One head a place, each on the same state."""

    def fitted(self, texts: Sequence[Text]) -> dict[str, Any]:
        """Fit one head after the other."""
        self._heads: list[tuple[Block, Floats]] = []
        tensors: dict[str, Any] = {}
        for place in range(self._places):
            self._progress(f"fitting head {place + 1}/{self._places}")
            block, own = fit_medusa(*_samples(texts, place), self._rows)
            self._heads.append((block, own))
            tensors[f"{place}.0.linear.weight"] = block.weight
            tensors[f"{place}.0.linear.bias"] = block.bias
            # The larger part of the file, by far.
            tensors[f"{place}.1.weight"] = own.astype(np.float16)
        return tensors

    def ahead(self, place: int, states: Floats, before: NDArray[int64]) -> tuple[Floats, Floats, Floats]:
        """The same states again, and the head's own matrix."""
        block, own = self._heads[place]
        return states, block(states), own


class EagleMaker(Maker):
    """One head that goes on from its own states."""

    def __init__(self, embedding: Matrix, *shared: Any) -> None:
        super().__init__(*shared)
        self._embedding = embedding

    def fitted(self, texts: Sequence[Text]) -> dict[str, Any]:
        """Fit the head."""
        self._progress("fitting the head")
        states, following, held_out = _samples(texts, 0)
        embedded = self._embedded(np.concatenate([one.tokens[:-1] for one in texts]))
        linear, block = fit_eagle(states, embedded, following, held_out, self._rows)
        self._linear: Linear = linear
        self._block: Block = block
        return {
            "fc.weight": linear.weight,
            "fc.bias": linear.bias,
            "0.linear.weight": block.weight,
            "0.linear.bias": block.bias,
        }

    def ahead(self, place: int, states: Floats, before: NDArray[int64]) -> tuple[Floats, Floats, Floats]:
        """The head's own next states, to go on with and to choose by with the target's matrix."""
        found = self._block(self._linear(np.concatenate([self._embedded(before), states], axis=1)))
        return found, found, self._rows

    def _embedded(self, tokens: NDArray[int64]) -> Floats:
        kinds, where = np.unique(tokens, return_inverse=True)
        found: Floats = self._embedding.take(kinds)[where]
        return found


def _samples(texts: Sequence[Text], place: int) -> tuple[Floats, Floats, NDArray[bool_]]:
    """States, the states ``place`` + 1 tokens later, and which of these pairs are held out."""
    prompts = sorted({one.prompt for one in texts if len(one.tokens) > 1})
    aside = set(prompts[EVERY - 1 :: EVERY] or prompts[-1:])
    states, later, held_out = [], [], []
    for one in texts:
        ahead = one.states[1 + place :]
        states.append(one.states[: len(ahead)])
        later.append(ahead)
        held_out.append(np.full(len(ahead), one.prompt in aside))
    return np.concatenate(states), np.concatenate(later), np.concatenate(held_out)
