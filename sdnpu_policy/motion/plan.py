"""The plan: chunks of stamped poses, stitched into one smooth path in time.

A chunk arrives some time after the observation it was made from, while the arm follows the one before.
`Plan.stitch` keeps what of it still lies ahead and fades from the path under way into it, so that the path never
jumps: it starts exactly where the arm was told to be, as fast as it was told to go.

The path is a cubic Hermite spline: through the chunk's waypoints with Catmull-Rom tangents, cut back (Fritsch and
Carlson 1980) so that no coordinate overshoots its waypoints. So the speed does not step at a waypoint, as it would
on straight lines and cost acceleration, and a path to 30 mm above a table does not dip to 28. During the fade
(smoothstep) the spline has a knot every ``grid_ms``, with the exact value and slope of the mixture of both paths;
so an old plan is folded into the new one, and reading it in the tick is one cubic, however many came before.
Quaternions go through the same spline and are normalised when read: over the few degrees between waypoints or two
plans that is a slerp to within microradians, and without a slerp's steps of angular speed.

Times are steady nanoseconds. A plan belongs to one thread.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.motion.pose import Floats, continuous_hemisphere, quat_normalize

_FOUR = np.arange(4)
_HERMITE = np.array(
    [  # value: first knot, its slope, second knot, its slope; then the derivative of each
        [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0, -6.0, -4.0, 6.0, -2.0],
        [-3.0, -2.0, 3.0, -1.0, 6.0, 3.0, -6.0, 3.0],
        [2.0, 1.0, -2.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    ]
)
"""The cubic Hermite basis: its polynomials' factors of 1, u, u^2 and u^3."""


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
    grid_ms: float = 10.0
    """Spacing of the path's knots during the fade."""

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
        self._spline: _Spline | None = None
        self._observed_ns: int | None = None
        self._waypoints: tuple[NDArray[np.int64], Floats] | None = None

    def __bool__(self) -> bool:
        return self._spline is not None

    def start_from(self, pose: Floats, now_ns: int) -> None:
        """Plan to stand at ``pose`` [7]: the first chunk after this fades in from there."""
        self.clear()
        knot = np.zeros(14)
        knot[:3] = pose[:3]
        knot[3:7] = quat_normalize(pose[3:7])
        # The second knot ends the plan at once; after its end a plan stands.
        self._spline = _Spline([now_ns - 1, now_ns], np.stack([knot, knot]))

    def stitch(self, chunk: Chunk, now_ns: int, *, followed_ns: int | None = None) -> Stitch:
        """Fade from the plan under way into ``chunk``, beginning at ``now_ns``.

        Args:
            chunk: the new actions.
            now_ns: the time at which the new path begins: that of the sample the arm is told next.
            followed_ns: where on the present plan the arm is at ``now_ns``, when that is not ``now_ns`` (see
                `sdnpu_policy.motion.follower.PathClock`).

        Returns:
            Whether it was accepted. A refused chunk leaves the plan as it was.
        """
        refusal = self._refusal(chunk, now_ns)
        if refusal:
            return Stitch(accepted=False, reason=refusal)
        times_ns: list[int] = chunk.times_ns.tolist()
        end_ns = times_ns[-1]
        dropped = bisect_right(times_ns, now_ns)
        fade_ns = min(round(self.settings.blend_ms * MS), end_ns - now_ns) if self._spline else 0
        cells = math.ceil(fade_ns / (self.settings.grid_ms * MS))
        ahead_s: Floats = np.arange(cells + 1, dtype=np.float64) * (fade_ns / SECOND / max(cells, 1))
        old = None
        if self._spline is not None:
            old = self._spline.at(now_ns if followed_ns is None else followed_ns, ahead_s)

        poses = chunk.poses
        if times_ns[0] > now_ns:
            earlier_ns, earlier = _before_first(chunk, now_ns, None if old is None else old[0, :7])
            times_ns, poses = [earlier_ns, *times_ns], np.concatenate([earlier[None], poses])
        new = _through_waypoints(times_ns, poses, None if old is None else old[0, 3:7])
        knots = new.at(now_ns, ahead_s)
        jump_m = jump_rad = 0.0
        if old is not None:
            jump_m, jump_rad = _apart(knots[0].tolist(), old[0].tolist())
            if self.settings.blend_ms > 0.0:
                knots = _mixed(old, knots, ahead_s, self.settings.blend_ms / 1e3)
        after = bisect_right(times_ns, now_ns + fade_ns)
        fade_times = [now_ns + fade_ns * k // max(cells, 1) for k in range(cells + 1)]
        self._spline = _Spline(fade_times + times_ns[after:], np.concatenate([knots, new.knots[after:]]))
        self._observed_ns = chunk.observed_ns
        self._waypoints = (chunk.times_ns[dropped:], chunk.poses[dropped:])
        return Stitch(accepted=True, reason="", dropped=dropped, jump_m=jump_m, jump_rad=jump_rad)

    def sample(self, t_ns: int) -> PlanSample | None:
        """Pose and twist at ``t_ns``; None where there is no plan. After its end it stands at its last pose."""
        return None if self._spline is None else self._spline.sample(t_ns)

    def sample_many(self, times_ns: NDArray[np.int64]) -> Floats | None:
        """Poses [N, 7] at ``times_ns`` [N], those of the ends outside the plan; None where there is no plan."""
        if self._spline is None:
            return None
        start_ns = self._spline.times_ns[0]
        poses = self._spline.at(start_ns, (times_ns - start_ns) / SECOND)[:, :7]
        poses[:, 3:] = quat_normalize(poses[:, 3:])
        return poses

    def future_ms(self, now_ns: int) -> float:
        """How much of the plan lies ahead of ``now_ns``."""
        return 0.0 if self._spline is None else max(0, self._spline.times_ns[-1] - now_ns) / MS

    def age_ms(self, now_ns: int) -> float:
        """Time since the observation behind the plan; infinite where no observation is."""
        return math.inf if self._observed_ns is None else (now_ns - self._observed_ns) / MS

    def waypoints(self) -> tuple[NDArray[np.int64], Floats] | None:
        """For display: times [N] and poses [N, 7] of the newest chunk that lay ahead when it was stitched."""
        return self._waypoints

    def _refusal(self, chunk: Chunk, now_ns: int) -> str:
        times_ns, poses = chunk.times_ns, chunk.poses
        if len(times_ns) == 0 or poses.shape != (len(times_ns), 7) or (times_ns[1:] <= times_ns[:-1]).any():
            return f"{len(times_ns)} times that must rise and poses of shape {list(poses.shape)} do not fit"
        # One bad number makes a sum of squares bad; one that overflows it is no pose either.
        here = chunk.observed_pose
        if not math.isfinite(np.vdot(poses, poses)) or not (here is None or math.isfinite(np.vdot(here, here))):
            return "a waypoint is not finite"
        quats = poses[:, 3:]
        if np.einsum("ti,ti->t", quats, quats).min() < 1e-6 or not (
            here is None or np.vdot(here[3:], here[3:]) > 1e-6
        ):
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


@dataclass(slots=True, eq=False)
class _Spline:
    """A cubic Hermite spline in the seven numbers of a pose; it stands outside its ends."""

    times_ns: list[int]
    """Two or more, rising."""
    knots: Floats
    """A pose (its quaternion not quite unit) and the slope of each number a second [N, 14]."""

    def sample(self, t_ns: int) -> PlanSample:
        """Pose and twist at one time, in plain floats: on one row a call of numpy costs more than the cubic."""
        times_ns = self.times_ns
        if t_ns >= times_ns[-1]:
            last: list[float] = self.knots[-1].tolist()
            return _as_sample(last[:7], [0.0] * 7)
        index = max(bisect_right(times_ns, t_ns) - 1, 0)
        if index == len(times_ns) - 1:
            index -= 1
        before, after = self.knots[index : index + 2].tolist()
        span_s = (times_ns[index + 1] - times_ns[index]) / SECOND
        u = max(0.0, (t_ns - times_ns[index]) / SECOND / span_s)
        rest = 1.0 - u
        a1 = u * u * (3.0 - 2.0 * u)
        b0, b1 = span_s * u * rest * rest, -span_s * u * u * rest
        c, d0, d1 = 6.0 * u * rest / span_s, rest * (1.0 - 3.0 * u), u * (3.0 * u - 2.0)
        numbers, slopes = [], []
        for p, q, m, n in zip(before[:7], after[:7], before[7:], after[7:], strict=True):
            numbers.append(p + a1 * (q - p) + b0 * m + b1 * n)
            slopes.append(c * (q - p) + d0 * m + d1 * n)
        return _as_sample(numbers, slopes)

    def at(self, start_ns: int, ahead_s: Floats) -> Floats:
        """Numbers and slopes [N, 14] at the times ``ahead_s`` [N] after ``start_ns``."""
        since, spans = _seconds(self.times_ns)
        t = np.maximum(ahead_s + (start_ns - self.times_ns[0]) / SECOND, 0.0)
        index = since[1:-1].searchsorted(t, side="right")
        span = spans[index]
        powers = np.empty((len(t), 4))
        powers[:, 0] = 1.0
        powers[:, 1] = np.minimum((t - since[index]) / span, 1.0)
        np.multiply(powers[:, 1], powers[:, 1], out=powers[:, 2])
        np.multiply(powers[:, 1], powers[:, 2], out=powers[:, 3])
        # Each piece has four rows of seven: number and slope at its first knot, number and slope at its second.
        pieces = self.knots.reshape(-1, 7)[2 * index[:, None] + _FOUR]
        pieces[:, 1::2] *= span[:, None, None]
        at = np.matmul((powers @ _HERMITE).reshape(-1, 2, 4), pieces)
        at[:, 1] /= span[:, None]
        at[t >= since[-1], 1] = 0.0
        return np.asarray(at).reshape(-1, 14)


def _before_first(chunk: Chunk, now_ns: int, under_way: Floats | None) -> tuple[int, Floats]:
    """The waypoint before a chunk's first: the observation's, or else where the arm is."""
    if chunk.observed_pose is not None and chunk.observed_ns < int(chunk.times_ns[0]):
        return chunk.observed_ns, chunk.observed_pose
    return now_ns, chunk.poses[0] if under_way is None else under_way


def _through_waypoints(times_ns: list[int], poses: Floats, side: Floats | None) -> _Spline:
    """The spline through waypoints [T, 7], their quaternions on the side of ``side``."""
    _, spans = _seconds(times_ns)
    knots = np.empty((len(poses), 14))
    numbers, tangents = knots[:, :7], knots[:, 7:]
    numbers[:, :3] = poses[:, :3]
    numbers[:, 3:] = continuous_hemisphere(quat_normalize(poses[:, 3:]), side)
    slopes = (numbers[1:] - numbers[:-1]) / spans[:, None]
    left, right = slopes[:-1], slopes[1:]
    share = (spans[1:] / (spans[1:] + spans[:-1]))[:, None]
    mean = right + share * (left - right)
    steepest = 3.0 * np.minimum(np.abs(left), np.abs(right))
    tangents[0], tangents[-1] = slopes[0], slopes[-1]
    tangents[1:-1] = np.minimum(np.maximum(mean, -steepest), steepest) * (left * right > 0.0)
    return _Spline(times_ns, knots)


def _seconds(times_ns: list[int]) -> tuple[Floats, Floats]:
    """Times since the first [N], so that a float holds every nanosecond, and the spans between them [N - 1]."""
    start_ns = times_ns[0]
    since = np.array([(t - start_ns) / SECOND for t in times_ns])
    return since, since[1:] - since[:-1]


def _mixed(old: Floats, new: Floats, ahead_s: Floats, blend_s: float) -> Floats:
    """Numbers and slopes [N, 14] of the fade from ``old`` to ``new``, ``ahead_s`` [N] after its start."""
    progress = ahead_s[:, None] / blend_s
    between = new - old
    mixed = old + progress * progress * (3.0 - 2.0 * progress) * between
    mixed[:, 7:] += 6.0 / blend_s * progress * (1.0 - progress) * between[:, :7]
    return np.asarray(mixed)


def _as_sample(numbers: list[float], slopes: list[float]) -> PlanSample:
    """Unit quaternion and angular velocity, 2 dq/dt conj(q), from a quaternion of any length and its slope."""
    x, y, z, qx, qy, qz, qw = numbers
    vx, vy, vz, dx, dy, dz, dw = slopes
    square = qx * qx + qy * qy + qz * qz + qw * qw
    length, twice = math.sqrt(square), 2.0 / square
    pose = (x, y, z, qx / length, qy / length, qz / length, qw / length)
    wx = twice * (qw * dx - dw * qx + qy * dz - qz * dy)
    wy = twice * (qw * dy - dw * qy + qz * dx - qx * dz)
    wz = twice * (qw * dz - dw * qz + qx * dy - qy * dx)
    return PlanSample(np.array(pose), np.array((vx, vy, vz, wx, wy, wz)))


def _apart(a: list[float], b: list[float]) -> tuple[float, float]:
    """Distance (m) and angle (rad) between the poses of two knots."""
    dot, square_a, square_b = (
        sum(p * q for p, q in zip(left, right, strict=True))
        for left, right in ((a[3:7], b[3:7]), (a[3:7], a[3:7]), (b[3:7], b[3:7]))
    )
    return math.dist(a[:3], b[:3]), 2.0 * math.acos(min(1.0, abs(dot) / math.sqrt(square_a * square_b)))
