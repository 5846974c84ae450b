"""Amdahl's law for speculation: it shortens decode forwards only, everything else in a request dilutes it.

`share` is p, decode-forward time / request time with speculation off; `factor` is r, how many times faster
that part gets with speculation on. Shares go stale with load, framework version and memory settings: measure
them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_specdec.theory import arguments


def speedup(share: float, factor: float) -> float:
    """Return 1 / ((1 - share) + share / factor), the speedup of the whole request (Amdahl 1967).

    Raises:
        ValueError: `share` is not in [0, 1], or `factor` is not positive.
    """
    share = _share(share)
    factor = arguments.number("factor", factor, above=0.0)
    return 1.0 / ((1.0 - share) + share / factor)


def ceiling(share: float) -> float:
    """Return 1 / (1 - share), the speedup that no factor exceeds; inf at a share of 1."""
    share = _share(share)
    return math.inf if share == 1.0 else 1.0 / (1.0 - share)


def required_factor(share: float, target: float) -> float:
    """Return the factor with which the request gets `target` times faster; inf at the ceiling and beyond it.

    Raises:
        ValueError: `share` is not in [0, 1], `target` is not positive, or `share` is 0 and `target` is not 1.
    """
    share = _share(share)
    target = arguments.number("target", target, above=0.0)
    if share == 0.0:
        if target == 1.0:
            return 1.0
        raise ValueError(f"share is 0: no factor on decode forwards gives a target of {target:g}")
    remaining = 1.0 / target - (1.0 - share)
    return share / remaining if remaining > 0.0 else math.inf


def required_share(factor: float, target: float) -> float:
    """Return the least share with which `factor` makes the request `target` times faster.

    Raises:
        ValueError: `factor` is not positive or 1, or no share in [0, 1] reaches `target`.
    """
    factor = arguments.number("factor", factor, above=0.0)
    target = arguments.number("target", target, above=0.0)
    if factor == 1.0:
        raise ValueError("factor is 1: the request keeps its time, whatever the share")
    share = (1.0 - 1.0 / target) / (1.0 - 1.0 / factor)
    if not 0.0 <= share <= 1.0:
        raise ValueError(
            f"target={target:g} is out of reach of factor={factor:g}, which is all that share 1 gives"
        )
    return share


@dataclass(frozen=True, slots=True)
class Closure:
    """Theory against measurement: p with speculation off and r with it on predict the measured speedup."""

    share: float
    factor: float
    predicted: float
    measured: float
    rest_growth_ms: float
    """How much longer everything but decode forwards takes with speculation on; the formula assumes 0."""

    @property
    def residual(self) -> float:
        """Predicted / measured - 1; positive when the theory promises too much."""
        return self.predicted / self.measured - 1.0

    def closes(self, within: float = 0.10) -> bool:
        """Whether the residual is at most `within` in size."""
        return abs(self.residual) <= arguments.number("within", within, low=0.0)


def close(
    *, request_ms_off: float, forward_ms_off: float, request_ms_on: float, forward_ms_on: float
) -> Closure:
    """Hold Amdahl's law against one pair of measurements of the same requests with the same answers.

    Args:
        request_ms_off: wall time of the requests with speculation off.
        forward_ms_off: the part of it inside decode forwards of the target; the prefill is not one.
        request_ms_on: wall time with speculation on.
        forward_ms_on: the part of it inside drafting and verifying forwards, which took the others' place.

    Raises:
        ValueError: a time is not positive, or a part exceeds its whole.
    """
    request_ms_off = arguments.number("request_ms_off", request_ms_off, above=0.0)
    request_ms_on = arguments.number("request_ms_on", request_ms_on, above=0.0)
    forward_ms_off = arguments.number("forward_ms_off", forward_ms_off, above=0.0, high=request_ms_off)
    forward_ms_on = arguments.number("forward_ms_on", forward_ms_on, above=0.0, high=request_ms_on)
    share = forward_ms_off / request_ms_off
    factor = forward_ms_off / forward_ms_on
    return Closure(
        share=share,
        factor=factor,
        predicted=speedup(share, factor),
        measured=request_ms_off / request_ms_on,
        rest_growth_ms=(request_ms_on - forward_ms_on) - (request_ms_off - forward_ms_off),
    )


@dataclass(frozen=True, slots=True)
class Load:
    """What speculation can do for requests of one shape."""

    prompt_tokens: int
    answer_tokens: int
    share: float
    ceiling: float


def load_profile(
    loads: Iterable[tuple[int, int]],
    *,
    prefill_ms_per_token: float,
    forward_ms: float,
    other_ms_per_token: float = 0.0,
    fixed_ms: float = 0.0,
) -> tuple[Load, ...]:
    """Return share and ceiling for each load; long prompts with short answers leave little to speed up.

    The first token of an answer comes from the prefill, so an answer of n tokens has n - 1 decode forwards.

    Args:
        loads: pairs of prompt tokens and answer tokens.
        prefill_ms_per_token: prefill time per prompt token.
        forward_ms: one decode forward with speculation off.
        other_ms_per_token: sampling, copies and cache management per answer token.
        fixed_ms: waits and everything else that a request costs once.

    Raises:
        ValueError: `loads` is empty or holds a length below 1, or a time is negative.
    """
    prefill = arguments.number("prefill_ms_per_token", prefill_ms_per_token, low=0.0)
    forward = arguments.number("forward_ms", forward_ms, above=0.0)
    other = arguments.number("other_ms_per_token", other_ms_per_token, low=0.0)
    fixed = arguments.number("fixed_ms", fixed_ms, low=0.0)
    profile = []
    for prompt_tokens, answer_tokens in loads:
        prompt_tokens = arguments.whole("loads: prompt tokens", prompt_tokens, low=1)
        answer_tokens = arguments.whole("loads: answer tokens", answer_tokens, low=1)
        decode = (answer_tokens - 1) * forward
        request = prompt_tokens * prefill + decode + answer_tokens * other + fixed
        share = decode / request if decode else 0.0
        profile.append(Load(prompt_tokens, answer_tokens, share, ceiling(share)))
    if not profile:
        raise ValueError("loads must not be empty")
    return tuple(profile)


def _share(share: float) -> float:
    return arguments.number("share", share, low=0.0, high=1.0)
