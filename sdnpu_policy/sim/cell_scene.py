"""The work cell's scene: a plate with a weld spot, a fixture post, a start pose, and how it all looks.

A scene is drawn from (seed, index) alone, so a run, its replay and its judge agree on it without exchanging more
than two integers. All lengths are metres in the robot's `base` frame with the table at z = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

TABLE_MIN_M, TABLE_MAX_M = (0.28, -0.40), (0.85, 0.40)
PLATE_LENGTH_M, PLATE_WIDTH_M, PLATE_HEIGHT_M = 0.110, 0.070, 0.010
SPOT_OFFSET_M = 0.025  # from the plate's centre, along its length
POST_RADIUS_M, POST_HEIGHT_M = 0.018, 0.220
WELD_HEIGHT_M = 0.030  # of the tool over the table when it is in place
MAX_PLATE_YAW_RAD = np.pi / 3


@dataclass(frozen=True, slots=True)
class Clutter:
    """A flat disc on the table that means nothing."""

    centre_m: tuple[float, float]
    radius_m: float
    colour: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Appearance:
    """Colours (RGB, 0..255), light and camera noise of one scene."""

    table: tuple[float, float, float]
    plate: tuple[float, float, float]
    post: tuple[float, float, float]
    tool: tuple[float, float, float]
    spot_grey: float
    shadow_factor: float  # a shadow's brightness over the table's
    shadow_slope: tuple[float, float]  # shadow length on the table over the height that casts it
    gain: float
    gradient: tuple[float, float]  # relative change of brightness over the width and over the height of the view
    texture: int  # which of the table textures
    texture_origin_px: tuple[int, int]
    texture_amplitude: float  # grey levels, standard deviation
    noise_sigma: float  # grey levels, standard deviation over one pixel of the 96x96 view
    tape_shift_m: float
    clutter: tuple[Clutter, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """What one episode is about. `plate_yaw_rad` is also the yaw the tool must reach."""

    seed: int
    index: int
    plate_m: tuple[float, float]
    plate_yaw_rad: float
    post_m: tuple[float, float]
    start_m: tuple[float, float, float]
    start_yaw_rad: float
    appearance: Appearance

    @property
    def spot_m(self) -> tuple[float, float]:
        """The weld spot on the table plane, x and y."""
        return (
            self.plate_m[0] + SPOT_OFFSET_M * float(np.cos(self.plate_yaw_rad)),
            self.plate_m[1] + SPOT_OFFSET_M * float(np.sin(self.plate_yaw_rad)),
        )

    @property
    def start_pose(self) -> Vector:
        """Where the tool stands at the beginning of the episode, as a pose (7,)."""
        return tool_down_pose(np.array(self.start_m), self.start_yaw_rad)

    @property
    def goal_pose(self) -> Vector:
        """Where the tool must come to rest, as a pose (7,)."""
        return tool_down_pose(np.array([*self.spot_m, WELD_HEIGHT_M]), self.plate_yaw_rad)


def tool_down_pose(position_m: Vector, yaw_rad: float) -> Vector:
    """The pose (7,) of a tool that points straight down: the columns of R are (c,s,0), (s,-c,0), (0,0,-1)."""
    return np.array([*position_m[:3], np.cos(yaw_rad / 2), np.sin(yaw_rad / 2), 0.0, 0.0])


def tool_yaw(pose: Vector) -> float:
    """The angle of the tool's x axis about the base's z axis, in radians, of a pose (7,) of any tilt."""
    x, y, z, w = pose[3:7]
    return float(np.arctan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z)))


def wrap_angle(angle_rad: float) -> float:
    """The same angle in [-pi, pi)."""
    return (angle_rad + np.pi) % (2 * np.pi) - np.pi


def make_scene(seed: int, index: int) -> Scene:
    """Draw scene number `index` of the family `seed`; the same pair always gives the same scene.

    The post stands near the straight way from the start to the spot, at least 12 cm from the spot and 10 cm from
    the start and from the plate's centre.
    """
    rng = np.random.default_rng([seed, index])
    while True:
        plate = rng.uniform([0.42, 0.06], [0.58, 0.22])
        plate_yaw = rng.uniform(-MAX_PLATE_YAW_RAD, MAX_PLATE_YAW_RAD)
        start = rng.uniform([0.40, -0.28, 0.12], [0.60, -0.20, 0.20])
        start_yaw = rng.uniform(-0.5, 0.5)
        spot = plate + SPOT_OFFSET_M * np.array([np.cos(plate_yaw), np.sin(plate_yaw)])
        way = spot - start[:2]
        across = np.array([-way[1], way[0]]) / np.linalg.norm(way)
        post = start[:2] + rng.uniform(0.30, 0.65) * way + rng.uniform(-0.05, 0.05) * across
        clearances = np.linalg.norm(post - np.stack([spot, start[:2], plate]), axis=1)
        if np.all(clearances > [0.12, 0.10, 0.10]):
            break
    return Scene(
        seed=seed,
        index=index,
        plate_m=_pair(plate),
        plate_yaw_rad=float(plate_yaw),
        post_m=_pair(post),
        start_m=(float(start[0]), float(start[1]), float(start[2])),
        start_yaw_rad=float(start_yaw),
        appearance=_make_appearance(rng),
    )


def _make_appearance(rng: np.random.Generator) -> Appearance:
    return Appearance(
        table=_triple(rng.uniform(80, 150) + rng.uniform(-15, 15, 3)),
        plate=_triple(rng.uniform(165, 225) + rng.uniform(-10, 10, 3)),
        post=_triple(rng.uniform([20, 90, 190], [80, 160, 250])),
        tool=_triple(rng.uniform(25, 70) + rng.uniform(-8, 8, 3)),
        spot_grey=float(rng.uniform(20, 70)),
        shadow_factor=float(rng.uniform(0.45, 0.80)),
        shadow_slope=_pair(rng.uniform(-0.35, 0.35, 2)),
        gain=float(rng.uniform(0.75, 1.20)),
        gradient=_pair(rng.uniform(-0.25, 0.25, 2)),
        texture=int(rng.integers(3)),
        texture_origin_px=(int(rng.integers(64)), int(rng.integers(64))),
        texture_amplitude=float(rng.uniform(2, 10)),
        noise_sigma=float(rng.uniform(2, 7)),
        tape_shift_m=float(rng.uniform(-0.02, 0.02)),
        clutter=tuple(
            Clutter(
                centre_m=_pair(rng.uniform([0.33, -0.30], [0.70, 0.30])),
                radius_m=float(rng.uniform(0.008, 0.020)),
                colour=_triple(rng.uniform(40, 200, 3)),
            )
            for _ in range(int(rng.integers(0, 4)))
        ),
    )


def _pair(values: Vector) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _triple(values: Vector) -> tuple[float, float, float]:
    return float(values[0]), float(values[1]), float(values[2])
