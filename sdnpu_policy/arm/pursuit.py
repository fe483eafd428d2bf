"""Three axes of motion, position or rotation, that follow a moving target within bounds on the motion in space.

Each period the way to the target is planned anew by ruckig (time-optimal, jerk-limited) in axes that move along with
the target: there the target stands, and what is planned is how the distance and the differences in velocity and
acceleration vanish. Towards a moving target in fixed axes it would plan to a place the target has left by then.

A plan believes that the target goes on as it does. The longer it takes, the less that is so: an arm that had to stop
and now runs after a target on a curve would cut the curve on one side and the other, for ever. Hence the longer the
last plan takes, the less of the target's velocity and acceleration enters; after some time none, and the arm runs to
where the target is now.

Ruckig bounds each axis for itself. Acceleration and jerk get the cube inside the ball of allowed vectors, so its
plans hold in every direction. What still exceeds a bound (on the speed, or when a bound is already exceeded by
what the target does) is clamped, and the clamped state is what the next period starts from: the differences of
successive positions keep the bounds on speed and acceleration whatever the target does. The bound on jerk holds
except where that clamp acts.

Braking does not ask ruckig: axes that slow down each in its own time leave the direction of motion.

Plain floats: on three numbers a call of numpy costs as much as all of this.
"""

from __future__ import annotations

import math

from ruckig import InputParameter, OutputParameter, Ruckig, RuckigError

from sdnpu_policy.motion.tracking import ZERO, Vector, clipped

_EACH_AXIS = 1.0 / math.sqrt(3.0)
"""Half the side of the cube in the unit ball."""
_LEAST_SHARE = 0.1
"""Part of a bound always left for closing a distance, were the target itself to use all of it."""
_AIM_S = 0.05
"""Where the target will be seen after this time says which way it is."""
_BELIEVED_S = 0.15
"""The target's motion enters in full in plans that take no longer, and not at all in those of twice that."""
_FADE_S = 0.1
"""Time in which that part may go from all to nothing."""
_BRAKE_RAMP_S = 0.02
"""Braking reaches its full deceleration within this time, were the jerk limit to ask for longer."""
_NONE = 1e-10
"""Distances (m, rad) and speeds below are rounding, and ruckig fails on states of nothing else."""


