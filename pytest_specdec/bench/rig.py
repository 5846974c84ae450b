"""Models and contexts on an engine: found, derived, loaded once, loaded anew after a worker's death."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.keys import heads_file
from pytest_specdec.bench.prompts import Prompt
from pytest_specdec.engine.process import ProcessEngine
from pytest_specdec.engine.protocol import WorkerUnavailable
from pytest_specdec.models import heads
from pytest_specdec.models.cache import cache_dir
from pytest_specdec.models.derive import FTYPES
from pytest_specdec.models.derive import layerskipped
from pytest_specdec.models.derive import requantized
from pytest_specdec.models.describe import ModelFacts
from pytest_specdec.models.describe import describe
from pytest_specdec.models.errors import ModelNotFound
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.find import parse
from pytest_specdec.models.find import resolve
from pytest_specdec.models.layers import write_layers
from pytest_specdec.settings import Settings


# Contexts kept loaded; the longest unused one goes first.
KEPT_CONTEXTS = 4
MIN_OUTPUT_ROWS = 64
PROOF_TOKENS = 64
# Contexts that differ in these alone forget tokens alike: one proof holds for all.
NOT_OF_THE_CACHE = ("embeddings", "n_batch", "n_outputs_max", "n_threads")
# Where the proof of rollback looks.
PLACES = {
    "inside": "inside the last batch",
    "whole": "for a whole batch",
    "across": "across batches",
    "one by one": "across batches of one token",
    "far": "further than a sliding window's cache reaches",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A context in the worker, what it said of itself, and what its rollback depends on."""

    handle: int
    facts: dict[str, Any]
    cache: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollback:
    """How a context rolls back: the proof by bits of `llama_memory_seq_rm`; where it fails, of snapshots.

    A proof has "mode", "proven" and "cases", each with "name", "holds", "refused" and "difference".
    """

    removing: dict[str, Any]
    restoring: dict[str, Any] | None = None

    @property
    def mode(self) -> str | None:
        """The way that is proven: "seq_rm", "snapshot", None where neither is."""
        if self.removing["proven"]:
            return "seq_rm"
        return "snapshot" if self.restoring is not None and self.restoring["proven"] else None

    @property
    def why(self) -> str:
        """What is wrong with removing tokens: llama.cpp's refusal, or where the bits differ."""
        return failing(self.removing)


