"""What stands where the bench session does in tests of commands that measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import ClassVar
from typing import Self
from typing import TypeVar

import pytest

from pytest_specdec.bench import session
from pytest_specdec.settings import Settings


S = TypeVar("S", bound="Session")


class Session:
    """Session and bench in one; a command's own double adds what is measured, after `measuring`."""

    told: ClassVar[dict[str, Any]] = {
        "llama_cpp_python": "0.3.36",
        "devices": [{"name": "CPU", "type": "cpu"}],
    }
    trouble: Exception | None = None
    asked: Settings
    closed = 0

    def __init__(self, settings: Settings, *, progress: Callable[[str], None] | None = None) -> None:
        self.progress = progress

    def bench(self, settings: Settings) -> Self:
        type(self).asked = settings
        return self

    def hello(self) -> dict[str, Any]:
        return self.told

    def measuring(self, what: str = "") -> None:
        """Tell the progress, and raise the trouble there is."""
        if what and self.progress is not None:
            self.progress(what)
        if self.trouble is not None:
            raise self.trouble

    def close(self) -> None:
        type(self).closed += 1


def put(double: type[S], monkeypatch: pytest.MonkeyPatch, **fresh: object) -> type[S]:
    """Put a double in the session's place, as new and with these attributes."""
    monkeypatch.setattr(session, "BenchSession", double)
    for name, value in {"trouble": None, "closed": 0, **fresh}.items():
        monkeypatch.setattr(double, name, value)
    return double
