"""The controller's registers, and the names and types of the RTDE variables this simulation knows.

Names, types and order of values are those of Universal Robots' Real-Time Data Exchange guide.
"""

from __future__ import annotations

from dataclasses import dataclass, field

REGISTERS = 48

FORMATS = {
    "DOUBLE": "d",
    "UINT32": "I",
    "UINT64": "Q",
    "INT32": "i",
    "VECTOR6D": "6d",
    "VECTOR3D": "3d",
    "VECTOR6INT32": "6i",
    "UINT8": "B",
    "BOOL": "?",
}
"""struct's letters of each RTDE type."""


def _named(type_name: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), type_name)


OUTPUT_TYPES = {
    **_named(
        "DOUBLE",
        "timestamp actual_execution_time speed_scaling target_speed_fraction actual_momentum actual_main_voltage "
        "actual_robot_voltage actual_robot_current standard_analog_input0 standard_analog_input1 "
        "standard_analog_output0 standard_analog_output1 payload",
    ),
    **_named(
        "VECTOR6D",
        "target_q target_qd target_qdd target_current target_moment actual_q actual_qd actual_current "
        "actual_current_as_torque joint_control_output actual_TCP_pose actual_TCP_speed actual_TCP_force "
        "target_TCP_pose target_TCP_speed joint_temperatures actual_joint_voltage ft_raw_wrench payload_inertia "
        "tcp_offset",
    ),
    **_named("VECTOR3D", "actual_tool_accelerometer elbow_position elbow_velocity payload_cog"),
    **_named("VECTOR6INT32", "joint_mode"),
    **_named("INT32", "robot_mode safety_mode safety_status"),
    **_named(
        "UINT32",
        "runtime_state robot_status_bits safety_status_bits output_bit_registers0_to_31 "
        "output_bit_registers32_to_63",
    ),
    **_named("UINT64", "actual_digital_input_bits actual_digital_output_bits"),
    **{f"output_bit_register_{i}": "BOOL" for i in range(64, 128)},
    **{f"output_int_register_{i}": "INT32" for i in range(REGISTERS)},
    **{f"output_double_register_{i}": "DOUBLE" for i in range(REGISTERS)},
}

INPUT_TYPES = {
    **_named("UINT32", "speed_slider_mask"),
    **_named("DOUBLE", "speed_slider_fraction standard_analog_output_0 standard_analog_output_1"),
    **_named(
        "UINT8",
        "standard_digital_output_mask standard_digital_output configurable_digital_output_mask "
        "configurable_digital_output tool_digital_output_mask tool_digital_output standard_analog_output_mask "
        "standard_analog_output_type",
    ),
    **_named("VECTOR6D", "external_force_torque"),
    **{f"input_bit_register_{i}": "BOOL" for i in range(64, 128)},
    **{f"input_int_register_{i}": "INT32" for i in range(REGISTERS)},
    **{f"input_double_register_{i}": "DOUBLE" for i in range(REGISTERS)},
}


@dataclass(slots=True)
class Registers:
    """General purpose registers: clients write the inputs, the robot's program the outputs."""

    input_ints: list[int] = field(default_factory=lambda: [0] * REGISTERS)
    input_floats: list[float] = field(default_factory=lambda: [0.0] * REGISTERS)
    output_ints: list[int] = field(default_factory=lambda: [0] * REGISTERS)
    output_floats: list[float] = field(default_factory=lambda: [0.0] * REGISTERS)
    written_ns: list[int] = field(default_factory=lambda: [0] * REGISTERS)
    """Steady time at which each integer input was last received; the program's watchdog goes by it."""


def register_number(name: str, kind: str) -> int | None:
    """The number in a register's name, 3 for ``input_int_register_3`` and kind ``input_int``; None for others."""
    prefix = f"{kind}_register_"
    return int(name[len(prefix) :]) if name.startswith(prefix) else None
