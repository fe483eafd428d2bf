"""The plan: chunks of stamped poses, stitched into one smooth path in time.

A chunk arrives some time after the observation it was made from, while the arm follows the one before.
`Plan.stitch` keeps what of it still lies ahead and fades from the path under way into it, so that the path never
jumps: it starts exactly where the arm was told to be. The result is kept on a fine even grid with its speeds,
which makes reading it in the tick a matter of a few microseconds.

Between the waypoints of a chunk runs a cubic Hermite curve with Catmull-Rom tangents, cut back (Fritsch and
Carlson 1980) so that no coordinate overshoots its waypoints: the speed does not step at a waypoint, as it would
on straight lines and cost acceleration, and a path to 30 mm above a table does not dip to 28. Quaternions go the
same way and are normalised after: at the few degrees between waypoints that is a slerp to within microradians,
without its steps of angular speed. The fade between two plans is a slerp.

Times are steady nanoseconds. A plan belongs to one thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.motion.pose import Floats, continuous_hemisphere, interpolate_pose, quat_normalize


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The actions of one finished denoising.

    Where the first action lies later than the observation, ``observed_pose`` is the waypoint before it.
    """

    times_ns: NDArray[np.int64]
    """When each waypoint is due [T], rising."""
    poses: Floats
    """Waypoints in ``base`` [T, 7]."""
    observed_ns: int
    """When the observation behind them was made."""
    observed_pose: Floats | None = None
    """TCP in ``base`` [7] at that time."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How chunks are stitched."""

    blend_ms: float = 100.0
    """How long the fade from the plan under way to a new chunk takes."""
    max_age_ms: float = 800.0
    """A chunk whose observation is older is refused."""
    grid_ms: float = 4.0
    """Spacing of the stored path."""

    def __post_init__(self) -> None:
        if not (self.blend_ms >= 0.0 and self.max_age_ms > 0.0 and self.grid_ms > 0.0):
            raise ValueError(
                f"blend_ms {self.blend_ms} must be 0 or more, max_age_ms {self.max_age_ms} and "
                f"grid_ms {self.grid_ms} above 0"
            )


@dataclass(frozen=True, slots=True)
class Stitch:
    """What became of a chunk."""

    accepted: bool
    reason: str
    """Why it was refused, with the numbers; empty where it was accepted."""
    dropped: int = 0
    """Actions left out because their time had passed."""
    jump_m: float = 0.0
    """How far the chunk lay from the plan under way; the fade takes it up."""
    jump_rad: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PlanSample:
    """The plan at one time."""

    pose: Floats
    """x y z qx qy qz qw [7], m."""
    twist: Floats
    """vx vy vz wx wy wz [6] along the plan, m/s and rad/s."""


