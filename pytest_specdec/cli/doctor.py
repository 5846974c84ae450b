"""`specdec doctor --target ... --draft ...`: what is structurally wrong with a pair, and why."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_specdec.checks.structure import untold_probes
from pytest_specdec.cli import OK
from pytest_specdec.cli import REGRESSION
from pytest_specdec.cli import UNDECIDED
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.measuring import add_options
from pytest_specdec.cli.measuring import attempt
from pytest_specdec.cli.measuring import settled
from pytest_specdec.cli.measuring import tell
from pytest_specdec.measurements import Structure
from pytest_specdec.reports import text
from pytest_specdec.reports.structure import structure_section
from pytest_specdec.reports.terminal import build_name
from pytest_specdec.reports.terminal import device_name
from pytest_specdec.settings import Settings


RUN = (
    "target",
    "draft",
    "heads",
    "method",
    "k",
    "prompts",
    "n_ctx",
    "n_batch",
    "n_ubatch",
    "threads",
    "gpu_layers",
    "backend",
    "flash_attn",
    "type_k",
    "type_v",
    "swa_full",
)
SESSION = ("env", "python", "timeout")


@dataclass(frozen=True, slots=True)
class Result:
    """What the probes found, and of what."""

    settings: Settings
    hello: dict[str, Any]
    structure: Structure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the pair and those options of the plugin that the probes depend on."""
    add_options(parser, (*RUN, *SESSION))
    parser.add_argument("--evidence", action="store_true", help="show the evidence of every probe")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Probe and print; errors of the models or the build go to stderr."""
    result = attempt("doctor", lambda progress: measure(settings_from(arguments), progress))
    if result is None:
        return USAGE
    tell(
        result,
        lambda found: lines(found, evidence="all" if arguments.evidence else "faults"),
        to_json,
        as_json=arguments.json,
    )
    return exit_code(result.structure)


def exit_code(structure: Structure) -> int:
    """Return 0 for a sound pair, 1 with a fault, 2 where a probe could not tell."""
    if structure.faults:
        return REGRESSION
    ran = any(one.outcome == "sound" for one in structure.probes)
    return OK if ran and not untold_probes(structure) else UNDECIDED


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Turn the command line into settings.

    Raises:
        ValueError: a value doesn't fit, or no target is named.
    """
    if not arguments.target:
        raise ValueError(
            "no target model: give --target PATH, and --draft PATH where a draft model is in use"
        )
    return settled(arguments, RUN, SESSION)


def measure(settings: Settings, progress: Callable[[str], None] | None = None) -> Result:
    """Run the probes; raises what the bench does."""
    from pytest_specdec.bench.session import BenchSession

    session = BenchSession(settings, progress=progress)
    try:
        structure = session.bench(settings).structure()
        hello = session.hello()
    finally:
        session.close()
    return Result(settings, hello, structure)


def lines(result: Result, *, evidence: str = "faults") -> list[str]:
    """Return what the terminal shows: the pair, build and device, a line per probe, the answer."""
    settings, structure = result.settings, result.structure
    draft = settings.draft or f"no draft model ({structure.method})"
    return [
        f"{settings.target} with {draft}",
        f"{build_name(result.hello)}; {device_name(result.hello, gpu_layers=settings.gpu_layers)}, "
        f"{text.plural(settings.n_threads, 'thread')}",
        "",
        *structure_section(structure, evidence=evidence),
        "",
        answer(structure),
    ]


def answer(structure: Structure) -> str:
    """Say in one line what to make of it."""
    if structure.faults:
        names = ", ".join(one.probe for one in structure.faults)
        return f"{text.plural(len(structure.faults), 'structural fault')}: {names}"
    if exit_code(structure) == UNDECIDED:
        names = ", ".join(one.probe for one in structure.probes if one.outcome == "skipped")
        return f"no structural fault found, but not every probe could tell: {names}"
    return "structurally sound: where little is accepted, this source does not fit the text"


def to_json(result: Result) -> dict[str, Any]:
    """Return what was found, of what, in builtin types."""
    settings = result.settings
    return {
        "target": settings.target,
        "draft": settings.draft,
        "build": {key: result.hello.get(key) for key in ("llama_cpp_python", "ggml_version", "ggml_commit")},
        "device": device_name(result.hello, gpu_layers=settings.gpu_layers),
        "settings": {name: getattr(settings, name) for name in RUN}
        | {"threads": settings.n_threads, "env": dict(settings.env)},
        "sound": exit_code(result.structure) == OK,
        "structure": result.structure.to_json(),
    }
