"""Every setting once: command line, ini file, environment, the mark `specdec` and the help come from here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Final

from pytest_specdec.values import Choice
from pytest_specdec.values import File
from pytest_specdec.values import Folder
from pytest_specdec.values import Kind
from pytest_specdec.values import Number
from pytest_specdec.values import Pairs
from pytest_specdec.values import Sizes
from pytest_specdec.values import Switch
from pytest_specdec.values import Text
from pytest_specdec.values import Whole


_CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


def _run(kind: Kind, help: str) -> dict[str, Any]:
    """Describe a setting of one measurement: an option, and a key of the mark `specdec`."""
    return {"kind": kind, "help": help, "run": True}


def _session(kind: Kind, help: str) -> dict[str, Any]:
    """Describe a setting of the whole session: an option only."""
    return {"kind": kind, "help": help, "run": False}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a measurement runs with, and how the session treats what comes of it.

    `rootdir` is where relative paths in marks begin; it is no option.
    """

    target: str | None = field(
        default=None,
        metadata=_run(File(optional=True), "model under test: a path or a model's name"),
    )
    draft: str | None = field(
        default=None,
        metadata=_run(
            File(optional=True), "draft model: a path, a name, requantize:TYPE or layerskip:BLOCKS"
        ),
    )
    heads: str | None = field(
        default=None,
        metadata=_run(File(optional=True), "medusa or eagle heads of the target: a safetensors file"),
    )
    method: str = field(
        default="auto",
        metadata=_run(
            Choice(("auto", "two-model", "ngram", "medusa", "eagle", "oracle")),
            "where drafts come from; auto: two-model with a draft model, else ngram (prompt lookup); medusa, "
            "eagle: heads; oracle: the target's own text, right as often as oracle_alpha says",
        ),
    )
    k: int = field(default=3, metadata=_run(Whole(1), "draft length: tokens drafted per round"))
    prompts: str = field(
        default="default",
        metadata=_run(
            File(), "texts to run on: default, or a JSON Lines file; '::code,list' after it selects"
        ),
    )
    n_predict: int = field(default=64, metadata=_run(Whole(2), "tokens to generate per prompt"))
    depth: int = field(default=0, metadata=_run(Whole(0), "tokens in the context before a timed pass"))
    n_ctx: int = field(default=2048, metadata=_run(Whole(1), "context size in tokens"))
    n_batch: int = field(default=512, metadata=_run(Whole(1), "logical batch size in tokens"))
    n_ubatch: int = field(default=512, metadata=_run(Whole(1), "physical batch size in tokens"))
    threads: int = field(default=0, metadata=_run(Whole(0), "CPU threads; 0: all usable cores"))
    gpu_layers: int = field(
        default=-1, metadata=_run(Whole(-1), "layers on the GPU; -1: all, where there is one")
    )
    backend: str = field(
        default="auto",
        metadata=_run(
            Choice(("auto", "cpu", "metal", "cuda", "vulkan")),
            "device that must be in use; another one is an error, never a silent fallback",
        ),
    )
    flash_attn: str = field(default="auto", metadata=_run(Choice(("auto", "on", "off")), "flash attention"))
    type_k: str = field(default="f16", metadata=_run(Choice(_CACHE_TYPES), "type of the K cache"))
    type_v: str = field(default="f16", metadata=_run(Choice(_CACHE_TYPES), "type of the V cache"))
    use_extra_bufts: bool = field(default=True, metadata=_run(Switch(), "let the CPU backend repack weights"))
    swa_full: bool = field(
        default=True, metadata=_run(Switch(), "keep the full cache of sliding-window attention")
    )
    sizes: tuple[int, ...] = field(
        default=(*range(1, 13), 16),
        metadata=_run(Sizes(), "batch sizes N of the verify cost curve, such as 1-12,16"),
    )
    map_sizes: tuple[int, ...] = field(
        default=tuple(range(1, 65)),
        metadata=_run(Sizes(), "batch sizes N of the kernel map, such as 1-64"),
    )
    map_depths: tuple[int, ...] = field(
        default=(0, 512),
        metadata=_run(
            Sizes(what="depths", low=0, least=1, example="0,512"),
            "context depths of the kernel map, in tokens",
        ),
    )
    blocks: int = field(default=8, metadata=_run(Whole(8), "interleaved blocks per curve, 8 at least"))
    calls: int = field(default=3, metadata=_run(Whole(1), "consecutive calls per batch size and block"))
    ngram_max: int = field(
        default=3, metadata=_run(Whole(1), "longest suffix that prompt lookup searches for, in tokens")
    )
    ngram_min: int = field(
        default=1, metadata=_run(Whole(1), "shortest suffix that prompt lookup searches for, in tokens")
    )
    oracle_alpha: float = field(
        default=0.7,
        metadata=_run(Number(least=0, most=1), "probability that a token drafted by the oracle is right"),
    )
    oracle_ms: float = field(
        default=0.0, metadata=_run(Number(least=0), "ms that the oracle takes for a drafted token")
    )
    temperature: float = field(
        default=0.0, metadata=_run(Number(least=0), "temperature of sampling; 0: greedy decoding")
    )
    top_k: int = field(default=0, metadata=_run(Whole(0), "likeliest tokens that are sampled from; 0: all"))
    top_p: float = field(
        default=1.0,
        metadata=_run(Number(above=0, most=1), "share of the probability that is sampled from"),
    )
    min_p: float = field(
        default=0.0,
        metadata=_run(Number(least=0, most=1), "least probability sampled, as a share of the likeliest"),
    )
    repeat_penalty: float = field(
        default=1.0, metadata=_run(Number(above=0), "repetition penalty over the last 64 tokens; 1: none")
    )
    seed: int = field(
        default=0,
        metadata=_run(Whole(0, 2**32 - 1), "seed of the measuring order, of sampling and of the oracle"),
    )

    python: str | None = field(
        default=None,
        metadata=_session(
            File(optional=True), "interpreter whose llama-cpp-python is measured (default: pytest's own)"
        ),
    )
    env: tuple[tuple[str, str], ...] = field(
        default=(), metadata=_session(Pairs(), "environment variable of the worker; repeatable")
    )
    against: str | None = field(
        default=None,
        metadata=_session(
            File(optional=True),
            "interpreter with another llama-cpp-python: within_baseline compares live with that old build",
        ),
    )
    against_env: tuple[tuple[str, str], ...] = field(
        default=(), metadata=_session(Pairs(), "environment variable of the old build's worker; repeatable")
    )
    against_param: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=_session(Pairs(), "setting of the old arm, such as n_ubatch=4; repeatable"),
    )
    baseline_dir: Path = field(
        default=Path("baselines"),
        metadata=_session(Folder(), "where baselines live; the default is under rootdir"),
    )
    machine: str | None = field(
        default=None,
        metadata=_session(
            Text(optional=True), "name of this machine's baselines (default: made from its hardware)"
        ),
    )
    replay: str | None = field(
        default=None,
        metadata=_session(
            File(optional=True),
            "answer from this machine's baselines and measure nothing: a published machine's name, or the "
            "folder of one",
        ),
    )
    missing: str = field(
        default="fail",
        metadata=_session(
            Choice(("fail", "skip")), "what becomes of gates whose model, package or baseline is absent"
        ),
    )
    update: str = field(
        default="none",
        metadata=_session(
            Choice(("none", "new", "all")),
            "record baselines of tests that pass: those missing (new), or every one measured (all)",
        ),
    )
    inconclusive: str = field(
        default="warn",
        metadata=_session(Choice(("warn", "fail")), "what becomes of gates that could not decide"),
    )
    budget: float | None = field(
        default=None,
        metadata=_session(Number(above=0, optional=True), "seconds that one test may measure for"),
    )
    alpha: float | None = field(
        default=None,
        metadata=_session(
            Number(above=0, below=0.5, optional=True),
            "one-sided error rate of verdicts on times (default: 0.01)",
        ),
    )
    timeout: float = field(
        default=600.0, metadata=_session(Number(above=0), "seconds until a silent worker is ended")
    )
    history: bool = field(
        default=False,
        metadata=_session(Switch(), "keep the figures of green runs in the machine's history.jsonl"),
    )
    json: Path | None = field(
        default=None,
        metadata=_session(Folder(optional=True), "write verdicts and raw measurements to this file"),
    )
    xdist: str = field(
        default="refuse",
        metadata=_session(
            Choice(("refuse", "exclusive")),
            "gates in a pytest-xdist worker: refuse to measure, or measure one at a time on this machine",
        ),
    )
    rootdir: Path = Path()

    @property
    def n_threads(self) -> int:
        """Threads of the CPU backend, 0 resolved to the cores this process may use."""
        return self.threads or usable_cores()

    @property
    def samples(self) -> bool:
        """Whether tokens are chosen otherwise than greedily by the target's own logits."""
        return self.temperature > 0 or self.repeat_penalty != 1.0

    def merged(self, /, **changes: Any) -> Settings:
        """Return these settings with the keys of one or more `specdec(...)` marks replaced.

        Raises:
            ValueError: a key is unknown, or a value doesn't fit; the message lists what does.
        """
        checked = check_run(changes)
        located = {key: OPTIONS[key].kind.locate(value, self.rootdir) for key, value in checked.items()}
        return replace(self, **located)

    @property
    def compares_live(self) -> bool:
        """Whether an old arm takes the baseline's place."""
        return bool(self.against or self.against_env or self.against_param)

    def old_arm(self) -> Settings:
        """Return the settings of the old arm.

        Raises:
            ValueError: `against_param` has an unknown key, or a value that doesn't fit.
        """
        return replace(
            self.with_texts(self.against_param),
            python=self.against or self.python,
            env=tuple(dict([*self.env, *self.against_env]).items()),
        )

    def with_texts(self, pairs: Iterable[tuple[str, str]]) -> Settings:
        """Return these settings with some replaced, values given as text.

        Raises:
            ValueError: a key is unknown, or a value doesn't fit.
        """
        changes: dict[str, Any] = {}
        for key, text in pairs:
            if key in OPTIONS and OPTIONS[key].run:
                try:
                    changes[key] = OPTIONS[key].kind.read(text)
                except ValueError as error:
                    raise ValueError(f"{key} {error}") from None
            else:
                changes[key] = text
        return self.merged(**changes)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting's names, default and meaning."""

    name: str
    kind: Kind
    default: Any
    help: str
    run: bool

    @property
    def flag(self) -> str:
        """The command line option."""
        return f"--specdec-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        """The name in pytest's configuration file, and of the parsed option."""
        return f"specdec_{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"SPECDEC_{self.name.upper()}"


OPTIONS: Final[Mapping[str, Option]] = {
    f.name: Option(f.name, f.metadata["kind"], f.default, f.metadata["help"], f.metadata["run"])
    for f in fields(Settings)
    if f.metadata
}


def usable_cores() -> int:
    """Count the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_run(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Validate keys and values of the mark `specdec`; values come back as builtin types.

    Raises:
        ValueError: see `Settings.merged`.
    """
    known = [option.name for option in OPTIONS.values() if option.run]
    checked = {}
    for key, value in changes.items():
        if key not in known:
            hint = f"; set it with {OPTIONS[key].flag}" if key in OPTIONS else ""
            raise ValueError(f"unknown setting {key!r}{hint}; known: {', '.join(known)}")
        try:
            checked[key] = OPTIONS[key].kind.check(value)
        except ValueError as error:
            raise ValueError(f"{key} {error}") from None
    return checked
