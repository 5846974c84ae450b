"""Structural probes: what target and draft do, apart from how fast, for the plugin to judge."""

from __future__ import annotations

import re
from typing import Any
from typing import Optional

import numpy as np

from specdec_worker import binding
from specdec_worker import generate
from specdec_worker import text
from specdec_worker.binding import lib
from specdec_worker.drafts.source import Source
from specdec_worker.drafts.two_model import TwoModel
from specdec_worker.errors import Refused
from specdec_worker.model import SEQUENCE
from specdec_worker.model import Context
from specdec_worker.model import Model


# Candidates per row over which logits are compared: far down the list they mean nothing.
TOP = 64
SHOWN = 5
SPECIAL = ("bos", "eos", "eot", "sep", "nl", "pad")


def vocabularies(target: Model, draft: Model) -> dict[str, Any]:
    """Both vocabularies side by side: llama.cpp's rule, special tokens, and the pieces one by one.

    "moved" are the draft's pieces that differ from the target's under the same id and exist there under
    another, "unknown" those that don't exist there at all.
    """
    ours, theirs = _pieces(target), _pieces(draft)
    compared = range(text.FIRST_COMPARED, min(len(ours), len(theirs)))
    differing = [token for token in compared if ours[token] != theirs[token]]
    known = set(ours)
    moved = sum(theirs[token] in known for token in differing)
    return {
        "rule": [
            {"what": name, "target": function(target.vocab), "draft": function(draft.vocab)}
            for name, function in text.RULE
        ],
        "sizes": [len(ours), len(theirs)],
        "size_allowed": text.MAX_SIZE_DIFFERENCE,
        "compared": len(compared),
        "differing": len(differing),
        "moved": moved,
        "unknown": len(differing) - moved,
        "shared": len(known & set(theirs)),
        "first": [[token, _shown(ours[token]), _shown(theirs[token])] for token in differing[:SHOWN]],
        "special": {name: [_special(model, name) for model in (target, draft)] for name in SPECIAL},
        "ends": [_ends(model) for model in (target, draft)],
    }


def _pieces(model: Model) -> list[bytes]:
    return [lib.llama_vocab_get_text(model.vocab, token) for token in range(model.n_vocab)]


