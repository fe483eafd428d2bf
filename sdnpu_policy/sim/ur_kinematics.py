"""Kinematics of the UR5e in plain Python: forward, Jacobian, and the closed-form inverse nearest given joints.

Plain floats on purpose: the controller needs one pose at a time, 500 times a second, and for vectors of six numpy
costs more than the arithmetic. Frames are UR's own: `base` (not ROS's `base_link`) and the tool flange; a tool
centre point is a transform on top of the flange.

The links are the nominal standard Denavit-Hartenberg parameters that Universal Robots publishes for the UR5e; a
calibrated robot differs by one or two millimetres. Axes used in the formulas, all in base coordinates: ``u`` is
horizontal, turned with joint 1, ``n`` is the common axis of joints 2, 3 and 4, and these joints move the arm in the
plane of ``u`` and the vertical.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import acos, asin, atan2, cos, hypot, pi, sin, sqrt

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]
"""A rotation by its rows."""
Transform = tuple[Matrix, Vector]
"""Rotation and position of a frame."""

D1, D4, D5, D6 = 0.1625, 0.1333, 0.0997, 0.0996
A2, A3 = -0.425, -0.3922
JOINT_LIMIT_RAD = 2.0 * pi

IDENTITY: Transform = (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0))

_ROUNDING = 1e-9  # a cosine may pass 1 by this much at the edge of the reach
_WRIST_SINGULAR = 1e-7
_LARGEST = 1e6
_TURN = 2.0 * pi


def flange(q: Sequence[float]) -> Transform:
    """Pose of the tool flange in the base frame for the joint angles ``q`` (6,) in rad."""
    q1, q2, q3, q4, q5, q6 = q
    c1, s1 = cos(q1), sin(q1)
    q23 = q2 + q3
    c234, s234 = cos(q23 + q4), sin(q23 + q4)
    c5, s5, c6, s6 = cos(q5), sin(q5), cos(q6), sin(q6)
    # x4: first axis after joint 4; y5: second axis after joint 5, against the axis of joint 5
    x4x, x4y = c1 * c234, s1 * c234
    y5x, y5y = -c1 * s234, -s1 * s234
    x5x, x5y, x5z = c5 * x4x + s5 * s1, c5 * x4y - s5 * c1, c5 * s234
    z6x, z6y, z6z = c5 * s1 - s5 * x4x, -c5 * c1 - s5 * x4y, -s5 * s234
    reach = A2 * cos(q2) + A3 * cos(q23)
    height = D1 + A2 * sin(q2) + A3 * sin(q23)
    rotation = (
        (c6 * x5x + s6 * y5x, c6 * y5x - s6 * x5x, z6x),
        (c6 * x5y + s6 * y5y, c6 * y5y - s6 * x5y, z6y),
        (c6 * x5z + s6 * c234, c6 * c234 - s6 * x5z, z6z),
    )
    position = (
        c1 * reach + D4 * s1 - D5 * y5x + D6 * z6x,
        s1 * reach - D4 * c1 - D5 * y5y + D6 * z6y,
        height - D5 * c234 + D6 * z6z,
    )
    return rotation, position


def jacobian(q: Sequence[float], point: Vector) -> list[list[float]]:
    """The geometric Jacobian of a ``point`` on the tool, in base axes: rows vx vy vz wx wy wz, a column a joint."""
    q1, q2, q3, q4, q5, _ = q
    c1, s1 = cos(q1), sin(q1)
    q23 = q2 + q3
    c234, s234 = cos(q23 + q4), sin(q23 + q4)
    c5, s5 = cos(q5), sin(q5)
    n = (s1, -c1, 0.0)
    axis5 = (c1 * s234, s1 * s234, -c234)
    axis6 = (c5 * s1 - s5 * c1 * c234, -c5 * c1 - s5 * s1 * c234, -s5 * s234)
    shoulder = (0.0, 0.0, D1)
    elbow = (c1 * A2 * cos(q2), s1 * A2 * cos(q2), D1 + A2 * sin(q2))
    wrist = (elbow[0] + c1 * A3 * cos(q23), elbow[1] + s1 * A3 * cos(q23), elbow[2] + A3 * sin(q23))
    before5 = (wrist[0] + D4 * n[0], wrist[1] + D4 * n[1], wrist[2])
    before6 = (before5[0] + D5 * axis5[0], before5[1] + D5 * axis5[1], before5[2] + D5 * axis5[2])
    columns = []
    for axis, origin in (
        ((0.0, 0.0, 1.0), (0.0, 0.0, 0.0)),
        (n, shoulder),
        (n, elbow),
        (n, wrist),
        (axis5, before5),
        (axis6, before6),
    ):
        x, y, z = point[0] - origin[0], point[1] - origin[1], point[2] - origin[2]
        a, b, c = axis
        columns.append((b * z - c * y, c * x - a * z, a * y - b * x, a, b, c))
    return [[column[row] for column in columns] for row in range(6)]


def inverse(target: Transform, near: Sequence[float] | None = None) -> list[list[float]]:
    """Every joint configuration (at most eight, angles from -pi to pi) that puts the flange at ``target``.

    Where the wrist is singular (joint 5 at 0 or pi) only the sum of joints 4 and 6 matters: joint 6 is then taken
    from ``near``.
    """
    return [[(angle + pi) % _TURN - pi for angle in solution] for solution in _solutions(target, near)]


def _solutions(target: Transform, near: Sequence[float] | None) -> list[list[float]]:
    """What `inverse` says, with some angles a turn off."""
    (r00, r01, r02), (r10, r11, r12), (r20, r21, r22) = target[0]
    px, py, pz = target[1]
    wx, wy, wz = px - D6 * r02, py - D6 * r12, pz - D6 * r22
    distance = hypot(wx, wy)
    if distance < D4:
        return []
    around, aside = atan2(wy, wx), asin(D4 / distance)
    free_q6 = 0.0 if near is None else near[5]
    found = []
    for q1 in (around + aside, around + pi - aside):
        c1, s1 = cos(q1), sin(q1)
        # the axis n seen from the tool: (c6 s5, -s6 s5, c5)
        nx, ny, nz = s1 * r00 - c1 * r10, s1 * r01 - c1 * r11, s1 * r02 - c1 * r12
        sine5 = hypot(nx, ny)
        for sign5 in (1.0, -1.0):
            q5 = sign5 * atan2(sine5, nz)
            q6 = free_q6 if sine5 < _WRIST_SINGULAR else atan2(-sign5 * ny, sign5 * nx)
            c6, s6 = cos(q6), sin(q6)
            y5x, y5y = s6 * r00 + c6 * r01, s6 * r10 + c6 * r11
            y5z = s6 * r20 + c6 * r21
            q234 = atan2(-(c1 * y5x + s1 * y5y), y5z)
            reach = c1 * (wx + D5 * y5x) + s1 * (wy + D5 * y5y)
            height = wz - D1 + D5 * y5z
            cosine3 = (reach * reach + height * height - A2 * A2 - A3 * A3) / (2.0 * A2 * A3)
            if abs(cosine3) > 1.0 + _ROUNDING:
                continue
            bend = acos(max(-1.0, min(1.0, cosine3)))
            for q3 in (bend, -bend):
                q2 = atan2(height, reach) - atan2(A3 * sin(q3), A2 + A3 * cos(q3))
                found.append([q1, q2, q3, q234 - q2 - q3, q5, q6])
    return found


def nearest_inverse(target: Transform, near: Sequence[float]) -> list[float] | None:
    """The configuration that puts the flange at ``target`` with the least sum of squared differences to ``near``.

    Whole turns are added where that brings a joint closer, within the joint limits of plus and minus one turn.
    None where the pose is out of reach.
    """
    best, least = None, float("inf")
    for solution in _solutions(target, near):
        total = 0.0
        for joint, angle in enumerate(solution):
            off = angle - near[joint]
            if not -pi <= off <= pi or not -JOINT_LIMIT_RAD <= angle <= JOINT_LIMIT_RAD:
                angle -= _TURN * round(off / _TURN)
                if angle > JOINT_LIMIT_RAD:
                    angle -= _TURN
                elif angle < -JOINT_LIMIT_RAD:
                    angle += _TURN
                off = angle - near[joint]
                solution[joint] = angle
            total += off * off
            if total >= least:
                break
        else:
            best, least = solution, total
    return best


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float] | None:
    """``x`` with ``matrix x = right``, by Gaussian elimination with pivots; None where the matrix is singular."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        if abs(rows[pivot][column]) < _ROUNDING:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(column + 1, size):
            factor = rows[row][column] / rows[column][column]
            rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    solution = [0.0] * size
    for row in range(size - 1, -1, -1):
        known = sum(rows[row][column] * solution[column] for column in range(row + 1, size))
        solution[row] = (rows[row][size] - known) / rows[row][row]
    return solution


