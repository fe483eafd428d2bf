"""The simulated arm: joints, limits, stops, safety and program state, one tick of 2 ms at a time.

A model for tests of software, not of the robot's dynamics: joints do exactly what they are told within bounds of
speed and acceleration, and every stop is a motion: joints slow down together, along their present direction, at a
bounded deceleration. There is no input or output here, no clock and no thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, pi, sqrt
from typing import Protocol

from .ur_kinematics import (
    JOINT_LIMIT_RAD,
    Transform,
    compose,
    flange,
    from_ur,
    invert,
    jacobian,
    nearest_inverse,
    plausible,
    quaternion,
    to_ur,
)
from .ur_modes import RobotMode, RuntimeState, SafetyMode
from .ur_registers import Registers

DT_S = 0.002
STANDING: tuple[float, ...] = (0.0,) * 6

ELBOW_UP = (pi, -pi / 2, pi / 2, -pi / 2, -pi / 2, 0.0)
"""Poses are placed in the configuration nearest this one, in front of the base, elbow up, tool down."""

START_POSE = (0.5, -0.24, 0.16, pi, 0.0, 0.0)
"""Tool pose after start, as UR's pose vector in `base`: tool down."""


class ProgramError(Exception):
    """What ends a program with a runtime exception on the real controller."""


class Program(Protocol):
    """A loaded program: advanced once a tick."""

    name: str

    @property
    def moving(self) -> bool:
        """Whether a motion of it is under way, standing or not."""
        ...

    def step(self) -> bool:
        """One tick of it; False when it has ended. Raises ProgramError where the real one would."""
        ...


@dataclass(frozen=True, slots=True)
class RobotSettings:
    """Limits and times of the model."""

    tcp_offset: tuple[float, ...] = (0.0, 0.0, 0.16, 0.0, 0.0, 0.0)
    max_joint_speed_rad_s: float = pi
    max_joint_acceleration_rad_s2: float = 40.0
    max_tool_speed_m_s: float = 1.0
    """Protective stop beyond it; 1.5 is the UR's own default."""
    max_target_jump_rad: float = 0.2
    """Largest difference of one servo target to the one before, any joint; protective stop beyond it."""
    program_stop_rad_s2: float = 4.0
    """Deceleration of the fastest joint when the program ends or is stopped, by the watchdog too."""
    safety_stop_rad_s2: float = 12.0
    """The same at a protective, safeguard or emergency stop."""
    unlock_after_s: float = 5.0
    """A protective stop can't be unlocked earlier."""
    start_delay_s: float = 0.1
    """From a program's arrival to its start."""
    slider_rate_per_s: float = 2.0
    """How fast the speed scaling follows the speed slider."""


