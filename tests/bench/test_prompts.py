"""Prompts: the set that comes with the package, users' files, selections, and what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_specdec.bench.prompts import Prompt
from pytest_specdec.bench.prompts import PromptError
from pytest_specdec.bench.prompts import load_prompts


KINDS = {"code", "question", "rewriting", "summary", "translation", "list", "prose", "repeat"}


def write(path: Path, *lines: str | Mapping[str, object]) -> str:
    rows = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(rows), encoding="utf-8")
    return str(path)


def test_the_shipped_set_covers_each_kind_with_short_texts() -> None:
    prompts = load_prompts()

    assert {prompt.kind for prompt in prompts.prompts} == KINDS
    assert len({prompt.id for prompt in prompts.prompts}) == len(prompts.prompts)
    # A token is at least a character, and rarely more than two to a word of plain text.
    assert all(20 <= len(prompt.text.split()) <= 120 for prompt in prompts.prompts)
    # A chat template would put an answer between the pattern and its continuation.
    assert {prompt.template for prompt in prompts.prompts if prompt.kind == "repeat"} == {"raw"}


def test_default_is_what_no_setting_means() -> None:
    assert load_prompts("default") == load_prompts(None)


def test_a_users_file_replaces_the_set(tmp_path: Path) -> None:
    name = write(tmp_path / "mine.jsonl", {"id": "a", "kind": "k", "text": "Say so.", "template": "raw"})

    prompts = load_prompts(name)

    assert prompts.prompts == (Prompt("a", "k", "Say so.", "raw"),)
    assert prompts.source == name
    assert load_prompts(tmp_path / "mine.jsonl") == prompts


def test_text_alone_is_enough_and_the_line_is_its_name(tmp_path: Path) -> None:
    name = write(tmp_path / "mine.jsonl", {"text": "One."}, "", {"text": "Two."})

    assert load_prompts(name).prompts == (
        Prompt("line-1", "other", "One.", "chat"),
        Prompt("line-3", "other", "Two.", "chat"),
    )


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    write(tmp_path / "mine.jsonl", {"text": "Here."})

    assert load_prompts("~/mine.jsonl").prompts[0].text == "Here."


def test_a_byte_order_mark_and_unicode_line_separators_inside_a_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + '{"text": "a\u2028b"}\r\n{"text": "ü"}\r\n'.encode())

    assert [prompt.text for prompt in load_prompts(path).prompts] == ["a\u2028b", "ü"]


def test_selecting_by_kind_and_id_keeps_the_sets_order(tmp_path: Path) -> None:
    rows = [{"id": f"{kind}-{n}", "kind": kind, "text": "t"} for kind in ("code", "list") for n in (1, 2)]
    name = write(tmp_path / "mine.jsonl", *rows)

    chosen = load_prompts(f"{name}::list, code-2")

    assert [prompt.id for prompt in chosen.prompts] == ["code-2", "list-1", "list-2"]
    assert chosen == load_prompts(name).select("list,code-2")
    assert chosen.source == f"{name}::list,code-2"


def test_a_drive_letter_is_no_selection() -> None:
    with pytest.raises(PromptError, match=r"cannot read prompts C:\\no\.jsonl: No such file"):
        load_prompts(r"C:\no.jsonl")
    with pytest.raises(PromptError, match=r"cannot read prompts C:\\no\.jsonl: No such file"):
        load_prompts(r"C:\no.jsonl::code")


def test_the_digest_follows_content_and_order_and_nothing_else(tmp_path: Path) -> None:
    a = {"id": "a", "kind": "k", "text": "ü", "template": "chat"}
    b = {"id": "b", "kind": "k", "text": "two", "template": "chat"}
    first = load_prompts(write(tmp_path / "1.jsonl", a, b))
    laid_out = '{"text":"\\u00fc",  "kind":"k", "id":"a"}'
    same = load_prompts(write(tmp_path / "2.jsonl", laid_out, "", b))

    assert same.digest == first.digest
    assert len(first.digest) == 16
    changed = [{**a, "text": "u"}, {**a, "id": "c"}, {**a, "kind": "l"}, {**a, "template": "raw"}]
    others = [load_prompts(write(tmp_path / f"c{n}.jsonl", row, b)) for n, row in enumerate(changed)]
    others += [load_prompts(write(tmp_path / "swapped.jsonl", b, a)), first.select("a")]
    assert len({prompts.digest for prompts in others} | {first.digest}) == len(others) + 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{'text': 'x'}", "not a JSON object on one line"),
        ('{"text": "x"', "not a JSON object on one line"),
        ('{"text": "x", "text": "y"}', "'text' appears twice"),
        ('["x"]', "not a JSON object"),
        ("[" * 100_000, "not a JSON object on one line"),
        ('{"id": "b"}', "no text"),
        ('{"text": " "}', "text must be a string that says something"),
        ('{"text": 7}', "text must be a string that says something"),
        ('{"text": "a\\u0000b"}', "NUL"),
        ('{"text": "\\ud800"}', "surrogate"),
        ('{"text": "x", "prompt": "y"}', "unknown key 'prompt'; known: id, kind, text, template"),
        ('{"text": "x", "template": "jinja"}', "template must be 'chat' or 'raw', not 'jinja'"),
        ('{"text": "x", "template": ["chat"]}', "template must be 'chat' or 'raw'"),
        ('{"text": "x", "id": "b,c"}', "id must be made of letters"),
        ('{"text": "x", "id": ""}', "id must be made of letters"),
        ('{"text": "x", "id": 3}', "id must be made of letters"),
        ('{"text": "x", "kind": null}', "kind must be made of letters"),
        ('{"text": "x", "id": "a"}', "id 'a' is taken by line 1"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path, line: str, words: str) -> None:
    name = write(tmp_path / "bad.jsonl", {"id": "a", "text": "fine"}, "", line)

    with pytest.raises(PromptError) as caught:
        load_prompts(name)

    assert str(caught.value).startswith(f"{name}:3: ")
    assert words in str(caught.value)


def test_bytes_that_are_not_utf_8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"text": "fine"}\n{"text": "caf\xe9"}\n')

    with pytest.raises(PromptError, match=r"latin\.jsonl:2: not UTF-8"):
        load_prompts(path)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_says_how_to_write_one(tmp_path: Path, content: str) -> None:
    with pytest.raises(PromptError, match=r'no prompts; write one JSON object a line, at least \{"text"'):
        load_prompts(write(tmp_path / "empty.jsonl", content))


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"cannot read prompts .*directory"):
        load_prompts(tmp_path)
    with pytest.raises(PromptError, match=r"cannot read prompts .*No such file"):
        load_prompts(tmp_path / "missing.jsonl")
    with pytest.raises(PromptError, match=r"cannot read prompts .*null"):
        load_prompts("a\0b")


@pytest.mark.parametrize("setting", ["", "::code"])
def test_a_setting_that_names_no_file(setting: str) -> None:
    with pytest.raises(PromptError, match="no prompt file named"):
        load_prompts(setting)


@pytest.mark.parametrize("wanted", ["poetry", "code,poetry", "", "code,"])
def test_selecting_nothing_lists_what_there_is(wanted: str) -> None:
    with pytest.raises(
        PromptError, match=r"default: no prompt has the kind or id '(poetry)?'; kinds: code, list"
    ):
        load_prompts(f"default::{wanted}")
