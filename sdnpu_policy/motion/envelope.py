"""The last gate before the arm: no pose leaves here that breaks a limit, whatever comes in.

Each tick `Envelope.limit` moves the commanded pose towards the desired one, within bounds on the length of
velocity and acceleration (not per axis) and inside the workspace: a box and a ball around the base's origin.

How the bounds are kept. The workspace is convex, so if the arm is inside and the point where straight braking
would end is inside, all between is inside, and braking is a way out that never breaks a limit. That pair is the
invariant: a wanted velocity is mixed with braking until the stopping point behind it lies inside. Velocities and
accelerations within their bounds form balls, which are convex too, so mixing breaks neither.

An envelope belongs to one thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.motion.pose import Floats, quat_normalize
from sdnpu_policy.motion.tracking import ZERO, Quaternion, Vector, clipped, rotation_between, slowed, track, turned

_NORM_TOLERANCE = 0.01
"""A quaternion whose length is farther from 1 is no rounding error."""
_ROUNDING_M = 1e-9
"""How far beyond a wall a point still counts as on it."""
_HALVINGS = 12
_STANDS = 1e-9
"""A slower velocity (m/s, rad/s) is rounding: a picometre a tick."""


class Reason(IntEnum):
    """What was done to a desired pose; bit number in `Limited.reasons`, index in `Envelope.counts`."""

    NON_FINITE = 0
    """Refused: a number is not finite."""
    QUATERNION_NORM = 1
    """Refused: the quaternion's length is not 1 within 1 %."""
    HEMISPHERE = 2
    """-q was read as the same rotation q."""
    WORKSPACE = 3
    """Outside the box: moved to its wall, or slowed down before it."""
    REACH = 4
    """Beyond reach: moved to the ball, or slowed down before it."""
    STEP = 5
    """Refused: too far from the commanded pose for one tick."""
    SPEED = 6
    ACCELERATION = 7
    ANGULAR_SPEED = 8
    ANGULAR_ACCELERATION = 9


@dataclass(frozen=True, slots=True)
class EnvelopeSettings:
    """The limits, in ``base``; norms, not per axis."""

    workspace_min_m: Vector
    workspace_max_m: Vector
    max_reach_m: float
    """Radius of the ball around the origin of ``base``."""
    max_speed_m_s: float
    max_acceleration_m_s2: float
    max_angular_speed_rad_s: float
    max_angular_acceleration_rad_s2: float
    max_step_m: float
    """A desired pose farther than this from the commanded one is refused."""

    def __post_init__(self) -> None:
        for low, high, axis in zip(self.workspace_min_m, self.workspace_max_m, "xyz", strict=True):
            if not low < high:
                raise ValueError(f"workspace_min_m.{axis} {low} must be below workspace_max_m.{axis} {high}")
        for name in (
            "max_reach_m",
            "max_speed_m_s",
            "max_acceleration_m_s2",
            "max_angular_speed_rad_s",
            "max_angular_acceleration_rad_s2",
            "max_step_m",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} {value} must be above 0")
        nearest = [
            min(max(0.0, low), high) for low, high in zip(self.workspace_min_m, self.workspace_max_m, strict=True)
        ]
        if math.hypot(*nearest) >= self.max_reach_m:
            raise ValueError(f"no point of the workspace is within max_reach_m {self.max_reach_m}")


@dataclass(frozen=True, slots=True, eq=False)
class Limited:
    """What may be commanded."""

    pose: Floats
    """x y z qx qy qz qw [7]."""
    twist: Floats
    """The velocity that led here in this tick [6], m/s and rad/s."""
    refused: bool
    """The desired pose was not used at all: the arm brakes."""
    reasons: int
    """One bit for each `Reason` that applied."""

    def names(self) -> list[str]:
        """The reasons by name."""
        return [reason.name for reason in Reason if self.reasons >> reason & 1]


@dataclass(slots=True)
class _Walls:
    """The workspace, widened while the arm, placed outside, has not yet come in."""

    low: list[float]
    high: list[float]
    reach_m: float
    widened: bool = field(default=False)


