"""Writes GGUF models of a few blocks with random weights, which llama.cpp loads in milliseconds.

What they say is noise, but a function of all tokens before it. The same kind, seed and sizes give the same
file. `write("llama", path, noise=0.05)` is a relative of `write("llama", path)`: a draft that is often right.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray


Array = NDArray[Any]

SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
LETTERS = ("▁", *"abcdefghijklmnopqrstuvwxyz")
# 320 tokens each, alike up to the last 32.
VOCABULARY_A = (*SPECIAL, *BYTES, *LETTERS, *(c + v for c in "bdfgklmn" for v in "aeio"))
VOCABULARY_B = (*SPECIAL, *BYTES, *LETTERS, *(v + c for c in "bdfgklmn" for v in "aeio"))
# GPT-2's spelling of space and newline.
VOCABULARY_32 = ("<|endoftext|>", "Ġ", "Ċ", ".", ",", "?", *"abcdefghijklmnopqrstuvwxyz")

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Sizes:
    """Widths of the tensors; `window` is gemma3's, `noise` the share of other random numbers in weights."""

    width: int = 64
    blocks: int = 2
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 128
    context: int = 4096
    window: int = 16
    experts: int = 8
    experts_used: int = 2
    noise: float = 0.0


@dataclass
class Model:
    """A model in the making: its writer, sizes, vocabulary, and a generator per tensor's name."""

    writer: Any
    sizes: Sizes
    seed: int
    tokens: tuple[str, ...] = VOCABULARY_A
    order: Array = field(default_factory=lambda: np.arange(len(VOCABULARY_A)))

    def random(self, name: str, *shape: int) -> Array:
        """Normal numbers scaled so that a product with unit rows has unit size."""
        share = self.sizes.noise
        own, strange = (
            np.random.default_rng([self.seed, zlib.crc32(name.encode()), n]).standard_normal(shape)
            for n in range(2)
        )
        mixed: Array = ((1 - share**2) ** 0.5 * own + share * strange) / shape[-1] ** 0.5
        return mixed.astype(np.float32)

    def matrices(self, prefix: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        for name, shape in shapes.items():
            self.writer.add_tensor(f"{prefix}{name}.weight", self.random(f"{prefix}{name}", *shape))

    def norms(self, prefix: str, shapes: Mapping[str, int]) -> None:
        for name, width in shapes.items():
            weights = 1 + self.random(f"{prefix}{name}", width)
            self.writer.add_tensor(f"{prefix}{name}.weight", weights)

    def ends(self, norm: str = "output_norm") -> None:
        """Embedding, last norm and an output head of its own: a tied one would repeat each token."""
        shape = len(self.tokens), self.sizes.width
        self.writer.add_tensor(
            "token_embd.weight", self.random("token_embd", *shape)[self.order] * shape[1] ** 0.5
        )
        self.writer.add_tensor("output.weight", 4 * self.random("output", *shape)[self.order])
        self.norms("", {norm: self.sizes.width})

    def header(self, kv_heads: int | list[int] | None = None) -> None:
        sizes = self.sizes
        self.writer.add_context_length(sizes.context)
        self.writer.add_embedding_length(sizes.width)
        self.writer.add_block_count(sizes.blocks)
        self.writer.add_feed_forward_length(sizes.hidden)
        self.writer.add_head_count(sizes.heads)
        self.writer.add_head_count_kv(sizes.kv_heads if kv_heads is None else kv_heads)
        self.writer.add_layer_norm_rms_eps(1e-5)
        self.writer.add_file_type(gguf.LlamaFileType.ALL_F32)

    def attention(self, prefix: str, *, head_norms: bool = False) -> None:
        width, head = self.sizes.width, self.sizes.width // self.sizes.heads
        keys = head * self.sizes.kv_heads
        self.norms(prefix, {"attn_norm": width})
        shapes = {"attn_q": (width, width), "attn_k": (keys, width), "attn_v": (keys, width)}
        self.matrices(prefix, shapes | {"attn_output": (width, width)})
        if head_norms:
            self.norms(prefix, {"attn_q_norm": head, "attn_k_norm": head})

    def dense(self, prefix: str) -> None:
        width, hidden = self.sizes.width, self.sizes.hidden
        self.norms(prefix, {"ffn_norm": width})
        self.matrices(
            prefix, {"ffn_gate": (hidden, width), "ffn_up": (hidden, width), "ffn_down": (width, hidden)}
        )

    def sentencepiece(self) -> None:
        kinds = gguf.TokenType
        types = dict.fromkeys(BYTES, kinds.BYTE) | dict.fromkeys(SPECIAL, kinds.CONTROL)
        types["<unk>"] = kinds.UNKNOWN
        self.writer.add_tokenizer_model("llama")
        self.writer.add_tokenizer_pre("default")
        self.writer.add_token_list(self.tokens)
        # Longer pieces win.
        self.writer.add_token_scores([float(len(token)) for token in self.tokens])
        self.writer.add_token_types([types.get(token, kinds.NORMAL) for token in self.tokens])
        self.writer.add_unk_token_id(0)
        self.writer.add_bos_token_id(1)
        self.writer.add_eos_token_id(2)
        self.writer.add_add_bos_token(True)
        self.writer.add_add_space_prefix(True)
        self.writer.add_chat_template(CHATML)

    def letters(self) -> None:
        self.writer.add_tokenizer_model("gpt2")
        self.writer.add_tokenizer_pre("gpt-2")
        self.writer.add_token_list(self.tokens)
        types = [gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (len(self.tokens) - 1)]
        self.writer.add_token_types(types)
        self.writer.add_token_merges(["e r"])
        self.writer.add_bos_token_id(0)
        self.writer.add_eos_token_id(0)
        self.writer.add_add_bos_token(False)


def llama(model: Model) -> None:
    """Dense attention, the plain case."""
    model.header()
    model.sentencepiece()
    model.writer.add_rope_dimension_count(model.sizes.width // model.sizes.heads)
    model.ends()
    for block in range(model.sizes.blocks):
        model.attention(f"blk.{block}.")
        model.dense(f"blk.{block}.")


def llama_b(model: Model) -> None:
    """The same weights behind another vocabulary of the same type, size and special tokens."""
    model.tokens = VOCABULARY_B
    llama(model)


def llama_permuted(model: Model) -> None:
    """The same weights and pieces as `llama` under other ids, from the first that llama.cpp compares."""
    first = len(SPECIAL)
    rest = np.random.default_rng(model.seed).permutation(np.arange(first, len(VOCABULARY_A)))
    model.order = np.concatenate([np.arange(first), rest])
    model.tokens = tuple(VOCABULARY_A[index] for index in model.order)
    llama(model)


def llama_32(model: Model) -> None:
    """A vocabulary of 32 tokens, small enough to know a whole distribution, and of another type (BPE)."""
    model.tokens = VOCABULARY_32
    model.order = np.arange(len(VOCABULARY_32))
    model.header()
    model.letters()
    model.writer.add_rope_dimension_count(model.sizes.width // model.sizes.heads)
    model.ends()
    for block in range(model.sizes.blocks):
        model.attention(f"blk.{block}.")
        model.dense(f"blk.{block}.")


def gemma3(model: Model) -> None:
    """A sliding window in every other block."""
    sizes = model.sizes
    model.header()
    model.sentencepiece()
    model.writer.add_key_length(sizes.width // sizes.heads)
    model.writer.add_value_length(sizes.width // sizes.heads)
    model.writer.add_sliding_window(sizes.window)
    model.writer.add_sliding_window_pattern(2)
    model.ends()
    for block in range(sizes.blocks):
        model.attention(f"blk.{block}.", head_norms=True)
        model.dense(f"blk.{block}.")
        model.norms(f"blk.{block}.", {"post_attention_norm": sizes.width, "post_ffw_norm": sizes.width})


def _mixture(model: Model, *, quantised: bool) -> None:
    sizes = model.sizes
    model.header()
    model.sentencepiece()
    model.writer.add_expert_count(sizes.experts)
    model.writer.add_expert_used_count(sizes.experts_used)
    model.writer.add_expert_feed_forward_length(sizes.hidden)
    model.ends()
    up, down = (sizes.experts, sizes.hidden, sizes.width), (sizes.experts, sizes.width, sizes.hidden)
    for block in range(sizes.blocks):
        prefix = f"blk.{block}."
        model.attention(prefix, head_norms=True)
        model.norms(prefix, {"ffn_norm": sizes.width})
        model.matrices(prefix, {"ffn_gate_inp": (sizes.experts, sizes.width)})
        for name, make, shape in (
            ("ffn_gate_exps", q4_k, up),
            ("ffn_up_exps", q4_k, up),
            ("ffn_down_exps", q6_k, down),
        ):
            data, kind = make(model, f"{prefix}{name}", shape)
            if quantised:
                model.writer.add_tensor(f"{prefix}{name}.weight", data, raw_dtype=kind)
            else:
                model.writer.add_tensor(f"{prefix}{name}.weight", gguf.quants.dequantize(data, kind))


def moe_q4_k(model: Model) -> None:
    """A mixture with experts of the types that a Q4_K_M file has: Q4_K, and Q6_K on the way down."""
    _mixture(model, quantised=True)


def moe_f32(model: Model) -> None:
    """The same mixture, its experts' weights value for value as F32."""
    _mixture(model, quantised=False)


def q4_k(model: Model, name: str, shape: tuple[int, ...]) -> tuple[Array, Any]:
    """Random blocks of ggml-common.h's block_q4_K.

    d and dmin (F16), 12 bytes of 6-bit scales and minima, 128 bytes of 4-bit quants; a weight is
    d * scale * quant - dmin * minimum. dmin puts their mean at zero; 260 is their spread in units of d.
    """
    blocks = _bytes(model, name, shape, 144)
    d = 1 / (260 * shape[-1] ** 0.5)
    blocks[..., :4] = np.frombuffer(np.array([d, 7.5 * d], np.float16).tobytes(), np.uint8)
    return blocks.reshape(*shape[:-1], -1), gguf.GGMLQuantizationType.Q4_K


def q6_k(model: Model, name: str, shape: tuple[int, ...]) -> tuple[Array, Any]:
    """Random blocks of ggml-common.h's block_q6_K.

    192 bytes of 6-bit quants, 16 signed 8-bit scales, d (F16); a weight is d * scale * (quant - 32), and 1370
    is the spread in units of d.
    """
    blocks = _bytes(model, name, shape, 210)
    d = 1 / (1370 * shape[-1] ** 0.5)
    blocks[..., -2:] = np.frombuffer(np.array([d], np.float16).tobytes(), np.uint8)
    return blocks.reshape(*shape[:-1], -1), gguf.GGMLQuantizationType.Q6_K


def _bytes(model: Model, name: str, shape: tuple[int, ...], block: int) -> Array:
    if shape[-1] % 256:
        raise ValueError(f"{name}: rows of {shape[-1]} are no multiple of a K-quant's 256")
    rng = np.random.default_rng([model.seed, zlib.crc32(name.encode())])
    return rng.integers(0, 256, (*shape[:-1], shape[-1] // 256, block), np.uint8)


def qwen2vl(model: Model) -> None:
    """Positions of several axes (M-RoPE)."""
    pairs = model.sizes.width // model.sizes.heads // 2
    model.header()
    model.sentencepiece()
    model.writer.add_rope_dimension_sections([pairs - 2 * (pairs // 3), pairs // 3, pairs // 3, 0])
    model.ends()
    for block in range(model.sizes.blocks):
        model.attention(f"blk.{block}.")
        model.dense(f"blk.{block}.")


def mamba(model: Model) -> None:
    """A recurrent state and no attention."""
    width, inner, state, kernel, rank = model.sizes.width, 2 * model.sizes.width, 16, 4, 4
    model.header()
    model.sentencepiece()
    model.writer.add_ssm_conv_kernel(kernel)
    model.writer.add_ssm_inner_size(inner)
    model.writer.add_ssm_state_size(state)
    model.writer.add_ssm_time_step_rank(rank)
    model.ends()
    for block in range(model.sizes.blocks):
        prefix = f"blk.{block}."
        model.norms(prefix, {"attn_norm": width})
        shapes = {"ssm_in": (2 * inner, width), "ssm_x": (rank + 2 * state, inner), "ssm_dt": (inner, rank)}
        model.matrices(prefix, shapes | {"ssm_conv1d": (inner, kernel), "ssm_out": (width, inner)})
        model.writer.add_tensor(f"{prefix}ssm_conv1d.bias", model.random(f"{prefix}conv", inner))
        model.writer.add_tensor(f"{prefix}ssm_dt.bias", model.random(f"{prefix}dt", inner))
        # Decay rates: negative, or the state grows without end.
        rates = -np.abs(1 + model.random(f"{prefix}ssm_a", inner, state))
        model.writer.add_tensor(f"{prefix}ssm_a", rates)
        model.writer.add_tensor(f"{prefix}ssm_d", 1 + model.random(f"{prefix}ssm_d", inner))


def lfm2(model: Model) -> None:
    """A hybrid: short convolutions in the even blocks, attention in the odd ones."""
    width, kernel = model.sizes.width, 3
    heads = [model.sizes.kv_heads * (block % 2) for block in range(model.sizes.blocks)]
    model.header(heads)
    model.sentencepiece()
    model.writer.add_shortconv_l_cache(kernel)
    model.ends("token_embd_norm")
    for block in range(model.sizes.blocks):
        prefix = f"blk.{block}."
        if heads[block]:
            model.attention(prefix, head_norms=True)
        else:
            model.norms(prefix, {"attn_norm": width})
            shapes = {"in_proj": (3 * width, width), "out_proj": (width, width), "conv": (width, kernel)}
            model.matrices(f"{prefix}shortconv.", shapes)
        model.dense(prefix)


def clip(model: Model) -> None:
    """A vision projector's metadata: no language model."""
    model.writer.add_type("mmproj")
    model.writer.add_file_type(gguf.LlamaFileType.ALL_F32)


_WIDE = Sizes(width=256, hidden=256, experts=4)

# Kind -> what fills it in, its architecture, its default sizes.
KINDS: Mapping[str, tuple[Callable[[Model], None], str, Sizes]] = {
    "llama": (llama, "llama", Sizes()),
    "llama-b": (llama_b, "llama", Sizes()),
    "llama-permuted": (llama_permuted, "llama", Sizes()),
    "llama-32": (llama_32, "llama", Sizes()),
    "gemma3": (gemma3, "gemma3", Sizes()),
    "moe-f32": (moe_f32, "qwen3moe", _WIDE),
    "moe-q4_k": (moe_q4_k, "qwen3moe", _WIDE),
    "qwen2vl": (qwen2vl, "qwen2vl", Sizes()),
    "mamba": (mamba, "mamba", Sizes()),
    "lfm2": (lfm2, "lfm2", Sizes()),
    "clip": (clip, "clip", Sizes()),
}


def write(kind: str, path: Path, *, seed: int = 0, **sizes: float) -> Path:
    """Write a model of a kind of `KINDS`; `sizes` replace fields of `Sizes`."""
    fill, architecture, defaults = KINDS[kind]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {kind}")
    fill(Model(writer, replace(defaults, **sizes), seed))  # type: ignore[arg-type]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def build_all(directory: Path, kinds: Iterable[str] = KINDS) -> dict[str, Path]:
    """Write one model of each kind into `directory`; return kind -> path."""
    return {kind: write(kind, directory / f"{kind}.gguf") for kind in kinds}
