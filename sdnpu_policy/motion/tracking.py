"""One tick of motion towards a target that may move, within a speed and an acceleration.

With the target's velocity as feed-forward, what is left is the distance to go when moving along with it. It is
closed at the greatest speed from which it can still be braked away in whole ticks, so a target that stands is
reached without overshoot and one that keeps the limits is followed without lag.

Plain floats and tuples: on three numbers a call of numpy costs as much as all of this.
"""

from __future__ import annotations

import math

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]

ZERO: Vector = (0.0, 0.0, 0.0)

_APPROACH_SHARE = 0.8
"""Part of the acceleration spent on closing a distance; the rest is left for the target's own acceleration."""
_SLACK = 1.0 + 1e-9
"""Rounding does not count as a limit met."""


def track(
    error: Vector, velocity: Vector, present: Vector, max_speed: float, max_acceleration: float, dt_s: float
) -> tuple[Vector, bool, bool]:
    """The velocity for this tick, and whether the speed and the acceleration limit were met.

    Args:
        error: way to the target as it will be at the end of the tick.
        velocity: the target's own, no faster than ``max_speed``.
        present: velocity of the tick before.
        max_speed: bound on the length of the answer.
        max_acceleration: bound on its difference from ``present``, times ``dt_s``.
        dt_s: length of the tick.
    """
    tx, ty, tz = velocity
    # What remains to go in the axes that move along with the target.
    ex, ey, ez = error[0] - tx * dt_s, error[1] - ty * dt_s, error[2] - tz * dt_s
    distance = math.sqrt(ex * ex + ey * ey + ez * ez)
    if distance > 0.0:
        scale = closing_speed(distance, _APPROACH_SHARE * max_acceleration * dt_s, dt_s) / distance
        tx, ty, tz = tx + ex * scale, ty + ey * scale, tz + ez * scale
    (tx, ty, tz), fast = clipped((tx, ty, tz), max_speed)
    vx, vy, vz = present
    ax, ay, az = tx - vx, ty - vy, tz - vz
    change, most = math.sqrt(ax * ax + ay * ay + az * az), max_acceleration * dt_s
    if change <= most:
        return (tx, ty, tz), fast, False
    scale = most / change
    return (vx + ax * scale, vy + ay * scale, vz + az * scale), fast, change > most * _SLACK


def closing_speed(distance: float, slope: float, dt_s: float) -> float:
    """The greatest speed from which ``distance`` is gone exactly as the speed is.

    Ticks of ``dt_s`` with the speed falling by ``slope`` after each: n ticks from speed u cover
    dt (n u - slope n (n - 1) / 2), with n the least number for which n (n + 1) / 2 slope dt >= distance.
    """
    ticks = math.ceil(0.5 * (math.sqrt(1.0 + 8.0 * distance / (slope * dt_s)) - 1.0)) or 1
    return distance / (ticks * dt_s) + 0.5 * slope * (ticks - 1)


def clipped(vector: Vector, most: float) -> tuple[Vector, bool]:
    """``vector`` no longer than ``most``, and whether it was longer by more than rounding."""
    x, y, z = vector
    length = math.sqrt(x * x + y * y + z * z)
    if length <= most:
        return vector, False
    scale = most / length
    return (x * scale, y * scale, z * scale), length > most * _SLACK


def slowed(velocity: Vector, by: float) -> Vector:
    """``velocity`` shortened by ``by``, exactly zero where it is no longer than that."""
    vx, vy, vz = velocity
    speed = math.sqrt(vx * vx + vy * vy + vz * vz)
    if speed <= by:
        return ZERO
    scale = 1.0 - by / speed
    return vx * scale, vy * scale, vz * scale


def rotation_between(a: Quaternion, b: Quaternion) -> tuple[Vector, bool]:
    """Rotation vector in fixed axes that turns ``a`` into ``b`` on the shorter way; whether ``b`` was flipped."""
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    flipped = ax * bx + ay * by + az * bz + aw * bw < 0.0
    if flipped:
        bx, by, bz, bw = -bx, -by, -bz, -bw
    x = aw * bx - bw * ax + ay * bz - az * by
    y = aw * by - bw * ay + az * bx - ax * bz
    z = aw * bz - bw * az + ax * by - ay * bx
    w = aw * bw + ax * bx + ay * by + az * bz
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 * math.atan2(sine, w) / sine if sine > 0.0 else 2.0
    return (x * scale, y * scale, z * scale), flipped


def turned(q: Quaternion, velocity: Vector, dt_s: float) -> Quaternion:
    """``q`` after ``dt_s`` of turning at ``velocity`` in fixed axes."""
    wx, wy, wz = velocity
    speed = math.sqrt(wx * wx + wy * wy + wz * wz)
    if speed == 0.0:
        return q
    half = 0.5 * speed * dt_s
    scale, c = math.sin(half) / speed, math.cos(half)
    rx, ry, rz = wx * scale, wy * scale, wz * scale
    x, y, z, w = q
    x, y, z, w = (
        c * x + rx * w + ry * z - rz * y,
        c * y + ry * w + rz * x - rx * z,
        c * z + rz * w + rx * y - ry * x,
        c * w - rx * x - ry * y - rz * z,
    )
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    return x / norm, y / norm, z / norm, w / norm
