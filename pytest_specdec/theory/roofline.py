"""Bandwidth: how near to the memory's limit a decode forward is, which reads the weights once.

Bandwidths are in GB/s (10^9 bytes per second), sizes in bytes, times in ms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_specdec.theory import arguments


def bandwidth_gb_s(weight_bytes: float, ms: float) -> float:
    """Return the effective bandwidth of one forward pass over `weight_bytes` in `ms`.

    Raises:
        ValueError: an argument is not positive.
    """
    weight_bytes = arguments.number("weight_bytes", weight_bytes, above=0.0)
    ms = arguments.number("ms", ms, above=0.0)
    return weight_bytes / ms / 1e6


def share_of_nominal(gb_s: float, nominal_gb_s: float) -> float:
    """Return an effective bandwidth as a share of the machine's nominal one; above 1 it is no bandwidth.

    Raises:
        ValueError: an argument is negative, or the nominal bandwidth is 0.
    """
    gb_s = arguments.number("gb_s", gb_s, low=0.0)
    return gb_s / arguments.number("nominal_gb_s", nominal_gb_s, above=0.0)


@dataclass(frozen=True, slots=True)
class Marginal:
    """The bandwidth at which the bytes that one file has more than another would have been read."""

    gb_s: float
    """inf where the larger file is no slower."""
    share: float
    """Of the nominal bandwidth."""

    @property
    def bandwidth_bound(self) -> bool:
        """False beyond the nominal bandwidth: then something else than reading weights takes the time."""
        return self.share <= 1.0


def marginal_bandwidth(
    small_bytes: float, small_ms: float, large_bytes: float, large_ms: float, nominal_gb_s: float
) -> Marginal:
    """Return the marginal bandwidth between two files of one architecture, as two quantisations of a model.

    Raises:
        ValueError: an argument is not positive, or `large_bytes` does not exceed `small_bytes`.
    """
    small_bytes = arguments.number("small_bytes", small_bytes, above=0.0)
    small_ms = arguments.number("small_ms", small_ms, above=0.0)
    large_bytes = arguments.number("large_bytes", large_bytes, above=small_bytes)
    large_ms = arguments.number("large_ms", large_ms, above=0.0)
    nominal_gb_s = arguments.number("nominal_gb_s", nominal_gb_s, above=0.0)
    if large_ms <= small_ms:
        return Marginal(math.inf, math.inf)
    gb_s = bandwidth_gb_s(large_bytes - small_bytes, large_ms - small_ms)
    return Marginal(gb_s, share_of_nominal(gb_s, nominal_gb_s))


def draft_cost_floor(draft_parameters: float, target_parameters: float) -> float:
    """Return the draft cost if time went with parameters alone: their ratio.

    Raises:
        ValueError: an argument is not positive.
    """
    draft_parameters = arguments.number("draft_parameters", draft_parameters, above=0.0)
    return draft_parameters / arguments.number("target_parameters", target_parameters, above=0.0)


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Draft cost c = t_draft / T(1) against its floor."""

    cost: float
    floor: float

    @property
    def factor(self) -> float:
        """How many times the floor the draft costs: the dispatch of its layers does not shrink with them."""
        return self.cost / self.floor


def draft_cost(
    draft_ms: float, target_ms: float, draft_parameters: float, target_parameters: float
) -> DraftCost:
    """Return the draft cost of one draft token against one target token, and its floor.

    Raises:
        ValueError: an argument is not positive.
    """
    draft_ms = arguments.number("draft_ms", draft_ms, above=0.0)
    target_ms = arguments.number("target_ms", target_ms, above=0.0)
    return DraftCost(draft_ms / target_ms, draft_cost_floor(draft_parameters, target_parameters))
