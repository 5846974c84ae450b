"""Tokens and text: chat template, tokenizing, and whether two vocabularies fit each other."""

from __future__ import annotations

import ctypes
from typing import Any
from typing import Callable

from specdec_worker.binding import lib
from specdec_worker.errors import Refused
from specdec_worker.model import Model


MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED = 5
# What has to be equal; common/speculative.cpp, common_speculative_are_compatible.
RULE: tuple[tuple[str, Callable[[Any], int]], ...] = (
    ("type", lib.llama_vocab_type),
    ("add-BOS flag", lib.llama_vocab_get_add_bos),
    ("add-EOS flag", lib.llama_vocab_get_add_eos),
    ("BOS token", lib.llama_vocab_bos),
    ("EOS token", lib.llama_vocab_eos),
)


def tokenize(model: Model, text: str, template: str) -> dict[str, Any]:
    """Tokens of a prompt, through the model's own chat template where ``template`` is "chat".

    Special tokens are parsed in what the template wrote, never in the text of a raw prompt; a template that
    writes the BOS token itself doesn't get a second one. A model without a template is given the raw text;
    the answer's ``template`` says which happened.
    """
    used = "raw"
    if template == "chat":
        stored = lib.llama_model_chat_template(model.handle, None)
        if stored:
            text, used = _apply(stored, text), "chat"
    data = text.encode("utf-8")
    size = len(data) + 16
    while True:
        buffer = (lib.llama_token * size)()
        count = lib.llama_tokenize(model.vocab, data, len(data), buffer, size, True, used == "chat")
        if count >= 0:
            break
        size = -count
    tokens = list(buffer[:count])
    bos = lib.llama_vocab_bos(model.vocab)
    while len(tokens) > 1 and tokens[0] == bos and tokens[1] == bos:
        tokens.pop(0)
    return {"tokens": tokens, "template": used}


def _apply(template: bytes, text: str) -> str:
    content = text.encode("utf-8")
    message = (lib.llama_chat_message * 1)(lib.llama_chat_message(b"user", content))
    size = 2 * len(content) + 1024
    while True:
        buffer = ctypes.create_string_buffer(size)
        written = lib.llama_chat_apply_template(template, message, 1, True, buffer, size)
        if written < 0:
            raise Refused("request", "llama.cpp does not know this model's chat template: use raw prompts")
        if written <= size:
            return buffer.raw[:written].decode("utf-8")
        size = written


def piece(model: Model, token: int) -> bytes:
    """The text of a token, special tokens spelled out."""
    size = 64
    while True:
        buffer = ctypes.create_string_buffer(size)
        count = lib.llama_token_to_piece(model.vocab, token, buffer, size, 0, True)
        if count >= 0:
            return buffer.raw[:count]
        size = -count


def check_vocabularies(target: Model, draft: Model) -> None:
    """Apply llama.cpp's rule: type, BOS/EOS flags and tokens, sizes within 128, equal pieces from id 5.

    Raises:
        Refused: the first part of the rule that does not hold.
    """
    for name, function in RULE:
        ours, theirs = function(target.vocab), function(draft.vocab)
        if ours != theirs:
            _refuse(f"vocabulary {name}: target {ours}, draft {theirs}")
    if abs(target.n_vocab - draft.n_vocab) > MAX_SIZE_DIFFERENCE:
        _refuse(f"vocabulary size: target {target.n_vocab}, draft {draft.n_vocab}")
    for token in range(FIRST_COMPARED, min(target.n_vocab, draft.n_vocab)):
        ours = lib.llama_vocab_get_text(target.vocab, token)
        theirs = lib.llama_vocab_get_text(draft.vocab, token)
        if ours != theirs:
            _refuse(f"token {token}: target {ours!r}, draft {theirs!r}")


def _refuse(what: str) -> None:
    raise Refused(
        "vocabulary",
        f"target and draft don't share a vocabulary ({what}): a draft's tokens would mean something else "
        "to the target. Choose a draft of the same family",
    )
