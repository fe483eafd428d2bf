"""How long the recent steps took: a ring of durations, and a p99 that is always at hand.

Recording costs a few microseconds in the worker thread; the percentiles over the whole ring are for reports and
computed by whoever asks, outside the tick.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """Milliseconds over the steps still in the ring; NaN when there are none."""

    count: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class DurationRing:
    """Durations of the last ``capacity`` steps, and the 99th percentile of the last ``window``."""

    def __init__(self, capacity: int = 16384, window: int = 256) -> None:
        self._ring_ns = np.zeros(capacity, np.int64)
        self._window = window
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []
        self.total = 0
        """Steps ever recorded."""
        self.recent_p99_ns = 0
        """99th percentile (nearest rank) of the last ``window`` steps, 0 before the first."""

    def record(self, duration_ns: int) -> None:
        """Add a step. Only one thread records."""
        self._ring_ns[self.total % self._ring_ns.size] = duration_ns
        self.total += 1
        if len(self._recent) == self._window:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(duration_ns)
        insort(self._sorted, duration_ns)
        self.recent_p99_ns = self._sorted[(99 * len(self._sorted) + 99) // 100 - 1]

    def statistics(self) -> StepStatistics:
        """Percentiles over the ring. Any thread may ask; sorting takes about a millisecond."""
        filled_ns = self._ring_ns[: min(self.total, self._ring_ns.size)].copy()
        if not filled_ns.size:
            return StepStatistics(0, np.nan, np.nan, np.nan, np.nan)
        p50_ms, p99_ms, p999_ms = np.percentile(filled_ns, (50, 99, 99.9)) / 1e6
        return StepStatistics(
            filled_ns.size, float(p50_ms), float(p99_ms), float(p999_ms), float(filled_ns.max()) / 1e6
        )
