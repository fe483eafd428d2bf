"""The policy node's parameters: one table with text, unit, range; declared, checked and read from it.

A value outside its range is refused with the parameter's name, the value and the range, both at start (a wrong
parameter file) and at run time (`ros2 param set`). Parameters marked ``live`` take effect at once; the others are
read when the node is configured and are refused from then on, so that no change is silently without effect.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter as RclParameter

from sdnpu_policy.errors import SdnpuError

Value = bool | int | float | str | list[float] | list[str]


@dataclass(frozen=True, slots=True)
class Spec:
    """One parameter: its default, what it means, and what it may be."""

    default: Value
    text: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    length: int | None = None
    live: bool = False


PARAMETERS: dict[str, Spec] = {
    # the policy and its network
    "policy": Spec("reference", "policy bundle: a directory, or 'reference' for the one that is shipped"),
    "provider": Spec("cpu", "where the U-Net runs", choices=("cpu", "qnn", "openvino")),
    "provider_options": Spec([""], "options of the provider as NAME=VALUE, checked by name and value"),
    "encoder_provider": Spec("cpu", "where the image encoder runs", choices=("cpu", "qnn", "openvino")),
    "encoder_provider_options": Spec([""], "options of the encoder's provider as NAME=VALUE"),
    "warm_up_steps": Spec(20, "denoiser runs before the node is active, not counted in any figure", 1, 10000),
    "denoising_steps": Spec(0, "denoising steps of a chunk; 0: as the bundle says", 0, 1000),
    "warm_start_steps": Spec(
        0, "last steps to run when starting from the running plan; 0: always from noise", 0, 1000
    ),
    "seed": Spec(0, "seed of the denoising noise", 0, 2**31 - 1),
    # the tick
    "tick_ms": Spec(4.0, "control period", 1.0, 100.0),
    "step_deadline_ms": Spec(3.0, "from the start of a tick to a usable target", 0.5, 100.0),
    "steps_per_tick": Spec(0, "denoising steps a tick; 0: as many as surely fit the deadline", 0, 100, live=True),
    "on_late": Spec(
        "coast",
        "a late step: go on along the plan, brake and hold, or wait for it (block: for comparison only)",
        choices=("coast", "hold", "block"),
        live=True,
    ),
    "late_probability": Spec(0.0, "for tests: a step is made late with this probability", 0.0, 1.0),
    "late_ms": Spec(0.0, "for tests: by this much", 0.0, 60000.0),
    "tick_log": Spec("", "write a log of every tick to this .npz file when the node is deactivated; empty: none"),
    "realtime_priority": Spec(
        40,
        "SCHED_FIFO priority of the tick, where the system allows it; the step runs 10 below; 0: off",
        0,
        99,
    ),
    "pin_to_last_cpu": Spec(True, "with real-time priority: tick and step run on the machine's last CPU alone"),
    "arm_realtime_priority": Spec(
        0, "SCHED_FIFO priority of the arm process, ur_rtde's threads included; 0: off", 0, 99
    ),
    # the plan and the ladder
    "plan_lead_ms": Spec(
        40.0, "the plan is sampled this far ahead, to make up for the servo's lag", 0.0, 500.0, live=True
    ),
    "plan_blend_ms": Spec(100.0, "a new chunk is blended into the plan over this time", 0.0, 2000.0),
    "plan_max_age_ms": Spec(400.0, "no motion along a plan whose image is older", 10.0, 10000.0),
    "condition_max_age_ms": Spec(250.0, "a condition whose image is older counts as stale", 10.0, 10000.0),
    "robot_max_age_ms": Spec(100.0, "a robot state older than this counts as lost", 10.0, 10000.0),
    "max_late_in_a_row": Spec(40, "more ticks in a row without the step's result end the coasting", 1, 100000),
    "max_bad_outputs": Spec(3, "non-finite network outputs in a row that stop the node", 1, 1000),
    "max_hold_s": Spec(30.0, "held longer than this, the node stops and needs ~/reset", 0.1, 86400.0),
    "brake_deceleration_m_s2": Spec(1.5, "deceleration along the path when braking", 0.1, 10.0),
    # the envelope: bounds on every target
    "workspace_min_m": Spec([0.30, -0.40, 0.015], "lower corner of the workspace box, frame 'base'", length=3),
    "workspace_max_m": Spec([0.75, 0.40, 0.50], "upper corner of the workspace box, frame 'base'", length=3),
    "max_reach_m": Spec(0.85, "largest distance of the TCP from the robot's base", 0.1, 3.0),
    "max_speed_m_s": Spec(0.25, "largest speed of a target", 0.001, 3.0),
    "max_acceleration_m_s2": Spec(2.5, "largest acceleration of a target", 0.01, 50.0),
    "max_angular_speed_rad_s": Spec(1.5, "largest angular speed of a target", 0.001, 10.0),
    "max_angular_acceleration_rad_s2": Spec(15.0, "largest angular acceleration of a target", 0.01, 500.0),
    "max_step_m": Spec(0.10, "a target further than this from the last one is refused", 0.001, 1.0),
    # cameras
    "image_topics": Spec(["camera/image_raw"], "image topic of each camera of the policy, in the bundle's order"),
    "image_transport": Spec(
        "raw",
        "sensor_msgs/Image, or sensor_msgs/CompressedImage on TOPIC/compressed",
        choices=("raw", "compressed"),
    ),
    "image_max_age_ms": Spec(200.0, "an image whose stamp is older is refused", 1.0, 10000.0),
    "image_max_future_ms": Spec(50.0, "an image whose stamp is further in the future is refused", 0.0, 10000.0),
    "image_frozen_after": Spec(
        5, "repeats of one picture with new stamps after which the camera counts as stuck; 0: never", 0, 1000
    ),
    "image_max_pixels": Spec(4_000_000, "a compressed image that declares more pixels is refused", 1, 100_000_000),
    # the robot
    "output": Spec(
        "rtde", "where targets go: the robot by ur_rtde, or ~/target_pose alone", choices=("rtde", "pose_topic")
    ),
    "robot_ip": Spec("192.168.56.101", "address of the UR controller"),
    "frame_id": Spec("base", "frame of ~/target_pose and ~/robot_pose", choices=("base", "base_link")),
    "tf_prefix": Spec("", "put before frame_id, as in ur_robot_driver"),
    "servo_lookahead_s": Spec(0.06, "servoL's lookahead time", 0.03, 0.2),
    "servo_gain": Spec(400.0, "servoL's gain", 100.0, 2000.0),
    "arm_max_speed_m_s": Spec(0.30, "the 500 Hz stream's own limit", 0.001, 3.0),
    "arm_max_acceleration_m_s2": Spec(4.0, "the 500 Hz stream's own limit", 0.01, 50.0),
    "arm_max_jerk_m_s3": Spec(200.0, "the 500 Hz stream's own limit", 1.0, 10000.0),
    "arm_max_angular_speed_rad_s": Spec(1.8, "the 500 Hz stream's own limit", 0.001, 10.0),
    "arm_max_angular_acceleration_rad_s2": Spec(60.0, "the 500 Hz stream's own limit", 0.01, 500.0),
    "arm_max_angular_jerk_rad_s3": Spec(6000.0, "the 500 Hz stream's own limit", 1.0, 50000.0),
    "arm_target_timeout_ms": Spec(40.0, "the arm process brakes when no target came for this long", 8.0, 1000.0),
    "robot_watchdog_hz": Spec(5.0, "the robot stops by itself when writes come less often", 2.0, 100.0),
    "connect_timeout_s": Spec(10.0, "time to connect to the robot", 1.0, 60.0),
}

FOREIGN = ("use_sim_time", "start_type_description_service", "qos_overrides.")
"""Parameters that every ROS node has, and those of the perception process."""


def problem_with(name: str, value: object) -> str | None:
    """Why ``value`` can't be parameter ``name``'s, as one line; None when it can."""
    spec = PARAMETERS[name]
    if isinstance(spec.default, list):
        if not isinstance(value, Sequence) or isinstance(value, str):
            return f"parameter '{name}' is {value!r}: a list is needed"
        if spec.length is not None and len(value) != spec.length:
            return f"parameter '{name}' has {len(value)} values: {spec.length} are needed"
        if spec.length is not None and not all(math.isfinite(v) for v in value):
            return f"parameter '{name}' is {list(value)!r}: finite numbers are needed"
        return None
    if spec.choices and value not in spec.choices:
        return f"parameter '{name}' is {value!r}: one of {', '.join(spec.choices)} is needed"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = spec.low, spec.high
        if low is not None and high is not None and not (low <= value <= high):  # also refuses NaN
            return f"parameter '{name}' is {value!r}: a value from {low:g} to {high:g} is needed"
    return None


def conflict_in(values: Mapping[str, Any]) -> str | None:
    """A contradiction between parameters, as one line naming both with their values; None when there is none."""
    for smaller, larger in (
        ("step_deadline_ms", "tick_ms"),
        ("max_speed_m_s", "arm_max_speed_m_s"),
        ("max_acceleration_m_s2", "arm_max_acceleration_m_s2"),
        ("max_angular_speed_rad_s", "arm_max_angular_speed_rad_s"),
        ("max_angular_acceleration_rad_s2", "arm_max_angular_acceleration_rad_s2"),
        ("brake_deceleration_m_s2", "max_acceleration_m_s2"),
        ("condition_max_age_ms", "plan_max_age_ms"),
    ):
        if values[smaller] > values[larger]:
            return (
                f"parameter '{smaller}' ({values[smaller]:g}) is larger than '{larger}' ({values[larger]:g}): "
                "it must be at most as large"
            )
    if 2 * values["tick_ms"] > values["arm_target_timeout_ms"]:
        return (
            f"parameter 'arm_target_timeout_ms' ({values['arm_target_timeout_ms']:g}) is less than two ticks of "
            f"'tick_ms' ({values['tick_ms']:g}): the arm would brake between targets"
        )
    for axis, low, high in zip("xyz", values["workspace_min_m"], values["workspace_max_m"], strict=True):
        if low >= high:
            return (
                f"parameters 'workspace_min_m' and 'workspace_max_m' leave no room in {axis}: {low:g} to {high:g}"
            )
    return None


def declare_parameters(node: Node, configured: Callable[[], bool]) -> None:
    """Declare the table on ``node`` and refuse wrong values from then on.

    Args:
        configured: tells whether the node is configured, when only live parameters may change.

    Raises:
        SdnpuError: a value of the parameter file or the command line has the wrong type or range.
    """
    for name, spec in PARAMETERS.items():
        try:
            node.declare_parameter(name, spec.default, _descriptor(spec))
        except Exception as error:  # rclpy has one exception type a reason, all say which parameter
            # without its override the parameter can be named in our own words
            override = node._parameter_overrides.get(name)
            found = override.value if override is not None else "?"
            raise SdnpuError(problem_with(name, found) or f"parameter '{name}' is {found!r}: {error}") from None
        problem = problem_with(name, node.get_parameter(name).value)
        if problem:
            raise SdnpuError(problem)

    for name in node._parameter_overrides:
        if name not in PARAMETERS and not name.startswith(FOREIGN):
            near = difflib.get_close_matches(name, PARAMETERS, 1)
            hint = f"; is '{near[0]}' meant?" if near else ""
            raise SdnpuError(f"there is no parameter '{name}'{hint}")

    def check(changes: list[RclParameter]) -> SetParametersResult:
        for change in changes:
            if change.name not in PARAMETERS:
                continue
            if configured() and not PARAMETERS[change.name].live:
                return SetParametersResult(
                    successful=False,
                    reason=f"parameter '{change.name}' is read when the node is configured: clean it up first",
                )
            problem = problem_with(change.name, change.value)
            if problem:
                return SetParametersResult(successful=False, reason=problem)
        return SetParametersResult(successful=True)

    node.add_on_set_parameters_callback(check)


def read_parameters(node: Node) -> dict[str, Any]:
    """All values by name, checked against each other.

    Raises:
        SdnpuError: two parameters contradict each other.
    """
    values = {name: node.get_parameter(name).value for name in PARAMETERS}
    values = {name: list(v) if isinstance(PARAMETERS[name].default, list) else v for name, v in values.items()}
    conflict = conflict_in(values)
    if conflict:
        raise SdnpuError(conflict)
    return values


def parse_options(name: str, items: Sequence[str]) -> dict[str, str]:
    """Provider options from their NAME=VALUE strings; empty strings are skipped (ROS can't declare an empty list).

    Raises:
        SdnpuError: an item without '='.
    """
    options: dict[str, str] = {}
    for item in items:
        if not item:
            continue
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise SdnpuError(f"parameter '{name}' has {item!r}: NAME=VALUE is needed")
        options[key.strip()] = value.strip()
    return options


def _descriptor(spec: Spec) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(description=spec.text)
    if spec.choices:
        descriptor.additional_constraints = "one of " + ", ".join(spec.choices)
    if spec.low is not None and spec.high is not None:
        if isinstance(spec.default, float):
            descriptor.floating_point_range = [
                FloatingPointRange(from_value=float(spec.low), to_value=float(spec.high))
            ]
        else:
            descriptor.integer_range = [IntegerRange(from_value=int(spec.low), to_value=int(spec.high), step=1)]
    return descriptor
