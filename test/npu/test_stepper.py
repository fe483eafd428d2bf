"""One step at a time in its own thread; the tick waits no longer than its deadline."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sdnpu_policy.clock import MS, SECOND, SteadyClock
from sdnpu_policy.npu.providers import StepFailed
from sdnpu_policy.npu.stepper import Stepper, StepRunner

CLOCK = SteadyClock()


def soon() -> int:
    """A deadline that no test reaches."""
    return CLOCK.now_ns() + 20 * SECOND


class Gate:
    """A step that runs until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.threads: list[int] = []

    def __call__(self) -> None:
        self.threads.append(threading.get_ident())
        self.entered.set()
        assert self.leave.wait(20.0)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.leave.set()


def test_a_step_runs_elsewhere_and_its_result_is_taken_once() -> None:
    threads: list[int] = []
    stepper: StepRunner = Stepper(lambda: threads.append(threading.get_ident()), CLOCK)
    before_ns = CLOCK.now_ns()
    stepper.submit()
    assert stepper.wait_until(soon())
    assert not stepper.busy
    result = stepper.take()
    assert result is not None and result.error is None
    assert before_ns <= result.finished_ns - result.duration_ns <= result.finished_ns <= CLOCK.now_ns()
    assert stepper.take() is None
    assert threads != [threading.get_ident()]
    assert stepper.close()


def test_a_late_result_is_kept_until_it_is_taken(gate: Gate) -> None:
    stepper = Stepper(gate, CLOCK)
    stepper.submit()
    assert not stepper.wait_until(CLOCK.now_ns() + MS)
    assert stepper.busy
    assert stepper.take() is None
    gate.leave.set()
    assert stepper.wait_until(soon())
    assert stepper.wait_until(0)
    assert stepper.take() is not None
    assert stepper.close()


def test_a_deadline_in_the_past_does_not_wait(gate: Gate) -> None:
    stepper = Stepper(gate, CLOCK)
    stepper.submit()
    assert not stepper.wait_until(CLOCK.now_ns() - SECOND)
    gate.leave.set()
    assert stepper.close()


def test_there_are_never_two_steps(gate: Gate) -> None:
    stepper = Stepper(gate, CLOCK)
    stepper.submit()
    assert gate.entered.wait(20.0)
    with pytest.raises(RuntimeError, match="still running"):
        stepper.submit()
    gate.leave.set()
    assert stepper.wait_until(soon())
    with pytest.raises(RuntimeError, match="not taken"):
        stepper.submit()
    assert stepper.take() is not None
    stepper.submit()
    assert stepper.wait_until(soon())
    assert stepper.take() is not None
    assert len(set(gate.threads)) == 1
    assert stepper.close()


def test_nothing_to_wait_for_is_finished() -> None:
    stepper = Stepper(lambda: None, CLOCK)
    assert stepper.wait_until(soon())
    assert not stepper.busy
    assert stepper.take() is None
    assert stepper.close()


@pytest.mark.parametrize("error", [StepFailed("EPFail"), SystemExit(3)])
def test_an_exception_belongs_to_its_result_and_the_next_step_runs(error: BaseException) -> None:
    errors = [error]

    def run() -> None:
        if errors:
            raise errors.pop()

    stepper = Stepper(run, CLOCK)
    for expected in (error, None):
        stepper.submit()
        assert stepper.wait_until(soon())
        result = stepper.take()
        assert result is not None and result.error is expected
    assert stepper.close()


def test_the_worker_can_be_given_a_core(gate: Gate) -> None:
    stepper = Stepper(gate, CLOCK)
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(stepper.native_id, {core})
    assert os.sched_getaffinity(stepper.native_id) == {core}
    assert stepper.native_id != threading.get_native_id()
    assert stepper.close()


def test_durations_are_recorded() -> None:
    stepper = Stepper(lambda: None, CLOCK)
    for _ in range(3):
        stepper.submit()
        assert stepper.wait_until(soon())
        stepper.take()
    assert stepper.durations.total == 3
    assert stepper.durations.recent_p99_ns > 0
    assert stepper.close()


def test_closing_reports_a_step_that_does_not_end_and_ends_the_worker_when_it_does(gate: Gate) -> None:
    stepper = Stepper(gate, CLOCK)
    stepper.submit()
    assert gate.entered.wait(20.0)
    assert not stepper.close(timeout_s=0.0)
    with pytest.raises(RuntimeError, match="closed"):
        stepper.submit()
    gate.leave.set()
    assert stepper.close(timeout_s=20.0)


def test_closing_right_after_submitting_ends_the_worker() -> None:
    for _ in range(50):
        stepper = Stepper(lambda: None, CLOCK)
        stepper.submit()
        assert stepper.close(timeout_s=20.0)


def test_a_process_with_a_step_that_never_returns_can_still_exit() -> None:
    code = """
import time
from sdnpu_policy.clock import SteadyClock
from sdnpu_policy.npu.stepper import Stepper
stepper = Stepper(lambda: time.sleep(1000), SteadyClock())
stepper.submit()
assert not stepper.wait_until(time.monotonic_ns() + 5_000_000)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert (result.returncode, result.stderr) == (1, "a step did not end; leaving without it\n")
