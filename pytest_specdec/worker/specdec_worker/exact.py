"""Evidence on exactness in three steps: same class same bits, draft invariance, near ties between classes."""

from __future__ import annotations

from typing import Any
from typing import Optional
from typing import Sequence

import numpy as np

from specdec_worker import generate
from specdec_worker.clean import Clean
from specdec_worker.clean import Kept
from specdec_worker.clean import Reference
from specdec_worker.clean import Rows
from specdec_worker.clean import content_dependent
from specdec_worker.clean import distance
from specdec_worker.clean import first_difference
from specdec_worker.drafts.scripted import Padded
from specdec_worker.drafts.scripted import Scripted
from specdec_worker.drafts.source import Source
from specdec_worker.errors import Refused
from specdec_worker.model import SNAPSHOT
from specdec_worker.model import Context


# Tokens of the runs that must not depend on their drafts; a fault shows by the second round.
INVARIANT = 32
MIXED_WRONG = 0.3
SEED = 1

# Passes that differ in their last bits may round one value that is kept in 16 or 8 bits otherwise: seldom, so
# that a few clean passes may not show it. It was seen to move logits by a hundred-thousandth of their range.
ROUNDING = 2.0**-14

# What llama.cpp refuses in a speculative run: cache and host disagree about what the cache holds.
STRUCTURAL = ("decode", "rollback")