class Plan:
    """The path ahead, from the last stitch to the end of the last chunk."""

    def __init__(self, settings: PlanSettings) -> None:
        self.settings = settings
        self.clear()

    def clear(self) -> None:
        """Forget everything: there is no plan."""
        self._nodes: Floats = np.empty((0, 13))
        self._start_ns = self._end_ns = 0
        self._step_ns = 1.0
        self._observed_ns: int | None = None
        self._waypoints: tuple[NDArray[np.int64], Floats] | None = None

    def start_from(self, pose: Floats, now_ns: int) -> None:
        """Plan to stand at ``pose`` [7]: the first chunk after this fades in from there."""
        self.clear()
        node = np.zeros(13)
        node[:3] = pose[:3]
        node[3:7] = quat_normalize(pose[3:7])
        self._nodes = np.stack([node, node])
        self._start_ns = self._end_ns = now_ns

    def stitch(self, chunk: Chunk, now_ns: int, *, followed_ns: int | None = None) -> Stitch:
        """Fade from the plan under way into ``chunk``, beginning at ``now_ns``.

        Args:
            chunk: the new actions.
            now_ns: the time at which the new path begins: that of the sample the arm was told last.
            followed_ns: where on the present plan the arm is at ``now_ns``, when that is not ``now_ns`` (see
                `sdnpu_policy.motion.follower.PathClock`).

        Returns:
            Whether it was accepted. A refused chunk leaves the plan as it was.
        """
        refusal = self._refusal(chunk, now_ns)
        if refusal:
            return Stitch(accepted=False, reason=refusal)
        dropped = int(np.searchsorted(chunk.times_ns, now_ns, side="right"))
        old_start = self._evaluate(np.array([now_ns if followed_ns is None else followed_ns])) if self else None

        times_ns, poses = chunk.times_ns, np.array(chunk.poses, dtype=np.float64)
        poses[:, 3:] = quat_normalize(poses[:, 3:])
        if chunk.observed_pose is not None and chunk.observed_ns < times_ns[0]:
            times_ns = np.concatenate([[chunk.observed_ns], times_ns])
            poses = np.concatenate([[chunk.observed_pose], poses])
        poses[:, 3:] = continuous_hemisphere(poses[:, 3:], None if old_start is None else old_start[0, 3:])

        end_ns = int(chunk.times_ns[-1])
        cells = max(1, math.ceil((end_ns - now_ns) / (self.settings.grid_ms * MS)))
        ahead_s = np.linspace(0.0, (end_ns - now_ns) / SECOND, cells + 1)
        path = _through_waypoints((times_ns - now_ns) / SECOND, poses, ahead_s)
        jump_m = jump_rad = 0.0
        if old_start is not None:
            jump_m, jump_rad = _apart(path[0], old_start[0])
            fading = int(np.searchsorted(ahead_s, self.settings.blend_ms / 1e3, side="left"))
            if fading:
                followed = now_ns if followed_ns is None else followed_ns
                old = self._evaluate(followed + ahead_s[:fading] * SECOND)
                share = ahead_s[:fading] / (self.settings.blend_ms / 1e3)
                path[:fading] = interpolate_pose(old, path[:fading], share * share * (3.0 - 2.0 * share))
                path[:, 3:] = continuous_hemisphere(path[:, 3:])

        self._nodes = np.concatenate([path, _twists(path, float(ahead_s[1]))], axis=1)
        self._start_ns, self._end_ns = now_ns, end_ns
        self._step_ns = (end_ns - now_ns) / cells
        self._observed_ns = chunk.observed_ns
        self._waypoints = (chunk.times_ns[dropped:], chunk.poses[dropped:])
        return Stitch(accepted=True, reason="", dropped=dropped, jump_m=jump_m, jump_rad=jump_rad)

    def sample(self, t_ns: int) -> PlanSample | None:
        """Pose and twist at ``t_ns``; None where there is no plan. After its end it stands at its last pose."""
        if not self:
            return None
        if t_ns >= self._end_ns:
            return PlanSample(self._nodes[-1, :7].copy(), np.zeros(6))
        cells = max(0.0, (t_ns - self._start_ns) / self._step_ns)
        index = min(int(cells), len(self._nodes) - 2)
        part = cells - index
        before, after = self._nodes[index : index + 2].tolist()
        mixed = [a + part * (b - a) for a, b in zip(before, after, strict=True)]
        qx, qy, qz, qw = mixed[3:7]
        length = math.sqrt(qx * qx + qy * qy + qz * qz + qw * qw)
        mixed[3:7] = qx / length, qy / length, qz / length, qw / length
        return PlanSample(np.array(mixed[:7]), np.array(mixed[7:]))

    def sample_many(self, times_ns: NDArray[np.int64]) -> Floats | None:
        """Poses [N, 7] at ``times_ns`` [N], those of the ends outside the plan; None where there is no plan."""
        return self._evaluate(times_ns) if self else None

    def future_ms(self, now_ns: int) -> float:
        """How much of the plan lies ahead of ``now_ns``."""
        return max(0, self._end_ns - now_ns) / MS if self else 0.0

    def age_ms(self, now_ns: int) -> float:
        """Time since the observation behind the plan; infinite where no observation is."""
        return math.inf if self._observed_ns is None else (now_ns - self._observed_ns) / MS

    def waypoints(self) -> tuple[NDArray[np.int64], Floats] | None:
        """For display: times [N] and poses [N, 7] of the newest chunk that lay ahead when it was stitched."""
        return self._waypoints

    def __bool__(self) -> bool:
        return len(self._nodes) > 0

    def _refusal(self, chunk: Chunk, now_ns: int) -> str:
        times_ns, poses = chunk.times_ns, chunk.poses
        if len(times_ns) == 0 or poses.shape != (len(times_ns), 7) or (np.diff(times_ns) <= 0).any():
            return f"{len(times_ns)} times that must rise and poses of shape {list(poses.shape)} do not fit"
        if not np.isfinite(poses).all() or not (
            chunk.observed_pose is None or np.isfinite(chunk.observed_pose).all()
        ):
            return "a waypoint is not finite"
        if (np.abs(poses[:, 3:]).max(axis=1) < 1e-6).any():
            return "a waypoint's quaternion has no length"
        age_ms = (now_ns - chunk.observed_ns) / MS
        if age_ms > self.settings.max_age_ms:
            return f"observed {age_ms:.0f} ms ago, more than {self.settings.max_age_ms:g} ms"
        if age_ms < 0.0:
            return f"observed {-age_ms:.0f} ms in the future"
        if times_ns[-1] <= now_ns:
            return f"its last action was due {(now_ns - int(times_ns[-1])) / MS:.0f} ms ago"
        if self._observed_ns is not None and chunk.observed_ns < self._observed_ns:
            return f"observed {(self._observed_ns - chunk.observed_ns) / MS:.0f} ms before the plan under way"
        return ""

    def _evaluate(self, times_ns: NDArray[np.int64] | Floats) -> Floats:
        cells = np.clip((times_ns - self._start_ns) / self._step_ns, 0.0, len(self._nodes) - 1)
        index = np.minimum(cells.astype(np.intp), len(self._nodes) - 2)
        part = (cells - index)[:, None]
        poses = (1.0 - part) * self._nodes[index, :7] + part * self._nodes[index + 1, :7]
        poses[:, 3:] = quat_normalize(poses[:, 3:])
        return np.asarray(poses)


