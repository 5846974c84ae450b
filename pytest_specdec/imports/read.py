"""Which kind of text it is, by what it holds and not by its name; then its curves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Final

from pytest_specdec.imports import llama_bench
from pytest_specdec.imports import measured
from pytest_specdec.imports import tables
from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve


KNOWN: Final = (
    "a table (CSV) of N and ms or tokens/s, llama-bench output (json, jsonl, csv, md, sql), a baseline, or "
    "the JSON of specdec curve"
)
_BUILD: Final = re.compile(r"build: (.+)")
_RULE: Final = re.compile(r":?-+:?")

MarkdownTable = tuple[list[str], list[tuple[int, list[str]]], str]


def curves(text: str, name: str) -> list[Curve]:
    """Return the curves in a text; `name` is the file's, for messages.

    Raises:
        BadFile: it is of no known kind, or its content is at fault; the message names file and line.
    """
    body = text.lstrip("\ufeff \t\r\n")
    if not body:
        raise BadFile(name, None, f"is empty: {KNOWN} is wanted")
    if "\0" in text:
        raise BadFile(name, None, f"is no text: {KNOWN} is wanted")
    if body[0] in "[{":
        found = _of_json(text.lstrip("\ufeff"), name)
    elif re.search(r"^\s*INSERT INTO ", text, re.IGNORECASE | re.MULTILINE):
        found = llama_bench.curves(llama_bench.rows_of_sql(text, name), name, "sql")
    elif re.search(r"^\s*CREATE TABLE ", text, re.IGNORECASE | re.MULTILINE):
        raise BadFile(name, None, f"creates a table and inserts nothing: run {llama_bench.HOW}")
    elif markdown := _markdown(text, name):
        found = _of_markdown(markdown, name)
    else:
        found = _of_csv(text.lstrip("\ufeff"), name)
    for curve in found:
        if len(curve.verify.n) < 2:
            told = f"{curve.name}: " if curve.name else ""
            raise BadFile(name, None, f"{told}only N = {curve.verify.n[0]}: steps need two sizes or more")
    return found


def elements(text: str, name: str) -> Iterator[tuple[int, Any]]:
    """Yield the members of a JSON array, or the values that stand one after the other, with their lines.

    Raises:
        BadFile: it ends early, or is no JSON; the message names the line.
    """
    decoder = json.JSONDecoder()
    at = _after(text, 0, "")
    in_array = text[at : at + 1] == "["
    at = _after(text, at + in_array, "")
    while at < len(text):
        if in_array and text[at] == "]":
            rest = _after(text, at + 1, "")
            if rest < len(text):
                raise BadFile(name, _line(text, rest), "has something after the end of the array")
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise BadFile(name, _line(text, error.pos), f"is cut or no JSON ({error.msg})") from None
        except (ValueError, RecursionError) as error:
            raise BadFile(name, _line(text, at), f"is no JSON of ours ({error})") from None
        yield _line(text, at), value
        at = _after(text, end, "," if in_array else "")
    if in_array:
        raise BadFile(name, _line(text, len(text)), "is cut: the array has no end")


def _of_json(text: str, name: str) -> list[Curve]:
    members = list(elements(text, name))
    if not members:
        raise BadFile(name, None, f"holds nothing: {KNOWN} is wanted")
    if isinstance(members[0][1], dict) and "n_prompt" in members[0][1]:
        form = "json" if text.lstrip().startswith("[") else "jsonl"
        return llama_bench.curves(llama_bench.rows_of_json(members, name), name, form)
    values = [value for _, value in members]
    found = measured.curves(values[0] if len(values) == 1 else values, name)
    if not found:
        raise BadFile(name, None, f"holds no verify curve: {KNOWN} is wanted")
    return found


def _of_csv(text: str, name: str) -> list[Curve]:
    if re.search(r"(^|,)\"?n_prompt\"?(,|$)", text, re.MULTILINE):
        return llama_bench.curves(llama_bench.rows_of_csv(text, name), name, "csv")
    header, rows = tables.cells_of_csv(text, name)
    return tables.curves(header, rows, name)


def _of_markdown(markdown: Sequence[MarkdownTable], name: str) -> list[Curve]:
    benched = [table for table in markdown if {"test", "t/s"} <= set(table[0])]
    if benched:
        return llama_bench.curves(llama_bench.rows_of_markdown(benched, name), name, "md")
    return [curve for header, rows, _ in markdown for curve in tables.curves(header, rows, name)]


def _markdown(text: str, name: str) -> list[MarkdownTable]:
    """Return the tables of a Markdown text as header, rows with their lines, and the build told below."""
    found: list[MarkdownTable] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped.startswith("|"):
            inside = False
            if found and (match := _BUILD.fullmatch(stripped)):
                # One build for all tables since the last one.
                found = [(h, rows, build or match[1]) for h, rows, build in found]
            continue
        cells = [cell.strip() for cell in stripped.strip("|").split("|")]
        if not inside:
            found.append((cells, [], ""))
            inside = True
        elif all(_RULE.fullmatch(cell) for cell in cells):
            continue
        elif len(cells) != len(found[-1][0]):
            told = f"has {len(cells)} cells where the header has {len(found[-1][0])}"
            raise BadFile(name, number, told)
        else:
            found[-1][1].append((number, cells))
    return found


def _after(text: str, at: int, also: str) -> int:
    """Return the next place that is neither blank nor one of `also`."""
    while at < len(text) and (text[at].isspace() or text[at] in also):
        at += 1
    return at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
