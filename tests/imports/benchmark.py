"""llama-bench's output in all its formats, field by field and byte by byte as its printers write them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from statistics import stdev
from typing import Any


BOOLS = ("cpu_strict", "no_kv_offload", "embeddings", "no_host", "repack")
NUMBERS = (
    "build_number",
    "model_size",
    "model_n_params",
    "n_batch",
    "n_ubatch",
    "n_threads",
    "poll",
    "n_gpu_layers",
    "n_cpu_moe",
    "main_gpu",
    "flash_attn",
    "no_op_offload",
    "fit_target",
    "fit_min_ctx",
    "n_prompt",
    "n_gen",
    "n_depth",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
)
SHORT = {"n_threads": "threads"}


@dataclass(frozen=True)
class Bench:
    """One test: N tokens of prompt or of generation, and the times of its repetitions in ms."""

    n: int
    ms: tuple[float, ...]
    gen: bool = False
    model: str = "qwen2 7B Q4_K - Medium"
    file: str = "models/Qwen2.5-7B-Instruct-Q4_K_M.gguf"
    depth: int = 0
    ubatch: int = 512
    build: str = "8cf427ff"

    def values(self) -> dict[str, str]:
        """Every field as text, in llama-bench's order."""
        samples = [round(ms * 1e6) for ms in self.ms]
        rates = [1e9 * self.n / ns for ns in samples]
        spread = stdev(rates) if len(rates) > 1 else 0.0
        return {
            "build_commit": self.build,
            "build_number": "5163",
            "cpu_info": 'AMD "Ryzen" 7, 8-Core',
            "gpu_info": "",
            "backends": "CPU",
            "model_filename": self.file,
            "model_type": self.model,
            "model_size": "4677120000",
            "model_n_params": "7615616512",
            "n_batch": "2048",
            "n_ubatch": str(self.ubatch),
            "n_threads": "8",
            "cpu_mask": "0x0",
            "cpu_strict": "0",
            "poll": "50",
            "type_k": "f16",
            "type_v": "f16",
            "n_gpu_layers": "-1",
            "n_cpu_moe": "0",
            "split_mode": "layer",
            "main_gpu": "0",
            "no_kv_offload": "0",
            "flash_attn": "-1",
            "devices": "auto",
            "tensor_split": "0.00",
            "tensor_buft_overrides": "none",
            "load_mode": "auto",
            "lazy_mode": "none",
            "embeddings": "0",
            "no_op_offload": "0",
            "no_host": "0",
            "repack": "1",
            "fit_target": "0",
            "fit_min_ctx": "0",
            "n_prompt": str(0 if self.gen else self.n),
            "n_gen": str(self.n if self.gen else 0),
            "n_depth": str(self.depth),
            "test_time": "2026-04-24T11:57:09Z",
            "avg_ns": str(sum(samples) // len(samples)),
            # Runs of seconds overflow it: never to be used.
            "stddev_ns": "18446744073709551615",
            "avg_ts": f"{mean(rates):f}",
            "stddev_ts": f"{spread:f}",
        }

    @property
    def samples(self) -> dict[str, list[Any]]:
        """What only JSON has."""
        ns = [round(ms * 1e6) for ms in self.ms]
        return {"samples_ns": ns, "samples_ts": [float(f"{1e9 * self.n / one:g}") for one in ns]}


def benches(ms: Mapping[int, float], *, ripple: float = 0.004, **fields: Any) -> list[Bench]:
    """One test per N, whose five repetitions vary by `ripple`."""
    return [
        Bench(n, tuple(t * (1 + ripple * math.sin(3.0 * r + n)) for r in range(5)), **fields)
        for n, t in ms.items()
    ]


def as_json(benches: Sequence[Bench]) -> str:
    rows = []
    for bench in benches:
        fields = [f'    "{name}": {_json(name, value)},\n' for name, value in bench.values().items()]
        samples = bench.samples
        fields.append(f'    "samples_ns": [ {_joined(samples["samples_ns"])} ],\n')
        fields.append(f'    "samples_ts": [ {_joined(samples["samples_ts"])} ]\n')
        rows.append("  {\n" + "".join(fields) + "  }")
    return "[\n" + ",\n".join(rows) + "\n]\n"


def as_jsonl(benches: Sequence[Bench]) -> str:
    lines = []
    for bench in benches:
        fields = "".join(f'"{name}": {_json(name, value)}, ' for name, value in bench.values().items())
        ns, ts = bench.samples.values()
        lines.append(f'{{{fields}"samples_ns": [ {_joined(ns)} ],"samples_ts": [ {_joined(ts)} ]}}\n')
    return "".join(lines)


def as_csv(benches: Sequence[Bench]) -> str:
    lines = [",".join(benches[0].values())]
    for bench in benches:
        doubled = [value.replace('"', '""') for value in bench.values().values()]
        lines.append(",".join(f'"{value}"' for value in doubled))
    return "\n".join(lines) + "\n"


def as_sql(benches: Sequence[Bench]) -> str:
    names = list(benches[0].values())
    columns = ",\n".join(
        f"  {name} {'TEXT' if name not in (*BOOLS, *NUMBERS) else 'INTEGER'}" for name in names
    )
    lines = [f"CREATE TABLE IF NOT EXISTS llama_bench (\n{columns}\n);\n\n"]
    for bench in benches:
        values = ", ".join(f"'{value}'" for value in bench.values().values())
        lines.append(f"INSERT INTO llama_bench ({', '.join(names)}) VALUES ({values});\n")
    return "".join(lines)


def as_md(benches: Sequence[Bench], *, shown: Sequence[str] = ("n_threads",)) -> str:
    header = ["model", "size", "params", "backend", *(SHORT.get(name, name) for name in shown), "test", "t/s"]
    lines = [f"| {' | '.join(f'{name:>10}' for name in header)} |"]
    lines.append("|" + " ---------: |" * len(header))
    for bench in benches:
        values = bench.values()
        test = f"{'tg' if bench.gen else 'pp'}{bench.n}" + (f" @ d{bench.depth}" if bench.depth else "")
        rate = f"{float(values['avg_ts']):.2f} ± {float(values['stddev_ts']):.2f}"
        cells = [bench.model, "4.36 GiB", "7.62 B", "CPU", *(values[name] for name in shown), test, rate]
        lines.append(f"| {' | '.join(f'{cell:>10}' for cell in cells)} |")
    return "\n".join([*lines, "", f"build: {benches[0].build} (5163)", ""])


FORMATS = {"json": as_json, "jsonl": as_jsonl, "csv": as_csv, "sql": as_sql, "md": as_md}


def _json(name: str, value: str) -> str:
    if name in BOOLS:
        return "false" if value == "0" else "true"
    return value if name in NUMBERS else json.dumps(value)


def _joined(values: Sequence[Any]) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
