"""One function per mark: it validates its arguments; its signature and docstring are the `--markers` help."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Final

import pytest

from pytest_specdec.settings import check_run
from pytest_specdec.values import Kind
from pytest_specdec.values import Number
from pytest_specdec.values import Switch
from pytest_specdec.values import Whole


METRICS: Final = ("curve", "acceptance", "speedup")


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
    """Require that metrics (curve, acceptance, speedup; all when none is named) hold this machine's baseline.

    Args:
        metrics: any of "curve", "acceptance" and "speedup".
        tolerance: relative change allowed, above 0; when None, each metric's own.

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
        min_speedup,
        ledger_closes,
        min_forward_share,
        memory_headroom,
        within_baseline,
    )
}
MARKS: Final[Mapping[str, Callable[..., pytest.MarkDecorator]]] = {"specdec": specdec, **LIMITS}

# Fixtures that may measure.
_MEASURING: Final = frozenset({"specdec", "specdec_factory"})
# A test has one first cliff: here the last mark of a level speaks for it.
_ONE_OF_A_LEVEL: Final = frozenset({"cliff_at"})


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit mark, read: `arguments` by name with defaults filled in, `text` as a user would write it."""

    name: str
    arguments: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Stack:
    """What an item's marks come to: the limits that hold, and what its `specdec` marks set."""

    limits: tuple[Limit, ...]
    settings: Mapping[str, Any]


def parse(mark: pytest.Mark | pytest.MarkDecorator) -> Limit:
    """Read a limit mark, however it was written, by calling its function.

    Raises:
        ValueError: no limit mark, or its arguments don't fit; the message begins with the mark.
    """
    name = mark.name
    if name not in LIMITS:
        raise ValueError(f"{name} is no limit; limits: {', '.join(LIMITS)}")
    made = validated(mark)
    signature = inspect.signature(LIMITS[name])
    bound = signature.bind(*made.args, **made.kwargs)
    bound.apply_defaults()
    return Limit(name, dict(bound.arguments), f"{name}({', '.join(_written(signature, bound.arguments))})")


def validated(mark: pytest.Mark | pytest.MarkDecorator) -> pytest.Mark:
    """Return one of this plugin's marks with its arguments checked and of builtin types.

    Raises:
        ValueError: the arguments don't fit; the message begins with the mark.
    """
    try:
        return MARKS[mark.name](*mark.args, **mark.kwargs).mark
    except (TypeError, ValueError) as error:
        values = [repr(value) for value in mark.args]
        values += [f"{key}={value!r}" for key, value in mark.kwargs.items()]
        raise ValueError(f"{mark.name}({', '.join(values)}): {error}") from None


def stack(item: pytest.Item) -> Stack:
    """Collect the marks that hold for an item, from its package to its `pytest.param`; nearer ones win.

    Raises:
        ValueError: a mark's arguments don't fit.
    """
    limits: dict[str, list[pytest.Mark]] = {}
    settings: dict[str, Any] = {}
    for level in _levels(item):
        for name in LIMITS:
            if own := [mark for mark in level if mark.name == name]:
                limits[name] = own[-1:] if name in _ONE_OF_A_LEVEL else own
        for mark in level:
            if mark.name == "specdec":
                settings.update(validated(mark).kwargs)
    parsed = {limit.text: limit for name in LIMITS for limit in map(parse, limits.get(name, ()))}
    return Stack(tuple(parsed.values()), settings)


def is_gated(item: pytest.Item) -> bool:
    """Say whether any limit mark holds for an item."""
    return any(mark.name in LIMITS for mark in item.iter_markers())


def problems(items: Iterable[pytest.Item]) -> list[str]:
    """Say what is wrong with the marks of collected items: file:line, test, mark and reason, one line each.

    A limit mark on an item that never reaches `pytest_pyfunc_call`, such as a unittest method or a doctest,
    is wrong too: nothing would hold it.
    """
    found: dict[tuple[int, str], list[pytest.Item]] = {}
    for item in items:
        for mark in item.iter_markers():
            if mark.name in MARKS and (wrong := _wrong(item, mark)):
                found.setdefault((id(mark), wrong), []).append(item)
    return [
        f"{_place(first)}: {wrong}" + (f" (and on {len(more)} more)" if more else "")
        for (_, wrong), (first, *more) in found.items()
    ]


def measures(item: pytest.Item) -> bool:
    """Say whether an item is a gate: a limit mark holds for it, or it asks for a fixture that measures."""
    return is_gated(item) or not _MEASURING.isdisjoint(getattr(item, "fixturenames", ()))


def help_lines() -> Iterable[str]:
    """Yield one line per mark for `pytest --markers`."""
    for name, function in MARKS.items():
        signature = inspect.signature(function)
        bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
        written = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
        told = (inspect.getdoc(function) or "").split("\n\n")[0]
        yield f"{name}{written}: {told}"


def _wrong(item: pytest.Item, mark: pytest.Mark) -> str:
    try:
        validated(mark)
    except ValueError as error:
        return str(error)
    if mark.name not in LIMITS or not (reason := _out_of_reach(item)):
        return ""
    return f"{parse(mark).text}: {reason}"


def _out_of_reach(item: pytest.Item) -> str:
    if not isinstance(item, pytest.Function):
        return (
            f"limits hold for test functions only, not for a {type(item).__name__}; mark functions or classes"
        )
    unittest = sys.modules.get("unittest")
    if unittest is not None and item.cls is not None and issubclass(item.cls, unittest.TestCase):
        return "limits don't reach the methods of a unittest.TestCase; use a plain class or a function"
    return ""


def _place(item: pytest.Item) -> str:
    path, line, _ = item.location
    name = item.nodeid.partition("::")[2] or item.name
    return f"{path}:{line + 1}: {name}" if line is not None else f"{path}: {name}"


def _levels(item: pytest.Item) -> Iterable[Sequence[pytest.Mark]]:
    """Yield the marks of each level, farthest first; within a level the topmost decorator is last."""
    *above, _ = item.listchain()
    for node in above:
        yield node.own_markers
    callspec = getattr(item, "callspec", None)
    of_param = [id(mark) for mark in callspec.marks] if callspec is not None else []
    yield [mark for mark in item.own_markers if id(mark) not in of_param]
    yield [mark for mark in item.own_markers if id(mark) in of_param]


def _written(signature: inspect.Signature, arguments: Mapping[str, Any]) -> Iterable[str]:
    for name, parameter in signature.parameters.items():
        value = arguments[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from map(repr, value)
        elif value != parameter.default:
            text = f"{value:g}" if isinstance(value, float) and value.is_integer() else repr(value)
            yield f"{name}={text}" if parameter.kind is parameter.KEYWORD_ONLY else text


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