class Robot:
    """State of the arm and its controller. `tick` moves it on by 2 ms; everything else asks or tells."""

    def __init__(self, settings: RobotSettings | None = None) -> None:
        self.settings = settings or RobotSettings()
        self.registers = Registers()
        self.events: deque[tuple[float, str]] = deque(maxlen=200)
        """What happened, with the simulated time; the controller's log."""
        self.ticks = 0
        self.robot_mode = RobotMode.RUNNING
        self.safety_mode = SafetyMode.NORMAL
        self.runtime_state = RuntimeState.STOPPED
        self.remote_control = True
        self.speed_slider = 1.0
        self.speed_scaling = 1.0
        self.payload_kg = 0.0
        self.payload_cog_m = (0.0, 0.0, 0.0)
        self.program: Program | None = None
        self.watchdog: tuple[int, int] | None = None
        """Integer input register that must be written, and within how many ns."""
        self.commanded: tuple[float, ...] | None = None
        """Tool target (7,), xyz and quaternion, of the servo motion; None without one."""
        self.placed = True
        """Whether the pose of this tick was reached without moving: placed by hand, or another TCP."""
        self.q: list[float] = list(STANDING)
        self.qd: list[float] = list(STANDING)
        self.tcp_offset: tuple[float, ...] = ()
        self._tcp: Transform
        self._tcp_inverse: Transform
        self._pending: tuple[int, Program] | None = None
        self._safety_stop_tick = 0
        self._driven = False
        self._now_ns = 0
        self.set_tcp(self.settings.tcp_offset)
        self.place(self.inverse(START_POSE, ELBOW_UP))

    # --- kinematics

    @property
    def t_s(self) -> float:
        """Simulated time: 2 ms for each tick."""
        return self.ticks * DT_S

    def forward(self, q: Sequence[float], tcp_offset: Sequence[float] | None = None) -> Transform:
        """The tool's pose for joint angles; the active TCP unless another offset is given."""
        return compose(flange(q), self._tcp if tcp_offset is None else from_ur(tcp_offset))

    def inverse(self, pose: Sequence[float], near: Sequence[float] | None = None) -> list[float]:
        """Joint angles for UR's pose vector of the tool, nearest ``near`` or where the arm is.

        Raises:
            ProgramError: out of reach, or no pose at all.
        """
        if not plausible(pose):
            raise ProgramError("get_inverse_kin: not a pose")
        q = nearest_inverse(compose(from_ur(pose), self._tcp_inverse), self.q if near is None else near)
        if q is None:
            raise ProgramError("get_inverse_kin: unable to find an inverse kinematics solution")
        return q

    def tool_jacobian(self) -> list[list[float]]:
        """Jacobian of the tool centre point where the arm is."""
        return jacobian(self.q, self.tool[1])

    def set_tcp(self, offset: Sequence[float]) -> None:
        """Make another point the tool centre point."""
        self.tcp_offset = tuple(offset)
        self._tcp = from_ur(offset)
        self._tcp_inverse = invert(self._tcp)
        self._jump()

    def place(self, q: Sequence[float]) -> None:
        """Put the standing arm somewhere, as no robot could.

        Raises:
            ValueError: it moves, or a motion of the program is under way; or a joint is out of range.
        """
        if any(self.qd) or (self.program is not None and self.program.moving):
            raise ValueError("the arm is moving: stop the motion before placing it")
        if not all(abs(angle) <= JOINT_LIMIT_RAD for angle in q):
            raise ValueError(f"joint angles {list(q)} must be within one turn")
        self.q = list(q)
        self._jump()

    def _jump(self) -> None:
        self._jumped = True
        self._place_tool()
        self.tool_speed: tuple[float, ...] = STANDING

    def _place_tool(self) -> None:
        self.tool = self.forward(self.q)
        self.tool_pose = to_ur(self.tool)
        """UR's pose vector of the tool."""
        self.tool_quaternion = quaternion(self.tool[0])

    # --- what happens to it

    def note(self, event: str) -> None:
        """Add a line to the log."""
        self.events.append((round(self.t_s, 3), event))

    def load(self, program: Program) -> None:
        """Take a new program; a running one is stopped now, and this one starts after the start delay."""
        self.stop_program(f"replaced by {program.name}")
        self._pending = (self.ticks + round(self.settings.start_delay_s / DT_S), program)

    def stop_program(self, why: str) -> None:
        """End the program; the arm slows down by itself."""
        if self.program is not None:
            self.note(f"program {self.program.name} stopped: {why}")
        self._end_program(RuntimeState.STOPPED)

    def protective_stop(self, why: str) -> None:
        """What the safety system does by itself; `unlock` ends it. The program stays paused for good."""
        self._safety_stop(SafetyMode.PROTECTIVE_STOP, f"protective stop: {why}")

    def safeguard_stop(self) -> None:
        """The safeguard input opened; `reset_safeguard` ends it."""
        self._safety_stop(SafetyMode.SAFEGUARD_STOP, "safeguard stop")

    def emergency_stop(self) -> None:
        """The emergency stop button was pressed; `release_emergency_stop` ends it."""
        if self.safety_mode is SafetyMode.ROBOT_EMERGENCY_STOP:
            return
        self.note("emergency stop")
        self.safety_mode = SafetyMode.ROBOT_EMERGENCY_STOP
        self.robot_mode = RobotMode.POWER_OFF
        self._end_program(RuntimeState.STOPPED)

    def unlock(self, *, at_once: bool = False) -> None:
        """End a protective stop.

        Raises:
            ValueError: it is too early; with the real controller's words.
        """
        if self.safety_mode is not SafetyMode.PROTECTIVE_STOP:
            return
        stood_s = (self.ticks - self._safety_stop_tick) * DT_S
        if stood_s < self.settings.unlock_after_s and not at_once:
            raise ValueError(
                f"Cannot unlock protective stop until {self.settings.unlock_after_s:g}s after occurrence. "
                "Always inspect cause of protective stop before unlocking"
            )
        self.note("protective stop unlocked")
        self.safety_mode = SafetyMode.NORMAL

    def reset_safeguard(self) -> None:
        """Close the safeguard input again."""
        if self.safety_mode is SafetyMode.SAFEGUARD_STOP:
            self.safety_mode = SafetyMode.NORMAL

    def release_emergency_stop(self) -> None:
        """Pull the button out: the arm is left without power."""
        if self.safety_mode is SafetyMode.ROBOT_EMERGENCY_STOP:
            self.safety_mode = SafetyMode.NORMAL

    def power_on(self) -> None:
        """Power to the joints; brakes stay closed."""
        if self.safety_mode is SafetyMode.NORMAL and self.robot_mode is RobotMode.POWER_OFF:
            self.robot_mode = RobotMode.IDLE

    def release_brakes(self) -> None:
        """Ready to move; also powers on, as the real one does."""
        if self.safety_mode is SafetyMode.NORMAL:
            self.robot_mode = RobotMode.RUNNING

    def power_off(self) -> None:
        """No power, brakes closed."""
        self.stop_program("power off")
        self.robot_mode = RobotMode.POWER_OFF

    def set_slider(self, fraction: float) -> None:
        """Move the speed slider; values that are no fraction are ignored, as RTDE does."""
        if 0.0 <= fraction <= 1.0:
            self.speed_slider = fraction

    def set_watchdog(self, register: int, frequency_hz: float) -> None:
        """From now on the program stops when ``register`` is not written at this frequency; 0 takes it away."""
        if not (isfinite(frequency_hz) and frequency_hz > 0.0):
            self.watchdog = None
            return
        self.watchdog = (register, int(1e9 / frequency_hz))
        self.registers.written_ns[register] = self._now_ns

    def restore(self) -> None:
        """Normal safety mode, power, full speed, remote control, no program. The arm stays where it is."""
        self.stop_program("reset")
        self._pending = None
        self.safety_mode, self.robot_mode = SafetyMode.NORMAL, RobotMode.RUNNING
        self.speed_slider, self.remote_control = 1.0, True

    def _safety_stop(self, mode: SafetyMode, event: str) -> None:
        if self.safety_mode is not SafetyMode.NORMAL:
            return
        self.note(event)
        self.safety_mode = mode
        self._safety_stop_tick = self.ticks
        if self.program is not None:
            self._end_program(RuntimeState.PAUSED)

    def _end_program(self, state: RuntimeState) -> None:
        self.program, self.watchdog, self.commanded = None, None, None
        self.runtime_state = state

    # --- motion

    def tick(self, now_ns: int) -> None:
        """Move on by 2 ms; ``now_ns`` is the steady time, for the watchdog only."""
        self.ticks += 1
        self._driven = False
        self._now_ns = now_ns
        step = self.settings.slider_rate_per_s * DT_S
        self.speed_scaling += max(-step, min(step, self.speed_slider - self.speed_scaling))
        self._start_pending()
        if self.watchdog is not None and now_ns - self.registers.written_ns[self.watchdog[0]] > self.watchdog[1]:
            self.stop_program("RTDE watchdog expired")
        if self.program is not None:
            self._step_program()
        if not self._driven and any(self.qd):
            self._slow_down()
        if any(self.qd):
            self._move()
        else:
            self.tool_speed = STANDING
        self.placed, self._jumped = self._jumped, False

    def drive(self, qd: Sequence[float]) -> None:
        """Joint speeds for this tick; to be called by a motion of the program, once a tick."""
        self.qd = list(qd)
        self._driven = True

    def _start_pending(self) -> None:
        if self._pending is None or self.ticks < self._pending[0]:
            return
        program, self._pending = self._pending[1], None
        if self.safety_mode is not SafetyMode.NORMAL or self.robot_mode is not RobotMode.RUNNING:
            self.note(f"program {program.name} not started: {self.safety_mode.name}, {self.robot_mode.name}")
            return
        self.note(f"program {program.name} started")
        self.program, self.runtime_state = program, RuntimeState.PLAYING

    def _step_program(self) -> None:
        program = self.program
        assert program is not None
        try:
            going_on = program.step()
        except ProgramError as error:
            self.stop_program(f"runtime exception: {error}")
            return
        if not going_on and self.program is program:
            self.stop_program("it ended")

    def _slow_down(self) -> None:
        normal = self.safety_mode is SafetyMode.NORMAL and self.robot_mode is RobotMode.RUNNING
        limit = self.settings.program_stop_rad_s2 if normal else self.settings.safety_stop_rad_s2
        fastest = max(map(abs, self.qd))
        factor = max(0.0, 1.0 - limit * DT_S / fastest)
        self.qd = [speed * factor for speed in self.qd]

    def _move(self) -> None:
        before = self.tool
        self.q = [angle + speed * DT_S for angle, speed in zip(self.q, self.qd, strict=True)]
        self._place_tool()
        self.tool_speed = _difference(before, self.tool)
        vx, vy, vz = self.tool_speed[:3]
        speed_m_s = sqrt(vx * vx + vy * vy + vz * vz)
        if max(map(abs, self.q)) > JOINT_LIMIT_RAD:
            self.protective_stop("joint limit")
        elif speed_m_s > self.settings.max_tool_speed_m_s:
            self.protective_stop(f"tool speed {speed_m_s:.3f} m/s over {self.settings.max_tool_speed_m_s:g}")


def smoothing(time_constant_s: float) -> float:
    """Share of the way a first-order lag goes in one tick."""
    return 1.0 - exp(-DT_S / time_constant_s)


def _difference(before: Transform, after: Transform) -> tuple[float, ...]:
    """Twist (6,) in base axes that leads from one pose to the next in a tick; exact to the angle's third power."""
    (a, p), (b, r) = before, after
    # antisymmetric part of after * before^T
    wx = wy = wz = 0.0
    for column in range(3):
        wx += b[2][column] * a[1][column] - b[1][column] * a[2][column]
        wy += b[0][column] * a[2][column] - b[2][column] * a[0][column]
        wz += b[1][column] * a[0][column] - b[0][column] * a[1][column]
    half = 0.5 / DT_S
    return (
        (r[0] - p[0]) / DT_S,
        (r[1] - p[1]) / DT_S,
        (r[2] - p[2]) / DT_S,
        wx * half,
        wy * half,
        wz * half,
    )
