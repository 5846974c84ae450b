"""What the answers to the structural probes mean: sound, or a fault with its cause in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pytest_specdec.bench.rig import PLACES
from pytest_specdec.bench.rig import Rollback
from pytest_specdec.bench.rig import failing
from pytest_specdec.measurements import ProbeResult
from pytest_specdec.reports import text


Answer = Mapping[str, Any]

# Batch sizes round differently; in units of the spread of a row's logits, sound models differ by 0.09 in the
# median row at most (Gemma 3 270M Q4_K_M, the largest seen), unrelated rows by 1.4.
PROPORTION = 0.3
# A best token that another batch size does not choose lay 0.07 spreads above the chosen one at most.
TIE = 0.5
VOCABULARY_TYPES = {0: "none", 1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLaMo-2"}
COUNTS = ("expected", "accepted")
AFTER = {
    "start": "from the first round on: suspect positions or the prefill",
    "full": "after full acceptance: suspect the two-token pass",
    "rejection": "only once a draft had been rejected: suspect rollback",
}


@dataclass(frozen=True, slots=True)
class Rolled:
    """How one model rolls back: its role and name, the proofs, what a round of it costs.

    ``native`` is the proof with states that llama.cpp keeps itself (``n_rs_seq`` of them), where it can.
    """

    role: str
    found: Rollback
    cost: Answer | None = None
    native: Rollback | None = None
    n_rs_seq: int = 0

    @property
    def ms(self) -> float | None:
        """The median cost of a round's rollback."""
        return median(self.cost["rollback_ms"]) if self.cost else None


def rollback(models: Sequence[Rolled]) -> ProbeResult:
    """True without restoring is the fault to find; a refusal is one too, for hosts that don't save states."""
    evidence = [line for one in models for line in _proof_lines(one)]
    causes = [cause for one in models if (cause := _rollback_cause(one))]
    if causes:
        return ProbeResult("rollback", "fault", "; ".join(causes), tuple(evidence))
    names = " and ".join(one.role for one in models)
    return ProbeResult(
        "rollback", "sound", f"removed tokens leave no trace, bit for bit ({names})", tuple(evidence)
    )


def _rollback_cause(one: Rolled) -> str:
    if one.found.mode == "seq_rm":
        return ""
    cause = f"{one.role}: {one.found.why}"
    wrong = [case for case in _native_cases(one) if case["difference"] is not None]
    if wrong:
        where = " and ".join(
            f"{PLACES[case['name']]} (logits differ by up to {case['difference']:.2g})" for case in wrong
        )
        cause += f"; with n_rs_seq = {one.n_rs_seq} it says True and does not restore {where}"
    if one.found.mode is None:
        assert one.found.restoring is not None
        return f"{cause}; nor do state snapshots restore it: {failing(one.found.restoring)}"
    cause += "; measured with state snapshots instead, which restore bit for bit"
    if one.cost is not None:
        cause += (
            f" and cost {text.number(one.ms or 0.0)} ms a round, beside {_ms(one.cost['forward_ms'])} ms for "
            "its pass"
        )
    return cause


def _proof_lines(one: Rolled) -> list[str]:
    lines = [f"{one.role}: seq_rm {line}" for line in _cases(one.found.removing)]
    if _native_cases(one):
        assert one.native is not None
        lines += [
            f"{one.role}, n_rs_seq = {one.n_rs_seq}: seq_rm {line}" for line in _cases(one.native.removing)
        ]
    if one.found.restoring is not None:
        lines += [f"{one.role}: snapshots {line}" for line in _cases(one.found.restoring)]
    if one.cost is not None:
        lines.append(
            f"{one.role}: a round's rollback takes {text.number(one.ms or 0.0)} ms (median of "
            f"{len(one.cost['rollback_ms'])}), its pass {_ms(one.cost['forward_ms'])} ms"
        )
    return lines


def _native_cases(one: Rolled) -> Sequence[Answer]:
    """The cases of the proof with states that llama.cpp keeps, none where it keeps none."""
    cases: Sequence[Answer] = one.native.removing["cases"] if one.native is not None else ()
    return () if all(case["refused"] for case in cases) else cases


