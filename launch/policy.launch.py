"""Start the policy node on a robot cell: ros2 launch sdnpu_policy policy.launch.py robot_ip:=192.168.1.20

The node starts its perception process and its arm process by itself. With autostart it is configured and
activated; the arm moves from then on. The robot's own safety configuration is what protects people, not this node.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from lifecycle_msgs.msg import Transition

from sdnpu_policy.tools.cell_processes import policy_process

ARGUMENTS = {
    "namespace": ("", "namespace of the node, its topics and services"),
    "use_sim_time": ("false", "take ROS time from /clock; watchdogs stay on the steady clock"),
    "params_file": ("", "a parameter file of your own; its values win over the shipped ones"),
    "autostart": ("true", "configure and activate the node at once"),
    "log_level": ("info", "of the node and its perception process"),
    "robot_ip": ("", "address of the UR controller; empty: as in the parameter files"),
    "tf_prefix": ("", "prefix of the robot's frames, as in ur_robot_driver"),
    "policy": ("", "policy bundle; empty: as in the parameter files"),
    "output": ("", "rtde or pose_topic; empty: as in the parameter files"),
}
BOOLEAN = ("true", "false", "True", "False")
CHOICES = {
    "use_sim_time": BOOLEAN,
    "autostart": BOOLEAN,
    "log_level": ("debug", "info", "warn", "error", "fatal"),
}


def start(context):
    def argument(name):
        return LaunchConfiguration(name).perform(context)

    parameters = {"use_sim_time": argument("use_sim_time").lower() == "true"}
    parameters |= {
        name: argument(name) for name in ("robot_ip", "tf_prefix", "policy", "output") if argument(name)
    }
    spec = policy_process(
        namespace=argument("namespace"),
        params_file=argument("params_file"),
        log_level=argument("log_level"),
        parameters=parameters,
    )
    node = LifecycleNode(
        package="sdnpu_policy",
        executable=spec.executable,
        name=spec.ros_name,
        namespace=spec.namespace,
        parameters=[*(str(path) for path in spec.parameter_files), spec.parameters],
        remappings=list(spec.remappings),
        ros_arguments=["--log-level", spec.log_level],
        output="screen",
        sigterm_timeout="10",  # it stops the arm first
        sigkill_timeout="10",
    )
    if argument("autostart").lower() != "true":
        return [node]

    def change(transition):
        return EmitEvent(event=ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition))

    activate_when_configured = RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=node,
            start_state="configuring",
            goal_state="inactive",
            entities=[change(Transition.TRANSITION_ACTIVATE)],
            handle_once=True,  # a later clean-up and configure by hand is no order to move
        )
    )
    return [node, activate_when_configured, change(Transition.TRANSITION_CONFIGURE)]


def generate_launch_description():
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text, choices=CHOICES.get(name))
        for name, (default, text) in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
