"""Start a whole cell: the policy node and, with use_mock_hardware, a simulated UR5e controller and camera.

ros2 launch sdnpu_policy cell.launch.py use_mock_hardware:=true
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from sdnpu_policy.share import share_path
from sdnpu_policy.tools.cell_processes import mock_hardware

PASSED_ON = (
    "namespace",
    "use_sim_time",
    "params_file",
    "autostart",
    "log_level",
    "tf_prefix",
    "policy",
    "output",
)


def start(context):
    def argument(name):
        return LaunchConfiguration(name).perform(context)

    mock = argument("use_mock_hardware").lower() in ("true", "1")
    robot_ip = argument("robot_ip") or ("127.0.0.1" if mock else "")
    policy = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(Path(share_path("launch")) / "policy.launch.py")),
        launch_arguments=[("robot_ip", robot_ip), *((name, argument(name)) for name in PASSED_ON)],
    )
    if not mock:
        return [policy]
    controller, camera = mock_hardware(
        robot_ip=robot_ip,
        namespace=argument("namespace"),
        use_sim_time=argument("use_sim_time").lower() in ("true", "1"),
    )
    return [
        Node(
            package="sdnpu_policy",
            executable=controller.executable,
            arguments=list(controller.arguments),
            output="screen",
        ),
        Node(
            package="sdnpu_policy",
            executable=camera.executable,
            name=camera.ros_name,
            namespace=camera.namespace,
            parameters=[camera.parameters],
            remappings=list(camera.remappings),
            output="screen",
        ),
        policy,
    ]


def generate_launch_description():
    arguments = {
        "use_mock_hardware": ("false", "start the simulated UR5e controller and camera too"),
        "robot_ip": ("", "address of the UR controller; with use_mock_hardware a loopback address"),
        "namespace": ("", "namespace of the nodes"),
        "use_sim_time": ("false", "take ROS time from /clock"),
        "params_file": ("", "a parameter file of your own"),
        "autostart": ("true", "configure and activate the policy node at once"),
        "log_level": ("info", "debug, info, warn or error"),
        "tf_prefix": ("", "prefix of the robot's frames"),
        "policy": ("", "policy bundle"),
        "output": ("", "rtde or pose_topic"),
    }
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in arguments.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