class Envelope:
    """Limits on a stream of poses. `reset` with the measured pose before the first."""

    def __init__(self, settings: EnvelopeSettings) -> None:
        self.settings = settings
        self.counts: NDArray[np.int64] = np.zeros(len(Reason), dtype=np.int64)
        """How often each `Reason` applied."""
        self._p: Vector = ZERO
        self._q: Quaternion = (0.0, 0.0, 0.0, 1.0)
        self._v: Vector = ZERO
        self._w: Vector = ZERO
        self._placed = False
        self._walls = _Walls(list(settings.workspace_min_m), list(settings.workspace_max_m), settings.max_reach_m)

    def reset(self, pose: Floats) -> None:
        """Stand at ``pose`` [7].

        A pose outside the workspace is accepted (an arm may be parked there): from it the arm can move inwards
        only.

        Raises:
            ValueError: the pose is not finite.
        """
        if not np.isfinite(pose).all():
            raise ValueError(f"cannot stand at a pose that is not finite: {pose.tolist()}")
        x, y, z = pose[:3].tolist()
        qx, qy, qz, qw = quat_normalize(pose[3:7]).tolist()
        self._p, self._q, self._v, self._w = (x, y, z), (qx, qy, qz, qw), ZERO, ZERO
        self._placed = True
        self._widen_walls(self._p)

    @property
    def pose(self) -> Floats:
        """The commanded pose [7]."""
        return np.array(self._p + self._q)

    @property
    def standing(self) -> bool:
        """Whether the commanded velocity is zero, but for rounding."""
        return max(map(abs, self._v)) < _STANDS and max(map(abs, self._w)) < _STANDS

    def limit(self, desired: Floats, twist: Floats | None, dt_s: float) -> Limited:
        """One tick towards ``desired``.

        Args:
            desired: pose [7] in ``base`` to be at when the tick ends.
            twist: its velocity [6]; None for a target that stands.
            dt_s: length of the tick.

        Returns:
            The pose to command. Where ``desired`` is refused, the arm brakes along its present direction.

        Raises:
            RuntimeError: `reset` was not called.
            ValueError: ``dt_s`` is not above 0.
        """
        self._check(dt_s)
        limits = self.settings
        x, y, z, qx, qy, qz, qw = desired.tolist()
        feed_forward = [0.0] * 6 if twist is None else twist.tolist()
        norm = math.sqrt(qx * qx + qy * qy + qz * qz + qw * qw)
        # A sum with a NaN or an infinity in it is not finite either, nor is one that overflows.
        if not math.isfinite(x + y + z + norm + sum(feed_forward)):
            return self._refuse(1 << Reason.NON_FINITE, dt_s)
        if abs(norm - 1.0) > _NORM_TOLERANCE:
            return self._refuse(1 << Reason.QUATERNION_NORM, dt_s)
        px, py, pz = self._p
        dx, dy, dz = x - px, y - py, z - pz
        # Compared this way round, an overflow to infinity is refused as well.
        if not math.sqrt(dx * dx + dy * dy + dz * dz) <= limits.max_step_m:
            return self._refuse(1 << Reason.STEP, dt_s)

        # Cut to the limit before anything is computed from it, so that nothing can overflow.
        velocity, fast = clipped((feed_forward[0], feed_forward[1], feed_forward[2]), limits.max_speed_m_s)
        target, velocity, reasons = self._inside((x, y, z), velocity)
        reasons |= fast << Reason.SPEED
        wanted, fast, hard = track(
            (target[0] - px, target[1] - py, target[2] - pz),
            velocity,
            self._v,
            limits.max_speed_m_s,
            limits.max_acceleration_m_s2,
            dt_s,
        )
        reasons |= fast << Reason.SPEED | hard << Reason.ACCELERATION

        spin, fast = clipped((feed_forward[3], feed_forward[4], feed_forward[5]), limits.max_angular_speed_rad_s)
        reasons |= fast << Reason.ANGULAR_SPEED
        error, flipped = rotation_between(self._q, (qx / norm, qy / norm, qz / norm, qw / norm))
        turning, fast, hard = track(
            error,
            spin,
            self._w,
            limits.max_angular_speed_rad_s,
            limits.max_angular_acceleration_rad_s2,
            dt_s,
        )
        reasons |= (
            fast << Reason.ANGULAR_SPEED | hard << Reason.ANGULAR_ACCELERATION | flipped << Reason.HEMISPHERE
        )
        return self._move(wanted, turning, dt_s, refused=False, reasons=reasons)

    def brake(self, dt_s: float, deceleration_m_s2: float) -> Limited:
        """One tick of slowing down along the present velocity, to standing.

        ``deceleration_m_s2`` is cut to the acceleration limit, and raised towards it where a wall is near; the
        rotation slows down in the same proportion of its own limit.

        Raises:
            RuntimeError: `reset` was not called.
            ValueError: ``dt_s`` is not above 0.
        """
        self._check(dt_s)
        share = min(1.0, deceleration_m_s2 / self.settings.max_acceleration_m_s2)
        wanted = slowed(self._v, share * self.settings.max_acceleration_m_s2 * dt_s)
        turning = slowed(self._w, share * self.settings.max_angular_acceleration_rad_s2 * dt_s)
        return self._move(wanted, turning, dt_s, refused=False, reasons=0)

    def _check(self, dt_s: float) -> None:
        if not self._placed:
            raise RuntimeError("the envelope must be reset with the measured pose first")
        if not dt_s > 0.0:
            raise ValueError(f"dt_s {dt_s} must be above 0")

    def _refuse(self, reasons: int, dt_s: float) -> Limited:
        wanted = slowed(self._v, self.settings.max_acceleration_m_s2 * dt_s)
        turning = slowed(self._w, self.settings.max_angular_acceleration_rad_s2 * dt_s)
        return self._move(wanted, turning, dt_s, refused=True, reasons=reasons)

    def _move(self, wanted: Vector, turning: Vector, dt_s: float, *, refused: bool, reasons: int) -> Limited:
        velocity, held_back = self._admit(wanted, dt_s)
        reasons |= held_back
        px, py, pz = self._p
        vx, vy, vz = self._v = velocity
        self._w = turning
        self._p = (px + vx * dt_s, py + vy * dt_s, pz + vz * dt_s)
        self._q = turned(self._q, turning, dt_s)
        if self._walls.widened:
            self._widen_walls(self._stop_point(velocity, dt_s=0.0))
        if reasons:
            for reason in Reason:
                if reasons >> reason & 1:
                    self.counts[reason] += 1
        return Limited(np.array(self._p + self._q), np.array(velocity + turning), refused, reasons)

    def _inside(self, target: Vector, velocity: Vector) -> tuple[Vector, Vector, int]:
        """The point of the workspace to aim at, and the target's velocity without what leads out of it."""
        reasons = 0
        point, along = list(target), list(velocity)
        low, high = self._walls.low, self._walls.high
        for axis in range(3):
            if point[axis] < low[axis]:
                point[axis], along[axis] = low[axis], 0.0
                reasons |= 1 << Reason.WORKSPACE
            elif point[axis] > high[axis]:
                point[axis], along[axis] = high[axis], 0.0
                reasons |= 1 << Reason.WORKSPACE
        x, y, z = point
        radius = math.sqrt(x * x + y * y + z * z)
        if radius > self._walls.reach_m:
            reasons |= 1 << Reason.REACH
            outward = (along[0] * x + along[1] * y + along[2] * z) / (radius * radius)
            if outward > 0.0:
                along = [along[0] - outward * x, along[1] - outward * y, along[2] - outward * z]
            scale = self._walls.reach_m / radius
            # Where this leaves the box again (a corner), the admission below still keeps the arm inside.
            point = [min(max(scale * c, lo), hi) for c, lo, hi in zip(point, low, high, strict=True)]
        return (point[0], point[1], point[2]), (along[0], along[1], along[2]), reasons

    def _admit(self, wanted: Vector, dt_s: float) -> tuple[Vector, int]:
        """``wanted``, mixed with as much of full straight braking as the workspace demands."""
        outside = self._outside(self._stop_point(wanted, dt_s))
        if not outside:
            return wanted, 0
        slow = slowed(self._v, self.settings.max_acceleration_m_s2 * dt_s)
        admitted, share, part = slow, 0.0, 0.5
        for _ in range(_HALVINGS):
            trial = share + part
            mixed = (
                slow[0] + trial * (wanted[0] - slow[0]),
                slow[1] + trial * (wanted[1] - slow[1]),
                slow[2] + trial * (wanted[2] - slow[2]),
            )
            if not self._outside(self._stop_point(mixed, dt_s)):
                admitted, share = mixed, trial
            part *= 0.5
        return admitted, outside

    def _stop_point(self, velocity: Vector, dt_s: float) -> Vector:
        """Where the arm would stand after ``dt_s`` at ``velocity`` and then full straight braking.

        The continuous v^2 / 2a is a little more than the sum over whole ticks, whatever their lengths, so braking
        never moves this point outwards.
        """
        vx, vy, vz = velocity
        time_s = dt_s + math.sqrt(vx * vx + vy * vy + vz * vz) / (2.0 * self.settings.max_acceleration_m_s2)
        px, py, pz = self._p
        return px + vx * time_s, py + vy * time_s, pz + vz * time_s

    def _outside(self, point: Vector) -> int:
        """Bits of the reasons why ``point`` is not in the workspace, 0 where it is."""
        x, y, z = point
        walls = self._walls
        (low_x, low_y, low_z), (high_x, high_y, high_z) = walls.low, walls.high
        off, reach = _ROUNDING_M, walls.reach_m + _ROUNDING_M
        reasons = 0
        if not (
            low_x - off <= x <= high_x + off
            and low_y - off <= y <= high_y + off
            and low_z - off <= z <= high_z + off
        ):
            reasons |= 1 << Reason.WORKSPACE
        if x * x + y * y + z * z > reach * reach:
            reasons |= 1 << Reason.REACH
        return reasons

    def _widen_walls(self, stop_point: Vector) -> None:
        """Set the walls to the workspace, or as far out as the arm and its stopping point still are."""
        limits, walls = self.settings, self._walls
        for axis in range(3):
            here, there = self._p[axis], stop_point[axis]
            walls.low[axis] = min(limits.workspace_min_m[axis], here, there)
            walls.high[axis] = max(limits.workspace_max_m[axis], here, there)
        walls.reach_m = max(limits.max_reach_m, math.hypot(*self._p), math.hypot(*stop_point))
        walls.widened = (
            walls.reach_m > limits.max_reach_m
            or tuple(walls.low) != tuple(limits.workspace_min_m)
            or tuple(walls.high) != tuple(limits.workspace_max_m)
        )
