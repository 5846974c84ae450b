"""Checks of what the analysis is given; every error names the argument and says what was wrong with it."""

from __future__ import annotations

import math
import operator

import numpy as np
from numpy.typing import ArrayLike
from numpy.typing import NDArray


FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def number(
    name: str,
    value: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """Return `value` as a float, if it is finite, in [low, high], greater than `above`, less than `below`."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None
    if not math.isfinite(result):
        raise ValueError(f"{name} must be finite, got {result}")
    if result < low:
        raise ValueError(f"{name} must be at least {low:g}, got {result:g}")
    if result > high:
        raise ValueError(f"{name} must be at most {high:g}, got {result:g}")
    if above is not None and result <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {result:g}")
    if below is not None and result >= below:
        raise ValueError(f"{name} must be less than {below:g}, got {result:g}")
    return result


def whole(name: str, value: int, *, low: int = 0) -> int:
    """Return `value` as an int, if it is a whole number of at least `low`."""
    try:
        result = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if result < low:
        raise ValueError(f"{name} must be at least {low}, got {result}")
    return result


def floats(
    name: str,
    values: ArrayLike,
    *,
    ndim: tuple[int, ...] = (1,),
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
) -> FloatArray:
    """Return `values` as a float array, if not empty, all finite, and all in the limits given."""
    try:
        result = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a regular array of numbers") from None
    if result.ndim not in ndim:
        wanted = " or ".join(str(n) for n in ndim)
        raise ValueError(f"{name} must have {wanted} dimension(s), got shape {result.shape}")
    if result.size == 0:
        raise ValueError(f"{name} must not be empty")
    if not np.isfinite(result).all():
        raise ValueError(f"{name} must be finite, but holds {result[~np.isfinite(result)][0]}")
    if result.min() < low:
        raise ValueError(f"{name} must be at least {low:g}, but holds {result.min():g}")
    if result.max() > high:
        raise ValueError(f"{name} must be at most {high:g}, but holds {result.max():g}")
    if above is not None and result.min() <= above:
        raise ValueError(f"{name} must be greater than {above:g}, but holds {result.min():g}")
    return result


def integers(name: str, values: ArrayLike, *, low: int = 0, increasing: bool = False) -> IntArray:
    """Return `values`, shape (n,), as an int array, if not empty, whole, at least `low` (and increasing)."""
    as_floats = floats(name, values, low=low)
    result = as_floats.astype(np.int64)
    if (result != as_floats).any():
        raise ValueError(f"{name} must hold whole numbers, but holds {as_floats[result != as_floats][0]:g}")
    if increasing and (np.diff(result) <= 0).any():
        raise ValueError(f"{name} must be sorted, each value once, got {result.tolist()}")
    return result


def same_length(name: str, values: FloatArray | IntArray, other: str, length: int) -> None:
    """Raise ValueError unless `values` has `length` rows, as the argument `other` has."""
    if len(values) != length:
        raise ValueError(f"{name} must have one row for each of the {length} of {other}, got {len(values)}")
