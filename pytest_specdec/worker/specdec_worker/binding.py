"""llama_cpp's low-level API across its versions: parameters, devices, build identity, log."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

from specdec_worker.errors import Refused


try:
    import llama_cpp
    from llama_cpp import llama_cpp as lib
except Exception as error:
    raise Refused(
        "import",
        f"llama_cpp can't be imported by {sys.executable}: {error!r}. "
        'Install it there: pip install "pytest-specdec[llama]"',
    ) from None

__all__ = ["lib"]

# What the worker uses of lib whatever the version; a missing name is said at hello, not in the middle.
NEEDED = (
    "llama_backend_init",
    "llama_batch_free",
    "llama_batch_init",
    "llama_chat_apply_template",
    "llama_chat_message",
    "llama_context_default_params",
    "llama_context_params",
    "llama_decode",
    "llama_free",
    "llama_get_embeddings_ith",
    "llama_get_logits_ith",
    "llama_get_memory",
    "llama_init_from_model",
    "llama_log_callback",
    "llama_log_set",
    "llama_memory_clear",
    "llama_memory_seq_add",
    "llama_memory_seq_pos_max",
    "llama_memory_seq_rm",
    "llama_model_chat_template",
    "llama_model_default_params",
    "llama_model_desc",
    "llama_model_free",
    "llama_model_get_vocab",
    "llama_model_load_from_file",
    "llama_model_n_ctx_train",
    "llama_model_n_embd",
    "llama_model_n_layer",
    "llama_model_n_params",
    "llama_model_params",
    "llama_model_quantize",
    "llama_model_quantize_default_params",
    "llama_model_size",
    "llama_n_batch",
    "llama_n_ctx",
    "llama_n_threads",
    "llama_n_ubatch",
    "llama_print_system_info",
    "llama_set_embeddings",
    "llama_state_seq_get_data",
    "llama_state_seq_get_size",
    "llama_state_seq_set_data",
    "llama_supports_gpu_offload",
    "llama_synchronize",
    "llama_token",
    "llama_token_to_piece",
    "llama_tokenize",
    "llama_vocab_bos",
    "llama_vocab_eos",
    "llama_vocab_get_add_bos",
    "llama_vocab_get_add_eos",
    "llama_vocab_get_text",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
    "llama_vocab_type",
)
NAMED = 4
DEVICE_TYPES = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel", 4: "meta"}
BACKENDS = {
    "metal": ("metal", "mtl"),
    "cuda": ("cuda", "rocm", "musa", "hip"),
    "vulkan": ("vulkan",),
}
KV_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
}
FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}

recent_log: collections.deque[str] = collections.deque(maxlen=400)


def _write_log(level: int, text: bytes, _data: Any) -> None:
    # 1 is DEBUG; everything else, continuations included, goes where the plugin reads it.
    if level == 1:
        return
    recent_log.append(text.decode("utf-8", "replace"))
    with contextlib.suppress(OSError):
        os.write(2, text)


def _check() -> None:
    missing = [name for name in NEEDED if not hasattr(lib, name)]
    if missing:
        version = getattr(llama_cpp, "__version__", "of this interpreter")
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        raise Refused(
            "import",
            f"llama-cpp-python {version} lacks {', '.join(missing[:NAMED])}{more}; 0.3.16 or newer is needed",
        )


# Other modules use these names when they are imported.
_check()
# ctypes does not keep it alive.
_LOG_CALLBACK = lib.llama_log_callback(_write_log)


def start() -> None:
    """Initialise the backends."""
    lib.llama_log_set(_LOG_CALLBACK, ctypes.c_void_p(0))
    lib.llama_backend_init()


def library_directory() -> Path:
    """The folder from which libllama was loaded."""
    override = os.environ.get("LLAMA_CPP_LIB_PATH")
    return Path(override) if override else Path(llama_cpp.__file__).parent / "lib"


def _libraries() -> list[Path]:
    folder = library_directory()
    names = [
        p
        for p in (folder.iterdir() if folder.is_dir() else ())
        if p.suffix in {".so", ".dylib", ".dll", ".metallib"} and p.is_file()
    ]
    return sorted(p for p in names if "llama" in p.name or "ggml" in p.name)


_ggml: ctypes.CDLL | None = None


def ggml() -> ctypes.CDLL:
    """The ggml library that libllama uses, with the functions of its device registry typed."""
    global _ggml
    if _ggml is None:
        candidates = [p for p in _libraries() if p.stem in {"libggml", "ggml"}]
        if not candidates:
            raise Refused("import", f"no ggml library in {library_directory()}")
        library = ctypes.CDLL(str(candidates[0]))
        library.ggml_backend_dev_count.restype = ctypes.c_size_t
        library.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
        for name, result in (
            ("ggml_backend_dev_get", ctypes.c_void_p),
            ("ggml_backend_dev_name", ctypes.c_char_p),
            ("ggml_backend_dev_description", ctypes.c_char_p),
            ("ggml_backend_dev_type", ctypes.c_int),
            ("ggml_backend_dev_backend_reg", ctypes.c_void_p),
            ("ggml_backend_reg_name", ctypes.c_char_p),
        ):
            getattr(library, name).restype = result
            if name != "ggml_backend_dev_get":
                getattr(library, name).argtypes = [ctypes.c_void_p]
        library.ggml_backend_dev_memory.argtypes = [
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_size_t),
            ctypes.POINTER(ctypes.c_size_t),
        ]
        library.ggml_backend_dev_memory.restype = None
        _ggml = library
    return _ggml


def devices() -> list[dict[str, Any]]:
    """Every device ggml registered, with its backend and memory in bytes."""
    library = ggml()
    found = []
    for index in range(library.ggml_backend_dev_count()):
        device = library.ggml_backend_dev_get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        library.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(
            {
                "index": index,
                "name": library.ggml_backend_dev_name(device).decode(),
                "description": library.ggml_backend_dev_description(device).decode(),
                "type": DEVICE_TYPES.get(library.ggml_backend_dev_type(device), "other"),
                "backend": library.ggml_backend_reg_name(
                    library.ggml_backend_dev_backend_reg(device)
                ).decode(),
                "memory_total": total.value,
                "memory_free": free.value,
            }
        )
    return found


def chosen_devices(backend: str) -> list[dict[str, Any]]:
    """The GPU devices that a backend name stands for; "cpu" stands for none, "auto" for all.

    Raises:
        Refused: the backend is asked for and no such device is there.
    """
    everything = devices()
    gpus = [d for d in everything if d["type"] in {"gpu", "igpu"}]
    if backend == "auto":
        return gpus
    if backend == "cpu":
        return []
    wanted = [d for d in gpus if any(word in d["backend"].lower() for word in BACKENDS[backend])]
    if not wanted:
        seen = ", ".join(f"{d['name']} ({d['backend']})" for d in everything) or "none"
        raise Refused(
            "device",
            f"backend {backend} was asked for and this build of llama.cpp has no such device; devices here: "
            f"{seen}. Install a build with {backend}, or choose --specdec-backend=auto or cpu",
        )
    return wanted


def set_fields(params: Any, values: dict[str, Any]) -> None:
    """Set fields of a ctypes structure; a name the structure lacks would otherwise be set in silence."""
    known = {field[0] for field in params._fields_}
    for name, value in values.items():
        if name not in known:
            raise Refused("binding", f"{type(params).__name__} of this llama-cpp-python has no field {name}")
        setattr(params, name, value)


def has_field(params: Any, name: str) -> bool:
    """Whether this version's structure has the field."""
    return any(field[0] == name for field in params._fields_)


