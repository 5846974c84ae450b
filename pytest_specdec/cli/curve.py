"""`specdec curve MODEL`: the verify cost of a model on this machine, and what it says about draft lengths."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from typing import Any
from typing import TextIO

from pytest_specdec.checks.conditions import disturbance
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports import text
from pytest_specdec.reports.curve import curve_lines
from pytest_specdec.reports.curve import evidence
from pytest_specdec.reports.curve import marks
from pytest_specdec.reports.curve import place
from pytest_specdec.reports.terminal import Progress
from pytest_specdec.reports.terminal import build_name
from pytest_specdec.reports.terminal import device_name
from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Option
from pytest_specdec.settings import Settings
from pytest_specdec.theory.steps import Step
from pytest_specdec.theory.steps import StepMap
from pytest_specdec.theory.steps import find_steps


RUN = ("sizes", "depth", "threads", "n_ubatch", "gpu_layers", "backend", "flash_attn", "blocks", "calls")
SESSION = ("python", "timeout")
# What a terminal without block characters gets in their place.
_BLOCKS = "▁▂▃▄▅▆▇█▕±…"
_ASCII = "__..oo##|~."


@dataclass(frozen=True, slots=True)
class Result:
    """Both curves, and what they were measured with."""

    model: str
    settings: Settings
    hello: dict[str, Any]
    verify: VerifyCurve
    last: VerifyCurve
    steps: StepMap

    @property
    def cheapest(self) -> int:
        """The measured N that costs least per token."""
        medians = self.verify.medians_ms()
        return min(medians, key=lambda n: medians[n] / n)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the model and those options of the plugin that a curve depends on."""
    parser.add_argument("model", metavar="MODEL", help=OPTIONS["target"].help)
    for name in (*RUN, *SESSION):
        option = OPTIONS[name]
        default = "" if option.default is None else f" (default: {option.kind.show(option.default)})"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            type=_argument(option),
            metavar=option.kind.metavar,
            help=option.help + default,
        )
    cliff = "smallest T(N) ÷ T(size before) of a cliff (default: 1.4)"
    parser.add_argument("--ratio", type=_ratio, default=1.4, metavar="NUMBER", help=cliff)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; errors of the model or the build go to stderr."""
    from pytest_specdec.cli import OK
    from pytest_specdec.cli import USAGE

    progress = Progress(_writer(sys.stderr), terminal=sys.stderr.isatty())
    try:
        result = measure(arguments.model, settings_from(arguments), arguments.ratio, progress)
    except _errors() as error:
        progress.clear()
        print(f"specdec curve: {error}", file=sys.stderr)
        return USAGE
    progress.clear()
    if arguments.json:
        print(json.dumps(to_json(result), indent=1, allow_nan=False))
    else:
        print("\n".join(_printable(line, sys.stdout) for line in lines(result)))
    return OK


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Turn the command line into settings; context and batch grow to what the sizes need.

    Raises:
        ValueError: a value doesn't fit.
    """
    changes = {name: getattr(arguments, name) for name in RUN if getattr(arguments, name) is not None}
    settings = Settings().merged(target=arguments.model, **changes)
    largest = max(settings.sizes)
    settings = settings.merged(
        n_batch=max(settings.n_batch, largest), n_ctx=max(settings.n_ctx, settings.depth + largest)
    )
    session = {name: getattr(arguments, name) for name in SESSION if getattr(arguments, name) is not None}
    return replace(settings, **session)


def lines(result: Result) -> list[str]:
    """Return what the terminal shows: device and build, table, picture, findings."""
    settings, curve = result.settings, result.verify
    medians = curve.medians_ms()
    where = [
        device_name(result.hello, gpu_layers=settings.gpu_layers),
        text.plural(settings.n_threads, "thread"),
        f"depth {settings.depth}",
    ]
    if settings.n_ubatch != OPTIONS["n_ubatch"].default:
        where.append(f"n_ubatch {settings.n_ubatch}")
    words = marks(curve, result.steps)
    signs = {"cliff": "^", "cliff?": "?", "drop": "v"}
    return [
        f"{result.model}: T(N), one forward pass over N tokens, logits of all rows, median of "
        f"{len(curve.samples_ms[0])} blocks of {settings.calls}",
        f"{build_name(result.hello)}; {', '.join(where)}",
        "",
        *curve_lines(curve, result.steps, last=result.last),
        "",
        *text.chart(
            [str(n) for n in curve.n],
            [medians[n] for n in curve.n],
            marks=[next((signs[w] for w in words[n].split() if w in signs), "") for n in curve.n],
            unit="ms",
        ),
        "",
        *findings(result),
    ]


