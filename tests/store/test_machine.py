"""Machine identity, from recorded outputs of Linux and macOS."""

from __future__ import annotations

import getpass
import json
import platform
import socket
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec.store import Machine
from pytest_specdec.store import differences
from pytest_specdec.store import identify
from pytest_specdec.store.facts import cpu_from_cpuinfo
from pytest_specdec.store.facts import gpu_from_displays
from pytest_specdec.store.facts import is_virtual_hardware
from pytest_specdec.store.facts import memory_from_meminfo
from pytest_specdec.store.facts import os_from_release
from pytest_specdec.store.facts import os_from_sw_vers
from pytest_specdec.store.facts import sysctl_values
from pytest_specdec.store.facts import tidy_chip
from pytest_specdec.store.machine import HARD
from pytest_specdec.store.machine import System
from pytest_specdec.store.machine import installed_gib
from pytest_specdec.store.machine import slugify

from .samples import hello
from .samples import machine


def recorded(name: str) -> str:
    return (Path(__file__).parent / "recorded" / name).read_text(encoding="utf-8")


class Replayed(System):
    """A system that answers from recorded files and outputs."""

    def __init__(self, platform: str, cores: int, files: dict[str, str], commands: dict[str, str]) -> None:
        self.platform = platform
        self._cores = cores
        self._files = files
        self._commands = commands

    def text(self, path: str) -> str:
        return self._files.get(path, "")

    def output(self, *command: str) -> str:
        return self._commands.get(command[0], "")

    def cores(self) -> int:
        return self._cores

    def release(self) -> str:
        return "6.1.0-18-amd64"

    def version(self) -> str:
        return "10.0.22631"

    def architecture(self) -> str:
        return "x86_64"

    def processor(self) -> str:
        return "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel"


def linux(
    cpuinfo: str,
    meminfo: str = "MemTotal: 65806000 kB",
    cores: int = 2,
    dmi: dict[str, str] | None = None,
) -> Replayed:
    return Replayed(
        "linux",
        cores,
        {
            "/proc/cpuinfo": cpuinfo,
            "/proc/meminfo": meminfo,
            "/etc/os-release": recorded("os_release_debian.txt"),
            **(dmi or {}),
        },
        {},
    )


def mac(sysctl: str, displays: str) -> Replayed:
    commands = {
        "sysctl": recorded(sysctl),
        "system_profiler": recorded(displays),
        "sw_vers": recorded("sw_vers.txt"),
    }
    return Replayed("darwin", 99, {}, commands)


def device(name: str, description: str, kind: str, memory: int = 0) -> dict[str, Any]:
    return {"name": name, "description": description, "type": kind, "memory_total": memory, "memory_free": 0}


METAL = hello(
    devices=[device("MTL0", "Apple M3 Pro", "gpu"), device("CPU", "Apple M3 Pro", "cpu")], gpu_offload=True
)


@pytest.mark.parametrize(
    ("name", "chip", "hypervisor"),
    [
        ("cpuinfo_epyc_vm.txt", "AMD EPYC f25m1", True),
        ("cpuinfo_xeon_gold.txt", "Intel Xeon Gold 6230", False),
        ("cpuinfo_graviton3.txt", "Neoverse-V1", False),
        ("cpuinfo_rk3588.txt", "Cortex-A55 Cortex-A76", False),
    ],
)
def test_cpuinfo(name: str, chip: str, hypervisor: bool) -> None:
    cpu = cpu_from_cpuinfo(recorded(name))
    assert (cpu.chip, cpu.hypervisor) == (chip, hypervisor)


def test_cpuinfo_of_unheard_of_processors() -> None:
    assert cpu_from_cpuinfo("").chip == ""
    assert cpu_from_cpuinfo("CPU implementer : 0x99\nCPU part : 0x123\n").chip == "Arm 0x99 0x123"
    assert (
        cpu_from_cpuinfo("processor : 0\ncpu\t: POWER9, altivec supported\n").chip
        == "POWER9, altivec supported"
    )


def test_a_hypervisor_flag_is_a_whole_word() -> None:
    assert not cpu_from_cpuinfo("model name : X 1\nflags : hypervisor_not fpu\n").hypervisor


@pytest.mark.parametrize(
    ("name", "tidy"),
    [
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "Intel Xeon E5-2680 v4"),
        ("13th Gen Intel(R) Core(TM) i7-13700K", "Intel Core i7-13700K"),
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763"),
        ("AMD Ryzen 7 5800H with Radeon Graphics", "AMD Ryzen 7 5800H"),
        ("Apple M5 Pro", "Apple M5 Pro"),
        ("Processor", "Processor"),
    ],
)
def test_tidy_chip(name: str, tidy: str) -> None:
    assert tidy_chip(name) == tidy


