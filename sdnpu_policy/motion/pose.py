"""Arithmetic of poses and rotations on arrays.

A pose is float64 ``x y z qx qy qz qw`` in metres (the order of ROS messages); every function works on arrays whose
last axis holds one quaternion, rotation vector or pose, whatever axes come before it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Layout6d = Literal["columns", "rows"]

IDENTITY_POSE: Floats = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
IDENTITY_POSE.setflags(write=False)

_SMALLEST_NORM = 1e-9


def quat_normalize(q: ArrayLike) -> Floats:
    """Unit quaternions of ``q`` [..., 4].

    Raises:
        ValueError: a quaternion is not finite or has no length.
    """
    q = np.asarray(q, dtype=np.float64)
    norm = np.sqrt(np.einsum("...i,...i->...", q, q))
    if not (norm.min(initial=1.0) > _SMALLEST_NORM and norm.max(initial=1.0) < np.inf):
        raise ValueError("a quaternion is not finite or has no length")
    return np.asarray(q / norm[..., None])


def quat_multiply(a: ArrayLike, b: ArrayLike) -> Floats:
    """Hamilton product [..., 4]: first the rotation ``b``, then ``a``, both in fixed axes."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    ax, ay, az, aw = a[..., 0], a[..., 1], a[..., 2], a[..., 3]
    bx, by, bz, bw = b[..., 0], b[..., 1], b[..., 2], b[..., 3]
    return np.stack(
        [
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
            aw * bw - ax * bx - ay * by - az * bz,
        ],
        axis=-1,
    )


def quat_conjugate(q: ArrayLike) -> Floats:
    """The inverse of unit quaternions [..., 4]."""
    return np.asarray(np.asarray(q, dtype=np.float64) * np.array([-1.0, -1.0, -1.0, 1.0]))


def quat_rotate(q: ArrayLike, vector: ArrayLike) -> Floats:
    """``vector`` [..., 3] turned by the unit quaternions ``q`` [..., 4]."""
    q, vector = np.asarray(q, dtype=np.float64), np.asarray(vector, dtype=np.float64)
    twice = 2.0 * np.cross(q[..., :3], vector)
    return np.asarray(vector + q[..., 3:] * twice + np.cross(q[..., :3], twice))