def findings(result: Result) -> list[str]:
    """Return cliffs, drops, dips, plateaus, the advice and the llama-bench way, one line each."""
    steps, curve = result.steps, result.verify
    found = [_cliffs(result)]
    if steps.straddling:
        found.append(f"perhaps a cliff: {_steps(steps.straddling)}: bounds too wide, measure more --blocks")
    if steps.drops:
        period = f", every {steps.sawtooth} tokens" if steps.sawtooth else ""
        found.append(f"drops: {_steps(steps.drops)}{period}: the larger batch is the cheaper one")
    if steps.dips:
        found.append(f"dips: N = {text.sizes(steps.dips)} cost more than the next larger size")
    if steps.plateaus:
        flat = ", ".join(f"{start}-{stop}" for start, stop in steps.plateaus)
        found.append(f"plateaus: N = {flat}: further tokens are free there")
    found += [*_advice(result), _llama_bench(curve, result.last)]
    disturbed = disturbance(curve.sentinel_ms)
    return [*found, disturbed] if disturbed else found


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
        "cheapest_per_token": result.cheapest,
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


def _cliffs(result: Result) -> str:
    steps, largest = result.steps, result.steps.largest
    if steps.cliffs:
        return f"cliffs: {_steps(steps.cliffs)}"
    told = f"no cliff {'beyond doubt ' if steps.straddling else ''}up to N = {result.verify.n[-1]}"
    return told if largest is None else f"{told}; the nearest to one is the step {_steps([largest])}"


def _advice(result: Result) -> list[str]:
    """Say which draft lengths the cost allows: before the first cliff, and cheaper ones behind."""
    medians = result.verify.medians_ms()
    each = {n: ms / n for n, ms in medians.items()}
    best = result.cheapest
    safe, doubtful = result.steps.safe_draft_length, result.steps.straddling
    if safe is None:
        longest = "verify cost rules out none of the measured lengths"
    else:
        longest = f"k = {safe}, a batch of {safe + 1}, the last before the first cliff"
    if doubtful and (safe is None or doubtful[0].after <= safe):
        longest = f"{longest}; k = {doubtful[0].after - 1} if there is one {place(doubtful[0])} already"
    told = [f"longest safe draft: {longest}"]
    if safe is not None:
        better = _cheap_behind(each, safe + 1)
        if better is not None:
            told.append(
                f"behind the cliff, k = {better - 1} (N = {better}) is better still: "
                f"{text.number(each[better])} ms per token, {text.number(each[safe + 1])} at N = {safe + 1}"
            )
    told.append(
        f"cheapest per token: N = {best} (k = {best - 1}), {text.number(each[best])} ms if every draft is "
        "accepted; how long a draft pays depends on how many are"
    )
    return told


def _cheap_behind(each: Mapping[int, float], safe: int) -> int | None:
    """Return the first N behind `safe` that costs less per token than all smaller and the next larger one."""
    sizes = list(each)
    for before, n, after in zip(sizes, sizes[1:], sizes[2:], strict=False):
        if n > safe and each[n] < min(each[m] for m in sizes if m <= before) and each[n] < each[after]:
            return n
    return None


def _llama_bench(verify: VerifyCurve, last: VerifyCurve) -> str:
    """Say by how much `llama-bench -p N` understates a verify pass, at the size where it does so most."""
    all_rows, last_row = verify.medians_ms(), last.medians_ms()
    n = max(all_rows, key=lambda size: all_rows[size] / last_row[size])
    change = last_row[n] / all_rows[n] - 1
    return (
        f"the llama-bench way: -p N asks for the last row's logits only, {text.number(last_row[n])} ms at "
        f"N = {n}, where verifying, with all rows, takes {text.number(all_rows[n])} ({change:+.0%})"
    )


def _steps(steps: tuple[Step, ...] | list[Step]) -> str:
    return ", ".join(f"{place(step)} ({evidence(step)})" for step in steps)


def _errors() -> tuple[type[Exception], ...]:
    from pytest_specdec.bench.errors import BenchError
    from pytest_specdec.bench.errors import NotMeasured
    from pytest_specdec.bench.prompts import PromptError
    from pytest_specdec.engine.protocol import EngineError
    from pytest_specdec.models.errors import ModelError

    return (BenchError, NotMeasured, PromptError, EngineError, ModelError, ValueError)


def _argument(option: Option) -> Callable[[str], Any]:
    def argument(given: str) -> Any:
        try:
            return option.kind.argument(given)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return argument


def _ratio(given: str) -> float:
    try:
        ratio = float(given)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {given!r}") from None
    if not 1 < ratio < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 1, not {given}")
    return ratio


def _writer(stream: TextIO) -> Callable[[str], object]:
    def write(content: str) -> None:
        stream.write(_printable(content, stream))
        stream.flush()

    return write


def _printable(line: str, stream: TextIO) -> str:
    """Replace what the stream's encoding lacks; block characters become ASCII ones of about their height."""
    encoding = stream.encoding or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        ascii_line = line.translate(str.maketrans(_BLOCKS, _ASCII))
        return ascii_line.encode(encoding, "replace").decode(encoding)
    return line
