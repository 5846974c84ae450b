"""The worker's state: loaded models, contexts, and the requests that use them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from typing import Callable

from specdec_worker import agreement
from specdec_worker import binding
from specdec_worker import draws
from specdec_worker import exact
from specdec_worker import faults
from specdec_worker import forced
from specdec_worker import generate
from specdec_worker import hidden
from specdec_worker import kernels
from specdec_worker import passes
from specdec_worker import probes
from specdec_worker import text
from specdec_worker import texts
from specdec_worker.binding import lib
from specdec_worker.drafts import source_of
from specdec_worker.drafts.heads import Matrices
from specdec_worker.drafts.heads import load
from specdec_worker.drafts.source import Source
from specdec_worker.errors import Refused
from specdec_worker.model import Context
from specdec_worker.model import Model
from specdec_worker.sampling import chooser


class Session:
    """Everything loaded so far, by handle."""

    def __init__(self) -> None:
        self._faults = faults.read()
        binding.start()
        self._models: dict[tuple[Any, ...], Model] = {}
        self._contexts: dict[int, Context] = {}
        self._next = 1
        # Of contexts that are gone.
        self._forward_ms = 0.0
        self._evidence: dict[tuple[Any, ...], exact.Evidence] = {}
        self._matrices: dict[str, Matrices] = {}
        self._requests: dict[str, Callable[..., dict[str, Any]]] = {
            "hello": self.hello,
            "load": self.load,
            "unload": self.unload,
            "tokenize": self.tokenize,
            "pieces": self.pieces,
            "compatible": self.compatible,
            "forward": self.forward,
            "steady": self.steady,
            "rollback": self.rollback,
            "rollback_cost": self.rollback_cost,
            "vocabularies": self.vocabularies,
            "consistency": self.consistency,
            "self_draft": self.self_draft,
            "positions": self.positions,
            "end_in_draft": self.end_in_draft,
            "fill_context": self.fill_context,
            "decode": self.decode,
            "speculate": self.speculate,
            "draws": self.draws,
            "odds": self.odds,
            "exact": self.exact,
            "kernel_map": self.kernel_map,
            "behind": self.behind,
            "forced": self.forced,
            "agreement": self.agreement,
            "readable": self.readable,
            "texts": self.texts,
            "quantize": self.quantize,
            "memory": self.memory,
            "spent": self.spent,
        }

    def answer(self, op: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Raises:
            Refused: why not.
        """
        if op not in self._requests:
            raise Refused("request", f"unknown request {op!r}; known: {', '.join(self._requests)}")
        return self._requests[op](**params)

    def hello(self) -> dict[str, Any]:
        """Versions, build identity, system info, devices."""
        return {**binding.hello(), "faults": self._faults.planted(), "pid": os.getpid()}

    def load(
        self, *, path: str, gpu_layers: int, backend: str, use_extra_bufts: bool, **context: Any
    ) -> dict[str, Any]:
        """A context over the model at ``path``; a model already loaded with these parameters is shared."""
        key = (path, gpu_layers, backend, use_extra_bufts)
        if key not in self._models:
            self._models[key] = Model(
                path, gpu_layers=gpu_layers, backend=backend, use_extra_bufts=use_extra_bufts
            )
        made = Context(self._models[key], context, self._faults)
        handle, self._next = self._next, self._next + 1
        self._contexts[handle] = made
        return {"context": handle, **made.facts()}

    def unload(self, *, context: int) -> dict[str, Any]:
        """Free a context, and its model when no other context uses it."""
        gone = self._context(context)
        del self._contexts[context]
        self._evidence = {key: kept for key, kept in self._evidence.items() if key[0] != context}
        gone.free()
        self._forward_ms += gone.forward_ms
        if not any(other.model is gone.model for other in self._contexts.values()):
            self._models = {key: model for key, model in self._models.items() if model is not gone.model}
            gone.model.free()
        return {}

    def tokenize(self, *, context: int, text: str, template: str) -> dict[str, Any]:
        """Tokens of a prompt."""
        return _tokenize(self._context(context).model, text, template)

    def pieces(self, *, context: int, tokens: list[int]) -> dict[str, Any]:
        """The text of each token."""
        model = self._context(context).model
        return {"pieces": [text.piece(model, token).decode("utf-8", "replace") for token in tokens]}

    def compatible(self, *, target: int, draft: int) -> dict[str, Any]:
        """Refuse two models whose vocabularies differ."""
        text.check_vocabularies(self._context(target).model, self._context(draft).model)
        return {}

    def forward(
        self, *, context: int, tokens: list[int], order: list[int], calls: int, depth: int, rows: str
    ) -> dict[str, Any]:
        """One block of timed passes."""
        return passes.forward(self._context(context), tokens, order, calls, depth, rows)

    def steady(self, *, context: int, tokens: list[int], depth: int, count: int) -> dict[str, Any]:
        """Steady decoding, ms per token."""
        return passes.steady(self._context(context), tokens, depth, count)

    def rollback(self, *, context: int, tokens: list[int], mode: str = "seq_rm") -> dict[str, Any]:
        """The proof of rollback by bits; the context rolls back that way from here on."""
        made = self._context(context)
        made.roll_back_with(mode)
        with made.logits_only():
            return passes.prove_rollback(made, tokens)

    def rollback_cost(self, *, context: int, **asked: Any) -> dict[str, Any]:
        """What rolling back costs in rounds of speculation."""
        return probes.rollback_cost(self._context(context), **asked)

    def vocabularies(self, *, target: int, draft: int) -> dict[str, Any]:
        """Two vocabularies side by side."""
        return probes.vocabularies(self._context(target).model, self._context(draft).model)

    def consistency(self, *, context: int, **asked: Any) -> dict[str, Any]:
        """The same tokens in batches of several sizes."""
        return probes.consistency(self._context(context), **asked)

    def self_draft(self, *, context: int, own: int, **asked: Any) -> dict[str, Any]:
        """A model drafting for itself."""
        return probes.self_draft(self._context(context), self._context(own), **asked)

    def positions(self, *, context: int, tokens: list[int]) -> dict[str, Any]:
        """What becomes of positions that don't follow."""
        return probes.positions(self._context(context), tokens)

    def end_in_draft(self, *, context: int, prompt: list[int], k: int) -> dict[str, Any]:
        """A draft with an end of generation in it."""
        return probes.end_in_draft(self._context(context), prompt, k)

    def fill_context(
        self, *, context: int, prompt: list[int], k: int, source: dict[str, Any]
    ) -> dict[str, Any]:
        """Plain and speculative decoding until the context is full."""
        target = self._context(context)
        return probes.fill_context(target, self._source(source, target), prompt, k)

    def decode(
        self, *, context: int, tokens: list[int], n_predict: int, sampling: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Plain decoding."""
        target = self._context(context)
        return generate.plain(target, tokens, n_predict, choose=chooser(target, sampling, tokens))

    def speculate(
        self,
        *,
        context: int,
        tokens: list[int],
        n_predict: int,
        k: int,
        source: dict[str, Any],
        fixed: bool = False,
        sampling: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Speculative decoding."""
        target = self._context(context)
        drafts, choose = self._source(source, target), chooser(target, sampling, tokens)
        return generate.speculate(target, drafts, tokens, k, n_predict, fixed=fixed, choose=choose)

    def draws(
        self, *, context: int, tokens: list[int], source: dict[str, Any], **asked: Any
    ) -> dict[str, Any]:
        """Texts drawn many times."""
        target = self._context(context)
        return draws.drawn(target, self._source(source, target), tokens, **asked)

    def odds(self, *, context: int, tokens: list[int], **asked: Any) -> dict[str, Any]:
        """The exact odds of every text."""
        return draws.odds(self._context(context), tokens, **asked)

    def exact(
        self, *, context: int, tokens: list[int], n_predict: int, k: int, source: dict[str, Any]
    ) -> dict[str, Any]:
        """Speculative against plain decoding, with the evidence for every difference."""
        target = self._context(context)
        key = (context, tuple(tokens), n_predict)
        if key not in self._evidence:
            self._evidence[key] = exact.Evidence(target, tokens, n_predict)
        return self._evidence[key].compare(self._source(source, target), k)

    def kernel_map(self, *, context: int, **asked: Any) -> dict[str, Any]:
        """The bits of every row in batches of other sizes."""
        return kernels.kernel_map(self._context(context), **asked)

    def behind(
        self, *, context: int, tokens: list[int], depth: int, pairs: list[list[int]], fresh: bool
    ) -> dict[str, Any]:
        """The bits of batches that follow others."""
        return kernels.behind(self._context(context), tokens, depth, pairs, fresh)

    def forced(
        self, *, context: int, tokens: list[int], text: list[int], candidates: list[list[int]] | None
    ) -> dict[str, Any]:
        """Logits of a given text, by one-token passes."""
        return forced.forced(self._context(context), tokens, text, candidates)

    def agreement(self, *, context: int, tokens: list[int], text: list[int]) -> dict[str, Any]:
        """The token that the model would have chosen at every place of a given text."""
        return agreement.agreement(self._context(context), tokens, text)

    def readable(self, *, context: int, token: int) -> dict[str, Any]:
        """Whether hidden states can be read."""
        return hidden.readable(self._context(context), token)

    def texts(self, *, context: int, **asked: Any) -> dict[str, Any]:
        """Texts that the model says, many at a time."""
        return texts.texts(self._context(context), **asked)

    def quantize(self, *, source: str, target: str, ftype: int, threads: int) -> dict[str, Any]:
        """Write a requantised copy."""
        params = lib.llama_model_quantize_default_params()
        binding.set_fields(params, {"nthread": threads, "ftype": ftype, "allow_requantize": True})
        code = lib.llama_model_quantize(source.encode(), target.encode(), params)
        if code != 0:
            raise Refused(
                "quantize", f"llama_model_quantize returned {code} for {source}: its last lines say why"
            )
        return {"size": Path(target).stat().st_size}

    def memory(self) -> dict[str, Any]:
        """Peak resident memory of this process, where the platform tells, and the devices'; bytes."""
        devices = binding.devices()
        try:
            import resource
        except ImportError:
            return {"peak": None, "devices": devices}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"peak": peak if sys.platform == "darwin" else peak * 1024, "devices": devices}

    def spent(self) -> dict[str, Any]:
        """The time in all forward passes so far, in ms."""
        return {"forward_ms": self._forward_ms + sum(one.forward_ms for one in self._contexts.values())}

    def _context(self, handle: int) -> Context:
        if handle not in self._contexts:
            raise Refused("request", f"no context {handle} is loaded")
        return self._contexts[handle]

    def _source(self, spec: dict[str, Any], target: Context) -> Source:
        return source_of(spec, target, self._context, self._matrices_of)

    def _matrices_of(self, folder: str) -> Matrices:
        if folder not in self._matrices:
            self._matrices[folder] = load(folder)
        return self._matrices[folder]


def _tokenize(model: Model, prompt: str, template: str) -> dict[str, Any]:
    return text.tokenize(model, prompt, template)
