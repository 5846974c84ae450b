"""The conditions under which something was timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Final

from pytest_specdec.measurements.record import RARE
from pytest_specdec.measurements.record import Record


# Names of macOS's levels, from cool to hot: OSThermalNotification.h.
PRESSURES: Final = ("nominal", "moderate", "heavy", "trapping", "sleeping")


def _unknown() -> Any:
    return field(default=None, metadata=RARE)


@dataclass(frozen=True, slots=True)
class Environment(Record):
    """What the machine was doing while something was timed; None is what the platform doesn't tell.

    Shares are of the time of all cores that this process may use, over ``seconds`` of wall time:
    ``foreign_share`` was used by processes other than pytest and its worker, ``steal_share`` taken by the
    hypervisor. ``load`` is the load average of the minute before. ``throttled`` counts the times that the
    processor slowed down for heat (Linux), ``speed_limit`` (percent) and ``thermal_pressure`` (one of
    `PRESSURES`) are macOS's words for that. ``quota_cores`` is the CPU quota of the container, and
    ``quota_throttled`` the share of the quota's periods in which it stopped the run.
    """

    seconds: float
    foreign_share: float | None = _unknown()
    steal_share: float | None = _unknown()
    load: float | None = _unknown()
    frequency_mhz: float | None = _unknown()
    governor: str | None = _unknown()
    on_battery: bool | None = _unknown()
    low_power: bool | None = _unknown()
    thermal_pressure: str | None = _unknown()
    speed_limit: int | None = _unknown()
    throttled: int | None = _unknown()
    quota_cores: float | None = _unknown()
    quota_throttled: float | None = _unknown()
    virtualised: bool | None = _unknown()


def worst(environments: Sequence[Environment]) -> Environment:
    """Of each condition the worst that was seen; ``seconds`` is the longest part.

    Raises:
        ValueError: there is none.
    """
    if not environments:
        raise ValueError("no environment to take the worst of")

    def known(name: str) -> list[Any]:
        return [value for one in environments if (value := getattr(one, name)) is not None]

    values = {name: max(known(name), default=None) for name in _MORE_IS_WORSE}
    values |= {name: min(known(name), default=None) for name in _LESS_IS_WORSE}
    governors = {word for one in known("governor") for word in one.split("+")}
    return Environment(
        seconds=max(known("seconds")),
        thermal_pressure=max(known("thermal_pressure"), key=PRESSURES.index, default=None),
        governor="+".join(sorted(governors)) or None,
        **values,
    )


_MORE_IS_WORSE = (
    "foreign_share",
    "steal_share",
    "load",
    "on_battery",
    "low_power",
    "throttled",
    "quota_throttled",
    "virtualised",
)
_LESS_IS_WORSE = ("frequency_mhz", "speed_limit", "quota_cores")
