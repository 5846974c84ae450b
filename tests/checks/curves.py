"""Verify cost curves with known times, and noise of a known size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Final

import numpy as np

from pytest_specdec.measurements import VerifyCurve


# T(N) in ms. Metal has a cliff at 9 and is flat behind it; a Q4_1 model on a CPU has no cliff; a K-quant on a
# CPU has one at 5, and drops at 8 and 12.
METAL: Final[Mapping[int, float]] = dict(
    zip(
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32),
        (18.15, 20.93, 28.11, 27.23, 29.01, 37.86, 44.43, 44.77, 78.98, 79.46, 80.11, 79.15, 79.59),
        strict=True,
    )
)
SMOOTH: Final[Mapping[int, float]] = dict(
    zip(range(1, 11), (10.3, 15.7, 20.0, 23.5, 29.2, 33.3, 37.4, 39.7, 45.0, 49.0), strict=True)
)
SAWTOOTH: Final[Mapping[int, float]] = dict(
    zip(
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12),
        (21.0, 30.4, 35.1, 40.2, 58.5, 63.2, 68.8, 60.8, 77.6, 82.0, 73.0),
        strict=True,
    )
)


def make_curve(
    ms: Mapping[int, float], *, noise: float = 0.005, blocks: int = 8, seed: int = 0, **fields: Any
) -> VerifyCurve:
    """A curve with lognormal noise in each of three calls per block."""
    rng = np.random.default_rng(seed)
    factors = np.exp(rng.normal(0.0, noise, (len(ms), blocks, 3)))
    samples = tuple(
        tuple(tuple(float(t * f) for f in calls) for calls in rows)
        for t, rows in zip(ms.values(), factors, strict=True)
    )
    return VerifyCurve(tuple(ms), samples, **fields)
