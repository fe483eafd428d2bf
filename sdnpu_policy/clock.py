"""Time for control: nanoseconds on the steady clock, and a virtual clock for replay and tests.

CLOCK_MONOTONIC is shared by all processes of a machine, so stamps taken in one process may be compared in another.
ROS time is for message stamps only and never used here.
"""

from __future__ import annotations

import time
from typing import Protocol

MS = 1_000_000
"""Nanoseconds in a millisecond."""

SECOND = 1_000_000_000
"""Nanoseconds in a second."""


class Clock(Protocol):
    """What the control code knows of time."""

    def now_ns(self) -> int:
        """The present, in nanoseconds since an arbitrary start."""
        ...

    def sleep_until_ns(self, t_ns: int) -> None:
        """Return at the absolute time ``t_ns``, at once when it has passed."""
        ...


class SteadyClock:
    """The machine's steady clock."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def sleep_until_ns(self, t_ns: int) -> None:
        remaining_ns = t_ns - time.monotonic_ns()
        if remaining_ns > 0:
            time.sleep(remaining_ns / SECOND)


class VirtualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    def sleep_until_ns(self, t_ns: int) -> None:
        self._now_ns = max(self._now_ns, t_ns)

    def advance_ns(self, duration_ns: int) -> None:
        """Let ``duration_ns`` pass."""
        self._now_ns += duration_ns
