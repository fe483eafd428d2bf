"""The motions a program can ask for, as generators: each `next` is one tick and drives the joints once.

The servo motion is a model of the real servoj, made of two first-order lags in joint space: the target passes one
of ``lookahead / 2``, the joints follow with one of ``10 / gain`` seconds. With gains of 200 to 300 their sum, the
lag behind a steadily moving target, is about the lookahead time, as users measure it. UR does not publish its law.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

from .ur_kinematics import Transform, compose, from_ur, invert, solve, to_ur
from .ur_robot import DT_S, STANDING, ProgramError, Robot, smoothing

Motion = Iterator[None]

_SLOWEST = 1e-9


@dataclass(slots=True)
class ServoTarget:
    """Where the servo motion is heading; the program changes it while the motion runs."""

    q: list[float]
    lookahead_s: float
    gain: float


@dataclass(slots=True)
class SpeedTarget:
    """What the speed motion is asked for; the program changes it while the motion runs."""

    speed: list[float]
    """Tool twist (m/s, rad/s) or joint speeds (rad/s)."""
    acceleration: float
    of_tool: bool


def servo(robot: Robot, target: ServoTarget) -> Motion:
    """Follow a target for ever, with the lags above.

    Protective stop where a target lies too far from the one before, and where following it at full speed scaling
    would take a joint over its speed limit. Below full scaling, joint and tool speed are held to that share of
    their limits instead, and the arm stays behind.
    """
    settings = robot.settings
    follow_s = 10.0 / target.gain
    # start where the joints' present speed goes on without a jump
    ahead = [q + qd * follow_s for q, qd in zip(robot.q, robot.qd, strict=True)]
    last = robot.q
    step_rad_s = settings.max_joint_acceleration_rad_s2 * DT_S
    while True:
        jump = max(abs(a - b) for a, b in zip(target.q, last, strict=True))
        if jump > settings.max_target_jump_rad:
            robot.protective_stop(f"servoj: the target jumped by {jump:.3f} rad")
            yield
            return
        last = target.q
        share = smoothing(target.lookahead_s / 2.0)
        rate = smoothing(10.0 / target.gain) / DT_S
        ahead = [a + share * (t - a) for a, t in zip(ahead, target.q, strict=True)]
        wanted = [rate * (a - q) for a, q in zip(ahead, robot.q, strict=True)]
        if robot.speed_scaling < 1.0:
            wanted = _scaled_down(robot, wanted)
        elif max(map(abs, wanted)) > settings.max_joint_speed_rad_s:
            robot.protective_stop(f"servoj: joint speed {max(map(abs, wanted)):.2f} rad/s over its limit")
            yield
            return
        robot.drive(
            [
                now + max(-step_rad_s, min(step_rad_s, then - now))
                for now, then in zip(robot.qd, wanted, strict=True)
            ]
        )
        yield


def speed(robot: Robot, target: SpeedTarget) -> Motion:
    """Move at a speed for ever, changing it by no more than the acceleration asked for."""
    command = [sum(a * b for a, b in zip(row, robot.qd, strict=True)) for row in robot.tool_jacobian()]
    if not target.of_tool:
        command = list(robot.qd)
    while True:
        wanted = [value * robot.speed_scaling for value in target.speed]
        change = [w - c for w, c in zip(wanted, command, strict=True)]
        largest = max(_length(change[:3]), _length(change[3:])) if target.of_tool else max(map(abs, change))
        share = min(1.0, target.acceleration * DT_S / max(largest, _SLOWEST))
        command = [c + share * d for c, d in zip(command, change, strict=True)]
        qd = solve(robot.tool_jacobian(), command) if target.of_tool else command
        if qd is None or max(map(abs, qd)) > robot.settings.max_joint_speed_rad_s:
            robot.protective_stop("speed: joint speed over its limit, near a singularity for a tool speed")
            yield
            return
        robot.drive(qd)
        yield


def move_joints(robot: Robot, q: Sequence[float], max_speed: float, acceleration: float) -> Motion:
    """movej: all joints together, the one with the longest way on a trapezoidal speed profile."""
    start = list(robot.q)
    way = [b - a for a, b in zip(start, q, strict=True)]
    limit = min(max_speed, robot.settings.max_joint_speed_rad_s)
    for share in _trapezoid(robot, max(map(abs, way)), limit, acceleration):
        robot.drive([(a + share * w - now) / DT_S for a, w, now in zip(start, way, robot.q, strict=True)])
        yield
    robot.qd = list(STANDING)


def move_tool(robot: Robot, pose: Sequence[float], max_speed: float, acceleration: float) -> Motion:
    """movel: straight line and one turn, the longer of the two (m or rad) on a trapezoidal speed profile."""
    start = robot.tool
    relative = to_ur(compose(invert(start), from_ur(pose)))
    length = max(_length(relative[:3]), _length(relative[3:]))
    for share in _trapezoid(robot, length, max_speed, acceleration):
        along: Transform = compose(start, from_ur([value * share for value in relative]))
        q = robot.inverse(to_ur(along))
        robot.drive([(b - a) / DT_S for a, b in zip(robot.q, q, strict=True)])
        yield
    robot.qd = list(STANDING)


def stop(robot: Robot, deceleration: float, *, of_tool: bool) -> Motion:
    """stopl or stopj: slow down along the present direction, by m/s² (or rad/s²) of the tool or rad/s² of a joint.

    Raises:
        ProgramError: the deceleration is not a positive number.
    """
    if not (isfinite(deceleration) and deceleration > 0.0):
        raise ProgramError(f"stop: deceleration {deceleration:g} must be over 0")
    while any(robot.qd):
        fastest = max(map(abs, robot.qd))
        pace = max(_length(robot.tool_speed[:3]), _length(robot.tool_speed[3:])) if of_tool else fastest
        factor = max(0.0, 1.0 - deceleration * DT_S / max(pace, 0.1 * fastest))
        robot.drive([qd * factor for qd in robot.qd])
        yield


def _trapezoid(robot: Robot, length: float, max_speed: float, acceleration: float) -> Iterator[float]:
    """Share of the way, from after the first tick to 1.0; time runs with the speed scaling."""
    if not (isfinite(max_speed) and isfinite(acceleration) and min(max_speed, acceleration) > _SLOWEST):
        raise ProgramError(f"move: speed {max_speed:g} and acceleration {acceleration:g} must be over 0")
    if length < _SLOWEST:
        return
    top = min(max_speed, sqrt(length * acceleration))
    ramp_s = top / acceleration
    total_s = length / top + ramp_s
    t_s = 0.0
    while t_s < total_s:
        t_s = min(total_s, t_s + DT_S * robot.speed_scaling)
        left_s = total_s - t_s
        if t_s < ramp_s:
            done = 0.5 * acceleration * t_s * t_s
        elif left_s < ramp_s:
            done = length - 0.5 * acceleration * left_s * left_s
        else:
            done = top * (t_s - 0.5 * ramp_s)
        yield done / length


def _scaled_down(robot: Robot, qd: list[float]) -> list[float]:
    """Joint speeds held to the speed scaling's share of the joint and tool speed limits."""
    if robot.speed_scaling <= 0.0:
        return list(STANDING)
    settings = robot.settings
    fastest = max(map(abs, qd)) / settings.max_joint_speed_rad_s
    twist = [sum(a * b for a, b in zip(row, qd, strict=True)) for row in robot.tool_jacobian()[:3]]
    over = max(fastest, _length(twist) / settings.max_tool_speed_m_s) / robot.speed_scaling
    return [speed / over for speed in qd] if over > 1.0 else qd


def _length(vector: Sequence[float]) -> float:
    return sqrt(sum(value * value for value in vector))
