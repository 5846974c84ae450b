"""`specdec curve MODEL`: the verify cost of a model on this machine, and what it says about draft lengths."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_specdec.checks.conditions import disturbed
from pytest_specdec.cli import OK
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.arguments import add_ratio
from pytest_specdec.cli.measuring import add_options
from pytest_specdec.cli.measuring import attempt
from pytest_specdec.cli.measuring import settled
from pytest_specdec.cli.measuring import tell
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports import text
from pytest_specdec.reports.curve import cheapest
from pytest_specdec.reports.curve import curve_lines
from pytest_specdec.reports.curve import findings as shape_findings
from pytest_specdec.reports.curve import picture
from pytest_specdec.reports.terminal import build_name
from pytest_specdec.reports.terminal import device_name
from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Settings
from pytest_specdec.theory.steps import StepMap
from pytest_specdec.theory.steps import find_steps


RUN = ("sizes", "depth", "threads", "n_ubatch", "gpu_layers", "backend", "flash_attn", "blocks", "calls")
SESSION = ("python", "timeout")


@dataclass(frozen=True, slots=True)
class Result:
    """Both curves, and what they were measured with."""

    model: str
    settings: Settings
    hello: dict[str, Any]
    verify: VerifyCurve
    last: VerifyCurve
    steps: StepMap


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the model and those options of the plugin that a curve depends on."""
    parser.add_argument("model", metavar="MODEL", help=OPTIONS["target"].help)
    add_options(parser, (*RUN, *SESSION))
    add_ratio(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; errors of the model or the build go to stderr."""
    result = attempt(
        "curve",
        lambda progress: measure(arguments.model, settings_from(arguments), arguments.ratio, progress),
    )
    if result is None:
        return USAGE
    tell(result, lines, to_json, as_json=arguments.json)
    return OK


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Turn the command line into settings; context and batch grow to what the sizes need.

    Raises:
        ValueError: a value doesn't fit.
    """
    settings = settled(arguments, RUN, SESSION, target=arguments.model)
    largest = max(settings.sizes)
    return settings.merged(
        n_batch=max(settings.n_batch, largest), n_ctx=max(settings.n_ctx, settings.depth + largest)
    )


def lines(result: Result) -> list[str]:
    """Return what the terminal shows: device and build, table, picture, findings."""
    settings, curve = result.settings, result.verify
    where = [
        device_name(result.hello, gpu_layers=settings.gpu_layers),
        text.plural(settings.n_threads, "thread"),
        f"depth {settings.depth}",
    ]
    if settings.n_ubatch != OPTIONS["n_ubatch"].default:
        where.append(f"n_ubatch {settings.n_ubatch}")
    return [
        f"{result.model}: T(N), one forward pass over N tokens, logits of all rows, median of "
        f"{len(curve.samples_ms[0])} blocks of {settings.calls}",
        f"{build_name(result.hello)}; {', '.join(where)}",
        "",
        *curve_lines(curve, result.steps, last=result.last),
        "",
        *picture(curve, result.steps),
        "",
        *findings(result),
    ]


def findings(result: Result) -> list[str]:
    """Return cliffs, drops, dips, plateaus, the advice and the llama-bench way, one line each."""
    steps, curve = result.steps, result.verify
    found = [*shape_findings(curve, steps, more="measure more --blocks"), _llama_bench(curve, result.last)]
    why = disturbed(curve)
    return [*found, why] if why else found


def to_json(result: Result) -> dict[str, Any]:
    """Return measurements, the steps derived from them and the advice, in builtin types."""
    settings = result.settings
    return {
        "model": result.model,
        "build": {key: result.hello.get(key) for key in ("llama_cpp_python", "ggml_version", "ggml_commit")},
        "device": device_name(result.hello, gpu_layers=settings.gpu_layers),
        "settings": {name: getattr(settings, name) for name in RUN} | {"threads": settings.n_threads},
        "verify_curve": result.verify.to_json(),
        "llama_bench_curve": result.last.to_json(),
        "medians_ms": {str(n): ms for n, ms in result.verify.medians_ms().items()},
        "llama_bench_medians_ms": {str(n): ms for n, ms in result.last.medians_ms().items()},
        "steps": result.steps.to_json(),
        "safe_draft_length": result.steps.safe_draft_length,
        "cheapest_per_token": cheapest(result.verify),
    }


def measure(
    model: str, settings: Settings, ratio: float = 1.4, progress: Callable[[str], None] | None = None
) -> Result:
    """Measure the curve with the logits of all rows, then with the last row's; raises what the bench does."""
    from pytest_specdec.bench.session import BenchSession

    session = BenchSession(settings, progress=progress)
    try:
        bench = session.bench(settings)
        verify = bench.verify_curve()
        last = bench.verify_curve(rows="last")
        hello = session.hello()
    finally:
        session.close()
    steps = find_steps(verify.n, verify.blocks_ms(), ratio=ratio)
    return Result(model, settings, hello, verify, last, steps)


def _llama_bench(verify: VerifyCurve, last: VerifyCurve) -> str:
    """Say by how much `llama-bench -p N` understates a verify pass, at the size where it does so most."""
    all_rows, last_row = verify.medians_ms(), last.medians_ms()
    n = max(all_rows, key=lambda size: all_rows[size] / last_row[size])
    change = last_row[n] / all_rows[n] - 1
    return (
        f"the llama-bench way: -p N asks for the last row's logits only, {text.number(last_row[n])} ms at "
        f"N = {n}, where verifying, with all rows, takes {text.number(all_rows[n])} ({change:+.0%})"
    )