def _through_waypoints(knots_s: Floats, poses: Floats, at_s: Floats) -> Floats:
    """The curve of the module's docstring at ``at_s`` [N] (clamped to the waypoints): poses [N, 7]."""
    if len(knots_s) == 1:
        return np.repeat(poses, len(at_s), axis=0)
    spans = np.diff(knots_s)[:, None]
    slopes = np.diff(poses, axis=0) / spans
    tangents = np.empty_like(poses)
    tangents[0], tangents[-1] = slopes[0], slopes[-1]
    left, right = slopes[:-1], slopes[1:]
    mean = (left * spans[1:] + right * spans[:-1]) / (spans[1:] + spans[:-1])
    steepest = 3.0 * np.minimum(np.abs(left), np.abs(right))
    tangents[1:-1] = np.where(left * right > 0.0, np.clip(mean, -steepest, steepest), 0.0)

    at_s = np.clip(at_s, knots_s[0], knots_s[-1])
    index = np.clip(np.searchsorted(knots_s, at_s, side="right") - 1, 0, len(knots_s) - 2)
    span = spans[index]
    u = (at_s - knots_s[index])[:, None] / span
    rest = 1.0 - u
    path = rest * rest * ((1.0 + 2.0 * u) * poses[index] + u * span * tangents[index]) + u * u * (
        (3.0 - 2.0 * u) * poses[index + 1] - rest * span * tangents[index + 1]
    )
    path[:, 3:] = quat_normalize(path[:, 3:])
    return np.asarray(path)


def _twists(path: Floats, step_s: float) -> Floats:
    """Twists [N, 6] of poses ``step_s`` apart by central differences, one-sided at the ends."""
    a, b = path[:-1], path[1:]
    cell = np.empty((len(a), 6))
    cell[:, :3] = b[:, :3] - a[:, :3]
    # Vector part of q_b conj(q_a), twice: the rotation vector, to third order in the small angle of a cell.
    va, vb, wa, wb = a[:, 3:6], b[:, 3:6], a[:, 6:], b[:, 6:]
    cell[:, 3] = va[:, 1] * vb[:, 2] - va[:, 2] * vb[:, 1]
    cell[:, 4] = va[:, 2] * vb[:, 0] - va[:, 0] * vb[:, 2]
    cell[:, 5] = va[:, 0] * vb[:, 1] - va[:, 1] * vb[:, 0]
    cell[:, 3:] += wa * vb - wb * va
    cell[:, 3:] *= 2.0
    cell /= step_s
    twists = np.empty((len(path), 6))
    twists[0], twists[-1] = cell[0], cell[-1]
    twists[1:-1] = 0.5 * (cell[:-1] + cell[1:])
    return twists


def _apart(a: Floats, b: Floats) -> tuple[float, float]:
    """Distance (m) and angle (rad) between two poses."""
    dot = min(1.0, abs(float(np.dot(a[3:], b[3:]))))
    return math.dist(a[:3], b[:3]), 2.0 * math.acos(dot)
