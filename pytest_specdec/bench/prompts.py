"""The texts that measurements run on: the set that comes with the package, or a user's JSON Lines file."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Literal


DEFAULT = "default"
FITTING = "fitting"
# Texts that come with the package, by name.
_SHIPPED = {DEFAULT: "prompts.jsonl", FITTING: "fitting.jsonl"}
_SEPARATOR = "::"
_KEYS = ("id", "kind", "text", "template")
_TEMPLATES = ("chat", "raw")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class PromptError(Exception):
    """A prompt file or selection that cannot be used; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text, and whether it goes through the model's chat template as a user's message or in as it is."""

    id: str
    kind: str
    text: str
    template: Literal["chat", "raw"]


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in the order they run in; `source` says for people where they come from."""

    prompts: tuple[Prompt, ...]
    source: str

    @property
    def digest(self) -> str:
        """The first 16 hex digits of the SHA-256 of the prompts, whatever their file's layout."""
        rows = [[prompt.id, prompt.kind, prompt.text, prompt.template] for prompt in self.prompts]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=True).encode()).hexdigest()[:16]

    def select(self, wanted: str) -> PromptSet:
        """Keep the prompts whose kind or id is in a comma-separated list, in the set's order.

        Raises `PromptError` when an entry matches nothing.
        """
        words = [word.strip() for word in wanted.split(",")]
        kinds = {prompt.kind for prompt in self.prompts}
        ids = {prompt.id for prompt in self.prompts}
        for word in words:
            if word not in kinds | ids:
                raise PromptError(
                    f"{self.source}: no prompt has the kind or id {word!r}; "
                    f"kinds: {', '.join(sorted(kinds))}; ids: {', '.join(sorted(ids))}"
                )
        kept = tuple(prompt for prompt in self.prompts if {prompt.kind, prompt.id} & set(words))
        return PromptSet(kept, f"{self.source}{_SEPARATOR}{','.join(words)}")


def load_prompts(setting: str | os.PathLike[str] | None = None) -> PromptSet:
    r"""Load the prompts that a setting names.

    `None` or `"default"` is the set that comes with the package, `"fitting"` another one, that heads are
    fitted on; anything else is the path of a JSON Lines file that replaces it (`~` expanded; a file called
    `default` is `./default`). After a double
    colon, as in pytest's node ids, a comma-separated list of kinds or ids selects: `default::code,list`,
    `C:\mine.jsonl::code`.

    A line of the file is an object with `text` and, where wanted, `id` (default `line-N`), `kind`
    (default `other`) and `template` (`"chat"`, the default: a user's message in the model's chat
    template; or `"raw"`); empty lines are skipped. Raises `PromptError`.
    """
    path, separator, wanted = os.fspath(DEFAULT if setting is None else setting).rpartition(_SEPARATOR)
    if not separator:
        path, wanted = wanted, ""
    if not path:
        raise PromptError(f"no prompt file named; give {DEFAULT!r} or a path, and after '::' kinds or ids")
    prompts = PromptSet(tuple(_parse(_read(path), path)), path)
    return prompts.select(wanted) if separator else prompts


def _read(path: str) -> str:
    try:
        if path in _SHIPPED:
            raw = importlib.resources.files(__package__).joinpath(_SHIPPED[path]).read_bytes()
        else:
            raw = Path(path).expanduser().read_bytes()
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PromptError(
            f"cannot read prompts {path}: {reason}; give {DEFAULT!r} or a JSON Lines file"
        ) from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PromptError(f"{path}:{line}: not UTF-8 ({error.reason}); save the file as UTF-8") from error


def _parse(content: str, path: str) -> list[Prompt]:
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    # Not splitlines(): JSON strings may hold the other line ends it knows.
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        prompt = _row(line, number, where)
        if prompt.id in seen:
            raise PromptError(f"{where}: id {prompt.id!r} is taken by line {seen[prompt.id]}; ids are unique")
        seen[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise PromptError(f'{path}: no prompts; write one JSON object a line, at least {{"text": "..."}}')
    return prompts


def _row(line: str, number: int, where: str) -> Prompt:
    try:
        row = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{where}: not a JSON object on one line ({error})") from error
    if not isinstance(row, dict):
        raise PromptError(f'{where}: not a JSON object; write {{"text": "..."}}')
    unknown = sorted(set(row) - set(_KEYS))
    if unknown:
        raise PromptError(f"{where}: unknown key {', '.join(map(repr, unknown))}; known: {', '.join(_KEYS)}")
    if "text" not in row:
        raise PromptError(f"{where}: no text")
    text = row["text"]
    if not isinstance(text, str) or not text.strip():
        raise PromptError(f"{where}: text must be a string that says something, not {text!r}")
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise PromptError(f"{where}: text holds a NUL or half a surrogate pair, which no tokenizer takes")
    template = row.get("template", "chat")
    if template not in _TEMPLATES:
        raise PromptError(f"{where}: template must be 'chat' or 'raw', not {template!r}")
    name = _word(row, "id", f"line-{number}", where)
    return Prompt(name, _word(row, "kind", "other", where), text, template)


def _word(row: Mapping[str, Any], key: str, default: str, where: str) -> str:
    value = row.get(key, default)
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise PromptError(f"{where}: {key} must be made of letters, digits, '.', '_' and '-', not {value!r}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"{key!r} appears twice")
    return dict(pairs)
