"""Fitting heads: from hidden states that a model had to what it was about to say some tokens later.

n samples of states of width d; `rows` is the output matrix (v, d), of all tokens or of those that heads
choose from. Heads learn the model's own odds there, softmax(rows @ its later state), rather than the token it
said: a sample says more that way. Adam (Kingma and Ba 2015) over small batches; the epoch that agrees best on
samples held out for that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any
from typing import Final

import numpy as np


if TYPE_CHECKING:
    from numpy import bool_
    from numpy import float32
    from numpy import int64
    from numpy.typing import NDArray

    Floats = NDArray[float32]
    Ints = NDArray[int64]
    Mask = NDArray[bool_]
    # Numbers of samples -> the gradient by each parameter.
    Gradient = Callable[[Ints], Sequence[NDArray[Any]]]


#: Adam's step, for inputs whose root mean square is 1; it falls to 0 over the epochs.
STEP: Final = 2e-3
#: The step of an output matrix, as a share of it.
MATRIX: Final = 0.15
#: Share of a state's values that is left out while a Medusa head learns (Srivastava et al. 2014).
DROPPED: Final = 0.2
EPOCHS: Final = 8
BATCH: Final = 256
#: Ridge penalties that are tried, as shares of the inputs' mean square.
RIDGES: Final = (1e-3, 1e-2, 1e-1, 1.0)
#: Weight of the features' squared error, as a share of their variance, beside the cross-entropy in nats.
FEATURES: Final = 1.0
_DECAYS: Final = (0.9, 0.999)
_PART = 2048


@dataclass(frozen=True, slots=True)
class Block:
    """A residual SiLU block: x + silu(weight @ x + bias); weight (d, d), bias (d,)."""

    weight: Floats
    bias: Floats

    def __call__(self, states: Floats) -> Floats:
        """States (n, d) to states (n, d)."""
        inner = states @ self.weight.T + self.bias
        found: Floats = states + inner * _sigmoid(inner)
        return found

    def back(self, states: Floats, slope: Floats) -> tuple[Floats, Floats]:
        """The gradient by weight @ x + bias, from that by the block's result; and the one by the states."""
        inner = states @ self.weight.T + self.bias
        gate = _sigmoid(inner)
        through = (slope * gate * (1.0 + inner * (1.0 - gate))).astype(np.float32)
        return through, slope + through @ self.weight


@dataclass(frozen=True, slots=True)
class Linear:
    """weight (d, m) and bias (d,); m is 2d where a token's embedding precedes the state."""

    weight: Floats
    bias: Floats

    def __call__(self, inputs: Floats) -> Floats:
        """Inputs (n, m) to states (n, d)."""
        found: Floats = inputs @ self.weight.T + self.bias
        return found


def fit_medusa(states: Floats, later: Floats, held_out: Mask, rows: Floats) -> tuple[Block, Floats]:
    """Fit one Medusa head, a block and an output matrix of its own: its odds to those of rows @ later.

    The matrix starts as rows @ M, with M the ridge regression of the later states by these: with the target's
    own matrix a residual block could hardly undo the state, whose first choice is the token that comes next.
    """
    width = states.shape[1]
    train, test = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    block = Block(np.zeros((width, width), np.float32), np.zeros(width, np.float32))
    if not len(train):
        # All texts end before this head's place.
        return block, rows
    wanted = likeliest(later[test], rows)
    starts = (one.weight for one in _ridges(states[train], later[train], centre=False))
    own: Floats = max(
        ((rows @ weight).astype(np.float32) for weight in starts),
        key=lambda matrix: accuracy(states[test], wanted, matrix),
    )

    draw = np.random.default_rng(0)

    def gradient(chosen: Ints) -> Sequence[NDArray[Any]]:
        given = states[chosen]
        given = given * (draw.random(given.shape, np.float32) >= DROPPED) * np.float32(1 / (1 - DROPPED))
        found = block(given)
        apart = _apart(found, own, later[chosen], rows)
        through, _ = block.back(given, apart @ own)
        return through.T @ given, through.sum(axis=0), apart.T @ found

    def score() -> float:
        return accuracy(block(states[test]), wanted, own)

    step = STEP / _size(states)
    _adam([block.weight, block.bias, own], gradient, score, train, (step, step, MATRIX * step))
    return block, own


def fit_eagle(
    states: Floats, embedded: Floats, following: Floats, held_out: Mask, rows: Floats
) -> tuple[Linear, Block]:
    """Fit EAGLE's head: the state that follows one and a token's embedding, and the odds there.

    Starts from the ridge regression of the features, and goes on with their squared error and the
    cross-entropy together, through a residual block behind it.
    """
    width = states.shape[1]
    train, test = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    # Inputs of one size, so that one penalty and one step fit both; folded into the weights at the end.
    scale = np.float32(_size(states) / max(_size(embedded), 1e-30))
    inputs = np.concatenate([embedded * scale, states], axis=1)
    wanted = likeliest(following[test], rows)
    linear = max(
        _ridges(inputs[train], following[train], centre=True),
        key=lambda one: accuracy(one(inputs[test]), wanted, rows),
    )
    block = Block(np.zeros((width, width), np.float32), np.zeros(width, np.float32))
    variance = max(float(np.var(following, axis=0).mean()), 1e-30)

    def gradient(chosen: Ints) -> Sequence[NDArray[Any]]:
        given, next_states = inputs[chosen], following[chosen]
        middle = linear(given)
        found = block(middle)
        slope = _apart(found, rows, next_states, rows) @ rows
        slope += (found - next_states) * (2.0 * FEATURES / (variance * found.size))
        through, front = block.back(middle, slope)
        return front.T @ given, front.sum(axis=0), through.T @ middle, through.sum(axis=0)

    def score() -> float:
        return accuracy(block(linear(inputs[test])), wanted, rows)

    parameters = [linear.weight, linear.bias, block.weight, block.bias]
    _adam(parameters, gradient, score, train, (STEP / _size(states),) * len(parameters))
    linear.weight[:, :width] *= scale
    return linear, block


