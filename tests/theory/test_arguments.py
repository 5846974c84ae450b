"""Bad input anywhere is a ValueError that names the argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from pytest_specdec.theory import amdahl
from pytest_specdec.theory import ledger
from pytest_specdec.theory import roofline
from pytest_specdec.theory import stats
from pytest_specdec.theory import steps
from pytest_specdec.theory.acceptance import Acceptance


CURVE = {1: 10.0, 2: 11.0, 3: 12.0, 4: 13.0}
YIELDS = {1: 1.6, 2: 2.0, 3: 2.3}
RATES = {1: 130.0, 2: 140.0, 3: 150.0}

Call = tuple[Callable[..., Any], dict[str, Any]]

CALLS: dict[str, Call] = {
    "hodges_lehmann": (stats.hodges_lehmann, {"x": [1.0, 2.0]}),
    "signed_rank_bounds": (stats.signed_rank_bounds, {"x": [1.0, 2.0], "alpha": 0.02}),
    "mad": (stats.mad, {"x": [1.0, 2.0]}),
    "pairs_needed": (stats.pairs_needed, {"alpha": 0.02}),
    "student_t_quantile": (stats.student_t_quantile, {"p": 0.9, "df": 3}),
    "find_steps": (
        steps.find_steps,
        {
            "n": [1, 2, 4],
            "ms": [10.0, 11.0, 12.0],
            "ratio": 1.4,
            "slope": 1.25,
            "noise": [0.1, 0.1, 0.1],
            "alpha": 0.02,
            "flat": 0.1,
            "drop": 0.05,
            "dip": 0.02,
        },
    ),
    "step_at": (steps.step_at, {"n": [1, 2, 4], "ms": [10.0, 11.0, 12.0], "at": 2}),
    "compare_curves": (
        steps.compare_curves,
        {"n": [1, 2, 4], "before": [10.0, 11.0, 12.0], "after": [10.0, 11.0, 12.0], "floor": 0.05},
    ),
    "from_rounds": (
        Acceptance.from_rounds,
        {"drafted": [3, 3], "accepted": [1, 3], "prompt": ["a", "b"], "cut": [0, 1], "confidence": 0.95},
    ),
    "tokens_per_round": (ledger.tokens_per_round, {"alpha": 0.7, "k": 3}),
    "tokens_from_positions": (ledger.tokens_from_positions, {"positions": [0.7, 0.5], "k": 2}),
    "solve_alpha": (ledger.solve_alpha, {"tokens_per_round": 2.0, "k": 3}),
    "expected_rate": (ledger.expected_rate, {"tokens_per_round": 2.0, "k": 3}),
    "ideal_speedup": (ledger.ideal_speedup, {"alpha": 0.7, "k": 3, "draft_cost": 0.1}),
    "operations_factor": (ledger.operations_factor, {"alpha": 0.7, "k": 3, "draft_operations": 0.1}),
    "round_ms": (ledger.round_ms, {"k": 3, "verify_ms": 10.0, "draft_ms": 1.0, "overhead_ms": 1.0}),
    "tokens_per_second": (ledger.tokens_per_second, {"tokens_per_round": 2.0, "round_ms": 10.0}),
    "fit_overhead": (
        ledger.fit_overhead,
        {"ks": [1, 2, 3], "round_ms": [20.0, 22.0, 24.0], "verify_ms": [10.0, 11.0, 12.0]},
    ),
    "verify_cost": (ledger.verify_cost, {"curve": CURVE, "n": 2}),
    "at_depth": (ledger.at_depth, {"depths": [0, 256], "ms": [[1.0], [2.0]], "depth": 100.0}),
    "free_draft": (
        ledger.free_draft,
        {"verify_ms": 10.0, "tokens_per_round": 2.0, "plain_ms": 9.0, "overhead_ms": 1.0},
    ),
    "fit": (
        ledger.Ledger.fit,
        {"curve": CURVE, "yields": YIELDS, "measured": RATES, "fit_on": [1, 2], "plain_ms": 9.0},
    ),
    "from_terms": (
        ledger.Ledger.from_terms,
        {"curve": CURVE, "yields": YIELDS, "measured": RATES, "draft_ms": 1.0, "overhead_ms": 1.0},
    ),
    "best_by_alpha": (
        ledger.best_draft_length,
        {
            "curve": CURVE,
            "draft_ms": 1.0,
            "alpha": 0.7,
            "overhead_ms": 1.0,
            "candidates": [1, 2],
            "plain_ms": 9.0,
        },
    ),
    "best_by_positions": (
        ledger.best_draft_length,
        {"curve": CURVE, "draft_ms": 1.0, "positions": [0.7, 0.5], "measured": RATES},
    ),
    "best_by_yields": (ledger.best_draft_length, {"curve": CURVE, "draft_ms": 1.0, "yields": YIELDS}),
    "speedup": (amdahl.speedup, {"share": 0.5, "factor": 2.0}),
    "ceiling": (amdahl.ceiling, {"share": 0.5}),
    "required_factor": (amdahl.required_factor, {"share": 0.5, "target": 1.5}),
    "required_share": (amdahl.required_share, {"factor": 2.0, "target": 1.5}),
    "close": (
        amdahl.close,
        {"request_ms_off": 10.0, "forward_ms_off": 6.0, "request_ms_on": 8.0, "forward_ms_on": 3.0},
    ),
    "load_profile": (
        amdahl.load_profile,
        {
            "loads": [(100, 10)],
            "prefill_ms_per_token": 0.5,
            "forward_ms": 20.0,
            "other_ms_per_token": 1.0,
            "fixed_ms": 5.0,
        },
    ),
    "bandwidth_gb_s": (roofline.bandwidth_gb_s, {"weight_bytes": 1e9, "ms": 10.0}),
    "share_of_nominal": (roofline.share_of_nominal, {"gb_s": 100.0, "nominal_gb_s": 300.0}),
    "marginal_bandwidth": (
        roofline.marginal_bandwidth,
        {"small_bytes": 1e9, "small_ms": 10.0, "large_bytes": 2e9, "large_ms": 20.0, "nominal_gb_s": 300.0},
    ),
    "draft_cost_floor": (
        roofline.draft_cost_floor,
        {"draft_parameters": 1e8, "target_parameters": 1e9},
    ),
    "draft_cost": (
        roofline.draft_cost,
        {"draft_ms": 1.0, "target_ms": 10.0, "draft_parameters": 1e8, "target_parameters": 1e9},
    ),
}


def spoiled(value: Any) -> list[Any]:
    """Return bad values of the shape of `value`: not finite, negative, not a number, empty, unsorted."""
    if isinstance(value, dict):
        first = next(iter(value))
        return [value | {first: bad} for bad in (math.nan, math.inf, -1.0)] + [{}]
    if isinstance(value, list) and isinstance(value[0], (int, float)):
        return [[bad, *value[1:]] for bad in (math.nan, math.inf, -1.0, "x")] + [[]]
    if isinstance(value, list) and isinstance(value[0], list):
        return [[[bad], *value[1:]] for bad in (math.nan, math.inf, -1.0, "x")] + [[]]
    if isinstance(value, (int, float)):
        return [math.nan, math.inf, -math.inf, -1.0, "x", None]
    return [[]]


# None is a default here; an empty mapping of measured rates is "none given".
ALLOWED: list[tuple[str, str, Any]] = [
    ("find_steps", "noise", None),
    ("best_by_alpha", "plain_ms", None),
    ("fit", "plain_ms", None),
]
ALLOWED += [("best_by_positions", "measured", {})]
# Logs of ratios may be negative.
ALLOWED += [(name, "x", [-1.0, 2.0]) for name in ("hodges_lehmann", "signed_rank_bounds", "mad")]


@pytest.mark.parametrize(
    ("call", "name", "bad"),
    [
        pytest.param(call, name, bad, id=f"{call}-{name}-{bad}")
        for call, (_, arguments) in CALLS.items()
        for name, value in arguments.items()
        for bad in spoiled(value)
        if (call, name, bad) not in ALLOWED
    ],
)
def test_bad_input_is_named(call: str, name: str, bad: Any) -> None:
    function, arguments = CALLS[call]
    function(**arguments)
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        function(**arguments | {name: bad})


@pytest.mark.parametrize(
    ("call", "name", "unsorted"),
    [
        ("find_steps", "n", [2, 1, 4]),
        ("find_steps", "n", [1, 2, 2]),
        ("step_at", "n", [4, 2, 1]),
        ("compare_curves", "n", [1, 4, 2]),
        ("at_depth", "depths", [256, 0]),
    ],
)
def test_unsorted_input_is_named(call: str, name: str, unsorted: list[int]) -> None:
    function, arguments = CALLS[call]
    with pytest.raises(ValueError, match=rf"^{name} must be sorted, each value once"):
        function(**arguments | {name: unsorted})


@pytest.mark.parametrize(
    ("call", "name", "short"),
    [
        ("find_steps", "ms", [10.0, 11.0]),
        ("find_steps", "noise", [0.1]),
        ("compare_curves", "after", [10.0]),
        ("from_rounds", "accepted", [1]),
        ("fit_overhead", "round_ms", [20.0]),
        ("fit_overhead", "verify_ms", [20.0]),
        ("at_depth", "ms", [[1.0]]),
    ],
)
def test_another_length_is_named(call: str, name: str, short: list[Any]) -> None:
    function, arguments = CALLS[call]
    with pytest.raises(ValueError, match=rf"^{name} must have one row for each of the \d"):
        function(**arguments | {name: short})


def test_shapes_and_combinations_are_named() -> None:
    with pytest.raises(ValueError, match=r"x must have 1 dimension\(s\), got shape \(1, 2\)"):
        stats.hodges_lehmann([[1.0, 2.0]])
    with pytest.raises(ValueError, match="ms must be a regular array of numbers"):
        steps.find_steps([1, 2], [[1.0, 2.0], [1.0]])
    with pytest.raises(ValueError, match="noise is for medians"):
        steps.find_steps([1, 2], [[1.0, 1.0], [2.0, 2.0]], noise=[0.1, 0.1])
    with pytest.raises(ValueError, match="after must have the shape of before"):
        steps.compare_curves([1, 2], [1.0, 2.0], [[1.0, 1.0], [2.0, 2.0]])
    with pytest.raises(ValueError, match="sides must be 1 or 2, got 3"):
        stats.signed_rank_bounds([1.0, 2.0], 0.05, sides=3)
    with pytest.raises(ValueError, match="alpha must be less than 1"):
        stats.signed_rank_bounds([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match=r"n must hold whole numbers, but holds 2\.5"):
        steps.find_steps([1, 2.5], [1.0, 2.0])
    with pytest.raises(ValueError, match="ms must be greater than 0"):
        steps.find_steps([1, 2], [0.0, 2.0])
    with pytest.raises(ValueError, match=r"k must be a whole number, got 2\.0"):
        ledger.tokens_per_round(0.5, 2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="yields: nothing for k=3"):
        ledger.Ledger.fit(CURVE, {1: 1.5, 2: 1.8}, RATES, [1, 2])
    with pytest.raises(ValueError, match=r"yields\[1\] must be at most 2"):
        ledger.Ledger.fit(CURVE, YIELDS | {1: 2.1}, RATES, [1, 2])
