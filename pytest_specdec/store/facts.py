"""Parsers of what systems and workers say about a machine: text in, facts out, nothing read or run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


# Arm's /proc/cpuinfo has numbers only: (implementer, part) of cores that run language models.
_ARM_CORES = {
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd05"): "Cortex-A55",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd41"): "Cortex-A78",
    ("0x41", "0xd44"): "Cortex-X1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0xc0", "0xac3"): "Ampere-1",
}
_VIRTUAL = re.compile(
    r"qemu|kvm|vmware|virtualbox|innotek|xen\b|bochs|parallels|bhyve|openstack|firecracker|amazon ec2"
    r"|google compute|virtual machine|virtual platform|apple virtualization",
    re.IGNORECASE,
)
_BACKENDS = {"mtl": "metal", "gpuopencl": "opencl"}
_NOISE = re.compile(
    r"\((?:r|tm|c)\)|[®™©]|@.*$|\bwith radeon.*$|\b\d+(?:st|nd|rd|th) gen\b|\bcpu\b|\bprocessor\b"
    r"|\b(?:\d+|dual|quad|six|eight|twelve|sixteen)-core\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Cpu:
    """``chip`` as a readable name, empty where the text has none; ``hypervisor``: the kernel runs on one."""

    chip: str
    hypervisor: bool


@dataclass(frozen=True, slots=True)
class Device:
    """A device of llama.cpp: its name ("CUDA0"), description, type and memory in bytes (0: not said)."""

    name: str
    description: str
    type: str
    memory: int

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, integrated ones included."""
        return self.type in ("gpu", "igpu")

    @property
    def backend(self) -> str:
        """The backend behind it: "metal", "cuda", "vulkan", …."""
        stem = re.sub(r"[^a-z]+", "", self.name.lower())
        return _BACKENDS.get(stem, stem) or "unknown"


def cpu_from_cpuinfo(text: str) -> Cpu:
    """Read Linux's /proc/cpuinfo, x86 and Arm.

    A name without a number ("AMD EPYC", as hypervisors show it) stands for many chips, so it gets its family
    and model number. A chip with several kinds of Arm cores is named after all of them.
    """
    blocks = [dict(_pairs(block)) for block in re.split(r"\n\s*\n", text)]
    first = next((block for block in blocks if "model name" in block), {})
    hypervisor = any("hypervisor" in block.get("flags", "").split() for block in blocks)
    chip = tidy_chip(first.get("model name", ""))
    if chip and not re.search(r"\d", chip) and "cpu family" in first:
        chip = f"{chip} f{first['cpu family']}m{first.get('model', '')}"
    # An Arm kernel's own "model name" ("ARMv8 Processor rev 4 (v8l)") is the architecture's.
    cores = {block["CPU part"]: block.get("CPU implementer", "") for block in blocks if "CPU part" in block}
    if cores:
        chip = " ".join(
            sorted(_ARM_CORES.get((maker, part), f"Arm {maker} {part}") for part, maker in cores.items())
        )
    if not chip:
        chip = next((tidy_chip(block["cpu"]) for block in blocks if block.get("cpu")), "")
    return Cpu(chip, hypervisor)


def memory_from_meminfo(text: str) -> int | None:
    """Bytes of memory from Linux's /proc/meminfo; None where it doesn't say."""
    total = re.search(r"^MemTotal:\s*(\d+) kB", text, re.MULTILINE)
    return int(total[1]) * 1024 if total else None


def os_from_release(text: str) -> str:
    """The system's name from Linux's /etc/os-release; empty where it doesn't say."""
    name = re.search(r"""^PRETTY_NAME=["']?([^"'\n]*)""", text, re.MULTILINE)
    return name[1].strip() if name else ""


def os_from_sw_vers(text: str) -> str:
    """Read what sw_vers prints as a name, "macOS 15.6.1 (24G90)"; empty without a version."""
    values = dict(_pairs(text))
    if "ProductVersion" not in values:
        return ""
    build = values.get("BuildVersion")
    name = f"{values.get('ProductName', 'macOS')} {values['ProductVersion']}"
    return f"{name} ({build})" if build else name


def sysctl_values(text: str) -> dict[str, str]:
    """Names to values from what ``sysctl NAME…`` prints; a name that macOS doesn't know is missing."""
    return dict(_pairs(text))


def gpu_from_displays(text: str) -> str | None:
    """The GPUs from ``system_profiler SPDisplaysDataType -json``; None where it lists none.

    Apple chips come with different numbers of GPU cores, so the number belongs to the name. Displays
    are not looked at: they have serial numbers.
    """
    try:
        cards = json.loads(text)["SPDisplaysDataType"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    names = []
    for card in cards if isinstance(cards, list) else []:
        model = card.get("sppci_model") if isinstance(card, dict) else None
        if isinstance(model, str) and model:
            cores = str(card.get("sppci_cores", ""))
            names.append(f"{model} {cores}-core GPU" if cores.isdecimal() else model)
    return joined(names)


def is_virtual_hardware(vendor: str, product: str) -> bool:
    """Whether the vendor and product names of Linux's /sys/class/dmi/id are a hypervisor's."""
    if product.strip().endswith(".metal"):
        return False
    return bool(_VIRTUAL.search(f"{vendor} {product}"))


def devices_of(hello: Mapping[str, Any]) -> list[Device]:
    """The devices that a worker's hello lists."""
    return [
        Device(
            str(device.get("name") or ""),
            str(device.get("description") or ""),
            str(device.get("type") or ""),
            int(device.get("memory_total") or 0),
        )
        for device in hello.get("devices") or ()
    ]


def tidy_chip(name: str) -> str:
    """A chip's name without trademarks, generation, core count and clock: "Intel Xeon Gold 6230"."""
    return " ".join(_NOISE.sub(" ", name).split()) or " ".join(name.split())


def joined(names: Iterable[str]) -> str | None:
    """Names in alphabetical order with their number, "2x NVIDIA H200 + Intel UHD 770"; None for no names."""
    counts = sorted(Counter(names).items())
    return " + ".join(f"{count}x {name}" if count > 1 else name for name, count in counts) or None


def _pairs(text: str) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in lines if colon]
