"""Models and contexts: loading with every parameter set, decoding, logits, rollback."""

from __future__ import annotations

import contextlib
import ctypes
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Iterator

import numpy as np

from specdec_worker import binding
from specdec_worker import deaths
from specdec_worker.binding import lib
from specdec_worker.errors import Refused
from specdec_worker.faults import Faults


SEQUENCE = 0
SEQ_RM = "seq_rm"
SNAPSHOT = "snapshot"
# Snapshots kept, in bytes; older states come back by decoding the text again.
SNAPSHOT_BYTES = 256 * 2**20


class Model:
    """A loaded model; contexts share it."""

    def __init__(self, path: str, *, gpu_layers: int, backend: str, use_extra_bufts: bool) -> None:
        if not Path(path).is_file():
            raise Refused("load", f"no such model file: {path}")
        chosen = binding.chosen_devices(backend)
        params = lib.llama_model_default_params()
        self._device_list: Any = None
        if chosen != binding.chosen_devices("auto"):
            handles = [binding.ggml().ggml_backend_dev_get(d["index"]) for d in chosen]
            self._device_list = (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
            binding.set_fields(params, {"devices": ctypes.cast(self._device_list, ctypes.c_void_p)})
        layers = gpu_layers if gpu_layers >= 0 else 999
        binding.set_fields(
            params,
            {
                "n_gpu_layers": layers if chosen else 0,
                "split_mode": 1,
                "main_gpu": 0,
                "vocab_only": False,
                "check_tensors": False,
            },
        )
        if binding.has_field(params, "load_mode"):
            binding.set_fields(params, {"load_mode": lib.LLAMA_LOAD_MODE_MMAP})
        else:
            binding.set_fields(params, {"use_mmap": True, "use_mlock": False})
        if binding.has_field(params, "use_extra_bufts"):
            binding.set_fields(params, {"use_extra_bufts": use_extra_bufts})
        elif not use_extra_bufts:
            raise Refused("binding", "use_extra_bufts=False needs a llama-cpp-python newer than this one")
        start = time.perf_counter()
        self.handle = lib.llama_model_load_from_file(path.encode(), params)
        self.load_ms = (time.perf_counter() - start) * 1000.0
        if not self.handle:
            raise Refused("load", f"llama.cpp could not load {path}: its last lines say why")
        self.path = path
        self.devices = [d["name"] for d in chosen] if layers > 0 and chosen else ["CPU"]
        self.on_gpu = bool(chosen)
        self.vocab = lib.llama_model_get_vocab(self.handle)
        self.n_vocab = int(lib.llama_vocab_n_tokens(self.vocab))
        wide = "llama_model_n_embd_out" if hasattr(lib, "llama_model_n_embd_out") else "llama_model_n_embd"
        self.n_hidden = int(getattr(lib, wide)(self.handle))
        self.window = int(lib.llama_model_n_swa(self.handle)) if hasattr(lib, "llama_model_n_swa") else 0

    def facts(self) -> dict[str, Any]:
        """What llama.cpp says of the model."""
        description = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self.handle, description, 256)
        optional = {
            name: bool(getattr(lib, f"llama_model_{name}")(self.handle))
            for name in ("is_recurrent", "is_hybrid")
            if hasattr(lib, f"llama_model_{name}")
        }
        template = lib.llama_model_chat_template(self.handle, None)
        return {
            "description": description.value.decode("utf-8", "replace"),
            "n_vocab": self.n_vocab,
            "n_layer": int(lib.llama_model_n_layer(self.handle)),
            "n_embd": int(lib.llama_model_n_embd(self.handle)),
            "n_ctx_train": int(lib.llama_model_n_ctx_train(self.handle)),
            "n_swa": self.window,
            "n_params": int(lib.llama_model_n_params(self.handle)),
            "size": int(lib.llama_model_size(self.handle)),
            "chat_template": bool(template),
            "devices": self.devices,
            "load_ms": self.load_ms,
            **optional,
        }

    def free(self) -> None:
        """Give the memory back."""
        lib.llama_model_free(self.handle)