class Pursuit:
    """Velocity and acceleration of the three axes; the caller keeps where they are.

    Args:
        max_speed: bound on the length of the mean velocity over a period, m/s or rad/s.
        max_acceleration: bound on the length of its change from one period to the next, divided by the period.
        max_jerk: what trajectories are planned with.
        period_s: length of a period.
    """

    def __init__(self, max_speed: float, max_acceleration: float, max_jerk: float, period_s: float) -> None:
        self.max_speed = max_speed
        self.max_acceleration = max_acceleration
        self.mean: Vector = ZERO
        """Mean velocity over the last period."""
        self._brake_jerk = max(max_jerk, max_acceleration / _BRAKE_RAMP_S)
        self._dt_s = period_s
        self._v: Vector = ZERO  # at the end of the last period
        self._a: Vector = ZERO
        self._belief = 1.0
        self._left_s = 0.0  # what the last plan takes
        self._planner = Ruckig(3, period_s)
        self._plan = InputParameter(3)
        self._plan.max_jerk = [max_jerk * _EACH_AXIS] * 3
        self._answer = OutputParameter(3)

    @property
    def standing(self) -> bool:
        """Whether the last period was spent, and ended, without motion."""
        return self.mean == ZERO and self._v == ZERO

    def stand(self) -> None:
        """Be at rest, without a motion that leads there: the caller has been placed elsewhere."""
        self.mean = self._v = self._a = ZERO
        self._belief, self._left_s = 1.0, 0.0

    def follow(self, ahead: Vector, velocity: Vector, acceleration: Vector) -> Vector:
        """One period towards a target, as the mean velocity over it.

        Args:
            ahead: way to the target at the beginning of the period.
            velocity: the target's at that time, no longer than ``max_speed``.
            acceleration: the target's over the period, shorter than ``max_acceleration``.
        """
        dt_s = self._dt_s
        belief = self._believe()
        tx, ty, tz = velocity[0] * belief, velocity[1] * belief, velocity[2] * belief
        bx, by, bz = acceleration[0] * belief, acceleration[1] * belief, acceleration[2] * belief
        (vx, vy, vz), (ax, ay, az) = self._v, self._a
        error = -ahead[0], -ahead[1], -ahead[2]
        drift = vx - tx, vy - ty, vz - tz
        plan = self._plan
        plan.current_position = _without_rounding(error)
        plan.current_velocity = _without_rounding(drift)
        plan.current_acceleration = _without_rounding((ax - bx, ay - by, az - bz))
        self._bound_speed(error, drift, (tx, ty, tz))
        used = math.sqrt(bx * bx + by * by + bz * bz)
        free = max(self.max_acceleration - used, _LEAST_SHARE * self.max_acceleration)
        plan.max_acceleration = [free * _EACH_AXIS] * 3
        answer = self._answer
        try:
            self._planner.update(plan, answer)
        except (RuckigError, ValueError):  # the second for results it has no name for
            return self.brake()  # for one period that does no harm, and the next one asks something else
        self._left_s = answer.trajectory.duration
        x, y, z = answer.new_position
        half_s = 0.5 * dt_s
        wanted = (
            tx + half_s * bx + (x - error[0]) / dt_s,
            ty + half_s * by + (y - error[1]) / dt_s,
            tz + half_s * bz + (z - error[2]) / dt_s,
        )
        if not math.isfinite(wanted[0] + wanted[1] + wanted[2]):
            return self.brake()
        if not self._take(wanted):
            vx, vy, vz = answer.new_velocity
            ax, ay, az = answer.new_acceleration
            velocity = vx + tx + dt_s * bx, vy + ty + dt_s * by, vz + tz + dt_s * bz
            self._v, _ = clipped(velocity, self.max_speed)
            self._a = ax + bx, ay + by, az + bz
        return self.mean

    def brake(self) -> Vector:
        """One period of slowing down along the velocity, to standing; the mean velocity over it."""
        dt_s, jerk = self._dt_s, self._brake_jerk
        vx, vy, vz = self.mean
        ax, ay, az = self._a
        speed = math.sqrt(vx * vx + vy * vy + vz * vz)
        if speed <= jerk * dt_s * dt_s:
            self.stand()
            return ZERO
        # Taking a deceleration back by `jerk` in n periods, after this one, covers jerk dt^2 n (n + 1) / 2 of speed.
        periods = 0.5 * (math.sqrt(1.0 + 8.0 * speed / (jerk * dt_s * dt_s)) - 1.0)
        slope = min(self.max_acceleration, jerk * dt_s * periods) / speed
        (jx, jy, jz), _ = clipped((-slope * vx - ax, -slope * vy - ay, -slope * vz - az), jerk * dt_s)
        self._take((vx + (ax + jx) * dt_s, vy + (ay + jy) * dt_s, vz + (az + jz) * dt_s))
        self._v = self.mean
        return self.mean

    def _believe(self) -> float:
        """The part of the target's motion to plan with."""
        most = self._dt_s / _FADE_S
        wanted = min(1.0, max(0.0, 2.0 - self._left_s / _BELIEVED_S))
        self._belief += max(-most, min(most, wanted - self._belief))
        return self._belief

    def _bound_speed(self, error: Vector, drift: Vector, velocity: Vector) -> None:
        """Leave ruckig what the target's velocity leaves of the bound on speed, seen in the target's axes."""
        most = self.max_speed
        x, y, z = error[0] + _AIM_S * drift[0], error[1] + _AIM_S * drift[1], error[2] + _AIM_S * drift[2]
        length = math.sqrt(x * x + y * y + z * z)
        aim = (x / length, y / length, z / length) if length > _NONE else ZERO
        vx, vy, vz = velocity
        along = aim[0] * vx + aim[1] * vy + aim[2] * vz
        # The chord of the ball of allowed velocities that leads through the target's in that direction.
        chord = math.sqrt(max(0.0, most * most - (vx * vx + vy * vy + vz * vz - along * along)))
        least = _LEAST_SHARE * most
        upper, lower = [], []
        for share in aim:
            there, back = (chord - along) * share, (-chord - along) * share
            upper.append(max(there, back) + least)
            lower.append(min(there, back) - least)
        self._plan.max_velocity, self._plan.min_velocity = upper, lower

    def _take(self, wanted: Vector) -> bool:
        """Make ``wanted`` the mean velocity as far as the bounds allow; whether they cut it.

        The ball of allowed speeds is convex and holds the present velocity, so cutting the speed after the change
        does not lengthen the change again.
        """
        dt_s = self._dt_s
        x, y, z = self.mean
        (dx, dy, dz), hard = clipped((wanted[0] - x, wanted[1] - y, wanted[2] - z), self.max_acceleration * dt_s)
        mean, fast = clipped((x + dx, y + dy, z + dz), self.max_speed)
        self.mean = mean
        self._a = (mean[0] - x) / dt_s, (mean[1] - y) / dt_s, (mean[2] - z) / dt_s
        if hard or fast:
            self._v = mean
        return hard or fast


def _without_rounding(vector: Vector) -> list[float]:
    return [each if abs(each) > _NONE else 0.0 for each in vector]
