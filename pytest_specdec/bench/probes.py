"""How the structural probes are run: which questions go to the worker, on which contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.bench import findings
from pytest_specdec.bench.findings import Ended
from pytest_specdec.bench.findings import Rolled
from pytest_specdec.bench.procedures import text_tokens
from pytest_specdec.bench.rig import Loaded
from pytest_specdec.engine.protocol import RequestRefused
from pytest_specdec.engine.protocol import WorkerDied
from pytest_specdec.measurements import ProbeResult
from pytest_specdec.measurements import Structure


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench
    from pytest_specdec.models.find import ModelRef
    from pytest_specdec.settings import Settings


# Texts and tokens that drafts and ends are tried on.
TEXTS = 3
GENERATED = 32
# Rows compared between batch sizes, at these depths: attention has kernels of its own behind 256 tokens.
ROWS = 16
DEPTHS = (0, 256)
WIDTHS = (2, 4, 8, 16)
COST_DEPTH = 64
COST_ROUNDS = 9
SMALL_CONTEXT = 256
# Tokens that the proof of rollback removes at most, far apart from a sliding window's.
PROOF_REMOVES = 9


def structure(bench: Bench) -> Structure:
    """Every probe's answer at the settings' k, method and prompts.

    Also where target and draft can't work together at all: that is what the probes are for.
    """
    return _Probing(bench).structure()


class _Model:
    """One model of the pair, with texts in its own tokens; its contexts are asked for anew each time."""

    def __init__(self, bench: Bench, model: ModelRef, role: str) -> None:
        self._rig = bench.session.rig
        self._settings = bench.settings
        self.model = model
        self.role = role
        loaded = self.unproven()
        self.facts = loaded.facts
        texts = [self._rig.tokens(loaded, model, prompt) for prompt in bench.prompts.prompts]
        room = max(16, self.facts["n_ctx"] - GENERATED - 2 * self._settings.k - 4)
        self.texts = [tokens[:room] for tokens in texts[:TEXTS]]
        self.text = text_tokens([("", tokens) for tokens in texts], self.facts["n_ctx"])

    def unproven(self) -> Loaded:
        """The model's main context, for questions that need no cache."""
        return self._rig.context(self.model, self._settings, self.role)

    def context(self, role: str = "", settings: Settings | None = None) -> Loaded:
        """A context that rolls back in the proven way."""
        loaded = self._rig.context(self.model, settings or self._settings, role or self.role)
        self._rig.rollback(loaded, self.text, self.model.name)
        return loaded


