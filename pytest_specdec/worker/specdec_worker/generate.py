"""Plain and speculative decoding of one prompt."""

from __future__ import annotations

import time
from typing import Any
from typing import Callable
from typing import Optional
from typing import Sequence

from specdec_worker.binding import lib
from specdec_worker.drafts.source import Source
from specdec_worker.errors import Refused
from specdec_worker.model import SEQUENCE
from specdec_worker.model import Context
from specdec_worker.sampling import Greedy
from specdec_worker.sampling import Sampler


Recorder = Optional[Callable[[Any], None]]


class Stages:
    """Where a request's wall time goes, from its start to :meth:`close`; ms.

    The parts add up to the wall time: what no pass, choice, rollback or wait accounts for is the host's.
    """

    def __init__(self, context: Context, source: Optional[Source] = None) -> None:
        self._context = context
        self._source = source
        self._start = time.perf_counter()
        self._before = self._read()
        self.prefill_ms = 0.0
        self.draft_prefill_ms = 0.0
        self.wait_ms = 0.0

    def _read(self) -> tuple[float, float, float, float]:
        target, source = self._context, self._source
        draft = source.context if source else None
        return (
            target.forward_ms,
            source.forward_ms if source else 0.0,
            target.sampling_ms + (draft.sampling_ms if draft else 0.0),
            target.rollback_ms + (draft.rollback_ms if draft else 0.0),
        )

    def prefilled(self) -> None:
        """The target's prompt is in: passes so far were its prefill."""
        self.prefill_ms = self._read()[0] - self._before[0]

    def draft_prefilled(self) -> None:
        """The draft's prompt is in."""
        self.draft_prefill_ms = self._read()[1] - self._before[1]

    def close(self) -> dict[str, float]:
        """Every part in ms, and the wall time."""
        wall = (time.perf_counter() - self._start) * 1000.0
        target, draft, sampling, rollback = (a - b for a, b in zip(self._read(), self._before))
        parts = {
            "target_prefill_ms": self.prefill_ms,
            "draft_prefill_ms": self.draft_prefill_ms,
            "draft_forward_ms": draft - self.draft_prefill_ms,
            "target_forward_ms": target - self.prefill_ms,
            "sampling_ms": sampling,
            "rollback_ms": rollback,
            "wait_ms": self.wait_ms,
        }
        return {**parts, "host_ms": wall - sum(parts.values()), "wall_ms": wall}


def _begin(context: Context, prompt: list[int], record: Recorder, choose: Greedy) -> tuple[int, float]:
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
    token = choose.choose(context, row, prompt)
    elapsed = (time.perf_counter() - start) * 1000.0
    if record:
        record(context.logits(row))
    return token, elapsed


def plain(
    context: Context,
    prompt: list[int],
    n_predict: int,
    record: Recorder = None,
    choose: Optional[Greedy] = None,
) -> dict[str, Any]:
    """Decode ``n_predict`` tokens one by one; the first comes from the prefill."""
    choose = choose or Greedy()
    stages = Stages(context)
    token, prefill_ms = _begin(context, prompt, record, choose)
    stages.prefilled()
    text = [*prompt, token]
    limit = len(prompt) + n_predict
    forward = context.forward_ms
    start = time.perf_counter()
    stop = "eog" if ends(context, token) else ""
    while not stop and len(text) < limit:
        if context.past >= context.n_ctx:
            stop = "context"
            break
        context.decode([token], "all", save=False)
        token = choose.choose(context, 0, text)
        text.append(token)
        if record:
            record(context.logits(0))
        if ends(context, token):
            stop = "eog"
    return {
        "prompt_tokens": len(prompt),
        "tokens": text[len(prompt) :],
        "prefill_ms": prefill_ms,
        "decode_ms": (time.perf_counter() - start) * 1000.0,
        "forward_ms": context.forward_ms - forward,
        "stop": stop or "limit",
        "stages": stages.close(),
    }