@dataclass(frozen=True)
class Snapshot:
    """A sequence's state after ``past`` tokens: what removing tokens can't bring back."""

    past: int
    data: Any
    size: int


class Context:
    """One sequence's cache over a model, decoded with explicit positions.

    ``past`` is the number of tokens the host believes are in the cache. ``forward_ms``, ``sampling_ms`` and
    ``rollback_ms`` add up what was spent so far in passes, in choosing tokens and in the cache.

    ``mode`` is how it rolls back: "seq_rm" removes tokens; "snapshot", for states that can't forget, saves
    the state before each pass, restores the newest one at or before the kept length, and decodes the kept
    tokens behind it again. All of that is rollback time. ``replayed`` has the widths of those passes: another
    width may be another kernel, with other bits.

    ``embeddings``, in a context made with them: whether passes with all rows give hidden states;
    ``logits_apart``: whether logits then need a pass of their own, without.
    """

    def __init__(self, model: Model, spec: dict[str, Any], faults: Faults) -> None:
        self.model = model
        self.faults = faults
        self.n_batch = int(spec["n_batch"])
        self.swa_full = bool(spec["swa_full"])
        self.n_sequences = int(spec.get("n_seq_max", 1))
        self.embeddings = self._can_embed = bool(spec["embeddings"])
        self.logits_apart = False
        self.mode = SEQ_RM
        self.replayed: set[int] = set()
        self._text: list[int] = []
        self._snapshots: list[Snapshot] = []
        self.past = 0
        self.forward_ms = 0.0
        self.sampling_ms = 0.0
        self.rollback_ms = 0.0
        params = lib.llama_context_default_params()
        binding.set_fields(
            params,
            {
                "n_ctx": spec["n_ctx"],
                "n_batch": self.n_batch,
                "n_ubatch": spec["n_ubatch"],
                "n_seq_max": self.n_sequences,
                "n_threads": spec["n_threads"],
                "n_threads_batch": spec["n_threads"],
                "rope_scaling_type": -1,
                "pooling_type": 0,
                "type_k": binding.KV_TYPES[spec["type_k"]],
                "type_v": binding.KV_TYPES[spec["type_v"]],
                "embeddings": bool(spec["embeddings"]),
                "offload_kqv": model.on_gpu,
                "no_perf": True,
            },
        )
        flash = binding.FLASH_ATTN[spec["flash_attn"]]
        if binding.has_field(params, "flash_attn_type"):
            binding.set_fields(params, {"flash_attn_type": flash})
        elif flash < 0:
            raise Refused("binding", "flash_attn=auto needs a newer llama-cpp-python; say on or off")
        else:
            binding.set_fields(params, {"flash_attn": bool(flash)})
        for name, value in (
            ("swa_full", self.swa_full),
            ("n_rs_seq", int(spec.get("n_rs_seq", 0))),
            ("op_offload", model.on_gpu),
            ("kv_unified", False),
            ("n_outputs_max", int(spec["n_outputs_max"])),
        ):
            if binding.has_field(params, name):
                binding.set_fields(params, {name: value})
        binding.recent_log.clear()
        self.handle = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise Refused(
                "load", f"llama.cpp could not make a context for {model.path}: its last lines say why"
            )
        self.n_ctx = int(lib.llama_n_ctx(self.handle))
        self.n_ubatch = int(lib.llama_n_ubatch(self.handle))
        self.window = model.window
        self.memory = lib.llama_get_memory(self.handle)
        self.flash_attn = _resolved_flash_attention(flash)
        self._row = ctypes.c_float * model.n_vocab
        self._capacity = 0
        self._batch: Any = None
        self._grow(self.n_batch)

    def _grow(self, capacity: int) -> None:
        if self._batch is not None:
            lib.llama_batch_free(self._batch)
        self._batch = lib.llama_batch_init(capacity, 0, 1)
        self._capacity = capacity
        shape = (capacity,)
        self._tokens = np.ctypeslib.as_array(self._batch.token, shape)
        self._positions = np.ctypeslib.as_array(self._batch.pos, shape)
        self._outputs = np.ctypeslib.as_array(self._batch.logits, shape)
        np.ctypeslib.as_array(self._batch.n_seq_id, shape)[:] = 1
        for i in range(capacity):
            self._batch.seq_id[i][0] = SEQUENCE

    @contextlib.contextmanager
    def logits_only(self) -> Iterator[None]:
        """Passes give no hidden states in here: some architectures give either these or logits."""
        before, self.embeddings = self.embeddings, False
        try:
            yield
        finally:
            self.embeddings = before

    def clear(self) -> None:
        """Forget everything."""
        lib.llama_memory_clear(self.memory, True)
        self.past = 0
        self._text.clear()
        self._snapshots.clear()

    def roll_back_with(self, mode: str) -> None:
        """Choose how to roll back; forgets everything."""
        self.mode = mode
        self.replayed.clear()
        self.clear()

    def decode(self, tokens: Any, rows: str = "all", save: bool = True) -> float:
        """One forward pass over ``tokens`` at the end of the cache, synchronised; its wall time in ms.

        ``rows``: "all", "last" or "none" of the rows get logits. ``save=False`` spares the snapshot before
        the pass, where no rollback to its start is to come.

        Raises:
            Refused: llama_decode gave an error.
        """
        if self.mode == SNAPSHOT and save:
            start = time.perf_counter()
            self._save()
            self.rollback_ms += (time.perf_counter() - start) * 1000.0
        elapsed = self._pass(tokens, rows)
        self.forward_ms += elapsed
        return elapsed

    def _pass(self, tokens: Any, rows: str) -> float:
        count = len(tokens)
        if count > self._capacity:
            self._grow(count)
        batch = self._batch
        batch.n_tokens = count
        self._tokens[:count] = tokens
        self._positions[:count] = np.arange(self.past, self.past + count)
        self._outputs[:count] = 1 if rows == "all" else 0
        if rows == "last":
            self._outputs[count - 1] = 1
        deaths.strike(self.faults)
        if self._can_embed:
            # With them on every row is an output, and there may be no room for so many.
            lib.llama_set_embeddings(self.handle, self.embeddings and rows == "all")
        start = time.perf_counter()
        code = lib.llama_decode(self.handle, batch)
        lib.llama_synchronize(self.handle)
        elapsed = time.perf_counter() - start
        if self.faults.sleep_forward:
            time.sleep(elapsed * self.faults.sleep_forward)
            elapsed = time.perf_counter() - start
        if code != 0:
            raise Refused("decode", self._decode_error(code, count))
        if self.mode == SNAPSHOT:
            self._text[self.past :] = [int(token) for token in tokens]
        self.past += count
        return elapsed * 1000.0

    def prefill(self, tokens: Any) -> float:
        """Decode a prompt in batches of n_batch, logits for its last row only; ms."""
        total = 0.0
        for start in range(0, len(tokens), self.n_batch):
            part = tokens[start : start + self.n_batch]
            last = start + len(part) == len(tokens)
            total += self.decode(part, "last" if last else "none", save=False)
        return total

    def logits(self, row: int) -> Any:
        """The logits of a row of the last batch, float32 of shape (n_vocab,); valid until the next decode."""
        pointer = lib.llama_get_logits_ith(self.handle, row)
        if not pointer:
            raise Refused("decode", f"row {row} of the last batch has no logits")
        values: Any = self._row.from_address(ctypes.addressof(pointer.contents))
        return np.frombuffer(values, dtype=np.float32)

    def hidden(self, row: int) -> Any:
        """The hidden state of a row of the last batch, float32, valid until the next decode; None without."""
        pointer = lib.llama_get_embeddings_ith(self.handle, row)
        if not pointer:
            return None
        return np.ctypeslib.as_array(pointer, (self.model.n_hidden,))

    def best(self, row: int) -> int:
        """The most likely token of a row."""
        start = time.perf_counter()
        token = int(self.logits(row).argmax())
        self.sampling_ms += (time.perf_counter() - start) * 1000.0
        return token

    def rollback(self, past: int) -> None:
        """Forget every token from position ``past`` on.

        Raises:
            Refused: the cache can't remove the end of a sequence, or doesn't take its state back.
        """
        if past == self.past:
            return
        start = time.perf_counter()
        try:
            if self.mode == SNAPSHOT:
                self._restore(past)
            else:
                self._remove(past)
        finally:
            self.rollback_ms += (time.perf_counter() - start) * 1000.0
        self.past = past

    def _remove(self, past: int) -> None:
        if not lib.llama_memory_seq_rm(self.memory, SEQUENCE, past, -1):
            raise Refused(
                "rollback",
                f"llama_memory_seq_rm refused to remove positions {past}..{self.past - 1}: this architecture "
                "(recurrent or hybrid) can't roll back, so rejected drafts stay in its state",
            )

    def _save(self) -> None:
        """Keep the state that the cache can't recompute: recurrent states and sliding windows."""
        if self._snapshots and self._snapshots[-1].past == self.past:
            return
        size = binding.state_size(self.handle, SEQUENCE)
        data = (ctypes.c_uint8 * size)()
        written = binding.state_get(self.handle, data, size, SEQUENCE)
        if size and not written:
            raise Refused("rollback", f"llama.cpp did not give the state after {self.past} tokens")
        self._snapshots.append(Snapshot(self.past, data, written))
        held = sum(one.size for one in self._snapshots)
        while held > SNAPSHOT_BYTES and len(self._snapshots) > 1:
            held -= self._snapshots.pop(0).size

    def _restore(self, past: int) -> None:
        kept = self._text[:past]
        while self._snapshots and self._snapshots[-1].past > past:
            self._snapshots.pop()
        # A state without a token in it is no state: some caches don't take it back.
        if self._snapshots and self._snapshots[-1].past:
            snapshot = self._snapshots[-1]
            if not binding.state_set(self.handle, snapshot.data, snapshot.size, SEQUENCE):
                raise Refused(
                    "rollback", f"llama.cpp did not take back the state after {snapshot.past} tokens"
                )
            # What a snapshot leaves out, attention over everything, removes tokens well.
            if not lib.llama_memory_seq_rm(self.memory, SEQUENCE, snapshot.past, -1):
                raise Refused(
                    "rollback",
                    f"llama_memory_seq_rm refused to remove what follows a restored state of {snapshot.past} "
                    "tokens",
                )
            self.past = snapshot.past
        else:
            lib.llama_memory_clear(self.memory, True)
            self.past = 0
        for start in range(self.past, past, self.n_batch):
            part = kept[start : start + self.n_batch]
            self.replayed.add(len(part))
            self._pass(part, "none")
        del self._text[past:]

    def _decode_error(self, code: int, count: int) -> str:
        meaning = {
            1: f"no room for {count} tokens after {self.past} in a context of {self.n_ctx}: raise n_ctx",
            2: "aborted",
            -1: "the batch was refused (positions that don't follow the cache, or an invalid token)",
        }.get(code, "an error inside llama.cpp")
        return f"llama_decode returned {code} for {count} tokens at position {self.past}: {meaning}"

    def facts(self) -> dict[str, Any]:
        """The context as it came to be."""
        return {
            "n_ctx": self.n_ctx,
            "n_batch": int(lib.llama_n_batch(self.handle)),
            "n_ubatch": self.n_ubatch,
            "n_threads": int(lib.llama_n_threads(self.handle)),
            "flash_attn": self.flash_attn,
            "model": self.model.facts(),
        }

    def free(self) -> None:
        """Give the memory back."""
        lib.llama_batch_free(self._batch)
        lib.llama_free(self.handle)


def _resolved_flash_attention(asked: int) -> str:
    if asked >= 0:
        return "on" if asked else "off"
    text = "".join(binding.recent_log)
    # The wording changed between versions; the context itself doesn't tell.
    found = re.findall(r"Flash Attention (?:was auto, set to )?(enabled|disabled)", text)
    return {"enabled": "on", "disabled": "off"}[found[-1]] if found else "auto"
