"""`specdec kernels MODEL`: which kernel path computes a batch of N tokens, told by bits, without a clock."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.causes import causes_in
from pytest_specdec.cli import OK
from pytest_specdec.cli import UNDECIDED
from pytest_specdec.cli import USAGE
from pytest_specdec.cli.measuring import add_options
from pytest_specdec.cli.measuring import attempt
from pytest_specdec.cli.measuring import settled
from pytest_specdec.cli.measuring import tell
from pytest_specdec.measurements import DepthMap
from pytest_specdec.measurements import KernelMap
from pytest_specdec.reports import text
from pytest_specdec.reports.kernels import classes_of
from pytest_specdec.reports.kernels import kernel_section
from pytest_specdec.reports.kernels import nondeterminism
from pytest_specdec.reports.kernels import outputs_of
from pytest_specdec.reports.terminal import build_name
from pytest_specdec.reports.terminal import device_name
from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Settings


if TYPE_CHECKING:
    from pytest_specdec.reports.kernels import Causes


FLAGS = {"map_sizes": "sizes", "map_depths": "depths"}
# Those that move thresholds beside threads, GPU and flash attention: told where they aren't the default.
KNOBS = ("n_ubatch", "type_k", "type_v", "use_extra_bufts")
RUN = (*FLAGS, "threads", "gpu_layers", "backend", "flash_attn", *KNOBS)
SESSION = ("env", "python", "timeout")


@dataclass(frozen=True, slots=True)
class Result:
    """The map, and what it was measured with."""

    model: str
    settings: Settings
    hello: dict[str, Any]
    map: KernelMap
    causes: Causes

    @property
    def told(self) -> bool:
        """Whether the map tells paths apart: there are bits, and they repeat."""
        return all(outputs_of(one) for one in self.map.maps) and not nondeterminism(self.map)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the model and those options of the plugin that a kernel map depends on."""
    parser.add_argument("model", metavar="MODEL", help=OPTIONS["target"].help)
    add_options(parser, (*RUN, *SESSION), flags=FLAGS)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Map and print; errors of the model or the build go to stderr."""
    result = attempt("kernels", lambda progress: measure(arguments.model, settings_from(arguments), progress))
    if result is None:
        return USAGE
    tell(result, lines, to_json, as_json=arguments.json)
    return OK if result.told else UNDECIDED


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Turn the command line into settings; context and batch grow to what sizes and depths need.

    Raises:
        ValueError: a value doesn't fit.
    """
    settings = settled(arguments, RUN, SESSION, target=arguments.model)
    largest, deepest = max(settings.map_sizes), max(settings.map_depths)
    return settings.merged(
        n_batch=max(settings.n_batch, largest), n_ctx=max(settings.n_ctx, deepest + largest)
    )


def measure(model: str, settings: Settings, progress: Callable[[str], None] | None = None) -> Result:
    """Take the map at every depth; raises what the bench does."""
    from pytest_specdec.bench.session import BenchSession

    session = BenchSession(settings, progress=progress)
    try:
        bench = session.bench(settings)
        measured = bench.kernel_maps()
        hello = session.hello()
        target = bench.facts()["target"]
    finally:
        session.close()
    types = {} if target is None else target.tensor_types
    return Result(model, settings, hello, measured, causes_in(hello, types, settings.gpu_layers))


def lines(result: Result) -> list[str]:
    """Return what the terminal shows: device and build, the map, what it took."""
    settings, measured = result.settings, result.map
    where = [
        device_name(result.hello, gpu_layers=settings.gpu_layers),
        text.plural(settings.n_threads, "thread"),
        f"flash attention {measured.flash_attn}",
        *(
            f"{name} {OPTIONS[name].kind.show(value)}"
            for name in KNOBS
            if (value := getattr(settings, name)) != OPTIONS[name].default
        ),
        *(f"{name}={value}" for name, value in settings.env),
    ]
    found = [
        f"{result.model}: kernel paths, told by the bits of hidden states and logits in batches of N of the "
        "same tokens",
        f"{build_name(result.hello)}; {', '.join(where)}",
        "",
    ]
    if not all(outputs_of(one) for one in measured.maps):
        return [*found, "this model gives neither hidden states nor logits: there are no bits to compare"]
    took = (
        f"N = {text.sizes(settings.map_sizes)} took {measured.wall_ms / 1000:.1f} s, "
        f"{measured.forward_ms / 1000:.1f} s of it in forward passes"
    )
    return [*found, *kernel_section(measured, known=result.causes), took]


def to_json(result: Result) -> dict[str, Any]:
    """Return the map, the classes derived from it and the causes known, in builtin types."""
    settings = result.settings
    return {
        "model": result.model,
        "build": {key: result.hello.get(key) for key in ("llama_cpp_python", "ggml_version", "ggml_commit")},
        "device": device_name(result.hello, gpu_layers=settings.gpu_layers),
        "settings": {
            **{name: getattr(settings, name) for name in RUN},
            **{name: list(getattr(settings, name)) for name in FLAGS},
            "threads": settings.n_threads,
            "env": dict(settings.env),
        },
        "deterministic": not nondeterminism(result.map),
        "depths": [_classes(one, result.causes) for one in result.map.maps],
        "one_thread": [_classes(one, result.causes) for one in result.map.one_thread],
        "kernel_map": result.map.to_json(),
    }


def _classes(one: DepthMap, causes: Causes) -> dict[str, Any]:
    classes, outputs = classes_of(one), outputs_of(one)
    changes = [
        {
            "n": change.n,
            "after": change.after,
            "rows": list(change.rows),
            "outputs": [outputs[p] for p in change.patterns],
            "known": [
                cause.to_json()
                for n in range(change.after + 1, change.n + 1)
                for cause in causes(n)
                if cause.applies(one.depth, one.threads)
            ],
        }
        for change in classes.changes
    ]
    return {**classes.to_json(), "depth": one.depth, "threads": one.threads, "changes": changes}
