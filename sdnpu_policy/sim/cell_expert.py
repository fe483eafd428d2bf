"""The scripted expert of the work cell: it sees the whole scene and says where the tool should go next.

It passes the post on one side, keeps its height on the way and comes down over the weld spot. It made the
demonstrations that the reference policy learned from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.sim.cell_scene import WELD_HEIGHT_M, Scene, tool_down_pose, tool_yaw, wrap_angle

WAYPOINTS = 16
WAYPOINT_PERIOD_S = 0.064
MAX_SPEED_M_S = 0.25
MAX_TURN_RAD_S = 1.5
TRAVEL_HEIGHT_M = 0.13
POST_CLEARANCE_M = 0.082  # of the way past the post, from its axis
_SURE_SIDE_M = 0.035  # further than this beside the post's line there is no choice of side
_SWITCH_SIDE_M = 0.045


def choose_side(scene: Scene, position_m: NDArray[np.float64], rng: np.random.Generator) -> int:
    """On which side to pass the post: +1 or -1, by chance where the way leads straight at it."""
    _, _, sideways = _post_along_way(scene, position_m)
    if abs(sideways) > _SURE_SIDE_M:
        return -1 if sideways > 0 else 1
    return 1 if rng.integers(2) else -1


def expert_chunk(scene: Scene, pose: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """The next 16 poses [16,7] from `pose` (7,), 64 ms apart, the first of them 64 ms from now."""
    position, yaw = np.array(pose[:3]), tool_yaw(pose)
    poses = np.empty((WAYPOINTS, 7))
    for k in range(WAYPOINTS):
        position, yaw = _next_waypoint(scene, position, yaw, side)
        poses[k] = tool_down_pose(position, yaw)
    return poses


def _next_waypoint(
    scene: Scene, position_m: NDArray[np.float64], yaw_rad: float, side: int
) -> tuple[NDArray[np.float64], float]:
    way = np.subtract(scene.spot_m, position_m[:2])
    distance = float(np.hypot(*way))
    turn = wrap_angle(scene.plate_yaw_rad - yaw_rad)

    heading = _heading(scene, position_m, side)
    speed = min(MAX_SPEED_M_S, 4 * distance)
    # Come down only close over the spot, and all the way only once the tool is turned.
    height = WELD_HEIGHT_M + np.clip(2.5 * (distance - 0.004), 0, TRAVEL_HEIGHT_M - WELD_HEIGHT_M)
    height = max(height, WELD_HEIGHT_M + np.clip(0.3 * (abs(turn) - 0.04), 0, 0.1))
    climb = np.clip(4 * (height - position_m[2]), -0.2, 0.2)

    velocity = np.array([speed * np.cos(heading), speed * np.sin(heading), climb])
    velocity *= min(1.0, MAX_SPEED_M_S / max(float(np.linalg.norm(velocity)), 1e-9))
    turn_rate = float(np.clip(3 * turn, -MAX_TURN_RAD_S, MAX_TURN_RAD_S))
    return position_m + WAYPOINT_PERIOD_S * velocity, yaw_rad + WAYPOINT_PERIOD_S * turn_rate


def _heading(scene: Scene, position_m: NDArray[np.float64], side: int) -> float:
    """Straight to the spot, or along the tangent of a circle around a post that stands in the way."""
    way = np.subtract(scene.spot_m, position_m[:2])
    to_post = np.subtract(scene.post_m, position_m[:2])
    distance, ahead, sideways = _post_along_way(scene, position_m)
    if not (0 < ahead < distance and abs(sideways) < POST_CLEARANCE_M):
        return float(np.arctan2(way[1], way[0]))
    if abs(sideways) > _SWITCH_SIDE_M:
        side = -1 if sideways > 0 else 1  # a push put the tool clearly on the other side
    post_distance = float(np.hypot(*to_post)) + 1e-9
    if post_distance > POST_CLEARANCE_M:
        away = np.arcsin(POST_CLEARANCE_M / post_distance)
    else:
        away = np.pi / 2 + 2.5 * (POST_CLEARANCE_M - post_distance) / POST_CLEARANCE_M
    return float(np.arctan2(to_post[1], to_post[0]) + side * away)


def _post_along_way(scene: Scene, position_m: NDArray[np.float64]) -> tuple[float, float, float]:
    """Distance to the spot, and where the post is along that way and to its left."""
    way = np.subtract(scene.spot_m, position_m[:2])
    to_post = np.subtract(scene.post_m, position_m[:2])
    distance = float(np.hypot(*way)) + 1e-9
    ahead = float(way @ to_post) / distance
    sideways = float(way[0] * to_post[1] - way[1] * to_post[0]) / distance
    return distance, ahead, sideways
