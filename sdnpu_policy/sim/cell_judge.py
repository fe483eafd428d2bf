"""Judges an episode of the work cell from the poses the tool really took."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.sim.cell_scene import POST_HEIGHT_M, WELD_HEIGHT_M, Scene, tool_yaw, wrap_angle

TIME_LIMIT_S = 8.0
SETTLE_S = 0.256  # from the first touch to the judgement
TOUCH_HEIGHT_M = WELD_HEIGHT_M + 0.004
CRASH_HEIGHT_M = WELD_HEIGHT_M - 0.008
COLLISION_RADIUS_M = 0.048  # between the axes of tool and post
POSITION_TOLERANCE_MM = 5.0
HEIGHT_TOLERANCE_MM = 5.0
YAW_TOLERANCE_DEG = 5.0


class Outcome(StrEnum):
    """How an episode stands."""

    RUNNING = "running"
    PLACED = "placed"
    COLLISION = "collision"
    CRASH = "crash"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, and how far the tool is from the weld spot: at the end, or now while it is running."""

    outcome: Outcome
    xy_mm: float
    z_mm: float
    yaw_deg: float
    duration_s: float
    tilt_deg: float

    @property
    def success(self) -> bool:
        """Placed, within 5 mm across, 5 mm in height and 5 degrees of yaw."""
        return self.placed_within(POSITION_TOLERANCE_MM)

    def placed_within(self, xy_mm: float) -> bool:
        """As `success`, with another tolerance across."""
        return (
            self.outcome is Outcome.PLACED
            and self.xy_mm <= xy_mm
            and self.z_mm <= HEIGHT_TOLERANCE_MM
            and self.yaw_deg <= YAW_TOLERANCE_DEG
        )


class Judge:
    """Follows one episode. Feed it executed poses in order; the outcome, once decided, stays.

    The episode begins with the first sample. It ends when the tool runs into the post, dips under the plate, has
    been down for a quarter of a second, or after eight seconds.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._start_s: float | None = None
        self._touch_s: float | None = None
        self._verdict: Verdict | None = None

    @property
    def verdict(self) -> Verdict | None:
        """What the last sample gave; None before the first."""
        return self._verdict

    def feed(self, t_s: float, pose: NDArray[np.float64]) -> Verdict:
        """Take the executed pose (7,) in the base frame at time `t_s`; any rate up to the servo rate will do.

        Raises:
            ValueError: the pose is not finite, or time runs backwards.
        """
        if self._verdict is not None and self._verdict.outcome is not Outcome.RUNNING:
            return self._verdict
        if not np.all(np.isfinite(pose)):
            raise ValueError(f"pose {pose} is not finite")
        if self._start_s is None:
            self._start_s = t_s
        elapsed_s = t_s - self._start_s
        if self._verdict is not None and elapsed_s < self._verdict.duration_s:
            raise ValueError(f"sample at {t_s} s is older than the one before it")
        if self._touch_s is None and pose[2] < TOUCH_HEIGHT_M:
            self._touch_s = t_s
        self._verdict = self._measure(self._decide(t_s, elapsed_s, pose), elapsed_s, pose)
        return self._verdict

    def _decide(self, t_s: float, elapsed_s: float, pose: NDArray[np.float64]) -> Outcome:
        height_m = pose[2]
        from_post_m = np.hypot(*np.subtract(pose[:2], self.scene.post_m))
        if from_post_m < COLLISION_RADIUS_M and height_m < POST_HEIGHT_M:
            return Outcome.COLLISION
        if height_m < CRASH_HEIGHT_M:
            return Outcome.CRASH
        # A microsecond of grace, so that sums of rounded periods end where they should.
        if self._touch_s is not None and t_s - self._touch_s >= SETTLE_S - 1e-6:
            return Outcome.PLACED
        return Outcome.TIMEOUT if elapsed_s >= TIME_LIMIT_S - 1e-6 else Outcome.RUNNING

    def _measure(self, outcome: Outcome, elapsed_s: float, pose: NDArray[np.float64]) -> Verdict:
        x, y = pose[3:5]
        return Verdict(
            outcome=outcome,
            xy_mm=1e3 * float(np.hypot(*np.subtract(pose[:2], self.scene.spot_m))),
            z_mm=1e3 * abs(float(pose[2]) - WELD_HEIGHT_M),
            yaw_deg=abs(float(np.degrees(wrap_angle(tool_yaw(pose) - self.scene.plate_yaw_rad)))),
            duration_s=elapsed_s,
            tilt_deg=float(np.degrees(np.arccos(np.clip(2 * (x * x + y * y) - 1, -1, 1)))),
        )
