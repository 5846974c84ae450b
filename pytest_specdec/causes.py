"""Known causes of kernel thresholds, for one backend and one model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.theory import thresholds


if TYPE_CHECKING:
    from pytest_specdec.reports.kernels import Causes


def causes_in(hello: Mapping[str, Any], tensor_types: Mapping[str, int], gpu_layers: int = -1) -> Causes:
    """Return what the source says about batch sizes, for the backend in use and a model's tensor types."""
    from pytest_specdec.store.machine import backend_in_use

    backend = backend_in_use(hello, gpu_layers=gpu_layers)
    features = thresholds.cpu_features(str(hello.get("system_info") or "")) or None
    return partial(thresholds.known, backend, tensor_types, features=features)