def _cases(proof: Answer) -> list[str]:
    lines: list[str] = []
    told = False
    for case in proof["cases"]:
        if case["holds"]:
            said = "True, the same bits" if proof["mode"] == "seq_rm" else "the same bits"
        elif case["refused"]:
            said = "False" if told else f"False: {case['refused']}"
            told = True
        elif case["difference"] is not None:
            said = f"True, other bits: logits differ by up to {case['difference']:.2g}"
        else:
            said = "True, and what was kept is gone too"
        lines.append(f"{PLACES[case['name']]}: {said}")
    return lines


def batch(answers: Sequence[Answer]) -> ProbeResult:
    """Rows of a batch are those of one-token passes, up to rounding.

    Rounding between kernels changes logits by a small part of their spread, and the best token only where two
    nearly tie: `PROPORTION` and `TIE` say how much.
    """
    evidence, causes = [], []
    for answer in answers:
        for width in answer["widths"]:
            lost, rows = width["lost"], len(width["relative"])
            largest, share = max(width["difference"]), median(width["relative"])
            evidence.append(
                f"depth {answer['depth']}, N = {width['n']}: logits differ by up to {text.number(largest)}, "
                f"{share:.2g} of their spread in the median row; top-1 equal in "
                f"{rows - len(lost)} of {rows} rows{_margins(lost)}"
            )
            where = f"in batches of {width['n']} at depth {answer['depth']}"
            wide = [margin for _, margin in lost if margin > TIE * answer["spread"]]
            if share > PROPORTION:
                causes.append(
                    f"{where} logits differ from one-token passes by {text.number(share)} of their spread in "
                    f"the median row, where rounding explains {PROPORTION:g} at most: a batch's rows are "
                    "wrong"
                )
            elif wide:
                causes.append(
                    f"{where} {text.plural(len(wide), 'row')} of {rows} choose another token than one-token "
                    f"passes, one that lies {text.number(max(wide))} under theirs: no near tie"
                )
    if causes:
        more = f" (and in {len(causes) - 1} more)" if len(causes) > 1 else ""
        return ProbeResult("batch", "fault", causes[0] + more, tuple(evidence))
    told = "batches give the rows of one-token passes, rounding and near ties aside"
    return ProbeResult("batch", "sound", told, tuple(evidence))


def _margins(lost: Sequence[Sequence[float]]) -> str:
    if not lost:
        return ""
    return f" (margins up to {text.number(max(margin for _, margin in lost))})"


def vocabulary(answer: Answer) -> ProbeResult:
    """llama.cpp's rule, then the pieces one by one."""
    ours, theirs = answer["sizes"]
    broken = [_rule(rule) for rule in answer["rule"] if rule["target"] != rule["draft"]]
    if abs(ours - theirs) > answer["size_allowed"]:
        broken.append(f"size (target {ours}, draft {theirs})")
    evidence = [
        *(f"{_rule(rule)}: {_agree(rule['target'] == rule['draft'])}" for rule in answer["rule"]),
        f"size: target {ours}, draft {theirs}; {answer['shared']} different pieces in common",
        f"pieces from id 5: {answer['compared'] - answer['differing']} of {answer['compared']} are equal"
        + _examples(answer["first"]),
        "special tokens: "
        + ", ".join(f"{name.upper()} {one} {other}" for name, (one, other) in answer["special"].items()),
        "end of generation: "
        + "; ".join(
            f"{role} {', '.join(map(str, ends)) or 'none'}"
            for role, ends in zip(("target", "draft"), answer["ends"], strict=True)
        ),
    ]
    advice = "a draft's tokens mean something else to the target; choose a draft of the same family"
    differing = f"{answer['differing']} of {answer['compared']} pieces differ{_examples(answer['first'])}"
    if answer["differing"] and not answer["unknown"] and not broken:
        cause = f"token ids are permuted: {differing}, and the target knows each under another id: {advice}"
    elif answer["differing"] or broken:
        rule = f"llama.cpp's rule does not hold for {', '.join(broken)}; " if broken else ""
        cause = f"another vocabulary: {rule}{differing}, {answer['unknown']} unknown to the target: {advice}"
    else:
        cause = f"one vocabulary: type, BOS, EOS and all {answer['compared']} pieces compared are equal"
        return ProbeResult("vocabulary", "sound", cause, tuple(evidence))
    return ProbeResult("vocabulary", "fault", cause, tuple(evidence))


