"""The 500 Hz core of the arm process: targets every few milliseconds in, one limited setpoint a cycle out.

Between targets the newest one goes on as it did, so there is a target for every cycle, and position and orientation
each pursue theirs. When no good target came for a while, or a stop is asked for, the setpoint slows down to standing
by itself; from there it follows again, within the same bounds, when good targets come.

Pure: no clock, no robot, no mailbox.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.letters import ArmStatus, TargetMode
from sdnpu_policy.mailbox import Letter
from sdnpu_policy.motion.pose import Floats, quat_normalize
from sdnpu_policy.motion.tracking import ZERO, Quaternion, Vector, clipped, rotation_between, turned

from .pursuit import Pursuit

_NORM_TOLERANCE = 0.01
"""A quaternion whose length is farther from 1 is no rounding error."""
_ACCELERATION_SHARE = 0.7
"""Part of the acceleration limit a target's own acceleration is believed up to; the rest is left for following."""
_CURVED_FOR_NS = 10 * MS
"""Targets farther apart than this tell nothing of an acceleration, and none is followed for longer after a target."""

_MODES = frozenset(TargetMode)


@dataclass(frozen=True, slots=True)
class ArmLimits:
    """Bounds of the stream's motion; lengths of vectors, not per axis."""

    max_speed_m_s: float
    max_acceleration_m_s2: float
    max_jerk_m_s3: float
    max_angular_speed_rad_s: float
    max_angular_acceleration_rad_s2: float
    max_angular_jerk_rad_s3: float

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{each.name} {value} must be a number above 0")


@dataclass(frozen=True, slots=True, eq=False)
class Setpoint:
    """What to ask of the robot in this cycle."""

    pose: Floats
    """x y z qx qy qz qw [7] in ``base``."""
    twist: Floats
    """The velocity that led here from the setpoint before [6], m/s and rad/s."""
    status: ArmStatus
    """STREAMING, BRAKING or STANDING."""


@dataclass(frozen=True, slots=True)
class _Target:
    p: Vector
    q: Quaternion
    v: Vector  # mean since the target before
    w: Vector
    a: Vector  # from the target before to this one; zero where that can't be told
    alpha: Vector
    apart_s: float  # to the target before; zero where that is too long ago
    due_ns: int
    stamp_ns: int


