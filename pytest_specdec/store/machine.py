"""Machine identity: hard facts make times comparable, soft ones explain them; no host or user names."""

from __future__ import annotations

import os
import platform
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Any

from pytest_specdec import system
from pytest_specdec.store.facts import Device
from pytest_specdec.store.facts import cpu_from_cpuinfo
from pytest_specdec.store.facts import devices_of
from pytest_specdec.store.facts import gpu_from_displays
from pytest_specdec.store.facts import is_virtual_hardware
from pytest_specdec.store.facts import joined
from pytest_specdec.store.facts import memory_from_meminfo
from pytest_specdec.store.facts import os_from_release
from pytest_specdec.store.facts import os_from_sw_vers
from pytest_specdec.store.facts import sysctl_values
from pytest_specdec.store.facts import tidy_chip


Fact = str | int | bool | None

#: Hard facts and what they are called in messages.
HARD = {
    "chip": "chip",
    "cores": "cores",
    "gpu": "GPU",
    "memory_gib": "memory in GiB",
    "os_family": "operating system",
    "backend": "backend",
    "virtualised": "virtual machine",
}

_FAMILIES = {"darwin": "macos", "win32": "windows", "cygwin": "windows"}
_SYSCTL = (
    "machdep.cpu.brand_string",
    "hw.memsize",
    "hw.ncpu",
    "hw.model",
    "kern.hv_vmm_present",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as far as measured times depend on it.

    ``hard`` has the keys of `HARD`: chip, cores usable by this process, gpu (None: none), memory_gib in whole
    GiB, os_family ("linux", "macos", "windows"), backend ("cpu", "metal", "cuda", …) and virtualised; other
    than for gpu, None means unknown. ``soft`` maps names to text: OS build, kernel, versions.
    """

    hard: Mapping[str, Fact] = field(hash=False)
    soft: Mapping[str, str] = field(hash=False, default_factory=dict)

    @property
    def slug(self) -> str:
        """The folder name, from the hard facts alone: ``linux-intel-xeon-gold-6230-16c-64g-cpu``."""
        chip = slugify(str(self.hard["chip"]))
        parts = [slugify(str(self.hard["os_family"])), _cut(chip, 36)]
        for key, unit in (("cores", "c"), ("memory_gib", "g")):
            if self.hard[key] is not None:
                parts.append(f"{self.hard[key]}{unit}")
        if self.hard["gpu"] is not None:
            # An Apple chip's GPU has the chip's own name.
            parts.append(_cut(slugify(str(self.hard["gpu"])).removeprefix(chip).strip("-"), 28))
        parts.append(slugify(str(self.hard["backend"])))
        return _cut("-".join(part for part in parts if part), 100)

    def to_json(self) -> dict[str, Any]:
        """Builtin types only."""
        return {"hard": dict(self.hard), "soft": dict(self.soft)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Machine:
        """The inverse of :meth:`to_json`; raises `ValueError` when a hard fact is missing or unheard of."""
        hard = dict(data["hard"])
        if set(hard) != set(HARD):
            raise ValueError(f"hard facts are {sorted(hard)}, expected {sorted(HARD)}")
        return cls(hard, dict(data.get("soft") or {}))


def differences(first: Machine, second: Machine) -> list[str]:
    """The hard facts that differ, as "cores 4 against 2", `first`'s value first.

    A fact that either side doesn't know (None; not so for the GPU) doesn't count, nor do 3 % or 1 GiB of
    memory: how much of it the firmware reserves changes with its version.
    """
    found = []
    for key, label in HARD.items():
        one, two = first.hard[key], second.hard[key]
        if one == two or (key != "gpu" and (one is None or two is None)):
            continue
        if key == "memory_gib" and _close(one, two):
            continue
        found.append(f"{label} {_shown(one)} against {_shown(two)}")
    return found


class System(system.System):
    """What `identify` asks the operating system."""

    def cores(self) -> int | None:
        """Cores that this process may use: affinity masks and cpusets count."""
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count()

    def release(self) -> str:
        """The kernel's release."""
        return platform.release()

    def version(self) -> str:
        """The operating system's version."""
        return platform.version()

    def architecture(self) -> str:
        """The instruction set: "x86_64", "arm64"."""
        return platform.machine()

    def processor(self) -> str:
        """The processor as the platform module knows it, often empty."""
        return platform.processor()


def identify(hello: Mapping[str, Any], system: System | None = None) -> Machine:
    """The machine under this process, with the devices that a worker's hello lists."""
    system = system or System()
    family = _FAMILIES.get(system.platform, system.platform)
    devices = devices_of(hello)
    if family == "macos":
        hard, soft = _macos(system, devices)
    elif family == "windows":
        hard, soft = _windows(system, devices)
    else:
        hard, soft = _linux(system, devices)
    soft["architecture"] = system.architecture()
    for key in ("python", "llama_cpp_python", "ggml_version", "ggml_commit"):
        soft[key] = str(hello.get(key) or "")
    return Machine(
        {**hard, "os_family": family, "backend": backend_in_use(hello)},
        {key: value for key, value in sorted(soft.items()) if value},
    )


def backend_in_use(hello: Mapping[str, Any], *, gpu_layers: int = -1) -> str:
    """The backend that computes, from a worker's hello: the GPUs' where layers go to them, else "cpu"."""
    backends = {device.backend for device in devices_of(hello) if device.is_gpu}
    if not backends or gpu_layers == 0 or hello.get("gpu_offload") is False:
        return "cpu"
    return "+".join(sorted(backends))


def slugify(text: str) -> str:
    """Lower-case ASCII letters and digits, joined by single hyphens."""
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return "-".join(re.findall(r"[a-z0-9]+", ascii_only.lower()))


def installed_gib(size: int) -> int:
    """Whole GiB of memory, from the bytes that the system reports.

    Firmware and kernel keep a few percent, more or less with each version; where a usual size lies up to 5 %
    above the report (23.5 → 24, 62.7 → 64, 251 → 256), that is what is installed. Otherwise the nearest one.
    """
    gib = size / 2**30
    if gib < 1:
        return 1
    # Usual sizes are multiples of an eighth to a quarter of themselves: 20, 24, 28; 40, 48, 56, 64.
    step = max(1, 2 ** (int(gib).bit_length() - 3))
    above = -(-gib // step) * step
    return int(above) if above <= gib * 1.05 else max(1, round(gib))


def _linux(system: System, devices: list[Device]) -> tuple[dict[str, Fact], dict[str, str]]:
    cpu = cpu_from_cpuinfo(system.text("/proc/cpuinfo"))
    memory = memory_from_meminfo(system.text("/proc/meminfo"))
    dmi = "/sys/class/dmi/id"
    virtual = is_virtual_hardware(system.text(f"{dmi}/sys_vendor"), system.text(f"{dmi}/product_name"))
    return {
        "chip": cpu.chip or _chip_of(devices) or tidy_chip(system.architecture()),
        "cores": system.cores(),
        "gpu": _gpu_of(devices),
        "memory_gib": None if memory is None else installed_gib(memory),
        "virtualised": cpu.hypervisor or virtual,
    }, {"os": os_from_release(system.text("/etc/os-release")), "kernel": system.release()}


def _macos(system: System, devices: list[Device]) -> tuple[dict[str, Fact], dict[str, str]]:
    # With names, not -n: an unknown name prints no line, and bare values would shift.
    values = sysctl_values(system.output("sysctl", *_SYSCTL))
    displays = system.output("system_profiler", "SPDisplaysDataType", "-json")
    chip = tidy_chip(values.get("machdep.cpu.brand_string", ""))
    memory, cores = values.get("hw.memsize", ""), values.get("hw.ncpu", "")
    virtual = values.get("kern.hv_vmm_present")
    return {
        "chip": chip or _chip_of(devices) or system.architecture(),
        "cores": int(cores) if cores.isdecimal() else system.cores(),
        "gpu": gpu_from_displays(displays) or _gpu_of(devices),
        "memory_gib": installed_gib(int(memory)) if memory.isdecimal() else None,
        "virtualised": None if virtual is None else virtual == "1",
    }, {
        "os": os_from_sw_vers(system.output("sw_vers")),
        "kernel": system.release(),
        "model": values.get("hw.model", ""),
    }


def _windows(system: System, devices: list[Device]) -> tuple[dict[str, Fact], dict[str, str]]:
    memory = max((device.memory for device in devices if device.type == "cpu"), default=0)
    return {
        "chip": _chip_of(devices) or tidy_chip(system.processor()) or system.architecture(),
        "cores": system.cores(),
        "gpu": _gpu_of(devices),
        "memory_gib": installed_gib(memory) if memory else None,
        "virtualised": None,
    }, {"os": f"Windows {system.version()}", "kernel": system.release()}


def _chip_of(devices: list[Device]) -> str:
    found = (tidy_chip(device.description) for device in devices if device.type == "cpu")
    # llama.cpp says "CPU" where it doesn't know the name.
    return next((chip for chip in found if chip.upper() != "CPU"), "")


def _gpu_of(devices: list[Device]) -> str | None:
    return joined(tidy_chip(device.description) or device.name for device in devices if device.is_gpu)


def _cut(slug: str, length: int) -> str:
    return slug if len(slug) <= length else slug[: length + 1].rpartition("-")[0] or slug[:length]


def _close(one: Fact, two: Fact) -> bool:
    if not isinstance(one, int) or not isinstance(two, int):
        return False
    return abs(one - two) <= max(1.0, 0.03 * max(one, two))


def _shown(value: Fact) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
