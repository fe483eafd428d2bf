"""The one worker thread that runs denoiser steps, so that the tick can stop waiting at its deadline.

A step on an NPU can't be aborted: a late one goes on, its result is kept until it is taken, and no second step
starts before that. The tick's thread and the worker hand one token back and forth through two locks used as binary
semaphores; nothing is held while a step runs. Of the ways to wake a thread measured on two cores (end of step to
wake-up, p50 / p99): lock 13 / 80 us, eventfd and select 18 / 67, threading.Event 27 / 105. A lock's timeout is as
precise as any: 0.12 ms past the deadline at p50, 0.3 to 0.6 at p99, 0.05 of it the kernel's timer slack.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from sdnpu_policy.clock import SECOND, Clock
from sdnpu_policy.npu.durations import DurationRing

_EXIT_TIMEOUT_S = 0.5


@dataclass(frozen=True, slots=True)
class StepResult:
    """A finished step: when it ended, how long it ran (steady clock), and what it raised."""

    finished_ns: int
    duration_ns: int
    error: BaseException | None


class StepRunner(Protocol):
    """What the tick knows of a stepper; one thread calls all of it."""

    durations: DurationRing

    @property
    def busy(self) -> bool:
        """A step is running."""
        ...

    def submit(self) -> None:
        """Start a step. Raises RuntimeError while one is running or its result is not taken."""
        ...

    def wait_until(self, deadline_ns: int) -> bool:
        """Wait for the step until the deadline at most. Returns whether it is finished (or none was submitted)."""
        ...

    def take(self) -> StepResult | None:
        """The result of the finished step, once; None while it runs and when there is none."""
        ...

    def close(self, timeout_s: float = 1.0) -> bool:
        """End the worker. Returns False where a step is still running after ``timeout_s``."""
        ...


class Stepper:
    """Runs ``run`` in a daemon thread, one step at a time.

    Thread ownership: ``_result`` is written by the worker before it gives the token back and read by the tick's
    thread after it has the token; all other state belongs to the tick's thread.
    """

    def __init__(self, run: Callable[[], None], clock: Clock, name: str = "denoiser-step") -> None:
        self.durations = DurationRing()
        self._run = run
        self._clock = clock
        self._go = threading.Lock()
        self._done = threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._running = False
        self._finished = False
        self._closed = False
        self._result: StepResult | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        _open_steppers.add(self)

    @property
    def native_id(self) -> int:
        """The worker's thread id in the kernel, for ``os.sched_setaffinity`` and ``os.sched_setscheduler``.

        With SCHED_FIFO, tick and worker on one core and the worker's priority below the tick's, a step costs
        0.09 ms (p50) and 0.18 (p99) beyond itself at a 4 ms period, against 0.15 and 1.0 on two cores. With equal
        priorities on one core the tick does not wake at its deadline.
        """
        return self._thread.native_id or 0

    @property
    def busy(self) -> bool:
        return self._running and not self._collect(0.0)

    def submit(self) -> None:
        if self._closed:
            raise RuntimeError("the stepper is closed")
        if self.busy:
            raise RuntimeError("a step is still running")
        if self._finished:
            raise RuntimeError("the last step's result is not taken")
        self._running = True
        self._go.release()

    def wait_until(self, deadline_ns: int) -> bool:
        if not self._running:
            return True
        remaining_ns = deadline_ns - self._clock.now_ns()
        return self._collect(remaining_ns / SECOND)

    def take(self) -> StepResult | None:
        if self._running:
            self._collect(0.0)
        if not self._finished:
            return None
        self._finished = False
        return self._result

    def close(self, timeout_s: float = 1.0) -> bool:
        if not self._closed:
            self._closed = True
            # A token that is still unclaimed wakes the worker too.
            if self._go.locked():
                self._go.release()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        _open_steppers.discard(self)
        return True

    def _collect(self, timeout_s: float) -> bool:
        """Wait for the worker's token; True when the step that was running is finished."""
        got = self._done.acquire(timeout=timeout_s) if timeout_s > 0 else self._done.acquire(blocking=False)
        if got:
            self._running = False
            self._finished = True
        return got

    def _work(self) -> None:
        while True:
            self._go.acquire()
            if self._closed:
                return
            error: BaseException | None = None
            start_ns = self._clock.now_ns()
            try:
                self._run()
            except BaseException as caught:
                # Whatever it is, it belongs to the tick: a dead worker would look like an endless step.
                error = caught
            end_ns = self._clock.now_ns()
            self._result = StepResult(end_ns, end_ns - start_ns, error)
            self.durations.record(end_ns - start_ns)
            self._done.release()


_open_steppers: WeakSet[Stepper] = WeakSet()


@atexit.register
def _leave_without_stuck_steps() -> None:
    """End the process at once where a step does not end.

    A native step that comes back while the interpreter is taken down aborts the process, and the runtime's own
    destructors may wait for it for ever. Registered on import, this runs after the handlers registered later.
    """
    stuck = [stepper for stepper in list(_open_steppers) if not stepper.close(_EXIT_TIMEOUT_S)]
    if stuck:
        sys.stdout.flush()
        print("a step did not end; leaving without it", file=sys.stderr, flush=True)
        os._exit(1)
