"""What was seen lately: robot poses by time, repeated pictures, the rate of images."""

from __future__ import annotations

import zlib
from collections import deque

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import MS, SECOND

HELD_NS = 30 * MS
"""How far beyond its ends the history answers with its last pose."""

LONGEST_HOLE_NS = 100 * MS
"""Between poses further apart it is not known how the arm moved."""

LARGEST_NORM_ERROR = 0.01
"""Of a pose's quaternion."""


class PoseHistory:
    """The last robot poses by their steady time, in arrays made beforehand.

    The arrays have twice the room: the newest poses always lie in one piece, and are moved to the front when the end
    is reached.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._stamps_ns = np.zeros(2 * capacity, np.int64)
        self._poses = np.zeros((2 * capacity, 7))
        self._end = 0

    def push(self, stamp_ns: int, pose: NDArray[np.float64]) -> None:
        """Add a pose (7,); one that is not newer than the last, not finite or no unit quaternion is left out."""
        end = self._end
        if end and stamp_ns <= self._stamps_ns[end - 1]:
            return
        if not np.isfinite(pose).all():
            return
        norm = np.linalg.norm(pose[3:])
        if abs(norm - 1.0) > LARGEST_NORM_ERROR:
            return
        if end == len(self._stamps_ns):
            end = self._capacity
            self._stamps_ns[:end] = self._stamps_ns[-end:]
            self._poses[:end] = self._poses[-end:]
        self._stamps_ns[end] = stamp_ns
        self._poses[end] = pose
        self._poses[end, 3:] /= norm  # else its matrix would be no rotation
        self._end = end + 1

    def at(self, t_ns: int) -> NDArray[np.float64] | None:
        """The pose (7,) at ``t_ns``, between the two around it.

        None further than HELD_NS outside of what is known, and in a hole longer than LONGEST_HOLE_NS. Positions are
        mixed linearly, quaternions too and then normalised: between neighbouring poses that is a slerp.
        """
        end = self._end
        if end == 0:
            return None
        start = max(0, end - self._capacity)
        stamps = self._stamps_ns[start:end]
        if t_ns > stamps[-1] + HELD_NS or t_ns < stamps[0] - HELD_NS:
            return None
        after = start + int(stamps.searchsorted(t_ns))
        if after in (start, end):
            return np.array(self._poses[min(after, end - 1)])
        before_ns, after_ns = int(self._stamps_ns[after - 1]), int(self._stamps_ns[after])
        if t_ns == after_ns:
            return np.array(self._poses[after])
        if after_ns - before_ns > LONGEST_HOLE_NS:
            return None
        part = (t_ns - before_ns) / (after_ns - before_ns)
        a, b = self._poses[after - 1], self._poses[after].copy()
        if np.dot(a[3:], b[3:]) < 0.0:
            b[3:] *= -1.0
        mixed = np.asarray((1.0 - part) * a + part * b)
        mixed[3:] /= np.linalg.norm(mixed[3:])
        return mixed

    @property
    def newest_ns(self) -> int | None:
        """Time of the newest pose."""
        return int(self._stamps_ns[self._end - 1]) if self._end else None


class FrozenDetector:
    """Tells a camera that repeats one picture with new stamps: a real one has noise in every pixel."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._digest = -1
        self._repeats = 0

    def see(self, rgb: NDArray[np.uint8]) -> bool:
        """Whether this picture is the same as the ``limit`` before it; never with a limit of 0."""
        if not self._limit:
            return False
        # Every seventh row and column: enough to see noise, and 50 times less to read.
        digest = zlib.crc32(rgb[::7, ::7].tobytes())
        self._repeats = self._repeats + 1 if digest == self._digest else 0
        self._digest = digest
        return self._repeats >= self._limit


class RateMeter:
    """Images a second over the last second."""

    def __init__(self) -> None:
        self._times_ns: deque[int] = deque()

    def see(self, now_ns: int) -> None:
        """Count one."""
        self._times_ns.append(now_ns)
        self._forget(now_ns)

    def hz(self, now_ns: int) -> float:
        """The rate now; it falls as soon as the next image is overdue."""
        self._forget(now_ns)
        count = len(self._times_ns)
        if count < 2:
            return float(count)
        # n images are n - 1 periods, and n once the time since the last is a period too
        span_ns, since_first_ns = self._times_ns[-1] - self._times_ns[0], now_ns - self._times_ns[0]
        rates = [n * SECOND / ns for n, ns in ((count - 1, span_ns), (count, since_first_ns)) if ns > 0]
        return min(rates, default=float(count))

    def _forget(self, now_ns: int) -> None:
        while self._times_ns and now_ns - self._times_ns[0] > SECOND:
            self._times_ns.popleft()
