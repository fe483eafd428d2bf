"""Between ROS messages and the arrays the core works on.

rclpy does not check field types by default and sends garbage for a wrong one, so every number goes through
``float`` or ``int`` here, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path
from numpy.typing import NDArray

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.motion.pose import turn_base


@dataclass(frozen=True, slots=True)
class Frame:
    """The robot's frame that messages are in: ``base`` or ``base_link``, and what they call it."""

    robot_frame: str
    prefix: str = ""

    @property
    def frame_id(self) -> str:
        return self.prefix + self.robot_frame

    def turn(self, pose: NDArray[np.float64]) -> NDArray[np.float64]:
        """A pose (7,) from ``base`` into this frame; its own inverse."""
        return turn_base(pose) if self.robot_frame == "base_link" else pose


def fill_pose(message: PoseStamped, pose: NDArray[np.float64], frame: Frame, stamp: Time) -> PoseStamped:
    """Write ``pose`` (7,), given in ``base``, into ``message`` in ``frame``."""
    x, y, z, qx, qy, qz, qw = frame.turn(pose).tolist()
    message.header.frame_id = frame.frame_id
    message.header.stamp = stamp
    position, orientation = message.pose.position, message.pose.orientation
    position.x, position.y, position.z = x, y, z
    orientation.x, orientation.y, orientation.z, orientation.w = qx, qy, qz, qw
    return message


def pose_of(message: PoseStamped, frame: Frame) -> NDArray[np.float64]:
    """The pose (7,) of ``message`` in ``base``.

    Raises:
        SdnpuError: its frame is empty or not ``frame``, a number is not finite, or the quaternion not unit.
    """
    found = message.header.frame_id
    if found != frame.frame_id:
        raise SdnpuError(
            f"a robot pose has frame_id {found!r}: {frame.frame_id!r} is needed (parameter 'frame_id')"
        )
    p, q = message.pose.position, message.pose.orientation
    pose = np.array([p.x, p.y, p.z, q.x, q.y, q.z, q.w], dtype=np.float64)
    if not np.isfinite(pose).all() or abs(np.linalg.norm(pose[3:]) - 1.0) > 0.01:
        raise SdnpuError(f"a robot pose is {pose.tolist()}: finite numbers and a unit quaternion are needed")
    return frame.turn(pose)


def path_message(poses: NDArray[np.float64], frame: Frame, stamp: Time) -> Path:
    """The plan's waypoints [N, 7], given in ``base``, as a path in ``frame``."""
    path = Path()
    path.header.frame_id = frame.frame_id
    path.header.stamp = stamp
    path.poses = [fill_pose(PoseStamped(), pose, frame, stamp) for pose in poses]
    return path


def stamp_ns(stamp: Time) -> int:
    """A ROS stamp in nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
