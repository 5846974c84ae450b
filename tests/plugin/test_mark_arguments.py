"""A mark's arguments are checked when it is made: types, ranges, order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import pytest_specdec
from pytest_specdec.limits import parse
from pytest_specdec.limits import validated
from pytest_specdec.marks import LIMITS


# Untyped: most of what follows is what a type checker would refuse.
sd: Any = pytest_specdec


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: sd.cliff_at("9"), "n must be a whole number, not '9'"),
        (lambda: sd.cliff_at(True), "n must be a whole number, not True"),
        (lambda: sd.cliff_at(9.0), "n must be a whole number, not 9.0"),
        (lambda: sd.cliff_at(1), "n must be at least 2, not 1"),
        (lambda: sd.cliff_at(9, ratio=1), "ratio must be above 1, not 1"),
        (lambda: sd.cliff_at(9, ratio=math.nan), "ratio must be a finite number, not nan"),
        (lambda: sd.cliff_at(9, ratio=True), "ratio must be a number, not True"),
        (lambda: sd.no_cliff(1), "upto must be at least 2, not 1"),
        (lambda: sd.no_cliff(ratio=0.5), "ratio must be above 1, not 0.5"),
        (lambda: sd.max_verify_cost(1, 2), "n must be at least 2, not 1"),
        (lambda: sd.max_verify_cost(4, 0), "ratio must be above 0, not 0"),
        (lambda: sd.max_verify_cost(4, math.inf), "ratio must be a finite number, not inf"),
        (lambda: sd.max_draft_cost(0), "c must be above 0, not 0"),
        (lambda: sd.max_draft_cost(None), "c must be a number, not None"),
        (lambda: sd.accept_rate(-0.1), "low must be a share from 0 to 1, not -0.1"),
        (lambda: sd.accept_rate(0.1, 1.1), "high must be a share from 0 to 1, not 1.1"),
        (lambda: sd.accept_rate(0.5, 0.4), "high must be at least low, not 0.4 under 0.5"),
        (lambda: sd.accept_rate(math.nan), "low must be a finite number, not nan"),
        (lambda: sd.accept_length(0.9), "low must be at least 1, which every round yields, not 0.9"),
        (lambda: sd.min_speedup(0), "x must be above 0, not 0"),
        (lambda: sd.min_speedup(1.1, k=0), "k must be at least 1, not 0"),
        (lambda: sd.min_speedup(1.1, k=True), "k must be a whole number, not True"),
        (lambda: sd.min_speedup(1.1, prove=1), "prove must be True or False, not 1"),
        (
            lambda: sd.within_baseline("speed"),
            "metrics must be of kernels, curve, acceptance, draft_cost, forward_share, overhead, speedup, "
            "not 'speed'",
        ),
        (lambda: sd.kernel_thresholds(1), "ns must be at least 2, not 1"),
        (lambda: sd.kernel_thresholds(4, depth=-1), "depth must be at least 0, not -1"),
        (
            lambda: sd.structurally_sound("speed"),
            "probes must be of rollback, batch, vocabulary, self-draft, positions, context-end, eog, "
            "not 'speed'",
        ),
        (lambda: sd.specdec(map_depths="a"), "map_depths must be depths such as '0,512', not 'a'"),
        (lambda: sd.within_baseline(tolerance=0), "tolerance must be above 0, not 0"),
        (lambda: sd.specdec(kk=3), "unknown setting 'kk'; known: target, draft, heads, method, k, "),
        (lambda: sd.specdec(update="all"), "unknown setting 'update'; set it with --specdec-update"),
        (lambda: sd.specdec(k=0), "k must be at least 1, not 0"),
        (
            lambda: sd.specdec(method="magic"),
            "method must be one of auto, two-model, ngram, medusa, eagle, oracle, not 'magic'",
        ),
        (lambda: sd.specdec(swa_full=0), "swa_full must be True or False, not 0"),
        (lambda: sd.specdec(sizes="4-1"), "sizes must be sizes such as '1-12,16', not '4-1'"),
        (lambda: sd.specdec(sizes="7"), "sizes must name two of sizes at least, not '7'"),
        (lambda: sd.specdec(target=""), None),
        (lambda: sd.specdec(prompts=""), "prompts must not be empty"),
        (lambda: sd.specdec(target=7), "target must be a text, not 7"),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], Any], told: str | None) -> None:
    if told is None:
        assert make().kwargs == {"target": None}
        return
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        make()
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize(
    ("mark", "text", "arguments"),
    [
        (sd.cliff_at(9), "cliff_at(9)", {"n": 9, "ratio": 1.4}),
        (sd.cliff_at(9, ratio=1.4), "cliff_at(9)", {"n": 9, "ratio": 1.4}),
        (pytest.mark.cliff_at(n=9, ratio=2), "cliff_at(9, ratio=2)", {"n": 9, "ratio": 2.0}),
        (sd.no_cliff(), "no_cliff()", {"upto": 8, "ratio": 1.4}),
        (sd.max_verify_cost(4, 1.3), "max_verify_cost(4, 1.3)", {"n": 4, "ratio": 1.3}),
        (sd.accept_rate(0.2, 0.95), "accept_rate(0.2, 0.95)", {"low": 0.2, "high": 0.95}),
        (sd.accept_rate(0.2), "accept_rate(0.2)", {"low": 0.2, "high": 1.0}),
        (sd.lossless(), "lossless()", {}),
        (pytest.mark.lossless, "lossless()", {}),
        (
            sd.min_speedup(1, k=3, prove=True),
            "min_speedup(1, k=3, prove=True)",
            {"x": 1, "k": 3, "prove": True},
        ),
        (sd.within_baseline(), "within_baseline()", {"metrics": (), "tolerance": None}),
        (
            sd.within_baseline("curve", "curve", "speedup", tolerance=0.2),
            "within_baseline('curve', 'speedup', tolerance=0.2)",
            {"metrics": ("curve", "speedup"), "tolerance": 0.2},
        ),
    ],
)
def test_a_mark_reads_as_it_is_written(
    mark: pytest.MarkDecorator, text: str, arguments: dict[str, Any]
) -> None:
    limit = parse(mark)
    assert (limit.text, limit.arguments) == (text, arguments)


def test_numbers_become_builtin_types() -> None:
    numpy = pytest.importorskip("numpy")
    limit = parse(sd.cliff_at(numpy.int64(9), ratio=numpy.float32(1.5)))
    assert [type(value) for value in limit.arguments.values()] == [int, float]
    settings = sd.specdec(k=numpy.int16(4), sizes=numpy.arange(1, 5)).kwargs
    assert type(settings["k"]) is int
    assert settings["sizes"] == (1, 2, 3, 4)
    assert {type(size) for size in settings["sizes"]} == {int}


def test_a_raw_mark_is_checked_by_its_function() -> None:
    with pytest.raises(ValueError, match=r"^accept_rate\(0.5, high=0.4\): high must be at least low"):
        parse(pytest.mark.accept_rate(0.5, high=0.4))
    with pytest.raises(ValueError, match=r"^specdec\('x'\): .*positional argument"):
        validated(pytest.mark.specdec("x"))
    with pytest.raises(ValueError, match=r"^skip is no limit; limits: cliff_at, "):
        parse(pytest.mark.skip)


def test_every_limit_is_public() -> None:
    assert set(LIMITS) <= set(sd.__all__)
    assert all(getattr(sd, name) is function for name, function in LIMITS.items())
