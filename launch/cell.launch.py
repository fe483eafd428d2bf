"""Start a whole cell: the policy node and, with use_mock_hardware, a simulated UR5e controller and camera.

ros2 launch sdnpu_policy cell.launch.py use_mock_hardware:=true

Beside its own arguments it takes all those of policy.launch.py.
"""

import os
from pathlib import Path

from launch import LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    OpaqueFunction,
    SetEnvironmentVariable,
    SetLaunchConfiguration,
)
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.substitutions import ExecutableInPackage

from sdnpu_policy.share import share_path
from sdnpu_policy.tools.cell_processes import mock_hardware

ARGUMENTS = {
    "use_mock_hardware": ("false", "start the simulated UR5e controller and camera too"),
    "robot_ip": (
        "",
        "address of the UR controller; empty: as in the parameter files, with use_mock_hardware 127.0.0.1",
    ),
}
CHOICES = {"use_mock_hardware": ("true", "false", "True", "False")}
DDS_PROFILES = "FASTRTPS_DEFAULT_PROFILES_FILE"


def is_mock(context):
    return LaunchConfiguration("use_mock_hardware").perform(context).lower() == "true"


def prepare(context):
    if not is_mock(context):
        return []
    actions = []
    if not LaunchConfiguration("robot_ip").perform(context):
        actions.append(SetLaunchConfiguration("robot_ip", "127.0.0.1"))
    if not os.environ.get(DDS_PROFILES):
        # Fast DDS's own shared-memory segment is smaller than an image
        actions.append(SetEnvironmentVariable(DDS_PROFILES, str(share_path("config/fastdds_shm.xml"))))
    return actions


def start_mock_hardware(context):
    def argument(name):
        return LaunchConfiguration(name).perform(context)

    if not is_mock(context):
        return []
    controller, camera = mock_hardware(
        robot_ip=argument("robot_ip"),
        namespace=argument("namespace"),
        use_sim_time=argument("use_sim_time").lower() == "true",
        log_level=argument("log_level"),
    )
    return [
        # no Node: it speaks no ROS and knows no --ros-args
        ExecuteProcess(
            cmd=[
                ExecutableInPackage(package="sdnpu_policy", executable=controller.executable),
                *controller.arguments,
            ],
            output="screen",
        ),
        Node(
            package="sdnpu_policy",
            executable=camera.executable,
            name=camera.ros_name,
            namespace=camera.namespace,
            parameters=[camera.parameters],
            remappings=list(camera.remappings),
            ros_arguments=["--log-level", camera.log_level],
            output="screen",
        ),
    ]


def generate_launch_description():
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text, choices=CHOICES.get(name))
        for name, (default, text) in ARGUMENTS.items()
    ]
    # the included file sees all launch arguments, and declares those that are not its own here
    policy = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(Path(__file__).with_name("policy.launch.py")))
    )
    return LaunchDescription(
        [*declared, OpaqueFunction(function=prepare), policy, OpaqueFunction(function=start_mock_hardware)]
    )