def compose(a: Transform, b: Transform) -> Transform:
    """The frame ``b``, given in ``a``, in the frame that ``a`` is given in (URScript's pose_trans)."""
    ((a00, a01, a02), (a10, a11, a12), (a20, a21, a22)), (ax, ay, az) = a
    ((b00, b01, b02), (b10, b11, b12), (b20, b21, b22)), (bx, by, bz) = b
    return (
        (
            (
                a00 * b00 + a01 * b10 + a02 * b20,
                a00 * b01 + a01 * b11 + a02 * b21,
                a00 * b02 + a01 * b12 + a02 * b22,
            ),
            (
                a10 * b00 + a11 * b10 + a12 * b20,
                a10 * b01 + a11 * b11 + a12 * b21,
                a10 * b02 + a11 * b12 + a12 * b22,
            ),
            (
                a20 * b00 + a21 * b10 + a22 * b20,
                a20 * b01 + a21 * b11 + a22 * b21,
                a20 * b02 + a21 * b12 + a22 * b22,
            ),
        ),
        (
            ax + a00 * bx + a01 * by + a02 * bz,
            ay + a10 * bx + a11 * by + a12 * bz,
            az + a20 * bx + a21 * by + a22 * bz,
        ),
    )


def invert(a: Transform) -> Transform:
    """The transform that undoes ``a``."""
    (r0, r1, r2), (x, y, z) = a
    rotation = (r0[0], r1[0], r2[0]), (r0[1], r1[1], r2[1]), (r0[2], r1[2], r2[2])
    back = [-(row[0] * x + row[1] * y + row[2] * z) for row in rotation]
    return rotation, (back[0], back[1], back[2])


