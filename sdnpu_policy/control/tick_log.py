"""What happened in each tick, in a ring made beforehand: for reports, and for the question why the arm stopped.

Writing a row allocates nothing; saving is for the time after the loop.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T", bound=np.generic)

TICK = np.dtype(
    [
        ("start_ns", np.int64),  # steady clock
        ("wake_late_us", np.float32),  # start after the time it was due
        ("tick_us", np.float32),  # whole tick
        ("overhead_us", np.float32),  # tick less the time of the steps that ended in it; NaN in a late tick
        ("steps", np.uint8),  # steps that ended in this tick
        ("step_ms", np.float32),  # their time together
        ("late", np.bool_),  # a step's result was not there by the deadline
        ("newly_late", np.bool_),  # ... and was not late before
        ("chunk", np.bool_),  # a chunk was finished and stitched
        ("state", np.uint8),  # of the ladder
        ("cause", np.uint8),
        ("plan_age_ms", np.float32),  # age of the image behind the plan
        ("jump_mm", np.float32),  # between the old plan and the new chunk, before blending
        ("reasons", np.uint32),  # the envelope's, as bits
        ("pose", np.float64, 7),  # target
    ]
)
"""Layout of a row."""


class TickLog:
    """The newest ``capacity`` ticks and steps."""

    def __init__(self, capacity: int) -> None:
        self.ticks = 0
        self.steps = 0
        self._rows: NDArray[np.void] = np.zeros(capacity, TICK)
        self._step_ms = np.zeros(capacity, np.float32)

    def next_row(self) -> np.void:
        """The row of this tick, to be filled in place; it holds an old tick's values."""
        row: np.void = self._rows[self.ticks % len(self._rows)]
        self.ticks += 1
        return row

    def add_step(self, duration_ms: float) -> None:
        """Note one denoiser step's time."""
        self._step_ms[self.steps % len(self._step_ms)] = duration_ms
        self.steps += 1

    def rows(self) -> NDArray[np.void]:
        """A copy of the rows, oldest first."""
        return _in_order(self._rows, self.ticks)

    def step_times_ms(self) -> NDArray[np.float32]:
        """A copy of the step times, oldest first."""
        return _in_order(self._step_ms, self.steps)

    def save(self, path: Path) -> None:
        """Write ``ticks`` and ``step_ms`` to an .npz file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, ticks=self.rows(), step_ms=self.step_times_ms())


def _in_order(ring: NDArray[_T], written: int) -> NDArray[_T]:
    if written <= len(ring):
        return ring[:written].copy()
    return np.roll(ring, -(written % len(ring)), axis=0)
