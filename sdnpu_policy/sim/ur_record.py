"""Every pose the simulated arm took, tick by tick, and the judge that says how fast and how hard it moved.

The ring holds the last 16 minutes. A record's file is an .npz with one array for each field of `Record`.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.motion.pose import quat_conjugate, quat_multiply, quat_to_rotvec

PLACED, PLAYING, SERVO, SAFETY_STOP = 1, 2, 4, 8
"""Flags: the pose was reached without moving (placed by hand, or another TCP); a program runs; a servo motion is on;
the safety system holds the arm."""

RING_TICKS = 480_000
WINDOW_S = 0.010
STANDING_M_S = 1e-3
STANDING_RAD_S = 5e-3

ROW = np.dtype(
    [("t_s", "f8"), ("steady_ns", "i8"), ("q", "f8", 6), ("pose", "f8", 7), ("target", "f8", 7), ("flags", "i8")]
)
_ROW_LAYOUT = struct.Struct("=dq6d7d7dq")
_NO_TARGET = (float("nan"),) * 7

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Record:
    """A stretch of ticks, oldest first."""

    t_s: Floats
    """Simulated time [N]."""
    steady_ns: NDArray[np.int64]
    """Steady time [N] at which the tick was made."""
    q: Floats
    """Joint angles [N,6]."""
    poses: Floats
    """Tool poses [N,7] in `base`, x y z qx qy qz qw."""
    targets: Floats
    """Tool targets [N,7] the servo motion was given; NaN without one."""
    flags: NDArray[np.int64]
    """[N], PLACED and others."""

    @property
    def placed(self) -> NDArray[np.bool_]:
        """Where the pose was reached without moving [N]."""
        return np.asarray((self.flags & PLACED) != 0)

    def between(self, since_t_s: float, until_t_s: float) -> Record:
        """The ticks of that simulated time, both ends included."""
        inside = (self.t_s >= since_t_s) & (self.t_s <= until_t_s)
        return Record(**{each.name: getattr(self, each.name)[inside] for each in fields(self)})

    def speed(self) -> tuple[Floats, Floats]:
        """Times [M] and tool speeds [M] in m/s between neighbouring ticks, without those where it was placed."""
        t_s, velocity, _ = _velocities(self.t_s, self.poses, self.placed)
        known = np.isfinite(velocity[:, 0])
        return t_s[known], _norm(velocity[known])

    def save(self, path: Path) -> None:
        """Write an .npz file, whole or not at all."""
        partial = path.with_name(path.name + ".part")
        with open(partial, "wb") as file:
            # asdict() would copy the arrays
            np.savez(file, **{each.name: getattr(self, each.name) for each in fields(self)})
        partial.replace(path)


def load_record(path: Path) -> Record:
    """Read what `Record.save` wrote.

    Raises:
        SdnpuError: the file is missing or not a record.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return Record(**{each.name: file[each.name] for each in fields(Record)})
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise SdnpuError(f"{path}: not a record of the simulated controller: {error}") from error


class Ring:
    """The last ticks, in memory laid out once."""

    def __init__(self, ticks: int = RING_TICKS) -> None:
        self._rows = np.zeros(ticks, ROW)
        self._memory = self._rows.view(np.uint8).data
        self._count = 0

    def append(
        self,
        t_s: float,
        steady_ns: int,
        q: Sequence[float],
        pose: Sequence[float],
        target: Sequence[float] | None,
        flags: int,
    ) -> None:
        """Add a tick; the oldest is forgotten when the ring is full."""
        offset = (self._count % len(self._rows)) * ROW.itemsize
        _ROW_LAYOUT.pack_into(
            self._memory, offset, t_s, steady_ns, *q, *pose, *(_NO_TARGET if target is None else target), flags
        )
        self._count += 1

    def since(self, t_s: float, until_t_s: float = float("inf")) -> Record:
        """A copy of the ticks of that simulated time."""
        size = len(self._rows)
        if self._count > size:
            start = self._count % size
            parts = [self._rows[start:], self._rows[:start]]
        else:
            parts = [self._rows[: self._count]]
        rows = np.concatenate(
            [
                part[np.searchsorted(part["t_s"], t_s) : np.searchsorted(part["t_s"], until_t_s, "right")]
                for part in parts
            ]
        )
        names = ("t_s", "steady_ns", "q", "pose", "target", "flags")
        return Record(*(np.ascontiguousarray(rows[name]) for name in names))


