"""What is wrong with the robot, from what it says of itself each cycle, in words a person can act on.

A servo call that returns True says nothing: it does so for seconds after the controller has gone. What tells is
the controller's own time, and its safety, robot and program state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sdnpu_policy.clock import MS
from sdnpu_policy.letters import ArmFault
from sdnpu_policy.motion.pose import Floats, ur_to_pose

RUNNING = 7
"""robot_mode with power on and brakes released."""
PLAYING, PAUSED = 2, 4
"""Values of runtime_state."""

_ROBOT_MODES = {
    -1: "without a controller",
    0: "disconnected",
    1: "waiting for its safety configuration to be confirmed",
    2: "booting",
    3: "powered off",
    4: "powering on",
    5: "idle, its brakes are on",
    6: "in backdrive",
    8: "updating its firmware",
}

_DOUBT_MS = 20.0
"""The controller's time standing still for longer is no jitter of the network any more."""

_ONE_LOOK_MS = 10.0
"""What counts at most from one look to the next: where this process was not run, ur_rtde's receiver was not either."""

_SAFETY = (
    # bits of safety_status_bits, first match wins
    (1 << 9, ArmFault.SAFETY_FAULT, "has a safety fault: restart the safety system on the pendant, see its log"),
    (1 << 8, ArmFault.SAFETY_FAULT, "has a safety violation: acknowledge it on the pendant, see its log"),
    (1 << 5 | 1 << 6 | 1 << 7, ArmFault.EMERGENCY_STOP, "is in emergency stop: release the button, power on"),
    (1 << 2, ArmFault.PROTECTIVE_STOP, "made a protective stop: look at the arm, then unlock it on the pendant"),
    (1 << 4, ArmFault.SAFEGUARD_STOP, "is in safeguard stop: close the guard and reset it"),
    (1 << 3, ArmFault.SAFETY_FAULT, "is in recovery mode: move it back into its limits by hand"),
    (1 << 10, ArmFault.SAFEGUARD_STOP, "is stopped by its safety system: see the pendant"),
)


class Fault(NamedTuple):
    """Why the arm process gives up."""

    code: ArmFault
    text: str
    """One line."""


class Reading(NamedTuple):
    """What the controller said last."""

    controller_time_s: float
    tool: Sequence[float]
    """Measured tool pose, as UR's vector (6,) in ``base``."""
    twist: Sequence[float]
    """Measured tool speed (6,)."""
    safety_bits: int
    robot_mode: int
    runtime_state: int
    speed_scaling: float
    connected: bool

    @property
    def pose(self) -> Floats:
        """Measured tool pose [7] in ``base``. Computed when asked for: not every cycle needs it."""
        return ur_to_pose(self.tool)


class RobotLink(Protocol):
    """The connected robot, as the session uses it."""

    def read(self) -> Reading | None:
        """The newest values; None when there are none any more."""
        ...

    def servo(self, pose: Floats) -> bool:
        """Ask for a tool pose [7]; False when the robot's program does not take it."""
        ...

    def kick(self) -> None:
        """Tell the robot's watchdog that this process lives; `servo` does so too."""
        ...

    def servo_stop(self) -> bool:
        """End the servo motion, wait for it; False when it could not be."""
        ...


def state_fault(reading: Reading | None, robot: str) -> Fault | None:
    """What the robot says is wrong; None when it can move.

    Args:
        reading: the newest values.
        robot: what messages call it.
    """
    if reading is None or not reading.connected:
        return Fault(ArmFault.LINK_LOST, f"{robot}: the connection is lost: see the cable and the controller")
    for bits, code, text in _SAFETY:
        if reading.safety_bits & bits:
            return Fault(code, f"{robot} {text}")
    if reading.robot_mode != RUNNING:
        mode = _ROBOT_MODES.get(reading.robot_mode, f"in mode {reading.robot_mode}")
        return Fault(ArmFault.NOT_RUNNING, f"{robot} is {mode}: power it on and release the brakes on the pendant")
    if reading.runtime_state == PAUSED:
        return Fault(ArmFault.PROGRAM_STOPPED, f"{robot}: its program was paused on the pendant")
    if reading.runtime_state != PLAYING:
        return Fault(
            ArmFault.PROGRAM_STOPPED,
            f"{robot}: its program was stopped: on the pendant, by its watchdog, or by a target out of its reach; "
            "the pendant's log says which",
        )
    return None


class Heartbeat:
    """Whether the controller's time goes on. One call a cycle."""

    def __init__(self, robot: str, timeout_ms: float) -> None:
        self.still_ms = 0.0
        """For how long it has stood, as far as this process ran and could see it."""
        self._robot = robot
        self._timeout_ms = timeout_ms
        self._last_s: float | None = None
        self._looked_ns = 0

    @property
    def doubtful(self) -> bool:
        """Whether it has stood so long that the arm had better stop too."""
        return self.still_ms > _DOUBT_MS

    def beat(self, controller_time_s: float, now_ns: int) -> Fault | None:
        """Note the controller's time at ``now_ns`` (steady); a fault when it has stood for too long."""
        if controller_time_s != self._last_s:
            self._last_s, self.still_ms = controller_time_s, 0.0
        else:
            self.still_ms += min((now_ns - self._looked_ns) / MS, _ONE_LOOK_MS)
        self._looked_ns = now_ns
        if self.still_ms <= self._timeout_ms:
            return None
        return Fault(
            ArmFault.CLOCK_STALLED,
            f"{self._robot}: nothing new from the controller for {self.still_ms:.0f} ms: see the cable, the network "
            "and the controller",
        )