class Streamer:
    """Turns target letters into setpoints. `start` with the measured pose, then `step` once a period.

    A target is a pose for the time ``due_ns``, and the mean velocity from the target before to this one (m/s and
    rad/s in ``base``): going back from the one arrives at the other.

    Args:
        limits: bounds of the setpoints' motion.
        period_s: time from one step to the next.
        target_timeout_ms: a target given longer ago than this, or due farther off, is not followed.
        max_step_m: a target farther than this from the setpoint is refused.
        max_step_rad: the same for its orientation.
    """

    def __init__(
        self,
        limits: ArmLimits,
        period_s: float,
        *,
        target_timeout_ms: float = 40.0,
        max_step_m: float = 0.1,
        max_step_rad: float = 0.5,
    ) -> None:
        self.limits = limits
        self.refused = 0
        """Targets not followed: not finite, too far, too old, of an unknown mode."""
        self.refusal = ""
        """Why the last of them was not."""
        self.mode = TargetMode.STAND
        """What was asked last."""
        self._dt_s = period_s
        self._dt_ns = round(period_s * SECOND)
        self._timeout_ns = int(target_timeout_ms * MS)
        self._max_step_m, self._max_step_rad = max_step_m, max_step_rad
        self._target: _Target | None = None
        self._p: Vector = ZERO
        self._q: Quaternion = (0.0, 0.0, 0.0, 1.0)
        self._linear = Pursuit(limits.max_speed_m_s, limits.max_acceleration_m_s2, limits.max_jerk_m_s3, period_s)
        self._angular = Pursuit(
            limits.max_angular_speed_rad_s,
            limits.max_angular_acceleration_rad_s2,
            limits.max_angular_jerk_rad_s3,
            period_s,
        )

    def start(self, pose: Floats) -> None:
        """Stand at ``pose`` [7], the measured one, without a target.

        Raises:
            ValueError: the pose is not finite.
        """
        if not np.isfinite(pose).all():
            raise ValueError(f"cannot start from a pose that is not finite: {pose.tolist()}")
        x, y, z = pose[:3].tolist()
        qx, qy, qz, qw = quat_normalize(pose[3:7]).tolist()
        self._p, self._q = (x, y, z), (qx, qy, qz, qw)
        self._linear.stand()
        self._angular.stand()
        self._target = None
        self.mode = TargetMode.STAND

    def stop(self, mode: TargetMode) -> None:
        """Brake from the next step on, until a new target comes."""
        self.mode = mode
        self._target = None

    @property
    def standing(self) -> bool:
        """Whether the setpoint does not move."""
        return self._linear.standing and self._angular.standing

    def step(self, now_ns: int, letter: Letter | None) -> Setpoint:
        """The setpoint for ``now_ns``, a period after the one before.

        Args:
            now_ns: steady-clock time this setpoint is for.
            letter: a new target (dtype `letters.TARGET`), if one came.
        """
        if letter is not None:
            self._receive(now_ns, letter)
        target = self._target
        if target is not None and now_ns - target.stamp_ns > self._timeout_ns:
            self._target = target = None
        if target is not None:
            velocity, turning = self._follow(target, now_ns)
        else:
            velocity, turning = self._linear.brake(), self._angular.brake()
        dt_s = self._dt_s
        px, py, pz = self._p
        self._p = px + velocity[0] * dt_s, py + velocity[1] * dt_s, pz + velocity[2] * dt_s
        self._q = turned(self._q, turning, dt_s)
        if target is not None:
            status = ArmStatus.STREAMING
        else:
            status = ArmStatus.STANDING if self.standing else ArmStatus.BRAKING
        return Setpoint(np.array(self._p + self._q), np.array(velocity + turning), status)

    def _follow(self, target: _Target, now_ns: int) -> tuple[Vector, Vector]:
        """Mean velocities over the period that ends now."""
        since_s = (now_ns - self._dt_ns - target.due_ns) / SECOND
        way, v, a = _going_on(target.v, target.a, target.apart_s, since_s)
        turn, w, alpha = _going_on(target.w, target.alpha, target.apart_s, since_s)
        (x, y, z), (px, py, pz) = target.p, self._p
        ahead = x + way[0] - px, y + way[1] - py, z + way[2] - pz
        turn_ahead, _ = rotation_between(self._q, turned(target.q, turn, 1.0))
        v, _ = clipped(v, self.limits.max_speed_m_s)
        w, _ = clipped(w, self.limits.max_angular_speed_rad_s)
        return self._linear.follow(ahead, v, a), self._angular.follow(turn_ahead, w, alpha)

    def _receive(self, now_ns: int, letter: Letter) -> None:
        value = letter.value
        mode = int(value["mode"])
        if mode not in _MODES:
            self._refuse(f"unknown mode {mode}")
            return
        if mode != TargetMode.STREAM:
            self.stop(TargetMode(mode))  # however old: to stop is never wrong
            return
        due_ns = int(value["due_ns"])
        for name, t_ns in (("given", letter.stamp_ns), ("due", due_ns)):
            off_ns = now_ns - t_ns
            if abs(off_ns) > self._timeout_ns:
                when = "ago" if off_ns > 0 else "in the future"
                self._refuse(f"{name} {abs(off_ns) / MS:.1f} ms {when}, more than {self._timeout_ns / MS:g} ms")
                return
        x, y, z, qx, qy, qz, qw = value["pose"].tolist()
        vx, vy, vz, wx, wy, wz = value["twist"].tolist()
        norm = math.sqrt(qx * qx + qy * qy + qz * qz + qw * qw)
        # A sum with a NaN or an infinity in it is not finite either, nor is one that overflows.
        if not math.isfinite(x + y + z + norm + vx + vy + vz + wx + wy + wz):
            self._refuse("not finite")
            return
        if abs(norm - 1.0) > _NORM_TOLERANCE:
            self._refuse(f"quaternion of length {norm:.4g}")
            return
        limits = self.limits
        v, _ = clipped((vx, vy, vz), limits.max_speed_m_s)
        w, _ = clipped((wx, wy, wz), limits.max_angular_speed_rad_s)
        q = qx / norm, qy / norm, qz / norm, qw / norm
        since_s = (now_ns - due_ns) / SECOND
        px, py, pz = self._p
        off_m = math.hypot(x + v[0] * since_s - px, y + v[1] * since_s - py, z + v[2] * since_s - pz)
        off_rad = math.hypot(*rotation_between(self._q, turned(q, w, since_s))[0])
        if not (off_m <= self._max_step_m and off_rad <= self._max_step_rad):
            self._refuse(f"{off_m:.3f} m and {off_rad:.3f} rad away from the arm's setpoint")
            return
        before, apart_s, a, alpha = self._target, 0.0, ZERO, ZERO
        if before is not None and 0 < due_ns - before.due_ns <= _CURVED_FOR_NS:
            apart_s = (due_ns - before.due_ns) / SECOND
            a = _slope(before.v, v, apart_s, _ACCELERATION_SHARE * limits.max_acceleration_m_s2)
            alpha = _slope(before.w, w, apart_s, _ACCELERATION_SHARE * limits.max_angular_acceleration_rad_s2)
        self._target = _Target((x, y, z), q, v, w, a, alpha, apart_s, due_ns, letter.stamp_ns)
        self.mode = TargetMode.STREAM

    def _refuse(self, why: str) -> None:
        self.refused += 1
        self.refusal = f"target refused: {why}"


def _slope(before: Vector, after: Vector, apart_s: float, most: float) -> Vector:
    """The acceleration that leads from one velocity to the other, cut to ``most``."""
    difference, _ = clipped((after[0] - before[0], after[1] - before[1], after[2] - before[2]), most * apart_s)
    return difference[0] / apart_s, difference[1] / apart_s, difference[2] / apart_s


def _going_on(v: Vector, a: Vector, apart_s: float, since_s: float) -> tuple[Vector, Vector, Vector]:
    """Way since the target was due, velocity and acceleration then; straight on after a while.

    ``v`` is the mean over ``apart_s`` before the target was due, so the true velocity half that time before it.
    """
    curved_s = min(since_s, _CURVED_FOR_NS / SECOND)
    middle_s = 0.5 * (apart_s + curved_s)
    end_s = 0.5 * apart_s + curved_s
    way = [curved_s * (v[i] + a[i] * middle_s) + (since_s - curved_s) * (v[i] + a[i] * end_s) for i in range(3)]
    velocity = v[0] + a[0] * end_s, v[1] + a[1] * end_s, v[2] + a[2] * end_s
    return (way[0], way[1], way[2]), velocity, a if since_s == curved_s else ZERO
