"""The processes of a cell, described once: launch files and ``sdnpu demo`` both start what this says.

Same executables, same parameter files, same remappings, whether ros2 launch starts them or our own command does.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.share import share_path

POLICY_NODE = "sdnpu_policy"
CAMERA_NODE = "cell_camera"
CAMERA_TOPICS = ("image_raw", "image_raw/compressed", "camera_info")


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process: the package's executable, and what ROS parameters and plain arguments it is given."""

    executable: str
    module: str
    ros_name: str | None = None
    """Node name; None for a process without ROS."""
    arguments: tuple[str, ...] = ()
    parameter_files: tuple[Path, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    remappings: tuple[tuple[str, str], ...] = ()
    namespace: str = ""
    log_level: str = ""

    def command(self) -> list[str]:
        """The command line that starts it without ros2 launch."""
        command = [sys.executable, "-m", self.module, *self.arguments]
        if self.ros_name is None:
            return command
        command += ["--ros-args", "-r", f"__node:={self.ros_name}"]
        if self.namespace:
            command += ["-r", f"__ns:=/{self.namespace.strip('/')}"]
        for path in self.parameter_files:
            command += ["--params-file", str(path)]
        for name, value in self.parameters.items():
            # JSON is YAML: a string is quoted, so that one that looks like a number stays a string
            command += ["-p", f"{name}:={json.dumps(value, ensure_ascii=False)}"]
        for source, target in self.remappings:
            command += ["-r", f"{source}:={target}"]
        if self.log_level:
            command += ["--log-level", self.log_level]
        return command


def parameter_files(extra: str = "") -> tuple[Path, ...]:
    """The shipped parameter files, then the user's own, whose values win."""
    if extra and not Path(extra).is_file():
        raise SdnpuError(f"params_file '{extra}' is not a file")  # launch_ros would go on without it
    files = (share_path("config/policy.yaml"), share_path("config/ur5e.yaml"))
    return (*files, Path(extra)) if extra else files


def policy_process(
    *,
    namespace: str = "",
    params_file: str = "",
    log_level: str = "",
    parameters: dict[str, Any] | None = None,
) -> ProcessSpec:
    """The policy node (it starts its perception and arm processes by itself)."""
    return ProcessSpec(
        executable="policy_node",
        module="sdnpu_policy.ros.policy_node",
        ros_name=POLICY_NODE,
        parameter_files=parameter_files(params_file),
        parameters=dict(parameters or {}),
        namespace=namespace,
        log_level=log_level,
    )


def mock_hardware(
    *,
    robot_ip: str,
    namespace: str = "",
    use_sim_time: bool = False,
    log_level: str = "",
    seed: int = 0,
    rate_hz: float = 30.0,
) -> tuple[ProcessSpec, ProcessSpec]:
    """The simulated UR5e controller and the simulated camera that sees its arm."""
    controller = ProcessSpec(
        executable="ur_controller", module="sdnpu_policy.sim.ur_controller", arguments=("--address", robot_ip)
    )
    camera = ProcessSpec(
        executable="cell_node",
        module="sdnpu_policy.sim.cell_node",
        ros_name=CAMERA_NODE,
        parameters={"robot_ip": robot_ip, "seed": seed, "rate_hz": rate_hz, "use_sim_time": use_sim_time},
        remappings=tuple((topic, f"camera/{topic}") for topic in CAMERA_TOPICS),
        namespace=namespace,
        log_level=log_level,
    )
    return controller, camera