# Recurrent states and sliding windows only: the rest of a cache removes tokens by itself.
_PARTIAL = 1


def state_size(context: Any, sequence: int) -> int:
    """Bytes that a sequence's state takes, of the parts that can't remove tokens where the API has those."""
    if hasattr(lib, "llama_state_seq_get_size_ext"):
        return int(lib.llama_state_seq_get_size_ext(context, sequence, _PARTIAL))
    return int(lib.llama_state_seq_get_size(context, sequence))


def state_get(context: Any, data: Any, size: int, sequence: int) -> int:
    """Copy a sequence's state; the bytes written, 0 where llama.cpp failed."""
    if hasattr(lib, "llama_state_seq_get_data_ext"):
        return int(lib.llama_state_seq_get_data_ext(context, data, size, sequence, _PARTIAL))
    return int(lib.llama_state_seq_get_data(context, data, size, sequence))


def state_set(context: Any, data: Any, size: int, sequence: int) -> int:
    """Put a sequence's state back; the bytes read, 0 where llama.cpp refused."""
    if hasattr(lib, "llama_state_seq_set_data_ext"):
        return int(lib.llama_state_seq_set_data_ext(context, data, size, sequence, _PARTIAL))
    return int(lib.llama_state_seq_set_data(context, data, size, sequence))


def _native_text(name: str) -> str | None:
    try:
        function = getattr(ggml(), name)
    except AttributeError:
        return None
    function.restype = ctypes.c_char_p
    value = function()
    return value.decode() if value else None


def hello() -> dict[str, Any]:
    """Versions, build identity, system info and devices."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "llama_cpp_python": llama_cpp.__version__,
        "ggml_version": _native_text("ggml_version"),
        "ggml_commit": _native_text("ggml_commit"),
        "libraries": {path.name: _sha256(path) for path in _libraries()},
        "system_info": lib.llama_print_system_info().decode("utf-8", "replace").strip(),
        "devices": devices(),
        "gpu_offload": bool(lib.llama_supports_gpu_offload()),
        "context_fields": [field[0] for field in lib.llama_context_params._fields_],
        "model_fields": [field[0] for field in lib.llama_model_params._fields_],
    }


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()