def _rule(rule: Answer) -> str:
    ours, theirs = rule["target"], rule["draft"]
    if rule["what"] == "type":
        ours, theirs = (VOCABULARY_TYPES.get(value, value) for value in (ours, theirs))
    return f"{rule['what']} (target {ours}, draft {theirs})"


def _agree(equal: bool) -> str:
    return "equal" if equal else "not equal"


def _examples(first: Sequence[Sequence[Any]]) -> str:
    if not first:
        return ""
    token, ours, theirs = first[0]
    return f" (token {token}: target {ours!r}, draft {theirs!r})"


def self_draft(answers: Sequence[tuple[str, Sequence[Answer]]]) -> ProbeResult:
    """A model accepts its own drafts: what it rejects must be a near tie between the widths in use."""
    evidence, causes, untold = [], [], []
    for role, runs in answers:
        expected, accepted, over, full, rejections = (
            sum(run[name] for run in runs) for name in ("expected", "accepted", "over", "full", "rejection")
        )
        if not expected:
            untold.append(role)
            continue
        missed = [(one, run["noise"]) for run in runs for one in run["missed"]]
        faults = [(one, noise) for one, noise in missed if one["margin"] > 2 * noise]
        evidence.append(
            f"{role}: {accepted} of {text.plural(expected, 'own draft')} accepted, {full} rounds after full "
            f"acceptance, {rejections} after a rejection"
        )
        evidence += [
            f"{role}: round {one['round']}, {_after(one)}: a draft lies {text.number(one['margin'], 3)} "
            f"under the choice, clean passes differ by {text.number(noise, 3)}"
            for one, noise in missed[:5]
        ]
        if over:
            causes.append(f"{role}: {over} rounds accepted a token that was never the model's own choice")
        elif faults:
            one, noise = max(faults, key=lambda pair: float(pair[0]["margin"]))
            when = next(kind for kind in AFTER if kind in {fault["after"] for fault, _ in faults})
            drifted = any(run["drift"] > 2 * run["noise"] for run in runs if run["missed"])
            causes.append(
                f"{role}: drafting for itself, it rejects {expected - accepted} of {expected} drafts, one "
                f"that lies {text.number(one['margin'])} under its choice where clean passes differ by "
                f"{text.number(noise)}; {AFTER[when]} of the {'target' if drifted else 'draft'}'s cache"
            )
    if causes:
        return ProbeResult("self-draft", "fault", "; ".join(causes), tuple(evidence))
    if untold:
        told = f"could not tell: {' and '.join(untold)} ended every text before a draft could be judged"
        return ProbeResult("self-draft", "skipped", told, tuple(evidence))
    expected, accepted = (sum(run[name] for _, runs in answers for run in runs) for name in COUNTS)
    names = " and ".join(role for role, _ in answers)
    ties = "" if accepted == expected else ", the others at near ties"
    told = (
        f"what drafts for itself is accepted: {accepted} of {text.plural(expected, 'draft')}{ties} ({names})"
    )
    return ProbeResult("self-draft", "sound", told, tuple(evidence))


def _after(one: Answer) -> str:
    return {"start": "the first", "full": "after full acceptance", "rejection": "after a rejection"}[
        one["after"]
    ]