@dataclass(frozen=True, slots=True)
class Extremes:
    """What a motion came to. Speeds and accelerations are lengths of vectors, in base axes."""

    start_t_s: float
    end_t_s: float
    ticks: int
    max_speed_m_s: float
    max_angular_speed_rad_s: float
    max_acceleration_m_s2: float
    """Largest mean acceleration over the window."""
    max_angular_acceleration_rad_s2: float
    max_raw_acceleration_m_s2: float
    """Largest second difference of neighbouring ticks."""
    max_raw_angular_acceleration_rad_s2: float
    max_step_m: float
    """Largest way from a tick to the next."""
    max_step_rad: float
    standing_s: float
    """How long it stood, all together."""
    stands_since_t_s: float | None
    """From when it stood until the end; None where it moves at the end."""
    placed: int
    """How often the arm was placed; those steps are left out of everything above."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def motion_extremes(
    t_s: ArrayLike, poses: ArrayLike, placed: ArrayLike | None = None, *, window_s: float = WINDOW_S
) -> Extremes:
    """Judge a motion by its poses alone.

    Velocity is the difference of neighbouring ticks over their time. The acceleration is the change of velocity
    over ``window_s``, divided by it: the mean acceleration in that window, which a jump of velocity can't hide from
    and a stream's jitter of one tick does not blow up. The raw one is the change from one tick to the next.

    Args:
        t_s: times [N], increasing.
        poses: tool poses [N,7].
        placed: [N], true where a pose was not reached by moving; steps into it are left out.
        window_s: length of the window of the acceleration.
    """
    t_s, poses = np.asarray(t_s, np.float64), np.asarray(poses, np.float64)
    placed = np.zeros(len(t_s), bool) if placed is None else np.asarray(placed, bool)
    if len(t_s) < 2:
        at = float(t_s[0]) if len(t_s) else 0.0
        return Extremes(at, at, len(t_s), *(0.0,) * 9, at if len(t_s) else None, int(placed.sum()))
    middle_s, velocity, angular = _velocities(t_s, poses, placed)
    step_s = np.diff(t_s)
    apart = max(1, round(window_s / float(np.median(step_s))))
    speed, angular_speed = _norm(velocity), _norm(angular)
    moving = (speed > STANDING_M_S) | (angular_speed > STANDING_RAD_S) | np.isnan(speed)
    last_moving = int(np.flatnonzero(moving)[-1]) if moving.any() else -1
    return Extremes(
        start_t_s=float(t_s[0]),
        end_t_s=float(t_s[-1]),
        ticks=len(t_s),
        max_speed_m_s=_largest(speed),
        max_angular_speed_rad_s=_largest(angular_speed),
        max_acceleration_m_s2=_largest(_change(middle_s, velocity, apart)),
        max_angular_acceleration_rad_s2=_largest(_change(middle_s, angular, apart)),
        max_raw_acceleration_m_s2=_largest(_change(middle_s, velocity, 1)),
        max_raw_angular_acceleration_rad_s2=_largest(_change(middle_s, angular, 1)),
        max_step_m=_largest(speed * step_s),
        max_step_rad=_largest(angular_speed * step_s),
        standing_s=float(step_s[~moving].sum()),
        stands_since_t_s=None if last_moving == len(moving) - 1 else float(t_s[last_moving + 1]),
        placed=int(placed.sum()),
    )


def _velocities(t_s: Floats, poses: Floats, placed: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Middle times [N-1], velocities and angular velocities [N-1,3]; NaN where the step ends in a placed pose."""
    if len(t_s) < 2:
        return np.empty(0), np.empty((0, 3)), np.empty((0, 3))
    step_s = np.diff(t_s)[:, None]
    velocity = np.diff(poses[:, :3], axis=0) / step_s
    turn = quat_multiply(poses[1:, 3:], quat_conjugate(poses[:-1, 3:]))
    angular = quat_to_rotvec(turn) / step_s
    velocity[placed[1:]] = np.nan
    angular[placed[1:]] = np.nan
    return 0.5 * (t_s[1:] + t_s[:-1]), velocity, angular


def _change(t_s: Floats, velocity: Floats, apart: int) -> Floats:
    """Length [M] of the change of velocity over ``apart`` steps, per second; NaN across a placed pose."""
    if len(velocity) <= apart:
        return np.empty(0)
    change = _norm(velocity[apart:] - velocity[:-apart]) / (t_s[apart:] - t_s[:-apart])
    unknown = np.concatenate([[0], np.cumsum(np.isnan(velocity[:, 0]))])
    change[unknown[apart + 1 :] > unknown[: len(change)]] = np.nan
    return np.asarray(change)


def _norm(vectors: Floats) -> Floats:
    return np.asarray(np.sqrt(np.einsum("ti,ti->t", vectors, vectors)))


def _largest(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0
