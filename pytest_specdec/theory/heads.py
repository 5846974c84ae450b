"""Fitting heads: from hidden states that a model had to the tokens that it said later.

n samples of states of width d; `rows` is the output matrix (v, d), of all tokens or of those that heads
choose from; a target is a row's number, or -1 for a token without one, which is left out. Everything is
minimised by L-BFGS over whole batches and ends where the accuracy on samples held out for that stops rising.
"""

from __future__ import annotations

from collections.abc import Callable
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


ITERATIONS: Final = 60
PATIENCE: Final = 8
#: Ridge penalties that are tried, as shares of the inputs' mean square.
RIDGES: Final = (1e-3, 1e-2, 1e-1, 1.0)
#: Weight of the features' squared error, as a share of their variance, beside the cross-entropy in nats.
FEATURES: Final = 1.0
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


@dataclass(frozen=True, slots=True)
class Linear:
    """weight (d, 2d) on a token's embedding and a state, in this order, and bias (d,)."""

    weight: Floats
    bias: Floats

    def __call__(self, inputs: Floats) -> Floats:
        """Inputs (n, 2d) to states (n, d)."""
        found: Floats = inputs @ self.weight.T + self.bias
        return found


def fit_medusa(states: Floats, targets: Ints, held_out: Mask, rows: Floats) -> Block:
    """Fit one Medusa head with the output matrix given: cross-entropy of rows @ block(state)."""
    width = states.shape[1]
    known = targets >= 0
    train, test = known & ~held_out, known & held_out
    inputs, wanted = states[train], targets[train]

    def split(flat: NDArray[Any]) -> Block:
        values = flat.astype(np.float32)
        return Block(values[: width * width].reshape(width, width), values[width * width :])

    def loss(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        block = split(flat)
        inner = inputs @ block.weight.T + block.bias
        gate = _sigmoid(inner)
        value, slope = _cross_entropy(inputs + inner * gate, wanted, rows)
        back = slope * _silu_slope(inner, gate)
        return value, np.concatenate([(back.T @ inputs).ravel(), back.sum(axis=0)]).astype(np.float64)

    def score(flat: NDArray[Any]) -> float:
        return accuracy(split(flat)(states[test]), targets[test], rows)

    return split(_minimised(loss, np.zeros(width * width + width), score))


def fit_eagle(
    states: Floats, embedded: Floats, following: Floats, targets: Ints, held_out: Mask, rows: Floats
) -> tuple[Linear, Block]:
    """Fit EAGLE's head: the state that follows one and a token's embedding, and the token chosen there.

    Starts from the ridge regression of the features, and goes on with their squared error and the
    cross-entropy together, through a residual block behind it.
    """
    width = states.shape[1]
    # Inputs of one size, so that one penalty fits both; folded into the weights at the end.
    scale = np.float32(np.sqrt(np.mean(states**2) / max(float(np.mean(embedded**2)), 1e-30)))
    inputs = np.concatenate([embedded * scale, states], axis=1)
    known = targets >= 0
    train, test = known & ~held_out, known & held_out
    first = max(
        (_ridge(inputs[~held_out], following[~held_out], penalty) for penalty in RIDGES),
        key=lambda one: accuracy(one(inputs[test]), targets[test], rows),
    )
    given, wanted, next_states = inputs[train], targets[train], following[train]
    variance = max(float(np.var(following, axis=0).mean()), 1e-30)
    ends = np.cumsum([2 * width * width, width, width * width, width])

    def split(flat: NDArray[Any]) -> tuple[Linear, Block]:
        linear, bias, weight, last = np.split(flat.astype(np.float32), ends[:-1])
        return Linear(linear.reshape(width, 2 * width), bias), Block(weight.reshape(width, width), last)

    def loss(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        linear, block = split(flat)
        middle = linear(given)
        inner = middle @ block.weight.T + block.bias
        gate = _sigmoid(inner)
        found = middle + inner * gate
        value, slope = _cross_entropy(found, wanted, rows)
        error = found - next_states
        value += FEATURES * float(np.mean(error**2)) / variance
        slope += (2.0 * FEATURES / (variance * error.size)) * error
        back = slope * _silu_slope(inner, gate)
        front = slope + back @ block.weight
        parts = (front.T @ given, front.sum(axis=0), back.T @ middle, back.sum(axis=0))
        return value, np.concatenate([part.ravel() for part in parts]).astype(np.float64)

    def score(flat: NDArray[Any]) -> float:
        linear, block = split(flat)
        return accuracy(block(linear(inputs[test])), targets[test], rows)

    start = np.concatenate([first.weight.ravel(), first.bias, np.zeros(width * width + width)])
    linear, block = split(_minimised(loss, start.astype(np.float64), score))
    linear.weight[:, :width] *= scale
    return linear, block


def accuracy(states: Floats, targets: Ints, rows: Floats, within: int = 1) -> float:
    """The share of targets among the first ``within`` choices of rows @ state; 0 without samples."""
    right = 0
    for start in range(0, len(states), _PART):
        logits = states[start : start + _PART] @ rows.T
        wanted = targets[start : start + _PART]
        own = np.where(wanted >= 0, logits[np.arange(len(wanted)), wanted], -np.inf)
        right += int(((logits > own[:, None]).sum(axis=1) < within)[wanted >= 0].sum())
    return right / len(states) if len(states) else 0.0


def _ridge(inputs: Floats, wanted: Floats, penalty: float) -> Linear:
    means, middle = inputs.mean(axis=0), wanted.mean(axis=0)
    centred = (inputs - means).astype(np.float64)
    square = centred.T @ centred
    square[np.diag_indices_from(square)] += penalty * square.trace() / len(square)
    weight = np.linalg.solve(square, centred.T @ (wanted - middle)).T.astype(np.float32)
    return Linear(weight, (middle - weight @ means).astype(np.float32))


def _cross_entropy(states: Floats, targets: Ints, rows: Floats) -> tuple[float, Floats]:
    """Mean cross-entropy of softmax(rows @ state), nats, and its gradient by the states."""
    total, slope = 0.0, np.empty_like(states)
    for start in range(0, len(states), _PART):
        part = slice(start, start + _PART)
        logits = states[part] @ rows.T
        logits -= logits.max(axis=1, keepdims=True)
        at = np.arange(len(logits)), targets[part]
        own = logits[at]
        np.exp(logits, out=logits)
        sums = logits.sum(axis=1, keepdims=True)
        total += float((np.log(sums[:, 0]) - own).sum())
        logits /= sums
        logits[at] -= 1.0
        slope[part] = logits @ rows / len(states)
    return total / len(states), slope


def _minimised(
    loss: Callable[[NDArray[Any]], tuple[float, NDArray[Any]]],
    start: NDArray[Any],
    score: Callable[[NDArray[Any]], float],
) -> NDArray[Any]:
    """Where the score was best on the way down."""
    from scipy.optimize import minimize

    best, place, since = score(start), start, 0

    def seen(flat: NDArray[Any]) -> None:
        nonlocal best, place, since
        now = score(flat)
        if now > best:
            best, place, since = now, flat.copy(), 0
            return
        since += 1
        if since >= PATIENCE:
            raise StopIteration

    minimize(loss, start, jac=True, method="L-BFGS-B", callback=seen, options={"maxiter": ITERATIONS})
    return place


def _sigmoid(values: Floats) -> Floats:
    with np.errstate(over="ignore"):
        found: Floats = (1.0 / (1.0 + np.exp(-values))).astype(np.float32)
    return found


def _silu_slope(inner: Floats, gate: Floats) -> Floats:
    found: Floats = (gate * (1.0 + inner * (1.0 - gate))).astype(np.float32)
    return found
