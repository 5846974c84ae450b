"""Parsers of what a system says of its conditions: text in, facts out, None where it doesn't say."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_specdec.measurements.environment import PRESSURES


# Drivers that steer the clock by themselves; under the others "powersave" pins it to the lowest.
_STEERING_DRIVERS = ("intel_pstate", "amd-pstate-epp")


def low_power_from_pmset(text: str) -> bool | None:
    """Read `pmset -g` of macOS; with a high-power mode beside it, low power is mode 1."""
    modes = re.findall(r"^\s*(?:lowpowermode|powermode)\s+(\d+)\s*$", text, re.MULTILINE)
    return "1" in modes if modes else None


def speed_limit_from_pmset(text: str) -> int | None:
    """Read the percentage in `pmset -g therm` of macOS; Apple chips have none."""
    found = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", text)
    return int(found[1]) if found else None


def pressure_from_notifyutil(text: str) -> str | None:
    """Read `notifyutil -g com.apple.system.thermalpressurelevel` of macOS as one of `PRESSURES`."""
    found = re.search(r"thermalpressurelevel\s+(\d+)\s*$", text, re.MULTILINE)
    if not found or int(found[1]) >= len(PRESSURES):
        return None
    return PRESSURES[int(found[1])]


def hypervisor_from_sysctl(text: str) -> bool | None:
    """Read `sysctl kern.hv_vmm_present` of macOS."""
    found = re.search(r"^kern\.hv_vmm_present:\s*(\d+)\s*$", text, re.MULTILINE)
    return found[1] != "0" if found else None


def hypervisor_from_cpuinfo(text: str) -> bool | None:
    """Read Linux's /proc/cpuinfo; Arm's has no such flag, so that it doesn't tell."""
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return "hypervisor" in flags[1].split() if flags else None


def low_power_on_linux(profile: str, governors: Iterable[str], driver: str) -> bool | None:
    """Say whether clocks are held down, from the platform's profile, else from governors and their driver."""
    if profile:
        return profile == "low-power"
    named = set(governors)
    if not named:
        return None
    return "powersave" in named and driver not in _STEERING_DRIVERS


def quota_v2(cpu_max: str) -> float | None:
    """Read a cgroup's cpu.max ("200000 100000", µs per period) as cores; None without a limit."""
    quota, _, period = cpu_max.strip().partition(" ")
    return _cores(quota, period)


def quota_v1(quota_us: str, period_us: str) -> float | None:
    """Read cpu.cfs_quota_us and cpu.cfs_period_us of a cgroup, version 1, as cores; None without a limit."""
    return _cores(quota_us.strip(), period_us.strip())


def periods_of(cpu_stat: str) -> tuple[int, int] | None:
    """Read (nr_periods, nr_throttled) in a cgroup's cpu.stat, both versions."""
    counts = dict(re.findall(r"^(nr_periods|nr_throttled) (\d+)$", cpu_stat, re.MULTILINE))
    return (int(counts["nr_periods"]), int(counts["nr_throttled"])) if len(counts) == 2 else None


def cgroup_folders(text: str) -> tuple[str, ...]:
    """Return the folders under /sys/fs/cgroup that limit a process, from its /proc/PID/cgroup.

    Each group of the CPU controller and all above it: any of them may have the quota. In a container the
    paths are often the host's while the mount begins at the container's own group, which is the root here.
    """
    folders = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon:
            continue
        if number == "0" and not controllers:
            mounts = [""]
        elif "cpu" in controllers.split(","):
            mounts = ["/cpu"] if controllers == "cpu" else ["/cpu", f"/{controllers}"]
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for mount in mounts:
            for length in range(len(parts), -1, -1):
                folders.append("/".join([f"/sys/fs/cgroup{mount}", *parts[:length]]))
    return tuple(dict.fromkeys(folders))


def _cores(quota: str, period: str) -> float | None:
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return None
    return int(quota) / int(period)