def test_meminfo_and_os_release() -> None:
    assert memory_from_meminfo(recorded("meminfo_24g.txt")) == 24683656 * 1024
    assert memory_from_meminfo("MemFree: 3 kB") is None
    assert os_from_release(recorded("os_release_debian.txt")) == "Debian GNU/Linux 12 (bookworm)"
    assert os_from_release("NAME=x") == ""


def test_sysctl_misses_what_an_older_macos_does_not_know() -> None:
    assert sysctl_values(recorded("sysctl_m3_pro.txt"))["kern.hv_vmm_present"] == "0"
    old = sysctl_values(recorded("sysctl_old.txt"))
    assert "kern.hv_vmm_present" not in old
    assert old["hw.ncpu"] == "16"


def test_sw_vers() -> None:
    assert os_from_sw_vers(recorded("sw_vers.txt")) == "macOS 15.6.1 (24G90)"
    assert os_from_sw_vers("") == ""


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("displays_m3_pro.json", "Apple M3 Pro 14-core GPU"),
        ("displays_intel.json", "AMD Radeon Pro 5500M + Intel UHD Graphics 630"),
        ("displays_vm.json", "Apple Paravirtual device"),
    ],
)
def test_displays(name: str, gpu: str) -> None:
    assert gpu_from_displays(recorded(name)) == gpu


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"SPDisplaysDataType": "x"}', "[" * 100_000])
def test_displays_that_say_nothing(text: str) -> None:
    assert gpu_from_displays(text) is None


@pytest.mark.parametrize(
    ("vendor", "product", "virtual"),
    [
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", True),
        ("Amazon EC2", "c7g.xlarge", True),
        ("Amazon EC2", "c7g.metal", False),
        ("Microsoft Corporation", "Virtual Machine", True),
        ("Microsoft Corporation", "Surface Laptop 5", False),
        ("LENOVO", "20XW00", False),
        ("", "", False),
    ],
)
def test_virtual_hardware(vendor: str, product: str, virtual: bool) -> None:
    assert is_virtual_hardware(vendor, product) is virtual


@pytest.mark.parametrize(
    ("kib", "gib"),
    [
        (24683656, 24),
        (8_000_000, 8),
        (16_260_000, 16),
        (65_806_000, 64),
        (263_700_000, 256),
        (98_800_000, 96),
    ],
)
def test_memory_is_what_is_installed(kib: int, gib: int) -> None:
    assert installed_gib(kib * 1024) == gib
    # The same machine with another firmware.
    assert installed_gib(round(kib * 1024 * 1.005)) == gib


@pytest.mark.parametrize("gib", [1, 2, 4, 7, 8, 16, 18, 24, 36, 48, 96, 128, 192, 512])
def test_memory_told_exactly_stays(gib: int) -> None:
    assert installed_gib(gib * 2**30) == gib


def test_linux_virtual_machine() -> None:
    found = identify(hello(), linux(recorded("cpuinfo_epyc_vm.txt"), recorded("meminfo_24g.txt")))
    assert found.hard == {
        "chip": "AMD EPYC f25m1",
        "cores": 2,
        "gpu": None,
        "memory_gib": 24,
        "os_family": "linux",
        "backend": "cpu",
        "virtualised": True,
    }
    assert found.soft["os"] == "Debian GNU/Linux 12 (bookworm)"
    assert found.soft["llama_cpp_python"] == "0.3.36"
    assert found.slug == "linux-amd-epyc-f25m1-2c-24g-cpu"


def test_linux_on_arm_learns_from_dmi_that_it_is_virtual() -> None:
    text = recorded("cpuinfo_graviton3.txt")
    dmi = {"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/sys/class/dmi/id/product_name": "c7g.large\n"}
    assert identify(hello(), linux(text, dmi=dmi)).hard["virtualised"] is True
    assert identify(hello(), linux(text)).hard["virtualised"] is False


def test_linux_with_two_gpus() -> None:
    cards = [device(f"CUDA{n}", "NVIDIA GeForce RTX 3090", "gpu") for n in range(2)]
    found = identify(
        hello(devices=cards, gpu_offload=True), linux(recorded("cpuinfo_xeon_gold.txt"), cores=40)
    )
    assert found.hard["gpu"] == "2x NVIDIA GeForce RTX 3090"
    assert found.hard["backend"] == "cuda"
    assert found.slug == "linux-intel-xeon-gold-6230-40c-64g-2x-nvidia-geforce-rtx-3090-cuda"


