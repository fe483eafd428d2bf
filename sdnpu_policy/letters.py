"""The records that travel in the mailboxes between the three processes, as numpy dtypes.

Times are steady-clock nanoseconds, poses are x y z qx qy qz qw in the robot's ``base`` frame (metres), twists are
vx vy vz wx wy wz in the axes of ``base``.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class TargetMode(IntEnum):
    """What the control process asks of the arm process."""

    RELEASE = 0
    """Brake, end the servo motion (servoStop) and stay connected: another may move the arm."""
    STREAM = 1
    """Servo to ``pose``; brake to standing when targets stop coming."""
    STAND = 2
    """Brake to standing and hold the servo there."""
    SHUT_DOWN = 3
    """Brake, servoStop, stopScript, disconnect, end the process."""


class ArmStatus(IntEnum):
    """What the arm process is doing."""

    STARTING = 0
    READY = 1
    """Connected, no servo motion."""
    STREAMING = 2
    BRAKING = 3
    """Targets stopped coming or a stop was asked for: slowing down."""
    STANDING = 4
    """Standing, the servo holds the pose."""
    FAULT = 5
    """Nothing moves the arm any more; the process ends after this was posted."""
    GONE = 6


class ArmFault(IntEnum):
    """Why the arm process gave up."""

    NONE = 0
    CANNOT_CONNECT = 1
    NOT_REMOTE_CONTROL = 2
    LINK_LOST = 3
    CLOCK_STALLED = 4
    """The controller's timestamp stopped advancing."""
    PROTECTIVE_STOP = 5
    EMERGENCY_STOP = 6
    SAFEGUARD_STOP = 7
    SAFETY_FAULT = 8
    NOT_RUNNING = 9
    """The robot's mode is not RUNNING (powered off, booting, brakes on)."""
    PROGRAM_STOPPED = 10
    TARGET_REFUSED = 11
    """The controller refused a target or the script died of it."""
    CONTROL_GONE = 12
    INTERNAL = 13


TARGET = np.dtype(
    [
        ("mode", np.uint8),
        ("pose", np.float64, 7),
        ("twist", np.float64, 6),
        ("due_ns", np.int64),  # when the arm should be asked for `pose`
    ]
)

ROBOT_STATE = np.dtype(
    [
        ("status", np.uint8),
        ("fault", np.uint8),
        ("pose", np.float64, 7),  # measured TCP
        ("twist", np.float64, 6),  # measured TCP speed
        ("target_pose", np.float64, 7),  # what the stream last asked of the controller
        ("controller_time_s", np.float64),
        ("safety_bits", np.uint32),
        ("robot_mode", np.int32),
        ("runtime_state", np.uint32),
        ("speed_scaling", np.float64),
        ("cycles", np.uint64),
        ("late_cycles", np.uint64),  # cycles that began more than half a period late
        ("refused_targets", np.uint64),  # non-finite, too far, too old
        ("detail", "S240"),  # one line of text for a fault
    ]
)

PERCEPTION_STATUS = np.dtype(
    [
        ("images", np.uint64),  # received
        ("used", np.uint64),  # encoded into a condition
        ("rejected", np.uint64),
        ("frozen", np.uint64),  # repeated content with new stamps
        ("image_rate_hz", np.float64),
        ("image_age_ms", np.float64),  # newest image, by its stamp
        ("encode_p50_ms", np.float64),
        ("encode_p99_ms", np.float64),
        ("ready", np.uint8),
        ("fatal", np.uint8),  # a fault the user must mend: `detail` says which
        ("detail", "S400"),  # newest rejection or fault, one line
    ]
)


def condition_dtype(size: int) -> np.dtype[np.void]:
    """Layout of a condition of ``size`` float32 values, with the observation it was made from."""
    return np.dtype(
        [
            ("condition", np.float32, size),
            ("observed_pose", np.float64, 7),  # TCP when the image was taken
            ("observed_ns", np.int64),  # when the image was taken
            ("received_ns", np.int64),  # when its message arrived
            ("encoded_ns", np.int64),  # when the condition was ready
        ]
    )