def quat_angle_rad(a: ArrayLike, b: ArrayLike) -> Floats:
    """Angle [...] from 0 to pi between unit quaternions; q and -q are the same rotation.

    The two chord lengths keep all digits at small angles, where an arc cosine loses half of them.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    difference, total = a - b, a + b
    apart = np.sqrt(np.einsum("...i,...i->...", difference, difference))
    together = np.sqrt(np.einsum("...i,...i->...", total, total))
    return np.asarray(4.0 * np.arctan2(np.minimum(apart, together), np.maximum(apart, together)))


def same_hemisphere(q: ArrayLike, reference: ArrayLike) -> Floats:
    """``q`` or ``-q``, whichever has a non-negative dot product with ``reference``."""
    q = np.asarray(q, dtype=np.float64)
    dot = np.einsum("...i,...i->...", q, np.asarray(reference, dtype=np.float64))
    return np.where(dot[..., None] < 0.0, -q, q)


def continuous_hemisphere(q: ArrayLike, reference: ArrayLike | None = None) -> Floats:
    """A sequence ``q`` [T, 4] with signs chosen so that neighbours never have a negative dot product.

    The first is brought to the side of ``reference`` where one is given.
    """
    q = np.asarray(q, dtype=np.float64)
    dots = np.empty(len(q))
    dots[1:] = np.einsum("ti,ti->t", q[1:], q[:-1])
    dots[:1] = 1.0 if reference is None else q[:1] @ np.asarray(reference, dtype=np.float64)
    if (dots >= 0.0).all():
        return q
    return np.asarray(q * np.cumprod(np.where(dots < 0.0, -1.0, 1.0))[:, None])


def slerp(a: ArrayLike, b: ArrayLike, fraction: ArrayLike) -> Floats:
    """Rotations on the shorter arc from ``a`` to ``b`` [..., 4] at ``fraction`` [...] (Shoemake 1985)."""
    a = np.asarray(a, dtype=np.float64)
    b = same_hemisphere(b, a)
    fraction = np.asarray(fraction, dtype=np.float64)
    half_angle = 0.5 * quat_angle_rad(a, b)
    sine = np.sin(half_angle)
    straight = sine < 1e-6
    divisor = np.where(straight, 1.0, sine)
    weight_a = np.where(straight, 1.0 - fraction, np.sin((1.0 - fraction) * half_angle) / divisor)
    weight_b = np.where(straight, fraction, np.sin(fraction * half_angle) / divisor)
    return quat_normalize(weight_a[..., None] * a + weight_b[..., None] * b)


def rotvec_to_quat(rotvec: ArrayLike) -> Floats:
    """Unit quaternions [..., 4] of rotation vectors [..., 3] (axis times angle, rad)."""
    rotvec = np.asarray(rotvec, dtype=np.float64)
    half = 0.5 * np.sqrt(np.einsum("...i,...i->...", rotvec, rotvec))
    # np.sinc(x) is sin(pi x) / (pi x), which has no hole at zero.
    return np.concatenate(
        [0.5 * np.sinc(half / np.pi)[..., None] * rotvec, np.cos(half)[..., None]],
        axis=-1,
    )


def quat_to_rotvec(q: ArrayLike) -> Floats:
    """Rotation vectors [..., 3] (rad, length 0 to pi) of unit quaternions [..., 4]."""
    q = np.asarray(q, dtype=np.float64)
    q = np.where(q[..., 3:] < 0.0, -q, q)
    sine = np.sqrt(np.einsum("...i,...i->...", q[..., :3], q[..., :3]))
    small = sine < 1e-12
    scale = np.where(small, 2.0, 2.0 * np.arctan2(sine, q[..., 3]) / np.where(small, 1.0, sine))
    return np.asarray(scale[..., None] * q[..., :3])


def quat_to_matrix(q: ArrayLike) -> Floats:
    """Rotation matrices [..., 3, 3] of unit quaternions [..., 4]."""
    q = np.asarray(q, dtype=np.float64)
    x, y, z, w = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def matrix_to_quat(matrix: ArrayLike) -> Floats:
    """Unit quaternions [..., 4] of rotation matrices [..., 3, 3].

    The entries of a rotation matrix give all of ``4 q qT``; its row with the largest diagonal is the quaternion,
    up to length, without cancellation (Shepperd 1978).
    """
    m = np.asarray(matrix, dtype=np.float64)
    m00, m11, m22 = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    xy, xz, yz = m[..., 1, 0] + m[..., 0, 1], m[..., 0, 2] + m[..., 2, 0], m[..., 2, 1] + m[..., 1, 2]
    xw, yw, zw = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    squares = np.stack(
        [1 + m00 - m11 - m22, 1 - m00 + m11 - m22, 1 - m00 - m11 + m22, 1 + m00 + m11 + m22], axis=-1
    )
    products = np.stack(
        [
            np.stack([squares[..., 0], xy, xz, xw], axis=-1),
            np.stack([xy, squares[..., 1], yz, yw], axis=-1),
            np.stack([xz, yz, squares[..., 2], zw], axis=-1),
            np.stack([xw, yw, zw, squares[..., 3]], axis=-1),
        ],
        axis=-2,
    )
    largest = np.argmax(squares, axis=-1)[..., None, None]
    return quat_normalize(np.take_along_axis(products, largest, axis=-2)[..., 0, :])


def rotation_6d_to_quat(r: ArrayLike, layout: Layout6d = "columns") -> Floats:
    """Unit quaternions [..., 4] of the continuous 6-D representation [..., 6] (Zhou et al. 2019).

    ``r`` holds the first two columns (or rows) of the rotation matrix, one after the other, not necessarily unit
    or at right angles: Gram-Schmidt makes them so.

    Raises:
        ValueError: the two vectors are not finite, have no length, or are parallel.
    """
    r = np.asarray(r, dtype=np.float64)
    first, second = _unit(r[..., :3]), r[..., 3:6]
    second = _unit(second - np.einsum("...i,...i->...", first, second)[..., None] * first)
    axes = [first, second, np.cross(first, second)]
    return matrix_to_quat(np.stack(axes, axis=-1 if layout == "columns" else -2))


def quat_to_rotation_6d(q: ArrayLike, layout: Layout6d = "columns") -> Floats:
    """The first two columns (or rows) [..., 6] of the rotation matrices of unit quaternions [..., 4]."""
    matrix = quat_to_matrix(q)
    if layout == "columns":
        return np.concatenate([matrix[..., :, 0], matrix[..., :, 1]], axis=-1)
    return np.concatenate([matrix[..., 0, :], matrix[..., 1, :]], axis=-1)


def turn_base(pose: ArrayLike) -> Floats:
    """Poses [..., 7] of frame ``base_link`` in frame ``base``, and back: they differ by half a turn about z.

    UR's own interfaces speak ``base``, the ROS model of the robot ``base_link``.
    """
    x, y, z, qx, qy, qz, qw = np.moveaxis(np.asarray(pose, dtype=np.float64), -1, 0)
    return np.stack([-x, -y, z, -qy, qx, qw, -qz], axis=-1)


def interpolate_pose(a: ArrayLike, b: ArrayLike, fraction: ArrayLike) -> Floats:
    """Poses [..., 7] at ``fraction`` [...] of the way from ``a`` to ``b``: straight line and slerp."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    fraction = np.asarray(fraction, dtype=np.float64)
    position = a[..., :3] + fraction[..., None] * (b[..., :3] - a[..., :3])
    return np.concatenate([position, slerp(a[..., 3:], b[..., 3:], fraction)], axis=-1)


def pose_to_ur(pose: ArrayLike) -> Floats:
    """UR's pose vectors [..., 6] (x y z, rotation vector) of poses [..., 7]."""
    pose = np.asarray(pose, dtype=np.float64)
    return np.concatenate([pose[..., :3], quat_to_rotvec(pose[..., 3:])], axis=-1)


def ur_to_pose(vector: ArrayLike) -> Floats:
    """Poses [..., 7] of UR's pose vectors [..., 6] (x y z, rotation vector)."""
    vector = np.asarray(vector, dtype=np.float64)
    return np.concatenate([vector[..., :3], rotvec_to_quat(vector[..., 3:])], axis=-1)


def _unit(vector: Floats) -> Floats:
    norm = np.sqrt(np.einsum("...i,...i->...", vector, vector))
    if not (np.isfinite(norm).all() and (norm > _SMALLEST_NORM).all()):
        raise ValueError("a 6-D rotation is not finite, or its two vectors are zero or parallel")
    return np.asarray(vector / norm[..., None])
