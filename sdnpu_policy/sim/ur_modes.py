"""Modes of the UR controller, as RTDE numbers them and as far as they occur in the simulation."""

from __future__ import annotations

from enum import IntEnum


class RobotMode(IntEnum):
    """RTDE's robot_mode."""

    POWER_OFF = 3
    IDLE = 5
    RUNNING = 7


class SafetyMode(IntEnum):
    """RTDE's safety_mode."""

    NORMAL = 1
    PROTECTIVE_STOP = 3
    SAFEGUARD_STOP = 5
    ROBOT_EMERGENCY_STOP = 7


class RuntimeState(IntEnum):
    """RTDE's runtime_state."""

    STOPPED = 1
    PLAYING = 2
    PAUSED = 4


_STOPPED_BIT = 1 << 10
SAFETY_BITS = {
    SafetyMode.NORMAL: 1 << 0,
    SafetyMode.PROTECTIVE_STOP: 1 << 2 | _STOPPED_BIT,
    SafetyMode.SAFEGUARD_STOP: 1 << 4 | _STOPPED_BIT,
    SafetyMode.ROBOT_EMERGENCY_STOP: 1 << 6 | 1 << 7 | _STOPPED_BIT,
}
"""RTDE's safety_status_bits."""
