"""Conditions, from recorded outputs of Linux and macOS."""

from __future__ import annotations

import pytest

from pytest_specdec.bench import readings


PMSET = """\
System-wide power settings:
Currently in use:
 standby              1
 Sleep On Power Button 1
 hibernatefile        /var/vm/sleepimage
 powernap             1
 networkoversleep     0
 disksleep            10
 sleep                1 (sleep prevented by powerd, coreaudiod)
 hibernatemode        3
 ttyskeepawake        1
 displaysleep         2
 tcpkeepalive         1
 lowpowermode         {}
 womp                 0
"""
PMSET_PRO = PMSET.replace("lowpowermode", "powermode   ")
THERM_INTEL = """\
2024-03-02 14:23:51 +0100
Note: No thermal warning level has been recorded
Note: No performance warning level has been recorded
2024-03-02 14:23:51 +0100 CPU Power notify
\tCPU_Scheduler_Limit \t= 100
\tCPU_Available_CPUs \t= 12
\tCPU_Speed_Limit \t= 76
"""
THERM_APPLE = """\
Note: No thermal warning level has been recorded
Note: No performance warning level has been recorded
Note: No CPU power status has been recorded
"""
CPUINFO_VM = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu vme hypervisor lahf_lm avx2\n"
CPUINFO_ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm\nCPU part\t: 0xd0c\n"
STAT_V2 = """\
usage_usec 123456789
user_usec 100000000
system_usec 23456789
nr_periods 4321
nr_throttled 123
throttled_usec 9876543
nr_bursts 0
burst_usec 0
"""
STAT_V1 = "nr_periods 12\nnr_throttled 3\nthrottled_time 123456\n"


@pytest.mark.parametrize(
    ("text", "low"),
    [
        (PMSET.format(0), False),
        (PMSET.format(1), True),
        (PMSET_PRO.format(0), False),
        (PMSET_PRO.format(1), True),
        (PMSET_PRO.format(2), False),
        (PMSET.replace(" lowpowermode         {}\n", ""), None),
        ("", None),
    ],
)
def test_low_power_of_macos(text: str, low: bool | None) -> None:
    assert readings.low_power_from_pmset(text) is low


@pytest.mark.parametrize(("text", "limit"), [(THERM_INTEL, 76), (THERM_APPLE, None), ("", None)])
def test_speed_limit_of_macos(text: str, limit: int | None) -> None:
    assert readings.speed_limit_from_pmset(text) == limit


@pytest.mark.parametrize(
    ("text", "pressure"),
    [
        ("com.apple.system.thermalpressurelevel 0\n", "nominal"),
        ("com.apple.system.thermalpressurelevel 1\n", "moderate"),
        ("com.apple.system.thermalpressurelevel 4\n", "sleeping"),
        ("com.apple.system.thermalpressurelevel 7\n", None),
        ("notifyutil: command failed\n", None),
        ("", None),
    ],
)
def test_thermal_pressure_of_macos(text: str, pressure: str | None) -> None:
    assert readings.pressure_from_notifyutil(text) == pressure


def test_hypervisors() -> None:
    assert readings.hypervisor_from_sysctl("kern.hv_vmm_present: 1\n") is True
    assert readings.hypervisor_from_sysctl("kern.hv_vmm_present: 0\n") is False
    assert readings.hypervisor_from_sysctl("") is None
    assert readings.hypervisor_from_cpuinfo(CPUINFO_VM) is True
    assert readings.hypervisor_from_cpuinfo(CPUINFO_VM.replace("hypervisor ", "")) is False
    assert readings.hypervisor_from_cpuinfo(CPUINFO_ARM) is None


@pytest.mark.parametrize(
    ("profile", "governors", "driver", "low"),
    [
        ("low-power", ["performance"], "intel_pstate", True),
        ("balanced", ["powersave"], "acpi-cpufreq", False),
        ("", ["powersave"], "intel_pstate", False),
        ("", ["powersave"], "amd-pstate-epp", False),
        ("", ["performance", "powersave"], "acpi-cpufreq", True),
        ("", ["schedutil"], "acpi-cpufreq", False),
        ("", [], "", None),
    ],
)
def test_low_power_of_linux(profile: str, governors: list[str], driver: str, low: bool | None) -> None:
    assert readings.low_power_on_linux(profile, governors, driver) is low


def test_quotas() -> None:
    assert readings.quota_v2("200000 100000\n") == 2.0
    assert readings.quota_v2("50000 100000\n") == 0.5
    assert readings.quota_v2("max 100000\n") is None
    assert readings.quota_v2("") is None
    assert readings.quota_v1("150000\n", "100000\n") == 1.5
    assert readings.quota_v1("-1\n", "100000\n") is None
    assert readings.quota_v1("150000", "0") is None


def test_periods_of_a_quota() -> None:
    assert readings.periods_of(STAT_V2) == (4321, 123)
    assert readings.periods_of(STAT_V1) == (12, 3)
    # The root group has no quota.
    assert readings.periods_of("usage_usec 123456789\nuser_usec 1\nsystem_usec 2\n") is None


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        (
            "0::/user.slice/user-1000.slice\n",
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice",
                "/sys/fs/cgroup/user.slice",
                "/sys/fs/cgroup",
            ),
        ),
        ("0::/\n", ("/sys/fs/cgroup",)),
        ("0::/../../other\n", ("/sys/fs/cgroup/other", "/sys/fs/cgroup")),
        (
            "12:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n",
            (
                "/sys/fs/cgroup/cpu/docker/ab",
                "/sys/fs/cgroup/cpu/docker",
                "/sys/fs/cgroup/cpu",
                "/sys/fs/cgroup/cpu,cpuacct/docker/ab",
                "/sys/fs/cgroup/cpu,cpuacct/docker",
                "/sys/fs/cgroup/cpu,cpuacct",
            ),
        ),
        ("3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n", ("/sys/fs/cgroup/cpu",)),
        ("", ()),
        ("nonsense", ()),
    ],
)
def test_folders_of_cgroups(text: str, folders: tuple[str, ...]) -> None:
    assert readings.cgroup_folders(text) == folders
