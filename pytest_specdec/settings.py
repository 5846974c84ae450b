"""Every setting once: command line, ini file, environment, the mark `specdec` and the help come from here."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Final

import pytest

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
        metadata=_run(File(optional=True), "draft model: a path, a name, or requantize:TYPE"),
    )
    method: str = field(
        default="auto",
        metadata=_run(
            Choice(("auto", "two-model", "ngram")),
            "where drafts come from; auto: two-model with a draft model, else ngram (prompt lookup)",
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
    seed: int = field(default=0, metadata=_run(Whole(0, 2**32 - 1), "seed of the measuring order"))

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


def add_options(parser: pytest.Parser) -> None:
    """Declare every option and its ini twin."""
    group = parser.getgroup("specdec", "speculative decoding (pytest-specdec)")
    for option in OPTIONS.values():
        told = "" if option.default in (None, ()) else f" (default: {option.kind.show(option.default)})"
        kwargs: dict[str, Any] = {"action": "append"} if option.kind.repeatable else {}
        group.addoption(
            option.flag,
            dest=option.ini,
            default=None,
            type=_argument(option),
            metavar=option.kind.metavar,
            help=option.help + told,
            **kwargs,
        )
        parser.addini(option.ini, option.help + told, type=option.kind.ini, default=None)


def resolve(config: pytest.Config, environ: Mapping[str, str] | None = None) -> Settings:
    """Settle every setting: command line, else environment, else ini file, else default.

    Relative paths begin where they were written: in the working directory for the command line and the
    environment, at the configuration file for ini values, at rootdir for defaults. An empty environment
    variable counts as unset.

    Raises:
        pytest.UsageError: a value doesn't fit, or two exclude each other; the message names the option,
            variable or ini key.
    """
    values = os.environ if environ is None else environ
    here = config.invocation_params.dir
    settled: dict[str, Any] = {"rootdir": config.rootpath}
    for option in OPTIONS.values():
        kind = option.kind
        if (given := config.getoption(option.ini, None)) is not None:
            value, base = _checked(option.flag, kind.check, given), here
        elif text := values.get(option.variable):
            value, base = _checked(option.variable, kind.read, text), here
        elif (stated := _ini(config, option)) is not None:
            value = _checked(f"{option.ini}{_in(config)}", kind.check, stated)
            base = config.inipath.parent if config.inipath else here
        else:
            value, base = option.default, config.rootpath
        settled[option.name] = kind.locate(value, base)
    settings = Settings(**settled)
    if settings.compares_live:
        for name, set_ in (("update", settings.update != "none"), ("replay", settings.replay is not None)):
            if set_:
                raise pytest.UsageError(
                    f"{OPTIONS[name].flag} and {OPTIONS['against'].flag} exclude each other: against an old "
                    "build, nothing stored is read or written"
                )
        _checked(OPTIONS["against_param"].flag, lambda _: settings.old_arm(), None)
    if settings.replay is not None and settings.update != "none":
        raise pytest.UsageError(
            f"{OPTIONS['update'].flag}={settings.update} and {OPTIONS['replay'].flag} exclude each other: a "
            "replay measures nothing, so there is nothing to record"
        )
    return settings


def _argument(option: Option) -> Callable[[str], Any]:
    # What argparse stores must stay a builtin type: pytest-xdist sends it to its workers.
    def argument(text: str) -> Any:
        from argparse import ArgumentTypeError

        try:
            return option.kind.argument(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return argument


def _ini(config: pytest.Config, option: Option) -> Any:
    try:
        return config.getini(option.ini)
    except (TypeError, ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"{option.ini}{_in(config)}: {error}") from None


def _in(config: pytest.Config) -> str:
    return f" ({config.inipath})" if config.inipath else ""


def _checked(name: str, convert: Callable[[Any], Any], value: object) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise pytest.UsageError(f"{name} {error}") from None
