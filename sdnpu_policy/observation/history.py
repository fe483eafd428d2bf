"""What was seen lately: robot poses by time, repeated pictures, the rate of images."""

from __future__ import annotations

import zlib
from collections import deque

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import MS, SECOND

HELD_NS = 30 * MS
"""How far beyond its ends the history answers with its last pose."""


class PoseHistory:
    """The last robot poses, by their steady time; a ring made beforehand."""

    def __init__(self, capacity: int) -> None:
        self._stamps_ns = np.zeros(capacity, np.int64)
        self._poses = np.zeros((capacity, 7))
        self._count = 0

    def push(self, stamp_ns: int, pose: NDArray[np.float64]) -> None:
        """Add a pose (7,); one that is not newer than the last, or not finite, is left out."""
        if self._count and stamp_ns <= self._stamps_ns[(self._count - 1) % len(self._stamps_ns)]:
            return
        if not np.isfinite(pose).all():
            return
        at = self._count % len(self._stamps_ns)
        self._stamps_ns[at] = stamp_ns
        self._poses[at] = pose
        self._count += 1

    def at(self, t_ns: int) -> NDArray[np.float64] | None:
        """The pose (7,) at ``t_ns``, between the two around it; None further than HELD_NS outside of what is known.

        Positions are mixed linearly, quaternions too and then normalised: between neighbouring poses that is a slerp.
        """
        size = len(self._stamps_ns)
        count = min(self._count, size)
        if count == 0:
            return None
        order = (np.arange(self._count - count, self._count)) % size
        stamps = self._stamps_ns[order]
        if t_ns > stamps[-1] + HELD_NS or t_ns < stamps[0] - HELD_NS:
            return None
        after = int(np.searchsorted(stamps, t_ns))
        if after == 0 or after == count:
            return np.array(self._poses[order[min(after, count - 1)]])
        low, high = order[after - 1], order[after]
        part = (t_ns - stamps[after - 1]) / (stamps[after] - stamps[after - 1])
        a, b = self._poses[low], self._poses[high].copy()
        if np.dot(a[3:], b[3:]) < 0.0:
            b[3:] = -b[3:]
        mixed = np.asarray((1.0 - part) * a + part * b)
        mixed[3:] /= np.linalg.norm(mixed[3:])
        return mixed

    @property
    def newest_ns(self) -> int | None:
        """Time of the newest pose."""
        return int(self._stamps_ns[(self._count - 1) % len(self._stamps_ns)]) if self._count else None


class FrozenDetector:
    """Tells a camera that repeats one picture with new stamps: a real one has noise in every pixel."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._digest = -1
        self._repeats = 0

    def see(self, rgb: NDArray[np.uint8]) -> bool:
        """Whether this picture is the same as the ``limit`` before it."""
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
        """The rate now."""
        self._forget(now_ns)
        if len(self._times_ns) < 2:
            return float(len(self._times_ns))
        span_ns = self._times_ns[-1] - self._times_ns[0]
        return (len(self._times_ns) - 1) * SECOND / span_ns if span_ns > 0 else float(len(self._times_ns))

    def _forget(self, now_ns: int) -> None:
        while self._times_ns and now_ns - self._times_ns[0] > SECOND:
            self._times_ns.popleft()
