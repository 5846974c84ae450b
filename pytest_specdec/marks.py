"""One function per mark: it validates its arguments; its signature and docstring are the `--markers` help."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import Final

import pytest

from pytest_specdec.settings import check_run
from pytest_specdec.values import Kind
from pytest_specdec.values import Number
from pytest_specdec.values import Switch
from pytest_specdec.values import Whole


METRICS: Final = (
    "kernels",
    "curve",
    "acceptance",
    "draft_cost",
    "forward_share",
    "overhead",
    "speedup",
)
PROBES: Final = ("rollback", "batch", "vocabulary", "self-draft", "positions", "context-end", "eog")


def cliff_at(n: int, *, ratio: float = 1.4) -> pytest.MarkDecorator:
    """Require the first cliff of the verify cost at a batch of n tokens.

    A cliff is a batch size whose pass takes at least `ratio` times as long as the one before it, its marginal
    cost per token being at least 1.25 times the cost per token so far.

    Args:
        n: batch size in tokens, 2 or more.
        ratio: T(n) ÷ T(size before), above 1.

    Raises:
        ValueError: an argument doesn't fit.
    """
    return pytest.mark.cliff_at(_whole("n", n, 2), ratio=_above("ratio", ratio, 1))


def no_cliff(upto: int = 8, *, ratio: float = 1.4) -> pytest.MarkDecorator:
    """Require that no batch of up to `upto` tokens is a cliff of the verify cost.

    Args:
        upto: largest batch size in tokens, 2 or more.
        ratio: as in `cliff_at`.

    Raises:
        ValueError: an argument doesn't fit.
    """
    return pytest.mark.no_cliff(_whole("upto", upto, 2), ratio=_above("ratio", ratio, 1))


def max_verify_cost(n: int, ratio: float) -> pytest.MarkDecorator:
    """Require that a pass over n tokens takes at most `ratio` times as long as a pass over one.

    Args:
        n: batch size in tokens, 2 or more.
        ratio: T(n) ÷ T(1), above 0; 1.3 is the line from which drafts rarely pay.

    Raises:
        ValueError: an argument doesn't fit.
    """
    return pytest.mark.max_verify_cost(_whole("n", n, 2), _above("ratio", ratio, 0))


def max_draft_cost(c: float) -> pytest.MarkDecorator:
    """Require that drafting one token takes at most c times as long as the target's pass over one.

    Args:
        c: t(draft) ÷ T(1), above 0.

    Raises:
        ValueError: the argument doesn't fit.
    """
    return pytest.mark.max_draft_cost(_above("c", c, 0))


def accept_rate(low: float, high: float = 1.0) -> pytest.MarkDecorator:
    """Require that accepted ÷ drafted tokens is within low and high.

    Args:
        low: smallest share, 0 to 1.
        high: largest share, `low` to 1; more than that is as suspicious as less than `low`.

    Raises:
        ValueError: an argument doesn't fit.
    """
    least, most = _share("low", low), _share("high", high)
    if most < least:
        raise ValueError(f"high must be at least low, not {most:g} under {least:g}")
    return pytest.mark.accept_rate(least, most)


def accept_length(low: float) -> pytest.MarkDecorator:
    """Require that a round yields at least `low` tokens on average, its bonus token included.

    Args:
        low: tokens per round, 1 or more.

    Raises:
        ValueError: the argument doesn't fit.
    """
    number = _above("low", low, 0)
    if number < 1:
        raise ValueError(f"low must be at least 1, which every round yields, not {number:g}")
    return pytest.mark.accept_length(number)


def accept_at(position: int, low: float) -> pytest.MarkDecorator:
    """Require that a position of the draft is accepted in at least a share `low` of the rounds that draft it.

    Args:
        position: place in the draft, from 1.
        low: smallest share, 0 to 1.

    Raises:
        ValueError: an argument doesn't fit.
    """
    return pytest.mark.accept_at(_whole("position", position, 1), _share("low", low))


def plateau(start: int, stop: int, *, rel: float = 0.10) -> pytest.MarkDecorator:
    """Require that the verify cost is flat, within `rel`, from a batch of `start` tokens to one of `stop`.

    Args:
        start: smallest batch size in tokens.
        stop: largest batch size in tokens, more than `start`.
        rel: relative change allowed against T(start), above 0.

    Raises:
        ValueError: an argument doesn't fit.
    """
    first = _whole("start", start, 1)
    return pytest.mark.plateau(first, _whole("stop", stop, first + 1), rel=_above("rel", rel, 0))


def dip_at(n: int) -> pytest.MarkDecorator:
    """Require that a batch of n tokens costs more than the next larger one, beyond noise.

    Args:
        n: batch size in tokens.

    Raises:
        ValueError: the argument doesn't fit.
    """
    return pytest.mark.dip_at(_whole("n", n, 1))


def ledger_closes(within: float = 0.10) -> pytest.MarkDecorator:
    """Require that a ledger fitted on some draft lengths predicts others within a relative band.

    Args:
        within: largest |predicted ÷ measured rate − 1| on the draft lengths held out, above 0.

    Raises:
        ValueError: the argument doesn't fit.
    """
    return pytest.mark.ledger_closes(_above("within", within, 0))


def min_forward_share(p: float) -> pytest.MarkDecorator:
    """Require that decode forwards are at least a share p of the request time with speculation off.

    Args:
        p: Amdahl's share, 0 to 1.

    Raises:
        ValueError: the argument doesn't fit.
    """
    return pytest.mark.min_forward_share(_share("p", p))


def memory_headroom(share: float = 0.10) -> pytest.MarkDecorator:
    """Require that peak memory with speculation leaves at least this share of the memory free.

    Args:
        share: 0 to 1.

    Raises:
        ValueError: the argument doesn't fit.
    """
    return pytest.mark.memory_headroom(_share("share", share))


def kernel_thresholds(*ns: int, depth: int = 0) -> pytest.MarkDecorator:
    """Require that the kernel path changes at exactly these batch sizes; none, when none is named.

    Exact: it compares bits, not times, and holds under any load.

    Args:
        ns: batch sizes in tokens, 2 or more; each is the first one of its kernel path.
        depth: tokens in the context before the batch.

    Raises:
        ValueError: an argument doesn't fit.
    """
    sizes = sorted({_whole("ns", n, 2) for n in ns})
    return pytest.mark.kernel_thresholds.with_args(*sizes, depth=_whole("depth", depth, 0))


def structurally_sound(*probes: str) -> pytest.MarkDecorator:
    """Require that structural probes (all when none is named) find no fault in the pair.

    Args:
        probes: any of "rollback", "batch", "vocabulary", "self-draft", "positions", "context-end" and "eog".

    Raises:
        ValueError: an argument doesn't fit.
    """
    for probe in probes:
        if probe not in PROBES:
            raise ValueError(f"probes must be of {', '.join(PROBES)}, not {probe!r}")
    return pytest.mark.structurally_sound.with_args(*dict.fromkeys(probes))


def lossless() -> pytest.MarkDecorator:
    """Require that speculative decoding yields the target's own tokens, proven near ties aside."""
    return pytest.mark.lossless()


