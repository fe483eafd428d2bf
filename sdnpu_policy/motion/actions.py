"""The numbers of a policy to stamped poses, and back.

A policy gives ``T`` actions of ``D`` numbers in its own normalised scale. An action is a position (3), a
rotation (6 numbers for rotation_6d, 3 for a rotation vector, 4 for a quaternion) and whatever columns come after
these, such as a gripper's, which are not motion and are left alone here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import SECOND
from sdnpu_policy.motion.plan import Chunk
from sdnpu_policy.motion.pose import (
    Floats,
    Layout6d,
    continuous_hemisphere,
    quat_conjugate,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_to_rotation_6d,
    quat_to_rotvec,
    rotation_6d_to_quat,
    rotvec_to_quat,
)

ROTATION_WIDTH = {"rotation_6d": 6, "rotvec": 3, "quaternion": 4}


@dataclass(frozen=True, slots=True, eq=False)
class ActionSpec:
    """How the actions of a policy are written.

    ``scale`` and ``offset`` ([D] or [T, D]) undo the policy's normalisation: raw = normalised * scale + offset.
    ``relative`` positions come with rotations relative to the observed pose too: in the axes of ``base``
    p = p0 + d, R = Rrel R0; in those of the ``tool`` p = p0 + R0 d, R = R0 Rrel.

    Raises:
        ValueError: the widths, the rate or the scale do not fit each other.
    """

    horizon: int
    dim: int
    rate_hz: float
    first_offset_steps: int
    position: Literal["absolute", "relative"]
    rotation: Literal["rotation_6d", "rotvec", "quaternion"]
    rotation_6d_layout: Layout6d
    relative_axes: Literal["base", "tool"]
    scale: Floats
    offset: Floats

    def __post_init__(self) -> None:
        needed = 3 + ROTATION_WIDTH[self.rotation]
        if self.dim < needed:
            raise ValueError(f"action has {self.dim} numbers; a position and a {self.rotation} need {needed}")
        if not (self.rate_hz > 0.0 and self.horizon > 0):
            raise ValueError(f"action rate {self.rate_hz} Hz and horizon {self.horizon} must be above 0")
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            if np.shape(values) not in ((self.dim,), (self.horizon, self.dim)):
                raise ValueError(
                    f"action {name} has shape {list(np.shape(values))}, "
                    f"not [{self.dim}] or [{self.horizon}, {self.dim}]"
                )
            if not np.isfinite(values).all():
                raise ValueError(f"action {name} is not finite")


def waypoint_times(spec: ActionSpec, observed_ns: int) -> NDArray[np.int64]:
    """When each action is due, steady ns [T]: observation plus (k + first_offset_steps) / rate."""
    steps = np.arange(spec.first_offset_steps, spec.first_offset_steps + spec.horizon)
    return observed_ns + np.round(steps * (SECOND / spec.rate_hz)).astype(np.int64)


def decode_actions(
    normalised: NDArray[np.floating], spec: ActionSpec, observed_pose: Floats, observed_ns: int
) -> Chunk:
    """Stamped poses of the actions ``normalised`` [T, D].

    Args:
        normalised: what the denoiser ended with.
        spec: how to read it.
        observed_pose: TCP in ``base`` [7] when the observation was made.
        observed_ns: when that was, steady ns.

    Raises:
        ValueError: the shape is wrong, a number is not finite, or a rotation is degenerate.
    """
    if normalised.shape != (spec.horizon, spec.dim):
        raise ValueError(f"actions have shape {list(normalised.shape)}, not [{spec.horizon}, {spec.dim}]")
    raw = normalised * spec.scale + spec.offset
    if not np.isfinite(raw).all():
        raise ValueError("actions are not finite")
    if not np.isfinite(observed_pose).all():
        raise ValueError("the observed pose is not finite")
    position = raw[:, :3]
    rotation = _read_rotation(raw[:, 3 : 3 + ROTATION_WIDTH[spec.rotation]], spec)
    here = quat_normalize(observed_pose[3:])
    if spec.position == "relative":
        if spec.relative_axes == "base":
            position = observed_pose[:3] + position
            rotation = quat_multiply(rotation, here)
        else:
            position = observed_pose[:3] + quat_rotate(here, position)
            rotation = quat_multiply(here, rotation)
    poses = np.concatenate([position, continuous_hemisphere(rotation, here)], axis=1)
    return Chunk(waypoint_times(spec, observed_ns), poses, observed_ns, np.concatenate([observed_pose[:3], here]))


def encode_actions(poses: Floats, spec: ActionSpec, observed_pose: Floats) -> NDArray[np.float32]:
    """Normalised actions [T, D] float32 that decode to ``poses`` [T, 7]; columns after the rotation are 0.

    This is how the plan under way becomes the first guess of the next denoising (a warm start).

    Raises:
        ValueError: the shape is wrong or a number is not finite.
    """
    if poses.shape != (spec.horizon, 7):
        raise ValueError(f"poses have shape {list(poses.shape)}, not [{spec.horizon}, 7]")
    if not (np.isfinite(poses).all() and np.isfinite(observed_pose).all()):
        raise ValueError("poses are not finite")
    position, rotation = poses[:, :3], quat_normalize(poses[:, 3:])
    if spec.position == "relative":
        back = quat_conjugate(quat_normalize(observed_pose[3:]))
        position = position - observed_pose[:3]
        if spec.relative_axes == "base":
            rotation = quat_multiply(rotation, back)
        else:
            position = quat_rotate(back, position)
            rotation = quat_multiply(back, rotation)
    written = np.concatenate([position, _write_rotation(rotation, spec)], axis=1)
    width = written.shape[1]
    scale = np.broadcast_to(spec.scale, (spec.horizon, spec.dim))[:, :width]
    offset = np.broadcast_to(spec.offset, (spec.horizon, spec.dim))[:, :width]
    normalised = np.zeros((spec.horizon, spec.dim), dtype=np.float32)
    # A scale of zero marks a number that never varied: any normalised value decodes to the offset.
    flat = scale == 0.0
    normalised[:, :width] = np.where(flat, 0.0, (written - offset) / np.where(flat, 1.0, scale))
    return normalised


def _read_rotation(numbers: Floats, spec: ActionSpec) -> Floats:
    if spec.rotation == "rotation_6d":
        return rotation_6d_to_quat(numbers, spec.rotation_6d_layout)
    if spec.rotation == "rotvec":
        return rotvec_to_quat(numbers)
    return quat_normalize(numbers)


def _write_rotation(rotation: Floats, spec: ActionSpec) -> Floats:
    if spec.rotation == "rotation_6d":
        return quat_to_rotation_6d(rotation, spec.rotation_6d_layout)
    if spec.rotation == "rotvec":
        return quat_to_rotvec(rotation)
    # The training data's quaternions have a non-negative real part; a network is fed the same side.
    return np.where(rotation[:, 3:] < 0.0, -rotation, rotation)