def from_ur(vector: Sequence[float]) -> Transform:
    """The transform of UR's pose vector (6,): position in m, rotation vector in rad (Rodrigues)."""
    x, y, z, rx, ry, rz = vector
    angle = sqrt(rx * rx + ry * ry + rz * rz)
    if angle < 1e-12:
        return ((1.0, -rz, ry), (rz, 1.0, -rx), (-ry, rx, 1.0)), (x, y, z)
    kx, ky, kz = rx / angle, ry / angle, rz / angle
    c, s = cos(angle), sin(angle)
    v = 1.0 - c
    return (
        (c + kx * kx * v, kx * ky * v - kz * s, kx * kz * v + ky * s),
        (ky * kx * v + kz * s, c + ky * ky * v, ky * kz * v - kx * s),
        (kz * kx * v - ky * s, kz * ky * v + kx * s, c + kz * kz * v),
    ), (x, y, z)


def to_ur(a: Transform) -> tuple[float, float, float, float, float, float]:
    """UR's pose vector of a transform; the rotation vector is at most pi long."""
    x, y, z, w = quaternion(a[0])
    sine = sqrt(x * x + y * y + z * z)
    scale = 2.0 if sine < 1e-12 else 2.0 * atan2(sine, w) / sine
    return (*a[1], x * scale, y * scale, z * scale)


def quaternion(rotation: Matrix) -> tuple[float, float, float, float]:
    """The unit quaternion x y z w, with w not negative, of a rotation (Shepperd 1978)."""
    (m00, m01, m02), (m10, m11, m12), (m20, m21, m22) = rotation
    trace = m00 + m11 + m22
    if trace >= m00 and trace >= m11 and trace >= m22:
        x, y, z, w = m21 - m12, m02 - m20, m10 - m01, 1.0 + trace
    elif m00 >= m11 and m00 >= m22:
        x, y, z, w = 1.0 + m00 - m11 - m22, m10 + m01, m20 + m02, m21 - m12
    elif m11 >= m22:
        x, y, z, w = m10 + m01, 1.0 - m00 + m11 - m22, m21 + m12, m02 - m20
    else:
        x, y, z, w = m20 + m02, m21 + m12, 1.0 - m00 - m11 + m22, m10 - m01
    scale = (-1.0 if w < 0.0 else 1.0) / sqrt(x * x + y * y + z * z + w * w)
    return x * scale, y * scale, z * scale, w * scale


def plausible(values: Sequence[float]) -> bool:
    """Whether the numbers can be those of a pose: finite and small enough to calculate with."""
    return all(abs(value) < _LARGEST for value in values)
