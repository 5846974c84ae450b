"""What the machine does while something is timed: read before and after, the difference recorded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any
from typing import TypeVar

from pytest_specdec import system
from pytest_specdec.bench import readings
from pytest_specdec.engine.process import workers
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Environment
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import NoiseRun
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.measurements import worst


M = TypeVar("M", bound=Measurement)
T = TypeVar("T")

# Kinds whose times are judged; only these keep their environment.
TIMED = (VerifyCurve, SpeedRun, DraftCost, Timeline, LedgerRun, NoiseRun)
# Systems count time in ticks of 10 ms: over less than this a share would be off by several percent.
SHORTEST_S = 0.5
# Guest time is in "user" already; waiting for a disk is idle.
_BUSY = ("user", "nice", "system", "irq", "softirq", "interrupt", "dpc")
_THERMAL = "com.apple.system.thermalpressurelevel"


@dataclass(frozen=True, slots=True)
class Cores:
    """Seconds of all cores together since the system started: in use by anything, and stolen."""

    count: int
    busy_s: float
    steal_s: float | None


class System(system.System):
    """What a watch asks the operating system."""

    command_s = 5.0

    def now(self) -> float:
        """Seconds of a clock that only goes forward."""
        return time.monotonic()

    def usable_cpus(self) -> tuple[int, ...]:
        """The CPUs that this process may use, by number; empty where the platform doesn't tell."""
        affinity = getattr(os, "sched_getaffinity", None)
        return tuple(sorted(affinity(0))) if affinity else ()

    def cores(self) -> Cores | None:
        """What the cores that this process may use have done so far."""
        return _asked(self._cores)

    def process_s(self, pid: int | None) -> float | None:
        """CPU seconds that a process (None: this one) has used so far."""
        import psutil

        def seconds() -> float:
            times = psutil.Process(pid).cpu_times()
            return float(times.user + times.system)

        return _asked(seconds)

    def load(self) -> float | None:
        """The load average of the last minute."""
        return _asked(lambda: float(os.getloadavg()[0]))

    def frequency_mhz(self) -> float | None:
        """The clock of the cores, on average."""
        import psutil

        found = _asked(psutil.cpu_freq)
        return float(found.current) if found and found.current else None

    def on_battery(self) -> bool | None:
        """Whether the machine runs on its battery; None without one."""
        import psutil

        found = _asked(lambda: psutil.sensors_battery())
        return None if found is None or found.power_plugged is None else not found.power_plugged

    def _cores(self) -> Cores | None:
        import psutil

        every = psutil.cpu_times(percpu=True)
        usable = self.usable_cpus()
        mine = [every[cpu] for cpu in usable if cpu < len(every)] if usable else every
        if not mine:
            return None
        busy = sum(getattr(one, name, 0.0) for one in mine for name in _BUSY)
        steal = sum(one.steal for one in mine) if hasattr(mine[0], "steal") else None
        return Cores(len(mine), busy, steal)


@dataclass(frozen=True, slots=True)
class Counts:
    """Everything that counts up, at one moment."""

    at: float
    cores: Cores | None
    own_s: float | None
    workers_s: Mapping[int, float | None]
    throttled: int | None
    periods: tuple[tuple[str, int, int], ...]


class Watch:
    """Watches the machine from its making to `close`; `own` gives the workers' process ids at any time."""

    def __init__(self, own: Callable[[], Iterable[int]] = workers, system: System | None = None) -> None:
        self._own = own
        self._system = system or System()
        self._load = self._system.load()
        self._folders = readings.cgroup_folders(self._system.text("/proc/self/cgroup"))
        self._before = self._counts()

    def close(self) -> Environment:
        """What was seen."""
        before, after = self._before, self._counts()
        seconds = after.at - before.at
        system = self._system
        return Environment(
            seconds=seconds,
            foreign_share=_foreign_share(before, after),
            steal_share=_steal_share(before, after),
            load=self._load,
            frequency_mhz=system.frequency_mhz(),
            on_battery=system.on_battery(),
            throttled=_risen(before.throttled, after.throttled),
            quota_throttled=_stopped_share(before, after),
            **_settings(system, self._folders),
        )

    def _counts(self) -> Counts:
        system = self._system
        return Counts(
            at=system.now(),
            cores=system.cores(),
            own_s=system.process_s(None),
            workers_s={pid: system.process_s(pid) for pid in self._own()},
            throttled=_heat_events(system),
            periods=tuple(
                (folder, *periods)
                for folder in self._folders
                if (periods := readings.periods_of(system.text(f"{folder}/cpu.stat"))) is not None
            ),
        )


