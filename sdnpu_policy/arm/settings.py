"""What the arm process is told at its start, checked."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, dataclass, fields
from typing import Any

from sdnpu_policy.errors import SdnpuError

from .streamer import ArmLimits

_RANGES = {
    "frequency_hz": (100.0, 500.0),
    "lookahead_s": (0.03, 0.2),
    "gain": (100.0, 2000.0),
    "target_timeout_ms": (8.0, 1000.0),
    "max_step_m": (0.001, 1.0),
    "max_step_rad": (0.001, math.pi),
    "watchdog_hz": (2.0, 100.0),
    "connect_timeout_s": (0.5, 120.0),
    "link_timeout_ms": (20.0, 1000.0),
    "servo_stop_m_s2": (0.5, 40.0),
    "realtime_priority": (0, 99),
}
"""Least and greatest value; lookahead and gain are servoj's own."""


@dataclass(frozen=True, slots=True)
class ArmSettings:
    """Settings of the arm process."""

    robot_ip: str
    limits: ArmLimits
    frequency_hz: float = 500.0
    """Cycles of the stream; 500 is the control rate of the e-Series."""
    lookahead_s: float = 0.06
    gain: float = 400.0
    target_timeout_ms: float = 40.0
    max_step_m: float = 0.1
    """A target farther than this from the setpoint is refused."""
    max_step_rad: float = 0.5
    watchdog_hz: float = 10.0
    """The robot stops its program by itself when it is not written to this often."""
    connect_timeout_s: float = 10.0
    link_timeout_ms: float = 100.0
    """The link is given up when the controller's time stood still for this long. ur_rtde itself takes 2.5 s to
    notice, then reconnects and restarts the robot's program on its own, and mostly crashes on the way."""
    servo_stop_m_s2: float = 2.5
    """Deceleration of the tool for what is left of its motion when the setpoint already stands."""
    realtime_priority: int = 0
    """SCHED_FIFO priority of the stream and of ur_rtde's own threads, where the system allows it; 0: off."""

    def __post_init__(self) -> None:
        if not self.robot_ip or not isinstance(self.robot_ip, str):
            raise SdnpuError(f"arm setting 'robot_ip' {self.robot_ip!r} must be the robot's address")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            good = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
            if not good:
                raise SdnpuError(f"arm setting '{name}' {value!r} must be a number from {least:g} to {most:g}")

    @property
    def period_s(self) -> float:
        """Time of one cycle."""
        return 1.0 / self.frequency_hz


def settings_from_json(text: str) -> ArmSettings:
    """Settings from a JSON object, with the limits as an object in it.

    Raises:
        SdnpuError: not JSON, a name that is unknown or missing, or a value out of its range.
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise SdnpuError(f"arm settings {text[:80]!r} are not JSON: {error}") from error
    given = _checked(given, ArmSettings, "arm settings")
    try:
        limits = ArmLimits(**_checked(given.pop("limits"), ArmLimits, "arm settings 'limits'"))
    except (TypeError, ValueError) as error:
        raise SdnpuError(f"arm settings 'limits': {error}") from error
    return ArmSettings(limits=limits, **given)


def _checked(given: Any, of: Any, name: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise SdnpuError(f"{name} {given!r:.80} must be an object")
    known = {each.name for each in fields(of)}
    needed = {each.name for each in fields(of) if each.default is MISSING}
    for problem, names in (("unknown", given.keys() - known), ("missing", needed - given.keys())):
        if names:
            raise SdnpuError(f"{name}: {problem} {', '.join(sorted(names))}; it has {', '.join(sorted(known))}")
    return dict(given)
