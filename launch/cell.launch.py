"""Start a whole cell: the policy node and, with use_mock_hardware, a simulated UR5e controller and camera.

ros2 launch sdnpu_policy cell.launch.py use_mock_hardware:=true

Beside its own arguments it takes all those of policy.launch.py.
"""

import os
import signal
from pathlib import Path

from launch import LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    IncludeLaunchDescription,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
    SetLaunchConfiguration,
)
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown, matches_action
from launch.events.process import SignalProcess
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode, Node
from launch_ros.substitutions import ExecutableInPackage

from sdnpu_policy.share import share_path
from sdnpu_policy.tools.cell_processes import POLICY_NODE, mock_hardware

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
    # No Node: it speaks no ROS and knows no --ros-args. In a session of its own (setsid) it does not hear Ctrl-C,
    # as a robot would not: the policy node releases the arm first, and then it is told.
    process = ExecuteProcess(
        cmd=[
            "setsid",
            ExecutableInPackage(package="sdnpu_policy", executable=controller.executable),
            *controller.arguments,
        ],
        name=controller.executable,
        output="screen",
        sigterm_timeout="20",
    )

    def end(_event, context):
        told = [
            EmitEvent(event=SignalProcess(signal_number=signal.SIGINT, process_matcher=matches_action(process)))
        ]
        if not context.is_shutdown:
            told.append(EmitEvent(event=Shutdown(reason="the policy node has ended")))
        return told

    camera_node = Node(
        package="sdnpu_policy",
        executable=camera.executable,
        name=camera.ros_name,
        namespace=camera.namespace,
        parameters=[camera.parameters],
        remappings=list(camera.remappings),
        ros_arguments=["--log-level", camera.log_level],
        output="screen",
    )
    end_with_policy_node = RegisterEventHandler(OnProcessExit(target_action=is_policy_node, on_exit=end))
    return [end_with_policy_node, process, camera_node]


def is_policy_node(action):
    return isinstance(action, LifecycleNode) and action.node_name.rpartition("/")[2] == POLICY_NODE


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