def positions(answers: Sequence[tuple[str, Answer]]) -> ProbeResult:
    """Positions that don't follow are refused, and the cache ends where the host believes."""
    evidence, causes, silent = [], [], []
    for role, answer in answers:
        for name in ("twice", "gap"):
            one = answer[name]
            what = f"position {one['at']} with {answer['past']} tokens in the cache"
            evidence.append(f"{role}: {what}: {_decoded(one)}")
        if answer["twice"]["accepted"]:
            causes.append(f"{role}: llama.cpp takes a position that is in use twice, in silence")
        if answer["gap"]["accepted"]:
            silent.append(role)
        one = answer["collided"]
        evidence.append(f"{role}: seq_rm from {one['at']} on: {one['removed']}, then {_decoded(one)}")
        if not one["removed"]:
            causes.append(
                f"{role}: rollback refused, positions collided: llama_memory_seq_rm said False, and decoding "
                f"at {one['at']} is {_decoded(one)}"
            )
        evidence.append(
            f"{role}: after rollbacks the cache ends at {', '.join(str(end) for _, end in answer['ends'])}, "
            f"the host at {', '.join(str(end) for end, _ in answer['ends'])}"
        )
        if any(host != cache for host, cache in answer["ends"]):
            causes.append(f"{role}: after a rollback cache and host disagree on where the text ends")
    if causes:
        return ProbeResult("positions", "fault", "; ".join(causes), tuple(evidence))
    told = "positions that don't follow are refused"
    if silent:
        told = (
            f"a gap in positions passes in silence ({' and '.join(silent)}, as with M-RoPE), so cache and "
            "host were compared: they agree"
        )
    return ProbeResult("positions", "sound", told, tuple(evidence))


def _decoded(one: Answer) -> str:
    if one["accepted"]:
        return "accepted"
    words = "; ".join(one["words"])
    return f"refused ({words})" if words else "refused"


@dataclass(frozen=True, slots=True)
class Ended:
    """A text that came to the end of the context: plain, and with a source's drafts."""

    source: str
    n_ctx: int
    plain: Answer
    run: Answer


def context_end(runs: Sequence[Ended], remarks: Sequence[str] = ()) -> ProbeResult:
    """Speculation fills the context as plain decoding does, and stops."""
    evidence = [
        f"{one.source}: {one.plain['prompt_tokens']} tokens of prompt in a context of {one.n_ctx}: plain "
        f"stops at {one.plain['stop']} after {len(one.plain['tokens'])}, speculation at {one.run['stop']} "
        f"after {len(one.run['tokens'])} tokens in {len(one.run['drafted'])} rounds"
        for one in runs
    ]
    evidence += remarks
    wrong = [
        one
        for one in runs
        if one.run["stop"] != "context" or len(one.run["tokens"]) != len(one.plain["tokens"])
    ]
    if wrong:
        one = wrong[0]
        cause = (
            f"with drafts by {one.source} the text ends after {len(one.run['tokens'])} tokens "
            f"({one.run['stop']}), plain decoding fills the context of {one.n_ctx} with "
            f"{len(one.plain['tokens'])}"
        )
        return ProbeResult("context-end", "fault", cause, tuple(evidence))
    return ProbeResult("context-end", "sound", "speculation stops where the context ends", tuple(evidence))


def end_of_generation(answers: Sequence[Answer], k: int) -> ProbeResult:
    """An end of generation inside a draft ends the text there; one the target doesn't want is rejected."""
    if not all(answer["known"] for answer in answers):
        return ProbeResult("eog", "skipped", "the target knows no end-of-generation token")
    begun = [answer for answer in answers if answer["begun"]]
    if not begun:
        return ProbeResult("eog", "skipped", "could not tell: every text ended with its first token")
    evidence, causes = [], []
    for answer in begun:
        run = answer["wanted"]
        evidence.append(
            f"end {answer['end']} wanted at token {answer['place']}, inside a draft of {k}: the text has "
            f"{text.plural(len(run['tokens']), 'token')} and stops at {run['stop']}; accepted "
            f"{', '.join(map(str, run['accepted']))}"
        )
        told = "is" if answer["own"] else "is not"
        evidence.append(f"end {answer['end']} drafted and not wanted: every token {told} the target's choice")
        ended = run["stop"] == "eog" and len(run["tokens"]) == answer["place"] + 1
        if not ended or run["tokens"][-1] != answer["end"]:
            causes.append(
                f"an end of generation inside a draft does not end the text there: token {answer['place']} "
                f"is the end, and the text has {len(run['tokens'])} tokens"
            )
        elif not answer["own"]:
            causes.append("an end of generation that only the draft wants changes the text")
    if causes:
        return ProbeResult("eog", "fault", causes[0], tuple(evidence))
    return ProbeResult("eog", "sound", "an end of generation inside a draft ends the text", tuple(evidence))


def _ms(values: Sequence[float]) -> str:
    return text.number(median(values))