class Conditions:
    """The environments of a session's measurements; what is measured within another counts for both."""

    def __init__(self, own: Callable[[], Iterable[int]] = workers, system: System | None = None) -> None:
        self._own = own
        self._system = system
        self._known: dict[Hashable, Environment] = {}
        self._within: list[list[Environment]] = []

    def during(self, place: Hashable, make: Callable[[], M]) -> M:
        """Make a measurement and tell it, where its times are judged, what happened meanwhile."""
        self._within.append([])
        watch = Watch(self._own, self._system)
        try:
            measurement = make()
        finally:
            inner = self._within.pop()
        own = watch.close()
        found = replace(worst([own, *inner]), seconds=own.seconds)
        measurement, self._known[place] = _told(measurement, found)
        return measurement

    def used(self, place: Hashable) -> None:
        """Take down that a measurement went into the one that is being made, if any is."""
        if self._within and place in self._known:
            self._within[-1].append(self._known[place])


def _told(measurement: M, found: Environment) -> tuple[M, Environment]:
    if not isinstance(measurement, TIMED):
        return measurement, found
    if (before := measurement.environment) is not None:
        # It goes on from what was measured earlier.
        found = replace(worst([before, found]), seconds=before.seconds + found.seconds)
    told: Any = replace(measurement, environment=found)
    return told, found


def _foreign_share(before: Counts, after: Counts) -> float | None:
    if before.cores is None or after.cores is None or before.own_s is None or after.own_s is None:
        return None
    own = after.own_s - before.own_s
    for pid, used in after.workers_s.items():
        if used is None:
            return None
        # A worker that started meanwhile has used nothing before.
        own += used - (before.workers_s.get(pid) or 0.0)
    return _share(after.cores.busy_s - before.cores.busy_s - own, before, after)


def _steal_share(before: Counts, after: Counts) -> float | None:
    if before.cores is None or after.cores is None:
        return None
    if before.cores.steal_s is None or after.cores.steal_s is None:
        return None
    return _share(after.cores.steal_s - before.cores.steal_s, before, after)


def _share(seconds: float, before: Counts, after: Counts) -> float | None:
    wall = after.at - before.at
    if wall < SHORTEST_S or before.cores is None or after.cores is None:
        return None
    # Ticks are rounded, so that the difference of two counts may leave the range.
    return min(1.0, max(0.0, seconds / (after.cores.count * wall)))


def _stopped_share(before: Counts, after: Counts) -> float | None:
    then = {folder: (periods, throttled) for folder, periods, throttled in before.periods}
    shares = [
        (throttled - then[folder][1]) / (periods - then[folder][0])
        for folder, periods, throttled in after.periods
        if folder in then and periods > then[folder][0]
    ]
    return max(shares, default=None)


def _risen(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _heat_events(system: System) -> int | None:
    """Thermal events of the cores so far, and those of their package, which each core repeats."""
    if system.platform != "linux":
        return None
    cores: list[int] = []
    packages: list[int] = []
    for cpu in system.usable_cpus():
        folder = f"/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"
        for found, name in ((cores, "core_throttle_count"), (packages, "package_throttle_count")):
            text = system.text(f"{folder}/{name}").strip()
            if text.isdecimal():
                found.append(int(text))
    return sum(cores) + max(packages, default=0) if cores or packages else None


def _settings(system: System, folders: Sequence[str]) -> dict[str, Any]:
    """What is set rather than counted, by the field's name."""
    if system.platform == "darwin":
        return {
            "low_power": readings.low_power_from_pmset(system.output("pmset", "-g")),
            "speed_limit": readings.speed_limit_from_pmset(system.output("pmset", "-g", "therm")),
            "thermal_pressure": readings.pressure_from_notifyutil(
                system.output("notifyutil", "-g", _THERMAL)
            ),
            "virtualised": readings.hypervisor_from_sysctl(system.output("sysctl", "kern.hv_vmm_present")),
        }
    if system.platform != "linux":
        return {}
    base = "/sys/devices/system/cpu"
    clocks = [f"{base}/cpu{cpu}/cpufreq" for cpu in system.usable_cpus()]
    governors = sorted({word for one in clocks if (word := system.text(f"{one}/scaling_governor").strip())})
    driver = next((word for one in clocks if (word := system.text(f"{one}/scaling_driver").strip())), "")
    profile = system.text("/sys/firmware/acpi/platform_profile").strip()
    quotas = [quota for folder in folders if (quota := _quota(system, folder)) is not None]
    return {
        "governor": "+".join(governors) or None,
        "low_power": readings.low_power_on_linux(profile, governors, driver),
        "quota_cores": min(quotas, default=None),
        "virtualised": readings.hypervisor_from_cpuinfo(system.text("/proc/cpuinfo")),
    }


def _quota(system: System, folder: str) -> float | None:
    if cpu_max := system.text(f"{folder}/cpu.max"):
        return readings.quota_v2(cpu_max)
    return readings.quota_v1(
        system.text(f"{folder}/cpu.cfs_quota_us"), system.text(f"{folder}/cpu.cfs_period_us")
    )


def _asked(question: Callable[[], T]) -> T | None:
    """The answer; None where the platform has none, or doesn't let us see it."""
    import psutil

    try:
        return question()
    except (OSError, AttributeError, RuntimeError, psutil.Error):
        return None