class _Probing:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._rig = bench.session.rig
        self._settings = bench.settings
        self._k = bench.settings.k
        target = self._rig.target(self._settings)
        draft = self._rig.draft(self._settings) if bench.method == "two-model" else None
        self._target = _Model(bench, target, "target")
        self._draft = _Model(bench, draft, "draft") if draft is not None else None
        self._models = [self._target]
        if self._draft is not None and self._draft.model.path != self._target.model.path:
            self._models.append(self._draft)
        self._rolled: list[Rolled] = []

    def structure(self) -> Structure:
        """Run every probe; nothing is asked of a cache that neither way of rolling back restores."""
        found = [self._probe("rollback", self._rollback), self._probe("vocabulary", self._vocabulary)]
        fits = found[1].outcome != "fault"
        first = self._rolled[0] if self._rolled else None
        broken = [one.role for one in self._rolled if one.found.mode is None]
        for name, ask in (
            ("batch", self._batch),
            ("self-draft", self._self_draft),
            ("positions", self._positions),
            ("context-end", lambda: self._context_end(fits)),
            ("eog", self._eog),
        ):
            if broken:
                told = f"nothing can be told of it while the {' and '.join(broken)} can't roll back"
                found.append(ProbeResult(name, "skipped", told))
            else:
                found.append(self._probe(name, ask))
        return Structure(
            k=self._k,
            method=self._bench.method,
            probes=tuple(found),
            rollback="snapshot" if first is not None and first.found.mode == "snapshot" else "seq_rm",
            rollback_ms=None if first is None else first.ms,
        )

    def _probe(self, name: str, ask: Callable[[], ProbeResult]) -> ProbeResult:
        self._bench.session.progress(f"probing {self._target.model.name}: {name}")
        try:
            return ask()
        except RequestRefused as refused:
            if refused.code not in ("decode", "rollback"):
                raise
            cause = f"llama.cpp refused, cache and host disagree: {refused.message}"
            return ProbeResult(name, "fault", cause, (refused.request, *refused.log))
        except WorkerDied as died:
            if not died.native:
                raise
            return ProbeResult(name, "fault", died.message, (died.request, *died.log))

    def _ask(self, op: str, /, **params: Any) -> dict[str, Any]:
        return self._rig.engine.request(op, **params)

    def _rollback(self) -> ProbeResult:
        for one in self._models:
            loaded = one.context()
            proofs = self._rig.rollback(loaded, one.text, one.model.name)
            cost = None
            if proofs.mode is not None:
                depth = min(COST_DEPTH, one.facts["n_ctx"] // 4)
                rounds = min(COST_ROUNDS, (one.facts["n_ctx"] - depth - self._k - 1) // (1 + self._k))
                if rounds > 0:
                    cost = self._ask(
                        "rollback_cost",
                        context=loaded.handle,
                        tokens=one.text,
                        depth=depth,
                        k=self._k,
                        rounds=rounds,
                    )
            self._rolled.append(Rolled(one.role, proofs, cost, *self._native(one)))
        return findings.rollback(self._rolled)

    def _native(self, one: _Model) -> tuple[Any, ...]:
        """The proof with recurrent states that llama.cpp itself keeps, as its own tools have them kept."""
        facts = one.facts["model"]
        states = facts.get("is_recurrent") or facts.get("is_hybrid")
        if not states or "n_rs_seq" not in self._rig.hello()["context_fields"]:
            return ()
        count = max(PROOF_REMOVES, self._k)
        loaded = self._rig.context(one.model, self._settings, "native", recurrent_snapshots=count)
        proof = self._rig.rollback(loaded, one.text, one.model.name)
        self._rig.release(loaded)
        return proof, count

    def _vocabulary(self) -> ProbeResult:
        if self._draft is None:
            return ProbeResult(
                "vocabulary", "skipped", "there is no draft model whose vocabulary could differ"
            )
        answer = self._ask(
            "vocabularies", target=self._target.unproven().handle, draft=self._draft.unproven().handle
        )
        return findings.vocabulary(answer)

    def _batch(self) -> ProbeResult:
        one = self._target
        widths = sorted(n for n in {*WIDTHS, self._k + 1} if n <= self._settings.n_batch)
        depths = sorted({min(depth, one.facts["n_ctx"] - ROWS) for depth in DEPTHS})
        answers = [
            self._ask(
                "consistency",
                context=one.context().handle,
                tokens=one.text,
                depth=depth,
                count=ROWS,
                widths=widths,
            )
            for depth in depths
        ]
        return findings.batch(answers)

    def _self_draft(self) -> ProbeResult:
        answers = []
        for one in self._models:
            own = one.context("self")
            runs = [
                self._ask(
                    "self_draft",
                    context=one.context().handle,
                    own=own.handle,
                    prompt=tokens,
                    n_predict=GENERATED,
                    k=self._k,
                )
                for tokens in one.texts
            ]
            self._rig.release(own)
            answers.append((one.role, runs))
        return findings.self_draft(answers)

    def _positions(self) -> ProbeResult:
        return findings.positions(
            [
                (one.role, self._ask("positions", context=one.context().handle, tokens=one.text[:16]))
                for one in self._models
            ]
        )

    def _context_end(self, fits: bool) -> ProbeResult:
        """Fill a small context, with drafts by the target itself, which all fit, and by the pair's draft."""
        size = min(SMALL_CONTEXT, self._settings.n_ctx)
        small = self._settings.merged(
            n_ctx=size, n_batch=min(size, self._settings.n_batch), n_ubatch=min(size, self._settings.n_ubatch)
        )
        sources = [("the target itself", self._target)]
        if self._draft is not None and fits and self._draft in self._models:
            sources.append(("the draft", self._draft))
        target = self._target.context("end", small)
        runs = []
        for name, source in sources:
            drafting = source.context("end draft", small)
            runs.append(self._filled(name, target, drafting))
            self._rig.release(drafting)
        self._rig.release(target)
        remarks = []
        for one in self._models:
            trained = one.facts["model"]["n_ctx_train"]
            if 0 < trained < self._settings.n_ctx:
                remarks.append(
                    f"the {one.role} was trained on {trained} tokens, and n_ctx is {self._settings.n_ctx}: "
                    "what it says behind them is worth little"
                )
        return findings.context_end(runs, remarks)

    def _filled(self, name: str, target: Loaded, drafting: Loaded) -> Ended:
        n_ctx = target.facts["n_ctx"]
        answer = self._ask(
            "fill_context",
            context=target.handle,
            prompt=self._target.text[: max(1, n_ctx - 3 * self._k - 5)],
            k=self._k,
            source={"method": "two-model", "context": drafting.handle},
        )
        return Ended(name, n_ctx, answer["plain"], answer["run"])

    def _eog(self) -> ProbeResult:
        one = self._target
        answers = [
            self._ask("end_in_draft", context=one.context().handle, prompt=tokens, k=self._k)
            for tokens in one.texts
        ]
        return findings.end_of_generation(answers, self._k)
