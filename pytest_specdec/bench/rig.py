"""Models and contexts on an engine: found, derived, loaded once, loaded anew after a worker's death."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.prompts import Prompt
from pytest_specdec.engine.process import ProcessEngine
from pytest_specdec.engine.protocol import WorkerUnavailable
from pytest_specdec.models.cache import cache_dir
from pytest_specdec.models.derive import FTYPES
from pytest_specdec.models.derive import requantized
from pytest_specdec.models.describe import ModelFacts
from pytest_specdec.models.describe import describe
from pytest_specdec.models.errors import ModelNotFound
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.find import parse
from pytest_specdec.models.find import resolve
from pytest_specdec.settings import Settings


# Contexts kept loaded; the longest unused one goes first.
KEPT_CONTEXTS = 4
MIN_OUTPUT_ROWS = 64
PROOF_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Loaded:
    """A context in the worker, and what it said of itself."""

    handle: int
    facts: dict[str, Any]


class Rig:
    """One engine with what is loaded in it."""

    def __init__(self, settings: Settings, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self.engine = ProcessEngine(
            python=settings.python, env=dict(settings.env), timeout_s=settings.timeout
        )
        self._contexts: OrderedDict[tuple[Any, ...], Loaded] = OrderedDict()
        self._generation = 0
        self._hello: dict[str, Any] | None = None
        self._tokens: dict[tuple[str, str, str], list[int]] = {}
        self._proven: set[tuple[int, int]] = set()
        self._facts: dict[Path, ModelFacts] = {}

    def hello(self) -> dict[str, Any]:
        """The worker's hello, asked once.

        Raises:
            NotMeasured: that interpreter has no usable llama-cpp-python.
        """
        if self._hello is None:
            try:
                self._hello = self.engine.hello()
            except WorkerUnavailable as error:
                raise NotMeasured(error.message, missing=True) from None
        return self._hello

    def target(self, settings: Settings) -> ModelRef:
        """The target's file."""
        if not settings.target:
            raise NotMeasured(
                "no target model: give --specdec-target PATH, or @specdec(target=...) on the test",
                missing=True,
            )
        return self._checked(_found(settings.target))

    def draft(self, settings: Settings) -> ModelRef:
        """The draft's file, derived from the target first where its name says so."""
        if not settings.draft:
            raise NotMeasured(
                "method two-model needs a draft model: give --specdec-draft PATH, or @specdec(draft=...)",
                missing=True,
            )
        spec = parse(settings.draft)
        if spec.kind != "derived":
            return self._checked(_found(settings.draft))

        def quantize(source: Path, target: Path, ftype: str) -> None:
            self.hello()
            self._progress(f"requantizing {source.name} to {ftype}")
            self.engine.request(
                "quantize",
                source=str(source),
                target=str(target),
                ftype=FTYPES[ftype],
                threads=settings.n_threads,
            )

        return requantized(self.target(settings), spec.argument, quantize, cache_dir())

    def facts(self, settings: Settings, *, draft: bool) -> dict[str, ModelFacts | None]:
        """What the files say of themselves; the draft's only where one is in use."""
        return {
            "target": self._described(self.target(settings)),
            "draft": self._described(self.draft(settings)) if draft else None,
        }

    def context(self, model: ModelRef, settings: Settings, role: str) -> Loaded:
        """A context of these settings over a model; target and draft have one each, also over one file."""
        self.hello()
        if self.engine.generation != self._generation:
            self._contexts.clear()
            self._proven.clear()
            self._generation = self.engine.generation
        rows = max(MIN_OUTPUT_ROWS, *settings.sizes, settings.k + 1)
        parameters: dict[str, Any] = {
            "gpu_layers": settings.gpu_layers,
            "backend": settings.backend,
            "use_extra_bufts": settings.use_extra_bufts,
            "n_ctx": settings.n_ctx,
            "n_batch": settings.n_batch,
            "n_ubatch": settings.n_ubatch,
            "n_threads": settings.n_threads,
            "n_outputs_max": min(rows, settings.n_batch),
            "type_k": settings.type_k,
            "type_v": settings.type_v,
            "embeddings": False,
            "flash_attn": settings.flash_attn,
            "swa_full": settings.swa_full,
        }
        identity = (role, str(model.path), *parameters.values())
        loaded = self._contexts.get(identity)
        if loaded is None:
            while len(self._contexts) >= KEPT_CONTEXTS:
                _, oldest = self._contexts.popitem(last=False)
                self.engine.request("unload", context=oldest.handle)
            self._progress(f"loading {model.name}")
            facts = self.engine.request("load", path=str(model.path), **parameters)
            loaded = Loaded(facts["context"], facts)
            # A death in between would have made the handles kept here another process's.
            self._generation = self.engine.generation
            self._contexts[identity] = loaded
        self._contexts.move_to_end(identity)
        return loaded

    def tokens(self, loaded: Loaded, model: ModelRef, prompt: Prompt) -> list[int]:
        """A prompt's tokens, through the model's chat template where the prompt asks for it."""
        memo = (str(model.path), prompt.template, prompt.text)
        if memo not in self._tokens:
            answer = self.engine.request(
                "tokenize", context=loaded.handle, text=prompt.text, template=prompt.template
            )
            self._tokens[memo] = answer["tokens"]
        return self._tokens[memo]

    def prove_rollback(self, loaded: Loaded, text: list[int], name: str) -> None:
        """Once per context: removing tokens and decoding others leaves the same bits.

        Raises:
            BenchError: it does not, so that nothing measured on this cache would mean anything.
        """
        token = (self._generation, loaded.handle)
        if token in self._proven:
            return
        proof = self.engine.request("rollback", context=loaded.handle, tokens=text[:PROOF_TOKENS])
        if not proof["proven"]:
            failed = [case for case in ("inside", "whole", "across") if not proof[case]]
            why = next((proof[f"{case}_refused"] for case in failed if f"{case}_refused" in proof), None)
            raise BenchError(
                f"{name}: the cache does not roll back bit for bit ({', '.join(failed)} the last batch): "
                + (why or "llama_memory_seq_rm said True, and the logits differ afterwards")
                + ". Speculation on this model is structurally unsound"
            )
        self._proven.add(token)

    def _checked(self, model: ModelRef) -> ModelRef:
        # What the file itself shows to be wrong is said in better words than llama.cpp's.
        self._described(model)
        return model

    def _described(self, model: ModelRef) -> ModelFacts:
        if model.path not in self._facts:
            self._facts[model.path] = describe(model.path)
        return self._facts[model.path]

    def close(self) -> None:
        """End the worker."""
        self.engine.close()


def short_name(model: str) -> str:
    """A file-safe name of a model: its data package, derivation or file stem, lower case."""
    spec = parse(model)
    stem = Path(spec.name).name.removesuffix(".gguf") if spec.kind == "path" else spec.name
    return re.sub(r"[^a-z0-9.]+", "-", stem.lower().replace("_", "-")).strip("-.") or "model"


def _found(name: str) -> ModelRef:
    try:
        return resolve(name)
    except ModelNotFound as error:
        raise NotMeasured(str(error), missing=True) from None
