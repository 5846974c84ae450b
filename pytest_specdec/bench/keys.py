"""What makes two measurements the same: kind, and the canonical settings that affect it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.prompts import PromptSet
from pytest_specdec.models import heads
from pytest_specdec.models.cache import cache_dir
from pytest_specdec.models.errors import ModelNotFound
from pytest_specdec.settings import Settings
from pytest_specdec.values import ranges


# Every forward pass depends on these.
CONTEXT = (
    "backend",
    "flash_attn",
    "gpu_layers",
    "n_ctx",
    "n_ubatch",
    "swa_full",
    "type_k",
    "type_v",
    "use_extra_bufts",
)
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
# Kinds that no text is generated for.
NOT_OF_TEXT = ("verify_curve", "kernel_map")
# What the proposals of a source without a model depend on.
SOURCES: Mapping[str, tuple[str, ...]] = {
    "ngram": ("ngram_max", "ngram_min"),
    "oracle": ("oracle_alpha", "oracle_ms", "seed"),
}


def method(settings: Settings) -> str:
    """The draft source, "auto" resolved: two-model with a draft model, else ngram.

    Raises:
        BenchError: there are heads, and no method says what they are.
    """
    if settings.method == "auto":
        if settings.heads and not settings.draft:
            raise BenchError(f"{settings.heads} may be used in two ways: say method=medusa or method=eagle")
        return "two-model" if settings.draft else "ngram"
    return settings.method


def canonical(kind: str, settings: Settings, *, prompts: PromptSet, rows: str = "all") -> dict[str, Any]:
    """The settings that a measurement of ``kind`` depends on, in builtin types, sorted by name."""
    values: dict[str, Any] = {name: getattr(settings, name) for name in CONTEXT}
    values["threads"] = settings.n_threads
    if kind == "verify_curve":
        values.update(depth=settings.depth, rows=rows, sizes=ranges(settings.sizes))
    elif kind == "kernel_map":
        values.update(depth=settings.depth, sizes=ranges(settings.map_sizes), prompts=prompts.digest)
    elif kind == "draft_cost":
        values.update(depth=settings.depth, method=method(settings))
    else:
        values.update(n_predict=settings.n_predict, prompts=prompts.digest)
        if kind not in ("decode", "noise"):
            values.update(k=settings.k, method=method(settings))
    if settings.samples and kind not in NOT_OF_TEXT:
        values.update({name: getattr(settings, name) for name in SAMPLING})
    if values.get("method") in heads.METHODS:
        values.update(heads=_heads(settings))
    own = SOURCES.get(values.get("method", ""))
    if own is not None:
        values.update({name: getattr(settings, name) for name in own})
    if kind == "draft_cost" and values["method"] != "two-model":
        values.update(n_predict=settings.n_predict, prompts=prompts.digest, k=settings.k)
    return dict(sorted(values.items()))


def heads_file(settings: Settings) -> Path:
    """The file of heads that the method needs.

    Raises:
        NotMeasured: none is given.
    """
    if not settings.heads:
        name = method(settings)
        raise NotMeasured(
            f"method {name} needs heads: give --specdec-heads FILE, or @specdec(heads=...); fit some with: "
            f"specdec fit {name}",
            missing=True,
        )
    return Path(settings.heads).expanduser()


def _heads(settings: Settings) -> str:
    try:
        return heads.digest(heads_file(settings), cache_dir())
    except ModelNotFound as error:
        raise NotMeasured(str(error), missing=True) from None


def key(kind: str, values: Mapping[str, Any]) -> str:
    """One readable line that names a measurement."""
    return " ".join([kind, *(f"{name}={_word(value)}" for name, value in sorted(values.items()))])


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
