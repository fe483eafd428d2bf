"""What the program that ur_rtde uploads does on the controller: commands in registers, answers in registers.

The client writes a command number into integer input 0 and its arguments into the other inputs; the program reads
them once a cycle of 2 ms and says in integer output 0 whether it is ready (1) or has done the command (2).
Commands that stream (servo, speed) are executed in every cycle for as long as they stand there; all others once, and
then the client writes 0 before the next. What this simulation lacks ends the program with a runtime exception that
says so, as any error of a script does on the real controller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import isfinite

from .ur_kinematics import JOINT_LIMIT_RAD, compose, flange, from_ur, plausible, quaternion, to_ur
from .ur_motion import Motion, ServoTarget, SpeedTarget, move_joints, move_tool, servo, speed, stop
from .ur_robot import DT_S, ProgramError, Robot

READY, DONE = 1, 2
IDLE, END = 0, 255

MOVE_J, MOVE_J_IK, MOVE_L, MOVE_L_FK = 1, 2, 3, 4
SPEED_J, SPEED_L, SERVO_J, SERVO_L = 9, 10, 11, 24
SPEED_STOP, SERVO_STOP, STOP_L, STOP_J = 15, 16, 33, 34
STEP_TIME, JOINT_HISTORY, FLANGE_POSE = 26, 27, 58

_STREAMING = frozenset({SPEED_J, SPEED_L, SERVO_J, SERVO_L, STEP_TIME, JOINT_HISTORY, FLANGE_POSE})
_RUNNING_BIT = 1 << 15

_INT_OFFSET = re.compile(r"# int register offset\n\s*(\d+)")
_FLOAT_OFFSET = re.compile(r"# float register offset\n\s*(\d+)")
_OFFSETS = (0, 24)  # lower and upper range of the 48 registers


class ControlProgram:
    """The running program of one ur_rtde client."""

    name = "rtde_control"

    def __init__(self, robot: Robot, int_offset: int, float_offset: int) -> None:
        self._robot = robot
        self._int_offset = int_offset
        self._float_offset = float_offset
        self._motion: Motion | None = None
        self._servo: ServoTarget | None = None
        self._speed: SpeedTarget | None = None
        self._last_pose: tuple[float, ...] = ()
        self._async_move = False
        self._writes = self._operations = 0
        self._main = self._run()

    @property
    def moving(self) -> bool:
        """Whether a motion is under way; a servo motion is one even while its target stands."""
        return self._motion is not None

    def step(self) -> bool:
        """One cycle: the command, then the motion. False at the end; raises ProgramError."""
        try:
            next(self._main)
        except StopIteration:
            return False
        if self._motion is not None:
            try:
                next(self._motion)
            except StopIteration:
                self._end_motion()
        return True

    def _run(self) -> Iterator[None]:
        self._say_progress(started=False, running=False)
        self._write_int(0, READY)
        executed = False
        while True:
            command = self._int(0)
            if command == END:
                return
            if command in _STREAMING:
                self._execute(command)
                self._write_int(0, READY)
            elif command == IDLE:
                executed = False
                self._write_int(0, READY)
            elif not executed:
                if self._execute(command):
                    while self._motion is not None:
                        yield
                self._write_int(0, DONE)
                executed = True
            yield

    def _execute(self, command: int) -> bool:
        """Do what is asked; True where the program has to wait for the motion it began."""
        if command in (MOVE_J, MOVE_J_IK, MOVE_L, MOVE_L_FK):
            return self._move(command)
        if command in (SERVO_STOP, SPEED_STOP, STOP_L, STOP_J):
            return self._stop(command)
        action = _ACTIONS.get(command)
        if action is None:
            raise ProgramError(f"command {command} is not part of the simulated controller")
        action(self)
        return False

    # --- motions

    def _begin(self, motion: Motion) -> None:
        if self._motion is not None:
            raise ProgramError("another thread is already controlling the robot")
        self._motion = motion

    def _end_motion(self) -> None:
        self._motion = self._servo = self._speed = self._robot.commanded = None
        if self._async_move:
            self._async_move = False
            self._say_progress(started=False, running=False)

    def _move(self, command: int) -> bool:
        robot, six = self._robot, self._floats(0, 6)
        at_most, acceleration = self._floats(6, 2)
        if self._async_move:
            self._end_motion()
        if command in (MOVE_J, MOVE_L_FK) and not _within_joint_limits(six):
            raise ProgramError("move: joint angles are outside the limits")
        if command == MOVE_J:
            motion = move_joints(robot, six, at_most, acceleration)
        elif command == MOVE_J_IK:
            motion = move_joints(robot, robot.inverse(six), at_most, acceleration)
        elif command == MOVE_L:
            robot.inverse(six)
            motion = move_tool(robot, six, at_most, acceleration)
        else:
            motion = move_tool(robot, to_ur(robot.forward(six)), at_most, acceleration)
        self._begin(motion)
        if self._int(1) != 1:
            return True
        self._async_move = True
        self._say_progress(started=True, running=True)
        return False

    def _stop(self, command: int) -> bool:
        of_tool = command != STOP_J
        if command == SPEED_STOP and self._speed is not None:
            of_tool = self._speed.of_tool
        self._end_motion()
        self._begin(stop(self._robot, self._floats(0, 1)[0], of_tool=of_tool))
        return not (command in (STOP_L, STOP_J) and self._int(1) == 1)

    def _servo_tool(self) -> None:
        pose = tuple(self._floats(0, 6))
        if self._servo is not None and pose == self._last_pose:
            self._servo_on(self._servo.q)
            return
        q = self._robot.inverse(pose)
        self._last_pose = pose
        self._servo_on(q)
        self._robot.commanded = _seven(pose)

    def _servo_joints(self) -> None:
        q = self._floats(0, 6)
        if not _within_joint_limits(q):
            raise ProgramError("servoj: joint angles are outside the limits")
        self._servo_on(q)
        self._robot.commanded = _seven(to_ur(self._robot.forward(q)))

    def _servo_on(self, q: list[float]) -> None:
        lookahead_s, gain = self._floats(9, 2)
        if not (0.03 <= lookahead_s <= 0.2 and 100.0 <= gain <= 2000.0):
            raise ProgramError(f"servoj: lookahead_time {lookahead_s:g} or gain {gain:g} out of range")
        if self._servo is None:
            self._servo = ServoTarget(q, lookahead_s, gain)
            self._begin(servo(self._robot, self._servo))
        else:
            self._servo.q, self._servo.lookahead_s, self._servo.gain = q, lookahead_s, gain

    def _speed_on(self, *, of_tool: bool) -> None:
        target, acceleration = self._floats(0, 6), self._floats(6, 1)[0]
        if not (all(map(isfinite, target)) and isfinite(acceleration) and acceleration > 0.0):
            raise ProgramError("speed: speeds must be finite and the acceleration over 0")
        if self._speed is None:
            self._speed = SpeedTarget(target, acceleration, of_tool)
            self._begin(speed(self._robot, self._speed))
        elif self._speed.of_tool != of_tool:
            raise ProgramError("another thread is already controlling the robot")
        else:
            self._speed.speed, self._speed.acceleration = target, acceleration

    # --- questions and settings

    def _set_payload(self) -> None:
        mass, *cog = self._floats(0, 4)
        self._robot.payload_kg, self._robot.payload_cog_m = mass, (cog[0], cog[1], cog[2])

    def _set_tcp(self) -> None:
        offset = self._floats(0, 6)
        if not plausible(offset):
            raise ProgramError("set_tcp: not a pose")
        self._robot.set_tcp(offset)

    def _set_watchdog(self) -> None:
        self._robot.set_watchdog(self._int_offset, self._floats(0, 1)[0])

    def _protective_stop(self) -> None:
        self._robot.protective_stop("protective_stop() in the program")

    def _inverse_near(self) -> None:
        self._answer(self._robot.inverse(self._floats(0, 6), self._floats(6, 6)))

    def _inverse(self) -> None:
        self._answer(self._robot.inverse(self._floats(0, 6)))

    def _has_inverse(self) -> None:
        try:
            self._robot.inverse(self._floats(0, 6))
        except ProgramError:
            self._write_int(1, 0)
        else:
            self._write_int(1, 1)

    def _joints_within_limits(self) -> None:
        self._write_int(1, int(_within_joint_limits(self._floats(0, 6))))

    def _pose_trans(self) -> None:
        a, b = self._floats(0, 6), self._floats(6, 6)
        if not plausible((*a, *b)):
            raise ProgramError("pose_trans: not a pose")
        self._answer(to_ur(compose(from_ur(a), from_ur(b))))

    def _forward_of(self) -> None:
        q, offset = self._floats(0, 6), self._floats(6, 6)
        if not plausible((*q, *offset)):
            raise ProgramError("get_forward_kin: not joint angles and a pose")
        self._answer(to_ur(self._robot.forward(q, offset)))

    def _is_steady(self) -> None:
        self._write_int(1, int(not any(self._robot.qd)))

    # --- registers

    def _int(self, register: int) -> int:
        return self._robot.registers.input_ints[self._int_offset + register]

    def _floats(self, first: int, count: int) -> list[float]:
        start = self._float_offset + first
        return self._robot.registers.input_floats[start : start + count]

    def _write_int(self, register: int, value: int) -> None:
        self._robot.registers.output_ints[self._int_offset + register] = value

    def _answer(self, values: tuple[float, ...] | list[float]) -> None:
        start = self._float_offset
        self._robot.registers.output_floats[start : start + len(values)] = values

    def _say_progress(self, *, started: bool, running: bool) -> None:
        """Integer output 2: what has become of the asynchronous move."""
        self._writes = (self._writes + 1) % 128
        self._operations = (self._operations + started) % 128
        self._write_int(2, self._operations << 24 | self._writes << 16 | (_RUNNING_BIT if running else 0))


_ACTIONS: dict[int, Callable[[ControlProgram], None]] = {
    SPEED_J: lambda program: program._speed_on(of_tool=False),
    SPEED_L: lambda program: program._speed_on(of_tool=True),
    SERVO_J: ControlProgram._servo_joints,
    SERVO_L: ControlProgram._servo_tool,
    17: ControlProgram._set_payload,
    STEP_TIME: lambda program: program._answer([DT_S]),
    JOINT_HISTORY: lambda program: program._answer(program._robot.q),
    29: ControlProgram._set_tcp,
    30: ControlProgram._inverse_near,
    31: ControlProgram._protective_stop,
    35: ControlProgram._set_watchdog,
    36: ControlProgram._has_inverse,  # isPoseWithinSafetyLimits: there are no safety planes here
    37: ControlProgram._joints_within_limits,
    39: ControlProgram._pose_trans,
    40: lambda program: program._answer(program._robot.tcp_offset),
    43: lambda program: program._answer(program._robot.tool_pose),
    44: ControlProgram._forward_of,
    46: ControlProgram._inverse,
    47: ControlProgram._is_steady,
    FLANGE_POSE: lambda program: program._answer(to_ur(flange(program._robot.q))),
    60: ControlProgram._has_inverse,
    61: ControlProgram._has_inverse,
    65: ControlProgram._set_payload,
}


def control_program(robot: Robot, text: str) -> ControlProgram | None:
    """The program in a script's text; None where it is not ur_rtde's."""
    ints, floats = _INT_OFFSET.search(text), _FLOAT_OFFSET.search(text)
    if ints is None or floats is None:
        return None
    int_offset, float_offset = int(ints[1]), int(floats[1])
    if int_offset not in _OFFSETS or float_offset not in _OFFSETS:
        return None
    return ControlProgram(robot, int_offset, float_offset)


def _within_joint_limits(q: list[float]) -> bool:
    return all(abs(angle) <= JOINT_LIMIT_RAD for angle in q)  # false for what is not a number


def _seven(pose: tuple[float, ...]) -> tuple[float, ...]:
    """xyz and quaternion of UR's pose vector."""
    rotation, position = from_ur(pose)
    return (*position, *quaternion(rotation))