def _shown(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


def _special(model: Model, name: str) -> int:
    return int(getattr(lib, f"llama_vocab_{name}")(model.vocab))


def _ends(model: Model) -> list[int]:
    return [token for token in range(model.n_vocab) if lib.llama_vocab_is_eog(model.vocab, token)]


def consistency(
    context: Context, tokens: list[int], depth: int, count: int, widths: list[int]
) -> dict[str, Any]:
    """The same ``count`` tokens behind ``depth`` others one by one, and in batches of each width.

    Per width: "difference", the largest logit difference per row over the one-token pass's top candidates,
    "relative", the root mean square of all logit differences in units of the row's own spread, and "lost",
    the rows with another best token as [row, how far it lies under the one-token pass's best].
    """
    part = tokens[depth : depth + count]
    if len(part) < count:
        raise Refused("request", f"{len(tokens)} tokens are too few for depth {depth} and {count} rows")
    rows = _rows(context, tokens[:depth], part, 1)
    order = _candidates(rows)
    spread = rows.std(axis=1)
    found = []
    for width in widths:
        other = _rows(context, tokens[:depth], part, width)
        change = other - rows
        top = np.take_along_axis(np.abs(change), order, axis=1).max(axis=1)
        best, chosen = rows.argmax(axis=1), other.argmax(axis=1)
        lost = [
            [row, float(rows[row, best[row]] - rows[row, chosen[row]])]
            for row in np.flatnonzero(best != chosen).tolist()
        ]
        found.append(
            {
                "n": width,
                "difference": top.tolist(),
                "relative": (np.sqrt((change**2).mean(axis=1)) / np.maximum(spread, 1e-9)).tolist(),
                "lost": lost,
            }
        )
    return {"depth": depth, "rows": count, "spread": float(np.median(spread)), "widths": found}


def _rows(context: Context, before: list[int], part: list[int], width: int) -> Any:
    """Logits of every token of ``part``, float64 of shape (tokens, n_vocab), in batches of ``width``."""
    context.clear()
    context.prefill(before)
    rows = []
    for start in range(0, len(part), width):
        batch = part[start : start + width]
        context.decode(batch, "all", save=False)
        rows += [context.logits(row).astype(np.float64) for row in range(len(batch))]
    return np.stack(rows)


def _candidates(rows: Any) -> Any:
    count = min(TOP, rows.shape[1])
    return np.argpartition(rows, -count, axis=1)[:, -count:]


class Disturbed(Source):
    """A model's own drafts, with one token of every second draft replaced so that it will be rejected.

    A model that drafts for itself would never have to roll its cache back otherwise. ``rounds`` has, per
    round, the draft as it was and the place of the replaced token.
    """

    def __init__(self, source: TwoModel) -> None:
        self._source = source
        self.context: Context = source.context
        self.rounds: list[tuple[list[int], Optional[int]]] = []

    def begin(self, prompt: list[int]) -> None:
        """Start over with a prompt."""
        self._source.begin(prompt)

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """The model's draft, disturbed in every second round at another place each time."""
        draft = self._source.propose(tokens, k)
        turn = len(self.rounds)
        at = (turn // 2) % len(draft) if turn % 2 and draft else None
        self.rounds.append((list(draft), at))
        if at is None:
            return draft
        size = self.context.model.n_vocab
        return [*draft[:at], (draft[at] + size // 2) % size, *draft[at + 1 :]]

    def settle(self, kept: int) -> None:
        """Roll back to the first ``kept`` tokens of the text."""
        self._source.settle(kept)


def self_draft(context: Context, own: Context, prompt: list[int], n_predict: int, k: int) -> dict[str, Any]:
    """A model drafting for itself over a second context: every draft is right, up to where it was disturbed.

    "missed" are drafts that were rejected before that: the round, what came before it ("after" is "start",
    "full" acceptance alone, or a "rejection" somewhere), and "margin", how far the drafted token's logit lies
    under the chosen one's. "noise" is how far clean passes of the widths in use differ on that text, over the
    top candidates, "drift" how far the target's own logits are off them; None where nothing was missed.
    "over" counts rounds that accepted a replaced token, "full" and "rejection" rounds right after such ones.
    """
    source = Disturbed(TwoModel(own))
    deciding: list[Any] = []
    run = generate.speculate(context, source, prompt, k, n_predict, lambda row: deciding.append(row.copy()))
    said: list[int] = run["tokens"]
    place, after, rejected = 1, "start", False
    counts = {"expected": 0, "accepted": 0, "over": 0, "full": 0, "rejection": 0, "start": 0}
    missed = []
    for turn, ((draft, at), accepted) in enumerate(zip(source.rounds, run["accepted"])):
        # What the end of the text cut off was never judged.
        due = min(len(draft) if at is None else at, len(said) - place)
        counts["expected"] += due
        counts["accepted"] += min(accepted, due)
        counts["over"] += accepted > due
        counts[after] += 1
        if accepted < due:
            row = deciding[place + accepted]
            margin = float(row[said[place + accepted]] - row[draft[accepted]])
            before = "rejection" if rejected else after
            missed.append({"round": turn, "after": before, "place": accepted, "margin": margin})
        after = "full" if accepted == len(draft) else "rejection"
        rejected = rejected or after == "rejection"
        place += accepted + 1
    widths = {1, 2, *(len(draft) + 1 for draft, _ in source.rounds)} | context.replayed | own.replayed
    noise, drift = _noise(context, prompt, said, sorted(widths), deciding) if missed else (None, None)
    return {
        "tokens": len(said),
        "rounds": len(source.rounds),
        **counts,
        "missed": missed,
        "noise": noise,
        "drift": drift,
        "stop": run["stop"],
    }


def _noise(
    context: Context, prompt: list[int], said: list[int], widths: list[int], deciding: list[Any]
) -> tuple[float, float]:
    """The largest logit difference between clean passes of these widths over a text, at two alignments.

    And between the logits that decided its tokens and the clean one-token pass.
    """
    clean = _rows(context, prompt, said, 1)
    order = _candidates(clean)
    # A row decides the next token.
    own = np.stack(deciding[1:]) - clean[: len(deciding) - 1]
    drift = float(np.take_along_axis(np.abs(own), order[: len(own)], axis=1).max())
    noise = 0.0
    for width in widths:
        for offset in (0, 1) if width > 1 else (1,):
            start = offset if offset < len(said) else 0
            other = _rows(context, [*prompt, *said[:start]], said[start:], width)
            change = np.take_along_axis(np.abs(other - clean[start:]), order[start:], axis=1)
            noise = max(noise, float(change.max()))
    return noise, drift


def positions(context: Context, tokens: list[int]) -> dict[str, Any]:
    """What llama.cpp does with positions that don't follow, and where the cache believes to end.

    "twice": a token at a position that is taken; "gap": one behind a gap; "collided": removal of the end, and
    a token at the kept length whatever the removal said. Each with "accepted" and llama.cpp's own "words".
    """
    first, rest = tokens[:8], tokens[8:10]
    answers: dict[str, Any] = {"past": len(first)}
    for name, at in (("twice", 5), ("gap", 12)):
        context.clear()
        context.decode(first, "all", save=False)
        answers[name] = _attempt(context, rest, at)
    context.clear()
    context.decode(first, "all", save=False)
    removed = bool(lib.llama_memory_seq_rm(context.memory, SEQUENCE, 5, -1))
    answers["collided"] = {"removed": removed, **_attempt(context, rest, 5)}
    context.clear()
    context.decode(first, "all")
    ends = []
    for kept in (6, 6, 2):
        context.rollback(kept)
        context.decode(rest, "all")
        ends.append([context.past - 1, _last(context)])
    context.clear()
    return {**answers, "ends": ends}


def _attempt(context: Context, tokens: list[int], at: int) -> dict[str, Any]:
    binding.recent_log.clear()
    context.past = at
    accepted = True
    try:
        context.decode(tokens, "all", save=False)
    except Refused:
        accepted = False
    lines = [line.strip(" -\n") for line in "".join(binding.recent_log).splitlines()]
    words = [line for line in lines if re.search(r"\b[XY] = \d", line)] or lines
    return {"at": at, "accepted": accepted, "words": [] if accepted else words}


def _last(context: Context) -> int:
    return int(lib.llama_memory_seq_pos_max(context.memory, SEQUENCE))


class Ending:
    """A context whose model wants to end the text at a place, and nowhere else, whatever it thinks.

    ``ends`` are the tokens that end a text; elsewhere ``other`` stands in for them. Without a place (None)
    the text never ends.
    """

    def __init__(
        self, context: Context, prompt: int, place: Optional[int], ends: list[int], other: int
    ) -> None:
        self._context = context
        self._first = prompt
        self._place = place
        self._ends = ends
        self._other = other
        self._base: Optional[int] = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def past(self) -> int:
        """Tokens in the cache."""
        return self._context.past

    @past.setter
    def past(self, value: int) -> None:
        self._context.past = value

    def decode(self, tokens: Any, rows: str = "all", save: bool = True) -> float:
        """One forward pass."""
        self._base = self._context.past
        return self._context.decode(tokens, rows, save)

    def best(self, row: int) -> int:
        """The most likely token of a row; the end where it is due."""
        if self._base is not None and self._base + row + 1 - self._first == self._place:
            return self._ends[0]
        token = self._context.best(row)
        return self._other if token in self._ends else token


class Script(Source):
    """Drafts that are written beforehand: what stands at the place behind the text so far."""

    def __init__(self, prompt: int, tokens: list[int]) -> None:
        self._first = prompt
        self._tokens = tokens

    def propose(self, tokens: list[int], k: int) -> list[int]:
        """At most k tokens after ``tokens``."""
        place = len(tokens) - self._first
        return self._tokens[place : place + k]


def end_in_draft(context: Context, prompt: list[int], k: int) -> dict[str, Any]:
    """A draft with an end-of-generation token in it: wanted by the target, and not wanted.

    Wanted, the text has to end there, and drafts behind it don't count. Not wanted, it has to be rejected:
    "own" says whether every token of that text is its row's best.
    """
    ends = _ends(context.model)
    if not ends:
        return {"known": False}
    plain = generate.plain(context, prompt, 4 * k + 4)["tokens"]
    if plain[0] in ends:
        return {"known": True, "begun": False}
    # Text that goes on whatever the model says, the end at a place in the middle of the second draft.
    going = [plain[0] if token in ends else token for token in plain]
    going += [plain[0]] * (4 * k + 4 - len(going))
    place = k + 2 + (k - 1) // 2
    script = [*going[:place], ends[0], *going[place + 1 :]]
    size = len(prompt)
    ending: Any = Ending(context, size, place, ends, plain[0])
    wanted = generate.speculate(ending, Script(size, script), prompt, k, 4 * k + 4)
    rows: list[int] = []
    refused = generate.speculate(
        context, Script(size, script), prompt, k, 4 * k + 4, lambda row: rows.append(int(row.argmax()))
    )
    return {
        "known": True,
        "begun": True,
        "place": place,
        "end": ends[0],
        "wanted": {name: wanted[name] for name in ("tokens", "drafted", "accepted", "stop", "cut")},
        "own": refused["tokens"] == rows,
    }


def fill_context(context: Context, source: Any, prompt: list[int], k: int) -> dict[str, Any]:
    """A text that goes on, whatever the model says, until the context is full: plain, and with drafts."""
    going: Any = Ending(context, len(prompt), None, _ends(context.model), prompt[-1])
    count = context.n_ctx
    plain = generate.plain(going, prompt, count)
    run = generate.speculate(going, source, prompt, k, count)
    return {
        "plain": {name: plain[name] for name in ("prompt_tokens", "tokens", "stop")},
        "run": {name: run[name] for name in ("tokens", "drafted", "stop")},
    }


def rollback_cost(context: Context, tokens: list[int], depth: int, k: int, rounds: int) -> dict[str, Any]:
    """Rounds of k + 1 tokens from ``depth`` on, half of the drafts rejected: ms of rollback and of passes."""
    context.clear()
    context.prefill(tokens[:depth])
    spent, forward = [], []
    for _ in range(rounds):
        start, before = context.past, context.rollback_ms
        forward.append(context.decode(tokens[depth : depth + k + 1], "all"))
        context.rollback(start + 1 + k // 2)
        spent.append(context.rollback_ms - before)
    return {"rollback_ms": spent, "forward_ms": forward}
