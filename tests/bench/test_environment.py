"""What a watch sees between two moments of a made-up system, and what nested measurements make of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from dataclasses import replace
from typing import Any
from typing import TypeVar

import psutil
import pytest

from pytest_specdec.bench.environment import Conditions
from pytest_specdec.bench.environment import Cores
from pytest_specdec.bench.environment import System
from pytest_specdec.bench.environment import Watch
from pytest_specdec.measurements import PRESSURES
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Environment
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import MemoryUse
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import worst


M = TypeVar("M", bound=Measurement)

WORKER = 4321
COST = DraftCost("two-model", (1.0,), (2.0,))
SPEED = SpeedRun(3, "two-model", (SpeedPair("p", 5, 1.0, 5, 1.0),))


@dataclass
class Made(System):
    """A system of two cores that does what a test says."""

    platform: str = "linux"
    files: dict[str, str] = field(default_factory=dict)
    commands: dict[tuple[str, ...], str] = field(default_factory=dict)
    at: float = 100.0
    busy_s: float | None = 1000.0
    steal_s: float | None = 5.0
    processes: dict[int | None, float] = field(default_factory=lambda: {None: 10.0, WORKER: 50.0})

    def now(self) -> float:
        return self.at

    def text(self, path: str) -> str:
        return self.files.get(path, "")

    def output(self, *command: str) -> str:
        return self.commands.get(command, "")

    def usable_cpus(self) -> tuple[int, ...]:
        return (0, 1)

    def cores(self) -> Cores | None:
        return None if self.busy_s is None else Cores(2, self.busy_s, self.steal_s)

    def process_s(self, pid: int | None) -> float | None:
        return self.processes.get(pid)

    def load(self) -> float | None:
        return 1.25

    def frequency_mhz(self) -> float | None:
        return 2450.0

    def on_battery(self) -> bool | None:
        return False

    def spend(self, seconds: float, *, worker: float = 0.0, pytest: float = 0.0, others: float = 0.0) -> None:
        """Let time pass, so many CPU seconds of it used."""
        assert self.busy_s is not None
        self.at += seconds
        self.busy_s += worker + pytest + others
        self.processes[WORKER] = self.processes.get(WORKER, 0.0) + worker
        self.processes[None] += pytest


def watched(
    system: Made, happen: Callable[[], object], own: Callable[[], Sequence[int]] = lambda: [WORKER]
) -> Any:
    watch = Watch(own, system)
    happen()
    return watch.close()


def making(measurement: M, system: Made, seconds: float, **used: float) -> Callable[[], M]:
    """What makes a measurement in so many seconds."""

    def make() -> M:
        system.spend(seconds, **used)
        return measurement

    return make


def test_what_worker_and_pytest_use_is_not_foreign() -> None:
    system = Made()
    seen = watched(system, lambda: system.spend(10.0, worker=15.0, pytest=0.5))
    assert seen.seconds == pytest.approx(10.0)
    assert seen.foreign_share == pytest.approx(0.0)
    assert (seen.load, seen.frequency_mhz, seen.on_battery) == (1.25, 2450.0, False)


def test_what_others_use_is_a_share_of_all_cores() -> None:
    system = Made()
    seen = watched(system, lambda: system.spend(10.0, worker=10.0, others=8.6))
    assert seen.foreign_share == pytest.approx(0.43)


@pytest.mark.parametrize(("used_before", "share"), [(0.0, 0.05), (50.0, 0.0)])
def test_a_worker_that_starts_meanwhile_counts_from_its_start(used_before: float, share: float) -> None:
    system = Made()
    system.processes[WORKER] = used_before
    started: list[int] = []

    def start() -> None:
        started.append(WORKER)
        system.spend(10.0, worker=12.0, others=1.0)

    seen = watched(system, start, lambda: started)
    assert seen.foreign_share == pytest.approx(share)


def test_all_workers_are_own_and_a_stopped_one_uses_nothing() -> None:
    system = Made()
    system.processes[77] = 30.0

    def both() -> None:
        system.processes[77] += 4.0
        system.spend(10.0, worker=5.0, others=6.0)

    # Of the 6 s of others, 4 were the second worker's.
    assert watched(system, both, lambda: [WORKER, 77]).foreign_share == pytest.approx(0.1)
    assert watched(system, both, lambda: [WORKER]).foreign_share == pytest.approx(0.3)


def test_stolen_time() -> None:
    system = Made()

    def steal() -> None:
        assert system.steal_s is not None
        system.steal_s += 2.0
        system.spend(10.0, worker=15.0)

    assert watched(system, steal).steal_share == pytest.approx(0.1)


def test_a_moment_has_no_shares() -> None:
    system = Made()
    seen = watched(system, lambda: system.spend(0.4, others=0.8))
    assert seen.foreign_share is None
    assert seen.steal_share is None


def test_what_is_not_known_stays_unknown() -> None:
    system = Made(busy_s=None)
    seen = watched(system, lambda: None)
    assert seen.foreign_share is None
    blind = Made(steal_s=None)
    seen = watched(blind, lambda: blind.spend(10.0, others=5.0))
    assert seen.steal_share is None
    assert seen.foreign_share == pytest.approx(0.25)
    gone = Made()

    def end() -> None:
        gone.spend(1.0)
        del gone.processes[WORKER]

    assert watched(gone, end).foreign_share is None
    assert watched(Made(), lambda: None).to_json().keys() == {
        "seconds",
        "load",
        "frequency_mhz",
        "on_battery",
    }


def test_the_quota_of_the_group_or_one_above_it() -> None:
    group = "/sys/fs/cgroup/a/b"
    system = Made(
        files={
            "/proc/self/cgroup": "0::/a/b\n",
            f"{group}/cpu.max": "max 100000",
            f"{group}/cpu.stat": "nr_periods 0\nnr_throttled 0\n",
            "/sys/fs/cgroup/a/cpu.max": "150000 100000",
            "/sys/fs/cgroup/a/cpu.stat": "nr_periods 1000\nnr_throttled 400\n",
        }
    )

    def stop() -> None:
        system.files["/sys/fs/cgroup/a/cpu.stat"] = "nr_periods 1100\nnr_throttled 425\n"

    seen = watched(system, stop)
    assert seen.quota_cores == 1.5
    assert seen.quota_throttled == pytest.approx(0.25)


def test_a_quota_of_version_1() -> None:
    cpu = "/sys/fs/cgroup/cpu"
    files = {"/proc/self/cgroup": "4:cpu:/\n", f"{cpu}/cpu.cfs_quota_us": "200000"}
    assert (
        watched(Made(files={**files, f"{cpu}/cpu.cfs_period_us": "100000"}), lambda: None).quota_cores == 2.0
    )
    assert watched(Made(files=files), lambda: None).quota_cores is None


def test_heat_of_linux_counts_a_package_once() -> None:
    folder = "/sys/devices/system/cpu/cpu{}/thermal_throttle/{}_throttle_count"
    files = {folder.format(cpu, what): "7" for cpu in (0, 1) for what in ("core", "package")}
    system = Made(files=files)

    def heat() -> None:
        system.files |= {folder.format(0, "core"): "9"}
        system.files |= {folder.format(cpu, "package"): "8" for cpu in (0, 1)}

    assert watched(system, heat).throttled == 3
    assert watched(system, lambda: None).throttled == 0
    assert watched(Made(), lambda: None).throttled is None


def test_clocks_of_linux() -> None:
    clock = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_{}"
    files = {clock.format(0, "governor"): "powersave\n", clock.format(1, "governor"): "performance\n"}
    files |= {clock.format(cpu, "driver"): "acpi-cpufreq\n" for cpu in (0, 1)}
    files["/proc/cpuinfo"] = "flags : fpu hypervisor\n"
    seen = watched(Made(files=files), lambda: None)
    assert (seen.governor, seen.low_power, seen.virtualised) == ("performance+powersave", True, True)


def test_macos() -> None:
    commands = {
        ("pmset", "-g"): " lowpowermode         1\n",
        ("pmset", "-g", "therm"): "\tCPU_Speed_Limit \t= 80\n",
        ("notifyutil", "-g", "com.apple.system.thermalpressurelevel"): (
            "com.apple.system.thermalpressurelevel 2\n"
        ),
        ("sysctl", "kern.hv_vmm_present"): "kern.hv_vmm_present: 0\n",
    }
    files = {"/proc/cpuinfo": "flags : hypervisor\n"}
    seen = watched(Made("darwin", files=files, commands=commands), lambda: None)
    assert (seen.low_power, seen.speed_limit, seen.thermal_pressure) == (True, 80, "heavy")
    assert seen.virtualised is False
    assert seen.throttled is None


def test_windows_tells_what_psutil_does() -> None:
    system = Made("win32", steal_s=None)
    seen = watched(system, lambda: system.spend(10.0, others=2.0))
    assert seen.foreign_share == pytest.approx(0.1)
    assert (seen.governor, seen.low_power, seen.virtualised) == (None, None, None)


def test_the_worst_of_each_condition() -> None:
    one = Environment(
        5.0, 0.1, 0.02, 1.0, 2000.0, "performance", False, False, "heavy", 100, 0, 2.0, 0.0, True
    )
    other = Environment(
        3.0, 0.05, 0.04, 2.0, 1800.0, "powersave", True, True, "moderate", 80, 2, None, 0.5, True
    )
    expected = Environment(
        5.0, 0.1, 0.04, 2.0, 1800.0, "performance+powersave", True, True, "heavy", 80, 2, 2.0, 0.5, True
    )
    assert worst([one, other]) == worst([other, one]) == expected
    assert all(getattr(expected, known.name) is not None for known in fields(Environment))
    assert worst([Environment(1.0)]) == Environment(1.0)
    with pytest.raises(ValueError, match="no environment"):
        worst([])


def test_every_pressure_has_a_place_among_the_others() -> None:
    every = [Environment(1.0, thermal_pressure=name) for name in PRESSURES]
    assert [worst([every[0], one]).thermal_pressure for one in every] == list(PRESSURES)


def test_a_timed_measurement_keeps_its_environment() -> None:
    system = Made()
    conditions = Conditions(lambda: [WORKER], system)

    def made() -> DraftCost:
        system.spend(10.0, others=4.0)
        return COST

    found = conditions.during("cost", made)
    assert found.environment is not None
    assert found.environment.foreign_share == pytest.approx(0.2)
    assert replace(found, environment=None) == COST


def test_a_counted_one_has_none() -> None:
    use = MemoryUse(1, 2, "here")
    assert Conditions(list, Made()).during("memory", lambda: use) is use


def test_what_went_into_a_measurement_counts_for_it() -> None:
    system = Made()
    conditions = Conditions(lambda: [WORKER], system)

    def busy() -> MemoryUse:
        system.spend(1.0, others=1.8)
        return MemoryUse(1, 2, "here")

    def quiet() -> DraftCost:
        system.spend(10.0)
        conditions.used("earlier")
        return COST

    conditions.during("earlier", busy)
    found = conditions.during("cost", quiet)
    assert found.environment is not None
    assert found.environment.foreign_share == pytest.approx(0.9)
    assert found.environment.seconds == pytest.approx(10.0)
    alone = conditions.during("other", making(COST, system, 10.0))
    assert alone.environment is not None
    assert alone.environment.foreign_share == pytest.approx(0.0)


def test_a_measurement_that_goes_on_keeps_the_worst_look() -> None:
    system = Made()
    conditions = Conditions(lambda: [WORKER], system)
    first = conditions.during("speed", making(SPEED, system, 10.0, others=10.0))
    more = conditions.during("speed", making(replace(SPEED, environment=first.environment), system, 20.0))
    assert more.environment is not None
    assert more.environment.foreign_share == pytest.approx(0.5)
    assert more.environment.seconds == pytest.approx(30.0)


def test_a_failure_leaves_nothing_behind() -> None:
    system = Made()
    conditions = Conditions(lambda: [WORKER], system)

    def fail() -> DraftCost:
        system.spend(10.0, others=20.0)
        raise OSError("gone")

    def tries() -> DraftCost:
        with pytest.raises(OSError, match="gone"):
            conditions.during("broken", fail)
        conditions.used("broken")
        return COST

    found = conditions.during("cost", tries)
    assert found.environment is not None
    assert found.environment.foreign_share == pytest.approx(1.0)
    system.spend(10.0)
    assert conditions.during("next", making(COST, system, 10.0)).environment == Environment(
        10.0, 0.0, 0.0, 1.25, 2450.0, on_battery=False
    )


class Refusing(System):
    """A system that psutil is not allowed to look at."""

    def usable_cpus(self) -> tuple[int, ...]:
        return ()


@pytest.mark.parametrize("error", [psutil.AccessDenied(1), NotImplementedError(), FileNotFoundError()])
def test_what_may_not_be_looked_at_is_unknown(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise error

    for name in ("cpu_times", "cpu_freq", "sensors_battery", "Process"):
        monkeypatch.setattr(psutil, name, refuse, raising=False)
    system = Refusing()
    assert system.cores() is None
    assert system.process_s(None) is None
    assert system.frequency_mhz() is None
    assert system.on_battery() is None


def test_this_system_tells_of_itself() -> None:
    system = System()
    before, cores = system.process_s(None), system.cores()
    assert before is not None
    assert cores is not None
    assert 0 < before < cores.busy_s
    assert cores.count == len(system.usable_cpus()) or sys.platform != "linux"
    assert system.process_s(2**22 + 1) is None
    assert system.output(sys.executable, "-c", "print('word')").strip() == "word"
    assert system.output("/nowhere/command") == ""
    assert system.text("/nowhere/file") == ""
    seen = Watch().close()
    assert 0 <= seen.seconds < 60
    assert Environment.from_json(seen.to_json()) == seen


def test_a_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(System, "command_s", 0.1)
    assert System().output(sys.executable, "-c", "import time; time.sleep(60)") == ""
