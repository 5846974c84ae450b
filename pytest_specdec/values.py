"""Kinds of setting: what a value may be, how it is written as text, what an error says about it."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from numbers import Real
from pathlib import Path
from typing import Any
from typing import Literal


class Kind:
    """How one setting's values are checked, read and shown.

    `check` takes a native value (from a mark or a configuration file), `read` a text (from the environment);
    both return a builtin value or raise ValueError with a predicate such as "must be …, not …".
    `argument` does the same for one command line argument.
    """

    ini: Literal["string", "bool", "int", "float", "args"] = "string"
    metavar: str = "TEXT"
    repeatable: bool = False

    def check(self, value: object) -> Any:
        """Validate a native value."""
        raise NotImplementedError

    def read(self, text: str) -> Any:
        """Validate a text."""
        return self.check(text)

    def argument(self, text: str) -> Any:
        """Validate one command line argument; what comes back is fit for `check`."""
        return self.read(text)

    def locate(self, value: Any, base: Path) -> Any:
        """Make a relative path absolute; other kinds return the value as it is."""
        return value

    def show(self, value: Any) -> str:
        """Write a value as the command line takes it."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A text that isn't empty; with `optional`, None and the empty text mean none."""

    optional: bool = False

    def check(self, value: object) -> str | None:
        """Return the text."""
        if self.optional and value in (None, ""):
            return None
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not isinstance(value, str):
            raise ValueError(f"must be a text, not {value!r}")
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    def argument(self, text: str) -> str:
        """Keep the empty text, which says none where None would say not given."""
        self.check(text)
        return text


@dataclass(frozen=True, slots=True)
class File(Text):
    """A model's name or a path; what looks like a path, or is a file, becomes absolute."""

    metavar = "NAME|PATH"

    def locate(self, value: Any, base: Path) -> Any:
        """Make a path absolute; what follows a double colon stays."""
        if value is None:
            return None
        head, separator, rest = value.rpartition("::")
        path = head if separator else rest
        if path.startswith("~") or not (_looks_like_path(path) or (base / path).is_file()):
            return value
        absolute = os.path.abspath(base / path)
        return f"{absolute}::{rest}" if separator else absolute


