"""Draws the work cell as its fixed camera sees it: 640x480 RGB, with light, shadows, texture and sensor noise.

The picture is meant to be cropped to its centre square and reduced to 96x96 before a policy sees it. Noise and
texture therefore have their strength defined over one pixel of that reduced view, which is BLOCK_PX wide here.
"""

from __future__ import annotations

import threading
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.sim.cell_scene import (
    PLATE_HEIGHT_M,
    PLATE_LENGTH_M,
    PLATE_WIDTH_M,
    POST_HEIGHT_M,
    POST_RADIUS_M,
    SPOT_OFFSET_M,
    TABLE_MAX_M,
    TABLE_MIN_M,
    Scene,
    tool_yaw,
)

Points = NDArray[np.float64]
Image = NDArray[np.uint8]
FloatImage = NDArray[np.float32]
Colour = NDArray[np.float64]

WIDTH_PX, HEIGHT_PX = 640, 480
FOCAL_PX = 615.0
# Pixel centres are at whole numbers. This is pixel 48 of 96 in the reduced view: half of its pixels off centre.
PRINCIPAL_POINT_PX = (322.0, 242.0)
BLOCK_PX = 5
BLOCKS = (HEIGHT_PX // BLOCK_PX, WIDTH_PX // BLOCK_PX)

CAMERA_M = np.array([1.05, 0.0, 0.62])
_LOOK_AT_M = np.array([0.49, 0.0, 0.03])
_ARM_SHOULDER_M = np.array([0.12, 0.0, 0.62])

_FLOOR_GREY = 30.0
_LINK_WIDTH_PX = 53
_OUTLINE_PX = 3  # things look a pixel larger than they are, as in the pictures the reference policy learned from
_SUBPIXEL_BITS = 4
# Drawn values are colours times this, so that the brightest one (a post's top, 288) fits before the light comes.
_HEADROOM = 0.85
_MIN_DEPTH_M = 0.05

_angles = np.linspace(0, 2 * np.pi, 14, endpoint=False)
_CIRCLE = np.stack([np.cos(_angles), np.sin(_angles)], axis=1)


def _camera_axes() -> Points:
    forward = _LOOK_AT_M - CAMERA_M
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(forward, right), forward], axis=1)


_AXES = _camera_axes()


def project(points_m: Points) -> Points:
    """Pixels [N,2] (x, y) of points [N,3] in the base frame; what is behind the camera lands far outside."""
    seen = (points_m - CAMERA_M) @ _AXES
    pixels: Points = seen[:, :2] * (FOCAL_PX / np.maximum(seen[:, 2:], _MIN_DEPTH_M)) + PRINCIPAL_POINT_PX
    return pixels


def render(scene: Scene, tcp_pose: NDArray[np.float64], rng: np.random.Generator) -> Image:
    """The camera's picture, uint8 [480,640,3] RGB, with the tool at `tcp_pose` (7,) in the base frame.

    The tool is drawn upright, turned to the pose's yaw. `rng` gives the sensor noise of this frame.
    """
    position, yaw = np.asarray(tcp_pose[:3], np.float64), tool_yaw(tcp_pose)
    canvas = _still_table(scene).copy()
    _draw_tool_shadow(canvas, scene, position)
    _draw_plate(canvas, scene)
    post_is_behind = scene.post_m[0] < position[0]
    if post_is_behind:
        _draw_post(canvas, scene)
    _draw_tool(canvas, scene, position, yaw)
    if not post_is_behind:
        _draw_post(canvas, scene)
    return _expose(canvas, scene, rng)


def _expose(canvas: Image, scene: Scene, rng: np.random.Generator) -> Image:
    """Turn the drawn colours, in place, into what the sensor makes of them: uneven light, then noise."""
    lit, noise = _scratch(threading.get_ident())
    cv2.multiply(canvas, _light(scene), lit, dtype=cv2.CV_32F)
    blocks = rng.standard_normal((*BLOCKS, 3), np.float32) * np.float32(scene.appearance.noise_sigma)
    cv2.resize(blocks, (WIDTH_PX, HEIGHT_PX), noise, interpolation=cv2.INTER_NEAREST)
    cv2.add(lit, noise, canvas, dtype=cv2.CV_8U)
    return canvas


@lru_cache(maxsize=2)
def _scratch(thread_id: int) -> tuple[FloatImage, FloatImage]:
    """Two float pictures for a thread to work in: fresh memory of this size costs more than the arithmetic."""
    shape = (HEIGHT_PX, WIDTH_PX, 3)
    return np.empty(shape, np.float32), np.empty(shape, np.float32)


