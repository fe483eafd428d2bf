"""The stepper of replay: the same durations give the same run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.clock import MS, VirtualClock
from sdnpu_policy.npu.stepper import StepRunner
from sdnpu_policy.npu.virtual import VirtualStepper


def test_a_step_in_time_lets_only_its_duration_pass() -> None:
    clock = VirtualClock(10 * MS)
    ran: list[int] = []
    stepper: StepRunner = VirtualStepper(lambda: ran.append(clock.now_ns()), lambda: MS, clock)
    stepper.submit()
    assert stepper.busy and ran == [10 * MS]
    assert stepper.wait_until(13 * MS)
    assert clock.now_ns() == 11 * MS
    result = stepper.take()
    assert result is not None
    assert (result.finished_ns, result.duration_ns, result.error) == (11 * MS, MS, None)
    assert stepper.take() is None


def test_a_late_step_is_waited_for_until_the_deadline_and_taken_later() -> None:
    clock = VirtualClock()
    stepper = VirtualStepper(lambda: None, lambda: 25 * MS, clock)
    stepper.submit()
    assert not stepper.wait_until(3 * MS)
    assert clock.now_ns() == 3 * MS
    assert stepper.take() is None
    with pytest.raises(RuntimeError, match="still running"):
        stepper.submit()
    clock.advance_ns(22 * MS)
    with pytest.raises(RuntimeError, match="not taken"):
        stepper.submit()
    assert stepper.take() is not None
    stepper.submit()


def test_an_exception_is_carried_in_the_result() -> None:
    def fail() -> None:
        raise ValueError("no")

    clock = VirtualClock()
    stepper = VirtualStepper(fail, lambda: 0, clock)
    stepper.submit()
    result = stepper.take()
    assert result is not None and isinstance(result.error, ValueError)


def test_closing_with_a_step_under_way_is_reported() -> None:
    stepper = VirtualStepper(lambda: None, lambda: MS, VirtualClock())
    stepper.submit()
    assert not stepper.close()
    with pytest.raises(RuntimeError, match="closed"):
        stepper.submit()


@given(st.lists(st.integers(0, 10 * MS), min_size=1, max_size=20), st.integers(1, 4 * MS))
def test_time_never_passes_the_deadline_while_waiting(durations_ns: list[int], period_ns: int) -> None:
    clock = VirtualClock()
    queue = iter(durations_ns)
    stepper = VirtualStepper(lambda: None, lambda: next(queue), clock)
    finished = 0
    for tick in range(1000):
        deadline_ns = (tick + 1) * period_ns
        if not stepper.busy:
            try:
                stepper.submit()
            except StopIteration:
                break
        in_time = stepper.wait_until(deadline_ns)
        assert clock.now_ns() <= deadline_ns
        if in_time:
            result = stepper.take()
            assert result is not None and result.finished_ns <= deadline_ns
            finished += 1
        clock.sleep_until_ns(deadline_ns)
        if stepper.busy is False:
            stepper.take()
    assert stepper.durations.total >= finished