class Evidence:
    """Comparisons on one prompt; what doesn't depend on the draft length is made once."""

    def __init__(self, context: Context, prompt: list[int], n_predict: int) -> None:
        self._context = context
        self._prompt = prompt
        self._n_predict = n_predict
        reference = Reference()
        self._plain: list[int] = generate.plain(context, prompt, n_predict, reference)["tokens"]
        self._over_plain = Clean(context, prompt, self._plain, reference)
        self._clean = {tuple(self._plain): self._over_plain}

    def compare(self, source: Source, k: int) -> dict[str, Any]:
        """Speculate, and hold the run against what each step that applies to it promises."""
        own = Kept()
        self._context.replayed.clear()
        try:
            run = generate.speculate(self._context, source, self._prompt, k, self._n_predict, own)
        except Refused as refused:
            return self._refused(own, refused)
        widths = sorted({n + 1 for n in run["drafted"]} | self._context.replayed)
        steps, reasons, partings = [3], [], []
        why = self._not_plains_class(widths)
        if why:
            reasons.append(f"step 1: {why}")
        else:
            steps.append(1)
            partings += _parting(1, "real", run, own, _Other("plain", self._plain, self._over_plain.one))
        invariant, refusal = 0, ""
        why = self._not_one_class(k + 1)
        if why:
            reasons.append(f"step 2: {why}")
        else:
            steps.append(2)
            try:
                invariant = self._compare_drafts(source, k + 1, partings)
            except Refused as refused:
                if refused.code not in STRUCTURAL:
                    raise
                refusal = refused.message
        if partings and not (self._over_plain.repeats(1) and self._over_plain.repeats(k + 1)):
            steps, partings, invariant = [3], [], 0
            reasons = [f"step {step}: passes don't repeat bit for bit here" for step in (1, 2)]
        return {
            **self._near_ties(run["tokens"], own, widths),
            "steps": sorted(steps),
            "reasons": reasons,
            "partings": partings,
            "invariant": invariant,
            "refused": refusal,
        }

    def _not_plains_class(self, widths: Sequence[int]) -> str:
        """Why these widths don't promise the bits of plain decoding; "" where they do."""
        for width in widths:
            at = self._over_plain.other_bits(width) if width > 1 else None
            if at is not None:
                return f"clean passes of N = {width} have other bits than plain decoding from token {at} on"
        return self._content(widths)

    def _not_one_class(self, width: int) -> str:
        """Why passes of ``width`` may depend on the drafts; "" where all rows are computed alike."""
        if self._invariant(width) < 2:
            return f"n_ctx or the text is too short for passes of N = {width}"
        if self._context.mode == SNAPSHOT:
            # A rollback decodes what it keeps of a batch again, in a pass of that width.
            return self._not_plains_class(range(1, width + 1))
        dependent = self._content([width])
        if dependent:
            return dependent
        at = self._over_plain.unlike_rows(width)
        return "" if at is None else f"the rows of a batch of N = {width} are not computed alike (token {at})"

    def _content(self, widths: Sequence[int]) -> str:
        for width in widths:
            if width > 1 and content_dependent(self._context, self._prompt, width):
                return f"row 0 of a batch of N = {width} depends on the tokens behind it"
        return ""

    def _invariant(self, width: int) -> int:
        """Tokens that runs of fixed width generate: the last pass must fit the context."""
        room = self._context.n_ctx - len(self._prompt) - width + 1
        return min(self._n_predict, len(self._plain), INVARIANT, room)

    def _compare_drafts(self, source: Source, width: int, partings: list[dict[str, Any]]) -> int:
        """Runs of ``width`` tokens a pass with four kinds of drafts, against clean passes and each other.

        Clean passes over plain decoding's text tell the bits up to and with the first token that passes of
        this width choose otherwise.

        Raises:
            Refused: llama.cpp refused a pass or a rollback of such a run; the message says which drafts.
        """
        context, count = self._context, self._invariant(width)
        clean = self._over_plain.wide(width)
        parts = first_difference(self._plain[:count], clean.best[:count])
        known = count if parts is None else parts + 1
        text = clean.best[:known]
        expected = _Other("clean", text, clean, known)
        first: Optional[_Other] = None
        for name in ("useless", "perfect", "mixed", "real"):
            wrong = {"useless": 1.0, "mixed": MIXED_WRONG}.get(name, 0.0)
            script = Scripted(text, wrong, SEED, context.model.n_vocab)
            drafts = Padded(source) if name == "real" else script
            rows = Rows()
            try:
                run = generate.speculate(context, drafts, self._prompt, width - 1, count, rows, fixed=True)
            except Refused as refused:
                where = f"{name} drafts, N = {width}, token {len(rows.hashes)}: {refused.message}"
                raise Refused(refused.code, where) from None
            found = _parting(2, name, run, rows, expected)
            if name == "useless":
                text = text + run["tokens"][known:]
                # A run that is wrong itself is nothing to hold others against.
                first = None if found else _Other(name, run["tokens"], rows, accepted=run["accepted"])
            elif first is not None:
                found = found or _parting(2, name, run, rows, first)
            partings += found
        return count

    def _near_ties(self, text: list[int], own: Kept, widths: list[int]) -> dict[str, Any]:
        """Every token and its logits against clean passes over the speculative text itself."""
        clean = self._clean.get(tuple(text))
        if clean is None:
            clean = self._clean[tuple(text)] = Clean(self._context, self._prompt, text)
        one = clean.one
        # With the reference's own bits there is nothing to explain.
        same = own.hashes == one.hashes
        delta = np.zeros(len(text)) if same else clean.delta(widths)
        if not same:
            delta = np.maximum(delta, [ROUNDING * float(np.ptp(logits)) for logits in own.logits])
        spread = [distance(logits, one, place) for place, logits in enumerate(own.logits)]
        worst = int(np.argmax(spread))
        margins = [
            {
                "position": place,
                "token": token,
                "best": best,
                "margin": one.top[place] - float(one.values[place][-1]),
                "delta": float(delta[place]),
            }
            for place, (token, best) in enumerate(zip(text, one.best))
            if token != best
        ]
        return {
            "tokens": len(text),
            "first_difference": first_difference(self._plain, text),
            "margins": margins,
            "noise": float(delta.max()),
            "difference": spread[worst],
            "difference_at": worst,
            "widths": widths,
            "plain": self._plain,
            "speculative": text,
        }

    def _refused(self, own: Kept, refused: Refused) -> dict[str, Any]:
        if refused.code not in STRUCTURAL:
            raise refused
        return {
            "tokens": len(own.hashes),
            "first_difference": None,
            "margins": [],
            "noise": 0.0,
            "difference": 0.0,
            "difference_at": 0,
            "widths": [],
            "refused": f"token {len(own.hashes)}: {refused.message}",
        }


class _Other:
    """What a run is held against: its tokens and rows, as far as they are known."""

    def __init__(
        self,
        name: str,
        tokens: list[int],
        rows: Rows,
        known: Optional[int] = None,
        accepted: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.tokens = tokens
        self.rows = rows
        self.known = known
        self.accepted = accepted


def _parting(step: int, name: str, run: dict[str, Any], rows: Rows, other: _Other) -> list[dict[str, Any]]:
    """The first token at which a run leaves the other, in its choice or in the bits that decided it."""
    ours = list(zip(run["tokens"], rows.hashes))
    theirs = list(zip(other.tokens, other.rows.hashes))
    at = first_difference(ours[: other.known], theirs[: other.known])
    if at is None:
        return []
    return [
        {
            "step": step,
            "drafts": name,
            "against": other.name,
            "position": at,
            "token": ours[at][0] if at < len(ours) else None,
            "other": theirs[at][0] if at < len(theirs) else None,
            "round": _round(run["accepted"], at),
            "other_round": _round(other.accepted, at) if other.accepted else None,
        }
    ]


def _round(accepted: Sequence[int], position: int) -> int:
    """The pass that a token came from; 0 is the prefill."""
    end = 1
    for number, count in enumerate(accepted, start=1):
        if position < end:
            return number - 1
        end += count + 1
    return len(accepted)
