"""Fitting heads: from hidden states that a model had to what it was about to say some tokens later.

n samples of states of width d; `rows` is the output matrix (v, d), of all tokens or of those that heads
choose from. Heads learn the model's own odds there, softmax(rows @ its later state), rather than the token it
said: a sample says more that way. Adam (Kingma and Ba 2015) over small batches; the epoch that agrees best on
samples held out for that counts.
"""

from __future__ import annotations

from collections.abc import Callable
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
STEP: Final = 5e-3
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
    """weight (d, 2d) on a token's embedding and a state, in this order, and bias (d,)."""

    weight: Floats
    bias: Floats

    def __call__(self, inputs: Floats) -> Floats:
        """Inputs (n, 2d) to states (n, d)."""
        found: Floats = inputs @ self.weight.T + self.bias
        return found


def fit_medusa(states: Floats, later: Floats, held_out: Mask, rows: Floats) -> Block:
    """Fit one Medusa head: odds of rows @ block(state) to those of rows @ later."""
    width = states.shape[1]
    train, test = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    block = Block(np.zeros((width, width), np.float32), np.zeros(width, np.float32))
    wanted = likeliest(later[test], rows)

    def gradient(chosen: Ints) -> Sequence[NDArray[Any]]:
        given = states[chosen]
        slope = _odds_slope(block(given), later[chosen], rows)
        through, _ = block.back(given, slope)
        return through.T @ given, through.sum(axis=0)

    def score() -> float:
        return accuracy(block(states[test]), wanted, rows)

    _adam([block.weight, block.bias], gradient, score, train, STEP / _size(states))
    return block


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
        (_ridge(inputs[train], following[train], penalty) for penalty in RIDGES),
        key=lambda one: accuracy(one(inputs[test]), wanted, rows),
    )
    block = Block(np.zeros((width, width), np.float32), np.zeros(width, np.float32))
    variance = max(float(np.var(following, axis=0).mean()), 1e-30)

    def gradient(chosen: Ints) -> Sequence[NDArray[Any]]:
        given, next_states = inputs[chosen], following[chosen]
        middle = linear(given)
        found = block(middle)
        slope = _odds_slope(found, next_states, rows)
        slope += (found - next_states) * (2.0 * FEATURES / (variance * found.size))
        through, front = block.back(middle, slope)
        return front.T @ given, front.sum(axis=0), through.T @ middle, through.sum(axis=0)

    def score() -> float:
        return accuracy(block(linear(inputs[test])), wanted, rows)

    parameters = [linear.weight, linear.bias, block.weight, block.bias]
    _adam(parameters, gradient, score, train, STEP / _size(states))
    linear.weight[:, :width] *= scale
    return linear, block


def accuracy(states: Floats, targets: Ints, rows: Floats, within: int = 1) -> float:
    """The share of targets (rows' numbers; -1: none) among the first ``within`` choices of rows @ state.

    0 without samples.
    """
    ranks = ranks_of(states, targets, rows)
    return float(((ranks >= 1) & (ranks <= within)).mean()) if len(states) else 0.0


def ranks_of(states: Floats, targets: Ints, rows: Floats) -> Ints:
    """The place of each target (a row's number) in the order of rows @ state, from 1; 0 where it is -1."""
    found = np.zeros(len(states), dtype=np.int64)
    for start in range(0, len(states), _PART):
        logits = states[start : start + _PART] @ rows.T
        wanted = targets[start : start + _PART]
        own = logits[np.arange(len(wanted)), wanted]
        above = (logits > own[:, None]).sum(axis=1)
        found[start : start + _PART] = np.where(wanted >= 0, 1 + above, 0)
    return found


def likeliest(states: Floats, rows: Floats) -> Ints:
    """The first choice of rows @ state, shape (n,)."""
    found = [
        (states[start : start + _PART] @ rows.T).argmax(axis=1) for start in range(0, len(states), _PART)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _adam(
    parameters: Sequence[Floats], gradient: Gradient, score: Callable[[], float], samples: Ints, step: float
) -> None:
    """Change the parameters in place; at the end they are those of the best epoch, or of the start."""
    draw = np.random.default_rng(0)
    first, second = ([np.zeros_like(one) for one in parameters] for _ in range(2))
    best, kept = score(), [one.copy() for one in parameters]
    size = min(BATCH, len(samples))
    turn = 0
    for epoch in range(EPOCHS):
        order = draw.permutation(samples)
        now = step * (1.0 - epoch / EPOCHS)
        for start in range(0, len(order) - size + 1, size):
            turn += 1
            slopes = gradient(order[start : start + size])
            for parameter, one, two, slope in zip(parameters, first, second, slopes, strict=True):
                one += (1.0 - _DECAYS[0]) * (slope - one)
                two += (1.0 - _DECAYS[1]) * (slope * slope - two)
                mean, square = one / (1.0 - _DECAYS[0] ** turn), two / (1.0 - _DECAYS[1] ** turn)
                parameter -= now * mean / (np.sqrt(square) + 1e-8)
        found = score()
        if found > best:
            best, kept = found, [one.copy() for one in parameters]
    for parameter, value in zip(parameters, kept, strict=True):
        parameter[...] = value


def _ridge(inputs: Floats, wanted: Floats, penalty: float) -> Linear:
    means, middle = inputs.mean(axis=0), wanted.mean(axis=0)
    centred = (inputs - means).astype(np.float64)
    square = centred.T @ centred
    square[np.diag_indices_from(square)] += penalty * square.trace() / len(square)
    weight = np.linalg.solve(square, centred.T @ (wanted - middle)).T.astype(np.float32)
    return Linear(weight, (middle - weight @ means).astype(np.float32))


def _odds_slope(states: Floats, later: Floats, rows: Floats) -> Floats:
    """The gradient by the states of the mean cross-entropy, in nats, of the odds of ``later`` to theirs."""
    apart = (_odds(states, rows) - _odds(later, rows)) / len(states)
    found: Floats = apart.astype(np.float32) @ rows
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