@dataclass(frozen=True, slots=True)
class Folder(Text):
    """A path of this run's own files."""

    metavar = "PATH"

    def locate(self, value: Any, base: Path) -> Path | None:
        """Make the path absolute."""
        return None if value is None else Path(os.path.abspath(base / Path(value).expanduser()))

    def show(self, value: Any) -> str:
        """Write the path with slashes."""
        return Path(value).as_posix()


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of a few words."""

    choices: tuple[str, ...]

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """The words."""
        return "{" + ",".join(self.choices) + "}"

    def check(self, value: object) -> str:
        """Return the word."""
        if value not in self.choices or not isinstance(value, str):
            raise ValueError(f"must be one of {', '.join(self.choices)}, not {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number within bounds; True is none."""

    low: int
    high: int | None = None

    ini = "int"
    metavar = "N"

    def check(self, value: object) -> int:
        """Return the number as a builtin int."""
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ValueError(f"must be a whole number, not {value!r}")
        number = int(value)
        if number < self.low:
            raise ValueError(f"must be at least {self.low}, not {number}")
        if self.high is not None and number > self.high:
            raise ValueError(f"must be at most {self.high}, not {number}")
        return number

    def read(self, text: str) -> int:
        """Read decimal digits."""
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"must be a whole number, not {text!r}") from None
        return self.check(number)


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A finite number strictly between `above` and `below`, or from `least` to `most`.

    With `optional`, None means none.
    """

    above: float = -math.inf
    below: float = math.inf
    optional: bool = False
    least: float = -math.inf
    most: float = math.inf

    ini = "float"
    metavar = "NUMBER"

    def check(self, value: object) -> float | None:
        """Return the number as a builtin float."""
        if self.optional and value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"must be a number, not {value!r}")
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"must be a finite number, not {number}")
        if not (self.above < number < self.below and self.least <= number <= self.most):
            raise ValueError(f"must be {self._bounds()}, not {number:g}")
        return number

    def _bounds(self) -> str:
        told = (
            ("above", self.above),
            ("at least", self.least),
            ("below", self.below),
            ("at most", self.most),
        )
        return " and ".join(f"{word} {bound:g}" for word, bound in told if math.isfinite(bound))

    def read(self, text: str) -> float | None:
        """Read a decimal number."""
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"must be a number, not {text!r}") from None
        return self.check(number)

    def show(self, value: Any) -> str:
        """Write it without needless zeros."""
        return f"{value:g}"


@dataclass(frozen=True, slots=True)
class Switch(Kind):
    """True or false."""

    ini = "bool"
    metavar = "{true,false}"

    def check(self, value: object) -> bool:
        """Return the bool."""
        if not isinstance(value, bool):
            raise ValueError(f"must be True or False, not {value!r}")
        return value

    def read(self, text: str) -> bool:
        """Read the words that pytest's configuration files know."""
        word = text.strip().lower()
        if word in ("1", "true", "yes", "on", "y", "t"):
            return True
        if word in ("0", "false", "no", "off", "n", "f"):
            return False
        raise ValueError(f"must be true or false, not {text!r}")

    def show(self, value: Any) -> str:
        """Write it in small letters."""
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Pairs(Kind):
    """Environment variables, K=V each; the last one of a name holds."""

    ini = "args"
    metavar = "K=V"
    repeatable = True

    def check(self, value: object) -> tuple[tuple[str, str], ...]:
        """Return the pairs in the order of first appearance."""
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ValueError(f"must be a list of K=V, not {value!r}")
        pairs = {}
        for item in value:
            name, separator, content = item.partition("=") if isinstance(item, str) else ("", "", "")
            if not name or not separator or "\0" in item:
                raise ValueError(f"must be K=V, not {item!r}")
            pairs[name] = content
        return tuple(pairs.items())

    def read(self, text: str) -> tuple[tuple[str, str], ...]:
        """Read pairs separated as in a shell."""
        try:
            return self.check(shlex.split(text))
        except ValueError as error:
            told = str(error)
            raise ValueError(told if told.startswith("must") else f"must be K=V: {told}") from None

    def argument(self, text: str) -> str:
        """Validate one pair."""
        self.check([text])
        return text


@dataclass(frozen=True, slots=True)
class Sizes(Kind):
    """Whole numbers of at least ``low``, ``least`` of them: a text such as 1-12,16, or numbers; sorted."""

    what: str = "sizes"
    low: int = 1
    least: int = 2
    example: str = "1-12,16"

    metavar = "LIST"

    def check(self, value: object) -> tuple[int, ...]:
        """Return the numbers, smallest first, each once."""
        if isinstance(value, str):
            numbers = [n for part in value.split(",") for n in self._part(part, value)]
        elif isinstance(value, Iterable):
            numbers = [Whole(self.low).check(item) for item in value]
        else:
            raise ValueError(self._wrong(value))
        if len(set(numbers)) < self.least:
            count = "two" if self.least == 2 else "one"
            raise ValueError(f"must name {count} of {self.what} at least, not {value!r}")
        if max(numbers) > _LARGEST:
            raise ValueError(f"must stay within {_LARGEST}, not {value!r}")
        return tuple(sorted(set(numbers)))

    def argument(self, text: str) -> str:
        """Keep the text, which workers can be sent."""
        self.check(text)
        return text

    def _wrong(self, value: object) -> str:
        return f"must be {self.what} such as '{self.example}', not {value!r}"

    def _part(self, part: str, whole: str) -> range:
        match = _RANGE.fullmatch(part)
        first = int(match[1]) if match else -1
        last = int(match[2]) if match and match[2] else first
        if not self.low <= first <= last:
            raise ValueError(self._wrong(whole))
        return range(first, last + 1)

    def show(self, value: Any) -> str:
        """Write the numbers with ranges."""
        return ranges(value)


_LARGEST = 65536
_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?")


def _looks_like_path(text: str) -> bool:
    return "/" in text or os.sep in text or text.endswith((".gguf", ".jsonl"))


def ranges(numbers: Iterable[int], separator: str = ",") -> str:
    """Write numbers with runs of consecutive ones as ranges: "1-12,16"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return separator.join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
