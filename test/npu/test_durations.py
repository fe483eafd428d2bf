"""Percentiles of recent steps."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.npu.durations import DurationRing


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60), st.integers(1, 20))
def test_the_running_p99_is_the_nearest_rank_of_the_window(durations_ns: list[int], window: int) -> None:
    ring = DurationRing(capacity=16, window=window)
    for i, duration_ns in enumerate(durations_ns):
        ring.record(duration_ns)
        recent = sorted(durations_ns[max(0, i + 1 - window) : i + 1])
        assert ring.recent_p99_ns == recent[math.ceil(0.99 * len(recent)) - 1]


def test_statistics_are_over_what_the_ring_still_holds() -> None:
    ring = DurationRing(capacity=4)
    for ms in (90, 1, 2, 3, 4):
        ring.record(ms * 1_000_000)
    statistics = ring.statistics()
    assert (statistics.count, statistics.p50_ms, statistics.max_ms) == (4, 2.5, 4.0)
    assert ring.total == 5


def test_an_empty_ring_has_no_percentiles() -> None:
    statistics = DurationRing().statistics()
    assert statistics.count == 0
    assert np.isnan(statistics.p99_ms)
