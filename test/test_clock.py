"""The steady clock and the virtual one behave alike to code that only reads and sleeps."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.clock import MS, SECOND, Clock, SteadyClock, VirtualClock

NS = st.integers(min_value=0, max_value=10**18)


def test_units_are_nanoseconds() -> None:
    assert MS * 1000 == SECOND == 10**9


@pytest.mark.parametrize("clock", [SteadyClock(), VirtualClock()])
def test_after_a_sleep_the_clock_is_not_before_the_asked_time(clock: Clock) -> None:
    wake_ns = clock.now_ns() + 2 * MS
    clock.sleep_until_ns(wake_ns)
    assert clock.now_ns() >= wake_ns


@pytest.mark.parametrize("clock", [SteadyClock(), VirtualClock(now_ns=5 * SECOND)])
def test_a_time_that_has_passed_is_not_slept_for_and_never_turns_the_clock_back(clock: Clock) -> None:
    before_ns = clock.now_ns()
    clock.sleep_until_ns(before_ns - SECOND)
    assert clock.now_ns() >= before_ns


def test_the_steady_clock_is_the_one_other_processes_read() -> None:
    before_ns = SteadyClock().now_ns()
    program = "from sdnpu_policy.clock import SteadyClock; print(SteadyClock().now_ns())"
    other_ns = int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout)
    assert before_ns < other_ns < SteadyClock().now_ns()


def test_the_steady_clock_is_not_the_wall_clock() -> None:
    assert abs(SteadyClock().now_ns() - time.monotonic_ns()) < abs(time.time_ns() - time.monotonic_ns())


def test_the_virtual_clock_stands_still_until_told() -> None:
    clock = VirtualClock(now_ns=7)
    assert (clock.now_ns(), clock.now_ns()) == (7, 7)
    clock.advance_ns(MS)
    assert clock.now_ns() == 7 + MS


@settings(deadline=None)
@given(start_ns=NS, sleeps_ns=st.lists(NS))
def test_virtual_time_is_the_latest_time_slept_for(start_ns: int, sleeps_ns: list[int]) -> None:
    clock = VirtualClock(start_ns)
    for t_ns in sleeps_ns:
        clock.sleep_until_ns(t_ns)
    assert clock.now_ns() == max([start_ns, *sleeps_ns])
