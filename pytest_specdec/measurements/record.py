"""JSON both ways for frozen result types, and what all kinds have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from dataclasses import is_dataclass
from types import NoneType
from types import UnionType
from typing import TYPE_CHECKING
from typing import Any
from typing import ClassVar
from typing import Protocol
from typing import Self
from typing import get_args
from typing import get_origin
from typing import get_type_hints


if TYPE_CHECKING:
    from pandas import DataFrame

# A field that has no place in the JSON of most measurements: left out where it is None.
RARE: Mapping[str, bool] = {"rare": True}


class Record:
    """JSON both ways for the frozen dataclasses below; a kind of measurement names itself in its JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Builtin types only."""
        kind = getattr(type(self), "kind", None)
        values = {
            own.name: _encode(value)
            for own in fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, own.name)) is not None or not own.metadata.get("rare")
        }
        return values if kind is None else {"kind": kind, **values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`; keys that are no field are left out.

        Raises:
            ValueError: a field is missing.
        """
        hints = get_type_hints(cls)
        values = {}
        for own in fields(cls):  # type: ignore[arg-type]
            if own.name in data:
                values[own.name] = _decode(data[own.name], hints[own.name])
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"{cls.__name__}: {error}") from None


class Measurement(Protocol):
    """What bench makes, checks judge, the store keeps and reports show."""

    kind: ClassVar[str]

    @property
    def source(self) -> str:
        """Where the numbers are from: "measured", "published"."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Builtin types only."""
        ...

    def to_frame(self) -> DataFrame:
        """One row per raw observation."""
        ...


def _encode(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any, hint: Any) -> Any:
    if value is None:
        return None
    if get_origin(hint) is UnionType:
        hint = next(arg for arg in get_args(hint) if arg is not NoneType)
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return tuple(_decode(entry, item) for entry in value)
    if is_dataclass(hint) and isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_json(value)
    return value