def test_a_build_that_cannot_offload_runs_on_the_cpu() -> None:
    cards = [device("Vulkan0", "AMD Radeon RX 7900 XTX", "gpu")]
    system = linux(recorded("cpuinfo_xeon_gold.txt"))
    assert identify(hello(devices=cards, gpu_offload=False), system).hard["backend"] == "cpu"
    assert identify(hello(devices=cards, gpu_offload=True), system).hard["backend"] == "vulkan"


def test_linux_that_hides_its_processor() -> None:
    system = linux("", "")
    known = identify(hello(), system)
    assert known.hard["chip"] == "AMD EPYC"
    assert known.hard["memory_gib"] is None
    assert identify(hello(devices=[device("CPU", "CPU", "cpu")]), system).hard["chip"] == "x86_64"


def test_apple_silicon() -> None:
    found = identify(METAL, mac("sysctl_m3_pro.txt", "displays_m3_pro.json"))
    assert found.hard == {
        "chip": "Apple M3 Pro",
        "cores": 11,
        "gpu": "Apple M3 Pro 14-core GPU",
        "memory_gib": 18,
        "os_family": "macos",
        "backend": "metal",
        "virtualised": False,
    }
    assert found.soft["os"] == "macOS 15.6.1 (24G90)"
    assert found.soft["model"] == "Mac15,6"
    assert found.slug == "macos-apple-m3-pro-11c-18g-14-core-gpu-metal"
    assert "fd626d62" not in json.dumps(found.to_json())


def test_macos_in_a_virtual_machine_and_before_it_could_tell() -> None:
    assert identify(METAL, mac("sysctl_vm.txt", "displays_vm.json")).hard["virtualised"] is True
    old = identify(hello(), mac("sysctl_old.txt", "displays_intel.json"))
    assert old.hard["virtualised"] is None
    assert old.hard["chip"] == "Intel Core i9-9880H"


def test_windows() -> None:
    cpu = device("CPU", "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", "cpu", 68_400_000_000)
    found = identify(hello(devices=[cpu]), Replayed("win32", 40, {}, {}))
    assert found.slug == "windows-intel-xeon-gold-6230-40c-64g-cpu"
    assert found.soft["os"] == "Windows 10.0.22631"


def test_this_machine_without_its_names() -> None:
    found = identify(hello())
    assert set(found.hard) == set(HARD)
    assert found.hard["cores"]
    text = json.dumps(found.to_json())
    values = [str(value) for value in [*found.hard.values(), *found.soft.values()]]
    for name in (socket.gethostname(), platform.node(), getpass.getuser()):
        assert name not in values
        # A short host name may be part of a kernel's.
        assert len(name) < 6 or name not in text
    assert identify(hello()) == found


def test_slug_is_fit_for_a_file_and_not_too_long() -> None:
    long = machine(chip="Ünusual™ /chip\\ name: " * 9, gpu="GPU " * 40, memory_gib=None)
    assert len(long.slug) <= 100
    assert long.slug == slugify(long.slug)
    assert long.slug.startswith("linux-unusual")
    assert long.slug.endswith("-cpu")


def test_slug_depends_on_hard_facts_only() -> None:
    one = machine()
    assert Machine(one.hard, {"kernel": "7.0"}).slug == one.slug
    assert machine(cores=4).slug != one.slug


def test_differences_name_what_differs() -> None:
    assert differences(machine(), machine()) == []
    assert differences(machine(), machine(cores=4, backend="cuda", gpu="NVIDIA H200", virtualised=False)) == [
        "cores 2 against 4",
        "GPU none against NVIDIA H200",
        "backend cpu against cuda",
        "virtual machine yes against no",
    ]


def test_differences_leave_out_what_is_unknown_and_what_firmware_keeps() -> None:
    assert differences(machine(), machine(virtualised=None, cores=None, memory_gib=None)) == []
    assert differences(machine(memory_gib=24), machine(memory_gib=25)) == []
    assert differences(machine(memory_gib=251), machine(memory_gib=256)) == []
    assert differences(machine(memory_gib=24), machine(memory_gib=32)) == ["memory in GiB 24 against 32"]


def test_machine_survives_json() -> None:
    assert Machine.from_json(json.loads(json.dumps(machine().to_json()))) == machine()
    with pytest.raises(ValueError, match="hard facts are"):
        Machine.from_json({"hard": {"chip": "x"}})


def test_commands_and_files_that_are_not_there_say_nothing() -> None:
    assert System().output("no-such-command-anywhere") == ""
    assert System().text("/no/such/file") == ""
