"""Marks of an item, read: which limits hold for it, with which settings, and what is wrong with them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Final

import pytest

from pytest_specdec.marks import LIMITS
from pytest_specdec.marks import MARKS


# Fixtures that may measure.
_MEASURING: Final = frozenset({"specdec", "specdec_factory"})
# A test has one first cliff and one set of thresholds: the last mark of a level speaks for it.
_ONE_OF_A_LEVEL: Final = frozenset({"cliff_at", "kernel_thresholds"})


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