def failing(proof: dict[str, Any]) -> str:
    """Say where a proof of rollback fails, and how."""
    failed = [case for case in proof["cases"] if not case["holds"]]
    refusal = next((case["refused"] for case in failed if case["refused"]), None)
    if refusal:
        return str(refusal)
    differences = [case["difference"] for case in failed if case["difference"] is not None]
    where = ", ".join(PLACES[case["name"]] for case in failed)
    if [case["name"] for case in failed] == ["far"]:
        where += ": without swa_full it keeps the window only"
    said = "llama_memory_seq_rm said True" if proof["mode"] == "seq_rm" else "the state was taken back"
    if not differences:
        return f"{said}, and what was kept is gone too ({where})"
    return f"{said}, and the logits differ afterwards by up to {max(differences):.2g} ({where})"


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
        self._rollbacks: dict[int, Rollback] = {}
        self._compatible: set[tuple[int, int]] = set()
        self._readable: dict[int, bool] = {}
        self._removing: dict[tuple[Any, ...], Rollback] = {}
        self._facts: dict[Path, ModelFacts] = {}
        self._heads: dict[tuple[str, Path], tuple[str, tuple[Path, ...]]] = {}
        # Texts that the target is known to say, for the oracle.
        self.texts: dict[tuple[Any, ...], list[int]] = {}

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

        def write(source: Path, destination: Path, kept: Sequence[int]) -> None:
            self._progress(f"writing {len(kept)} blocks of {source.name}")
            write_layers(source, destination, kept)

        target = self.target(settings)
        if spec.scheme == "layerskip":
            blocks = self._described(target).layers
            return layerskipped(target, spec.argument, blocks, write, cache_dir())
        return requantized(target, spec.argument, quantize, cache_dir())

    def heads(self, settings: Settings, method: str, target: ModelRef) -> tuple[Path, ...]:
        """Folders with the heads of these settings, laid out for the worker.

        Raises:
            NotMeasured: no file is given, or it is absent.
            BenchError: the file has the other kind of heads.
        """
        path, cache = heads_file(settings), cache_dir()
        try:
            key = (heads.digest(path, cache), target.path)
            if key not in self._heads:
                found = heads.read(path)
                self._heads[key] = (found.method, heads.folders(found, target, cache))
        except ModelNotFound as error:
            raise NotMeasured(str(error), missing=True) from None
        kind, folders = self._heads[key]
        if kind != method:
            raise BenchError(f"{path} has {kind} heads: say method={kind}")
        return folders

    def check_states(self, target: Loaded, token: int, name: str) -> None:
        """Once per context: hidden states and logits can be read from one pass.

        Raises:
            BenchError: they can't.
        """
        if target.handle not in self._readable:
            answer = self.engine.request("readable", context=target.handle, token=token)
            self._readable[target.handle] = answer["hidden"] and answer["logits"]
        if not self._readable[target.handle]:
            raise BenchError(
                f"{name}: llama.cpp gives no hidden state beside the logits of this model, so that no head "
                "can draft for it; choose another method"
            )

    def facts(self, settings: Settings, *, draft: bool) -> dict[str, ModelFacts | None]:
        """What the files say of themselves; the draft's only where one is in use."""
        return {
            "target": self._described(self.target(settings)),
            "draft": self._described(self.draft(settings)) if draft else None,
        }

    def release(self, loaded: Loaded) -> None:
        """Unload a context that nothing needs any more."""
        for identity, kept in list(self._contexts.items()):
            if kept is loaded and self.engine.generation == self._generation:
                del self._contexts[identity]
                self.engine.request("unload", context=loaded.handle)

    def context(
        self,
        model: ModelRef,
        settings: Settings,
        role: str,
        *,
        embeddings: bool = False,
        recurrent_snapshots: int = 0,
        sequences: int = 1,
    ) -> Loaded:
        """A context of these settings over a model; target and draft have one each, also over one file.

        With ``embeddings`` every row of a pass gives its hidden state too; times are taken without.
        ``sequences`` share n_ctx in equal parts.
        ``recurrent_snapshots`` is llama.cpp's ``n_rs_seq``: states that it keeps itself to roll back to.
        """
        self.hello()
        if not self.engine.started or self.engine.generation != self._generation:
            self._contexts.clear()
            self._rollbacks.clear()
            self._compatible.clear()
            self._readable.clear()
            self._removing.clear()
            self._generation = self.engine.generation
        rows = max(MIN_OUTPUT_ROWS, *(settings.map_sizes if embeddings else settings.sizes), settings.k + 1)
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
            "embeddings": embeddings,
            "flash_attn": settings.flash_attn,
            "swa_full": settings.swa_full,
            "n_rs_seq": recurrent_snapshots,
            "n_seq_max": sequences,
        }
        identity = (role, str(model.path), *parameters.values())
        loaded = self._contexts.get(identity)
        if loaded is None:
            while len(self._contexts) >= KEPT_CONTEXTS:
                _, oldest = self._contexts.popitem(last=False)
                self.engine.request("unload", context=oldest.handle)
            self._progress(f"loading {model.name}")
            facts = self.engine.request("load", path=str(model.path), **parameters)
            of_cache = (value for name, value in parameters.items() if name not in NOT_OF_THE_CACHE)
            loaded = Loaded(facts["context"], facts, (str(model.path), *of_cache))
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

    def rollback(self, loaded: Loaded, text: list[int], name: str) -> Rollback:
        """Prove by bits how a context rolls back; it does so from then on.

        Contexts with the same kind of cache share a proof that removing tokens works. Where it fails
        (recurrent states, windows without a full cache), states are saved before each pass and restored.
        """
        found = self._rollbacks.get(loaded.handle) or self._removing.get(loaded.cache)
        if found is None:
            tokens = text[:PROOF_TOKENS]
            removing = self.engine.request("rollback", context=loaded.handle, tokens=tokens)
            found = Rollback(removing)
            if not removing["proven"]:
                restoring = self.engine.request(
                    "rollback", context=loaded.handle, tokens=tokens, mode="snapshot"
                )
                found = Rollback(removing, restoring)
                if restoring["proven"]:
                    self._progress(f"{name} can't remove tokens from its state: rolled back by snapshots")
            self._rollbacks[loaded.handle] = found
            if loaded.cache and removing["proven"]:
                self._removing[loaded.cache] = found
        return found

    def check_vocabularies(self, target: Loaded, draft: Loaded) -> None:
        """Once per pair of contexts: the two must have one vocabulary; the worker refuses others."""
        pair = (target.handle, draft.handle)
        if pair not in self._compatible:
            self.engine.request("compatible", target=target.handle, draft=draft.handle)
            self._compatible.add(pair)

    def prove_rollback(self, loaded: Loaded, text: list[int], name: str) -> None:
        """Once per context: after removing tokens, or restoring a snapshot, others give the same bits.

        Raises:
            BenchError: it does not, so that nothing measured on this cache would mean anything.
        """
        found = self.rollback(loaded, text, name)
        if found.mode is None:
            assert found.restoring is not None
            raise BenchError(
                f"{name}: the cache does not roll back bit for bit: {found.why}; nor does it with state "
                f"snapshots: {failing(found.restoring)}. Speculation on this model is structurally unsound"
            )

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
