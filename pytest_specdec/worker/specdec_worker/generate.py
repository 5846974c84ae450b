"""Plain and speculative greedy decoding of one prompt."""

from __future__ import annotations

import time
from typing import Any
from typing import Callable
from typing import Optional

from specdec_worker.binding import lib
from specdec_worker.errors import Refused
from specdec_worker.model import Context


Recorder = Optional[Callable[[Any], None]]


def _begin(context: Context, prompt: list[int], record: Recorder) -> tuple[int, float]:
    if not prompt:
        raise Refused("request", "the prompt has no tokens")
    if len(prompt) >= context.n_ctx:
        raise Refused(
            "request",
            f"the prompt's {len(prompt)} tokens don't fit a context of {context.n_ctx}: raise n_ctx",
        )
    context.clear()
    start = time.perf_counter()
    context.prefill(prompt)
    row = (len(prompt) - 1) % context.n_batch
    token = context.best(row)
    elapsed = (time.perf_counter() - start) * 1000.0
    if record:
        record(context.logits(row))
    return token, elapsed


def plain(context: Context, prompt: list[int], n_predict: int, record: Recorder = None) -> dict[str, Any]:
    """Decode ``n_predict`` tokens one by one; the first comes from the prefill."""
    vocab = context.model.vocab
    token, prefill_ms = _begin(context, prompt, record)
    tokens = [token]
    forward = context.forward_ms
    start = time.perf_counter()
    stop = "eog" if lib.llama_vocab_is_eog(vocab, token) else ""
    while not stop and len(tokens) < n_predict:
        if context.past >= context.n_ctx:
            stop = "context"
            break
        context.decode([token], "all")
        token = context.best(0)
        tokens.append(token)
        if record:
            record(context.logits(0))
        if lib.llama_vocab_is_eog(vocab, token):
            stop = "eog"
    return {
        "prompt_tokens": len(prompt),
        "tokens": tokens,
        "prefill_ms": prefill_ms,
        "decode_ms": (time.perf_counter() - start) * 1000.0,
        "forward_ms": context.forward_ms - forward,
        "stop": stop or "limit",
    }


def speculate(
    context: Context, source: Any, prompt: list[int], k: int, n_predict: int, record: Recorder = None
) -> dict[str, Any]:
    """Draft at most k, verify k + 1 rows in one pass, keep the longest right prefix and the bonus token.

    The text is what the target chose at every row that was kept; both caches are rolled back to it.
    ``record`` is called with the logits that decided each token of the text.
    """
    vocab = context.model.vocab
    faults = context.faults
    token, prefill_ms = _begin(context, prompt, record)
    text = [*prompt, token]
    limit = len(prompt) + n_predict
    drafted: list[int] = []
    accepted: list[int] = []
    draft_ms: list[float] = []
    verify_ms: list[float] = []
    cut = False
    stop = "eog" if lib.llama_vocab_is_eog(vocab, token) else ""
    forward = context.forward_ms + source.forward_ms
    start = time.perf_counter()
    if not stop:
        source.begin(prompt)
    draft_prefill_ms = (time.perf_counter() - start) * 1000.0
    while not stop and len(text) < limit:
        room = min(limit - len(text), context.n_ctx - context.past)
        if room < 1:
            stop = "context"
            break
        mark = time.perf_counter()
        draft = source.propose(text, min(k, room - 1)) if room > 1 else []
        draft_ms.append((time.perf_counter() - mark) * 1000.0)
        base = context.past
        verify_ms.append(context.decode([text[-1], *draft], "all"))
        right = 0
        bonus = context.best(0)
        while right < len(draft) and bonus == draft[right]:
            right += 1
            bonus = context.best(right)
        if right < len(draft) and faults.accept_extra:
            right = min(len(draft), right + faults.accept_extra)
            bonus = context.best(right)
        if faults.wrong_bonus:
            bonus = _second_best(context, right)
        produced = [*draft[:right], bonus]
        for row, token in enumerate(produced):
            text.append(token)
            if record:
                record(context.logits(row))
            if lib.llama_vocab_is_eog(vocab, token):
                stop = "eog"
                # Drafts behind the end of generation were never judged.
                cut = row < right
                right = min(right, row + 1)
                break
        drafted.append(len(draft))
        accepted.append(right)
        context.rollback(base + 1 + right)
        source.settle(len(text) - 1)
        if faults.sleep_round_ms:
            time.sleep(faults.sleep_round_ms / 1000.0)
    return {
        "prompt_tokens": len(prompt),
        "tokens": text[len(prompt) :],
        "drafted": drafted,
        "accepted": accepted,
        "cut": cut,
        "draft_ms": draft_ms,
        "verify_ms": verify_ms,
        "prefill_ms": prefill_ms,
        "draft_prefill_ms": draft_prefill_ms,
        "decode_ms": (time.perf_counter() - start) * 1000.0,
        "forward_ms": context.forward_ms + source.forward_ms - forward,
        "stop": stop or "limit",
    }


def _second_best(context: Context, row: int) -> int:
    logits = context.logits(row).copy()
    logits[logits.argmax()] = -float("inf")
    return int(logits.argmax())
