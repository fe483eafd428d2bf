"""A stepper in virtual time, for replay and for tests of the tick.

The step's arithmetic is done at once when it is submitted; it counts as finished when the virtual clock has passed
its duration. The same durations give the same run, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

from sdnpu_policy.clock import VirtualClock
from sdnpu_policy.npu.durations import DurationRing
from sdnpu_policy.npu.stepper import StepResult


class VirtualStepper:
    """A StepRunner on a VirtualClock; ``durations_ns`` is called once a step."""

    def __init__(self, run: Callable[[], None], durations_ns: Callable[[], int], clock: VirtualClock) -> None:
        self.durations = DurationRing()
        self._run = run
        self._durations_ns = durations_ns
        self._clock = clock
        self._result: StepResult | None = None
        self._closed = False

    @property
    def busy(self) -> bool:
        return self._result is not None and self._clock.now_ns() < self._result.finished_ns

    def submit(self) -> None:
        if self._closed:
            raise RuntimeError("the stepper is closed")
        if self.busy:
            raise RuntimeError("a step is still running")
        if self._result is not None:
            raise RuntimeError("the last step's result is not taken")
        error: BaseException | None = None
        try:
            self._run()
        except Exception as caught:
            error = caught
        duration_ns = self._durations_ns()
        self._result = StepResult(self._clock.now_ns() + duration_ns, duration_ns, error)

    def wait_until(self, deadline_ns: int) -> bool:
        if self._result is None:
            return True
        self._clock.sleep_until_ns(min(deadline_ns, self._result.finished_ns))
        return not self.busy

    def take(self) -> StepResult | None:
        if self.busy or self._result is None:
            return None
        result, self._result = self._result, None
        self.durations.record(result.duration_ns)
        return result

    def close(self, timeout_s: float = 1.0) -> bool:
        del timeout_s
        self._closed = True
        return not self.busy