def min_speedup(x: float, *, k: int | None = None, prove: bool = False) -> pytest.MarkDecorator:
    """Require that speculative decoding is at least x times as fast as plain decoding.

    Args:
        x: speculative ÷ plain decode rate, above 0.
        k: draft length; the test's own when None.
        prove: pass on proof only. Without it, only a confident violation fails.

    Raises:
        ValueError: an argument doesn't fit.
    """
    return pytest.mark.min_speedup(
        _above("x", x, 0),
        k=None if k is None else _whole("k", k, 1),
        prove=bool(_fit("prove", prove, Switch())),
    )


def within_baseline(*metrics: str, tolerance: float | None = None) -> pytest.MarkDecorator:
    """Require that metrics (all when none is named) hold this machine's baseline.

    Args:
        metrics: any of "kernels", "curve", "acceptance", "draft_cost", "forward_share", "overhead" and
            "speedup".
        tolerance: relative change allowed, above 0; when None, each metric's own (15 %, of the forward share
            and the speedup 5 %, of the overhead 25 %). Counters may not change at all.

    Raises:
        ValueError: an argument doesn't fit.
    """
    for metric in metrics:
        if metric not in METRICS:
            raise ValueError(f"metrics must be of {', '.join(METRICS)}, not {metric!r}")
    within = None if tolerance is None else _above("tolerance", tolerance, 0)
    return pytest.mark.within_baseline.with_args(*dict.fromkeys(metrics), tolerance=within)


def specdec(**settings: Any) -> pytest.MarkDecorator:
    """Set target, draft, method, k, prompts and more for this test, class or module; nearer marks win by key.

    Args:
        settings: any of the settings that the command line takes for one measurement.

    Raises:
        ValueError: a key is unknown or a value doesn't fit.
    """
    return pytest.mark.specdec.with_args(**check_run(settings))


LIMITS: Final[Mapping[str, Callable[..., pytest.MarkDecorator]]] = {
    function.__name__: function
    for function in (
        cliff_at,
        no_cliff,
        plateau,
        dip_at,
        max_verify_cost,
        max_draft_cost,
        accept_rate,
        accept_length,
        accept_at,
        lossless,
        kernel_thresholds,
        structurally_sound,
        min_speedup,
        ledger_closes,
        min_forward_share,
        memory_headroom,
        within_baseline,
    )
}
MARKS: Final[Mapping[str, Callable[..., pytest.MarkDecorator]]] = {"specdec": specdec, **LIMITS}


def _fit(name: str, value: object, kind: Kind) -> Any:
    try:
        return kind.check(value)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


def _whole(name: str, value: object, low: int) -> int:
    return int(_fit(name, value, Whole(low)))


def _above(name: str, value: object, bound: float) -> float:
    return float(_fit(name, value, Number(above=bound)))


def _share(name: str, value: object) -> float:
    number = _above(name, value, -1)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must be a share from 0 to 1, not {number:g}")
    return number