@lru_cache(maxsize=4)
def _light(scene: Scene) -> FloatImage:
    """Gain over the picture, float32 [480,640,3]; the gradient is over the centre square's width and height."""
    look = scene.appearance
    x = (np.arange(WIDTH_PX) - PRINCIPAL_POINT_PX[0]) / HEIGHT_PX
    y = (np.arange(HEIGHT_PX) - PRINCIPAL_POINT_PX[1]) / HEIGHT_PX
    light = look.gain * (1 + look.gradient[0] * x[None, :] + look.gradient[1] * y[:, None]) / _HEADROOM
    return np.repeat(light[:, :, None], 3, axis=2).astype(np.float32)


@lru_cache(maxsize=1)
def _textures() -> tuple[FloatImage, ...]:
    """Table textures, smooth noise of three grain sizes, unit deviation once reduced by BLOCK_PX."""
    rng = np.random.default_rng(99)
    shape = ((BLOCKS[0] + 64) * BLOCK_PX, (BLOCKS[1] + 64) * BLOCK_PX)
    textures = []
    for grain_blocks in (1, 2, 4):
        field = cv2.GaussianBlur(rng.standard_normal(shape, np.float32), (0, 0), grain_blocks * BLOCK_PX)
        reduced = cv2.resize(field, (shape[1] // BLOCK_PX, shape[0] // BLOCK_PX), interpolation=cv2.INTER_AREA)
        textures.append(np.asarray(field / reduced.std(), np.float32))
    return tuple(textures)


@lru_cache(maxsize=4)
def _still_table(scene: Scene) -> Image:
    """All that lies under the tool's shadow: floor, table, tape, clutter, shadows of plate and post."""
    look = scene.appearance
    table = np.array(look.table)
    canvas = np.full((HEIGHT_PX, WIDTH_PX, 3), round(_FLOOR_GREY * _HEADROOM), np.uint8)
    _polygon(canvas, project(_rectangle(TABLE_MIN_M, TABLE_MAX_M)), table)

    x, y = (BLOCK_PX * origin for origin in look.texture_origin_px)
    grain = _textures()[look.texture][y : y + HEIGHT_PX, x : x + WIDTH_PX] * (look.texture_amplitude * _HEADROOM)
    canvas = np.asarray(cv2.add(canvas, np.repeat(grain[:, :, None], 3, axis=2), dtype=cv2.CV_8U), np.uint8)

    tape_y = -0.16 + look.tape_shift_m
    _polygon(canvas, project(_rectangle((0.3, tape_y), (0.7, tape_y + 0.008))), table * 0.7)
    for disc in look.clutter:
        near_plate = np.hypot(*np.subtract(disc.centre_m, scene.plate_m)) < 0.09
        near_post = np.hypot(*np.subtract(disc.centre_m, scene.post_m)) < 0.05
        if not (near_plate or near_post):
            _polygon(
                canvas, project(_at_height(disc.radius_m * _CIRCLE + disc.centre_m, 0)), np.array(disc.colour)
            )

    slope = np.array(look.shadow_slope)
    shade = table * look.shadow_factor
    _polygon(canvas, project(_at_height(_plate_corners(scene) + 2 * PLATE_HEIGHT_M * slope, 0)), shade)
    tip = slope * POST_HEIGHT_M
    side = np.array([-slope[1], slope[0]]) / (np.hypot(*slope) + 1e-6) * POST_RADIUS_M
    _polygon(canvas, project(_at_height(np.array([side, side + tip, tip - side, -side]) + scene.post_m, 0)), shade)
    return canvas


def _draw_tool_shadow(canvas: Image, scene: Scene, position_m: Points) -> None:
    look = scene.appearance
    centre = position_m[:2] + np.array(look.shadow_slope) * position_m[2] * 1.2
    _polygon(canvas, project(_at_height(0.03 * _CIRCLE + centre, 0)), np.array(look.table) * look.shadow_factor)


def _draw_plate(canvas: Image, scene: Scene) -> None:
    look = scene.appearance
    plate, corners = np.array(look.plate), _plate_corners(scene)
    _hull(canvas, project(_prism(corners, 0, PLATE_HEIGHT_M)), plate * 0.6)
    _polygon(canvas, project(_at_height(corners, PLATE_HEIGHT_M)), plate)

    def on_plate(outline: Points, colour: Colour) -> None:
        placed = _turned(outline, scene.plate_yaw_rad) + scene.plate_m
        _polygon(canvas, project(_at_height(placed, PLATE_HEIGHT_M)), colour)

    on_plate(0.011 * _CIRCLE + [SPOT_OFFSET_M, 0], look.spot_grey * np.array([1, 1, 1.15]))
    on_plate(0.009 * _CIRCLE + [-0.035, 0.015], np.array(look.table) * 0.5)
    on_plate(np.array([[-0.05, -0.026], [0, -0.026], [0, -0.020], [-0.05, -0.020]]), plate * 0.75)


def _draw_post(canvas: Image, scene: Scene) -> None:
    colour = np.array(scene.appearance.post)
    _cylinder(canvas, np.array(scene.post_m), POST_RADIUS_M, 0, POST_HEIGHT_M, colour, colour * 1.15)


def _draw_tool(canvas: Image, scene: Scene, position_m: Points, yaw_rad: float) -> None:
    """Arm link, wrist, gripper body and its two fingers, the lighter of which shows the yaw."""
    colour = np.array(scene.appearance.tool)
    xy, z = position_m[:2], float(position_m[2])
    link = _fixed_point(project(np.stack([position_m + np.array([0, 0, 0.26]), _ARM_SHOULDER_M])))
    start, end = link.tolist()
    cv2.line(canvas, start, end, _ink(colour * 1.8 + 40), _LINK_WIDTH_PX, cv2.LINE_AA, _SUBPIXEL_BITS)
    _cylinder(canvas, xy, 0.03, z + 0.10, z + 0.26, colour * 1.6 + 60, colour + 30)
    body = _turned(_outline(0.035, 0.018), yaw_rad) + xy
    _hull(canvas, project(_prism(body, z + 0.06, z + 0.10)), colour)
    for side, brightness in ((-1, 1.1), (1, 1.5)):
        finger = _turned(_outline(0.006, 0.008) + np.array([side * 0.028, 0]), yaw_rad) + xy
        _hull(canvas, project(_prism(finger, z, z + 0.06)), colour * brightness)


def _cylinder(
    canvas: Image,
    centre_m: Points,
    radius_m: float,
    bottom_m: float,
    top_m: float,
    colour: Colour,
    top_colour: Colour,
) -> None:
    rims = project(_prism(radius_m * _CIRCLE + centre_m, bottom_m, top_m))
    _hull(canvas, rims, colour)
    _polygon(canvas, rims[len(_CIRCLE) :], top_colour)


def _polygon(canvas: Image, points_px: Points, colour: Colour) -> None:
    """Fill a convex polygon, its outline included."""
    corners, ink = _fixed_point(points_px), _ink(colour)
    cv2.fillConvexPoly(canvas, corners, ink, cv2.LINE_AA, _SUBPIXEL_BITS)
    cv2.polylines(canvas, [corners], True, ink, _OUTLINE_PX, cv2.LINE_AA, _SUBPIXEL_BITS)


def _hull(canvas: Image, points_px: Points, colour: Colour) -> None:
    hull = cv2.convexHull(points_px.astype(np.float32)).reshape(-1, 2)
    _polygon(canvas, hull.astype(np.float64), colour)


def _fixed_point(points_px: Points) -> NDArray[np.int32]:
    return np.rint(np.clip(points_px, -1e5, 1e5) * (1 << _SUBPIXEL_BITS)).astype(np.int32)


def _ink(colour: Colour) -> tuple[float, ...]:
    return tuple(np.rint(colour * _HEADROOM).tolist())


def _outline(half_length_m: float, half_width_m: float) -> Points:
    a, b = half_length_m, half_width_m
    return np.array([[-a, -b], [a, -b], [a, b], [-a, b]])


def _plate_corners(scene: Scene) -> Points:
    return _turned(_outline(PLATE_LENGTH_M / 2, PLATE_WIDTH_M / 2), scene.plate_yaw_rad) + scene.plate_m


def _rectangle(minimum_m: tuple[float, float], maximum_m: tuple[float, float]) -> Points:
    (x0, y0), (x1, y1) = minimum_m, maximum_m
    return np.array([[x0, y0, 0], [x1, y0, 0], [x1, y1, 0], [x0, y1, 0]])


def _turned(points_m: Points, yaw_rad: float) -> Points:
    c, s = np.cos(yaw_rad), np.sin(yaw_rad)
    return np.asarray(points_m @ np.array([[c, s], [-s, c]]), np.float64)


def _at_height(points_m: Points, z_m: float) -> Points:
    return np.column_stack([points_m, np.full(len(points_m), z_m)])


def _prism(outline_m: Points, bottom_m: float, top_m: float) -> Points:
    return np.concatenate([_at_height(outline_m, bottom_m), _at_height(outline_m, top_m)])