def speculate(
    context: Context,
    source: Source,
    prompt: list[int],
    k: int,
    n_predict: int,
    record: Recorder = None,
    *,
    fixed: bool = False,
    choose: Optional[Greedy] = None,
) -> dict[str, Any]:
    """Draft at most k, verify k + 1 rows in one pass, keep the longest right prefix and the bonus token.

    The text is what the target chose at every row that was kept; both caches are rolled back to it. It
    chooses as ``choose`` does, greedily by default; a source that can draws from odds of its own then.
    ``record`` is called with the logits that decided each token of the text. With ``fixed`` the source is
    asked for k tokens also where fewer are left to generate; what is too much is dropped.
    """
    choose = choose or Greedy()
    faults = context.faults
    stages = Stages(context, source)
    token, prefill_ms = _begin(context, prompt, record, choose)
    stages.prefilled()
    text = [*prompt, token]
    limit = len(prompt) + n_predict
    drafted: list[int] = []
    accepted: list[int] = []
    draft_ms: list[float] = []
    verify_ms: list[float] = []
    misses: list[dict[str, Any]] = []
    cut = False
    # What stands in the cache for the last token of the text; another one only where a fault is planted.
    stand_in: Optional[int] = None
    stop = "eog" if ends(context, token) else ""
    forward = _forward_ms(context, source)
    start = time.perf_counter()
    if not stop:
        source.draws_by(choose if isinstance(choose, Sampler) else None)
        source.begin(prompt)
        stages.draft_prefilled()
    draft_prefill_ms = (time.perf_counter() - start) * 1000.0
    while not stop and len(text) < limit:
        room = min(limit - len(text), context.n_ctx - context.past)
        if room < 1:
            stop = "context"
            break
        mark = time.perf_counter()
        asked = k if fixed else min(k, room - 1)
        draft = source.propose(text, asked) if asked else []
        draft_ms.append((time.perf_counter() - mark) * 1000.0)
        base = context.past
        first = text[-1] if stand_in is None else stand_in
        verify_ms.append(context.decode([first, *draft], "all"))
        right, bonus = _judged(context, choose, text, draft, source.odds)
        source.verified(context, right)
        miss = None
        if right < len(draft):
            miss = _miss(context, len(drafted), right, draft[right], bonus)
        if right < len(draft) and faults.accept_extra:
            right = min(len(draft), right + faults.accept_extra)
            bonus = context.best(right)
        if faults.wrong_bonus:
            bonus = _second_best(context, right)
        if faults.wrong_row and draft:
            bonus = context.best(right + 1 if right < len(draft) else right - 1)
        stand_in = draft[right] if faults.keep_rejected and right < len(draft) else None
        produced = [*draft[:right], bonus][: limit - len(text)]
        for row, token in enumerate(produced):
            text.append(token)
            if record:
                record(context.logits(row))
            if ends(context, token):
                stop = "eog"
                # Drafts behind the end of generation were never judged.
                cut = row < right
                right = min(right, row + 1)
                break
        if miss is not None and not cut:
            misses.append(miss)
        drafted.append(len(draft))
        accepted.append(right)
        _take_back(context, base + 1 + right)
        source.settle(len(text) - 1)
        if faults.sleep_round_ms:
            mark = time.perf_counter()
            time.sleep(faults.sleep_round_ms / 1000.0)
            stages.wait_ms += (time.perf_counter() - mark) * 1000.0
    return {
        "prompt_tokens": len(prompt),
        "tokens": text[len(prompt) :],
        "drafted": drafted,
        "accepted": accepted,
        "cut": cut,
        "draft_ms": draft_ms,
        "verify_ms": verify_ms,
        "misses": misses,
        "prefill_ms": prefill_ms,
        "draft_prefill_ms": draft_prefill_ms,
        "decode_ms": (time.perf_counter() - start) * 1000.0,
        "forward_ms": _forward_ms(context, source) - forward,
        "stop": stop or "limit",
        "stages": stages.close(),
    }


def ends(context: Context, token: int) -> bool:
    """Whether a token ends the text."""
    return bool(lib.llama_vocab_is_eog(context.model.vocab, token))


def _judged(
    context: Context, choose: Greedy, text: list[int], draft: list[int], odds: Sequence[Any]
) -> tuple[int, int]:
    """How many drafted tokens are accepted, and the token that follows them."""
    history = list(text)
    for row, token in enumerate(draft):
        other = choose.judge(context, row, history, token, odds[row] if odds else None)
        if other is not None:
            return row, other
        history.append(token)
    return len(draft), choose.choose(context, len(draft), history)


def _forward_ms(context: Context, source: Source) -> float:
    return context.forward_ms + source.forward_ms


def _miss(context: Context, turn: int, row: int, token: int, chosen: int) -> dict[str, Any]:
    """How far a rejected token was from being right: its rank, and how far its logit lies under the chosen.

    A difference of logits is one of log-probabilities at temperature 1.
    """
    start = time.perf_counter()
    logits = context.logits(row)
    own = logits[token]
    found = {
        "round": turn,
        "rank": 1 + int((logits > own).sum()),
        "gap": float(logits[chosen] - own),
    }
    context.sampling_ms += (time.perf_counter() - start) * 1000.0
    return found


def _take_back(context: Context, kept: int) -> None:
    """Roll back to ``kept`` entries; after a rejection the faults in the cache act."""
    faults = context.faults
    if kept >= context.past:
        return
    if not faults.rollback_none:
        context.rollback(min(context.past, kept + faults.rollback_short) - faults.rollback_far)
    if faults.hole:
        lib.llama_memory_seq_rm(context.memory, SEQUENCE, context.past - 2, context.past - 1)
    if faults.k_shift:
        lib.llama_memory_seq_add(context.memory, SEQUENCE, 0, -1, faults.k_shift)
    context.past += faults.k_shift + faults.skew


def _second_best(context: Context, row: int) -> int:
    logits = context.logits(row).copy()
    logits[logits.argmax()] = -float("inf")
    return int(logits.argmax())