def accuracy(states: Floats, targets: Ints, rows: Floats, within: int = 1) -> float:
    """The share of targets (rows' numbers; -1: none) among the first ``within`` choices of rows @ state.

    0 without samples.
    """
    ranks = ranks_of(states, targets, rows)
    return float(((ranks >= 1) & (ranks <= within)).mean()) if len(states) else 0.0


def ranks_of(states: Floats, targets: Ints, rows: Floats) -> Ints:
    """The place of each target (a row's number) in the order of rows @ state, from 1.

    0 where it is -1, and where the state isn't finite.
    """
    found = np.zeros(len(states), dtype=np.int64)
    for start in range(0, len(states), _PART):
        logits = states[start : start + _PART] @ rows.T
        wanted = targets[start : start + _PART]
        own = logits[np.arange(len(wanted)), wanted]
        above = (logits > own[:, None]).sum(axis=1)
        found[start : start + _PART] = np.where((wanted >= 0) & np.isfinite(own), 1 + above, 0)
    return found


def constant_acceptance(texts: Sequence[Sequence[int]]) -> float:
    """Acceptance at position 1 of a source that always drafts the most frequent token of these texts.

    Counted over its own rounds, one token drafted in each: behind an accepted token comes one that the target
    chose. 0 without a token.
    """
    counted = Counter(token for text in texts for token in text)
    if not counted:
        return 0.0
    ((guess, _),) = counted.most_common(1)
    rounds = right = 0
    for text in texts:
        place = 0
        while place < len(text):
            accepted = text[place] == guess
            rounds, right, place = rounds + 1, right + accepted, place + 1 + accepted
    return right / rounds


def likeliest(states: Floats, rows: Floats) -> Ints:
    """The first choice of rows @ state, shape (n,)."""
    found = [
        (states[start : start + _PART] @ rows.T).argmax(axis=1) for start in range(0, len(states), _PART)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _adam(
    parameters: Sequence[Floats],
    gradient: Gradient,
    score: Callable[[], float],
    samples: Ints,
    steps: Sequence[float],
) -> None:
    """Change the parameters in place, each by its step; they end as the best epoch or the start had them."""
    draw = np.random.default_rng(0)
    first, second = ([np.zeros_like(one) for one in parameters] for _ in range(2))
    best, kept = score(), [one.copy() for one in parameters]
    size = min(BATCH, len(samples))
    turn = 0
    for epoch in range(EPOCHS):
        order = draw.permutation(samples)
        left = 1.0 - epoch / EPOCHS
        for start in range(0, len(order) - size + 1, size):
            turn += 1
            slopes = gradient(order[start : start + size])
            for parameter, one, two, slope, step in zip(
                parameters, first, second, slopes, steps, strict=True
            ):
                one += (1.0 - _DECAYS[0]) * (slope - one)
                two += (1.0 - _DECAYS[1]) * (slope * slope - two)
                mean, square = one / (1.0 - _DECAYS[0] ** turn), two / (1.0 - _DECAYS[1] ** turn)
                parameter -= left * step * mean / (np.sqrt(square) + 1e-8)
        found = score()
        if found > best:
            best, kept = found, [one.copy() for one in parameters]
    for parameter, value in zip(parameters, kept, strict=True):
        parameter[...] = value


def _ridges(inputs: Floats, wanted: Floats, *, centre: bool) -> Iterator[Linear]:
    """The regression with every penalty of `RIDGES`; with ``centre`` it has a bias."""
    means, middle = inputs.mean(axis=0) * centre, wanted.mean(axis=0) * centre
    centred = (inputs - means).astype(np.float64)
    square, slope = centred.T @ centred, centred.T @ (wanted - middle)
    diagonal = np.eye(len(square)) * max(square.trace() / len(square), 1e-30)
    for penalty in RIDGES:
        weight = np.linalg.solve(square + penalty * diagonal, slope).T.astype(np.float32)
        yield Linear(weight, (middle - weight @ means).astype(np.float32))


def _apart(states: Floats, own: Floats, later: Floats, rows: Floats) -> Floats:
    """The gradient by the logits own @ state of the mean cross-entropy, in nats, of rows @ later to them."""
    found: Floats = ((_odds(states, own) - _odds(later, rows)) / len(states)).astype(np.float32)
    return found


def _odds(states: Floats, rows: Floats) -> Floats:
    logits = states @ rows.T
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


def _size(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _sigmoid(values: Floats) -> Floats:
    with np.errstate(over="ignore"):
        found: Floats = (1.0 / (1.0 + np.exp(-values))).astype(np.float32)
    return found
