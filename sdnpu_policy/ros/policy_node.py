"""The lifecycle node `sdnpu_policy`: parameters, services, topics and transitions around the control thread.

configure: check parameters, load and prove the network, start perception. activate: connect the robot, check the
golden vectors, start the tick. deactivate: brake, release the arm. The tick has a thread of its own; this thread only
moves messages.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path as PathMessage
from rclpy.clock import Clock as RclClock
from rclpy.clock_type import ClockType
from rclpy.executors import ExternalShutdownException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import SetBool, Trigger

from sdnpu_policy.control.loop import RobotView
from sdnpu_policy.control.watchdog import Ladder, State
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.process import install_stop_handlers
from sdnpu_policy.ros import diagnostics
from sdnpu_policy.ros.health import parts
from sdnpu_policy.ros.messages import Frame, fill_pose, path_message, pose_of
from sdnpu_policy.ros.parameters import PARAMETERS, declare_parameters, read_parameters
from sdnpu_policy.ros.qos import LATCHED, RELIABLE_LATEST
from sdnpu_policy.ros.runtime import Runtime

NODE_NAME = "sdnpu_policy"


class PolicyNode(LifecycleNode):  # type: ignore[misc]  # rclpy has no type information
    """See the module's docstring. Everything here runs on the main thread, but for ``publish_target``."""

    def __init__(self) -> None:
        super().__init__(NODE_NAME)
        self.runtime: Runtime | None = None
        self.active = False
        declare_parameters(self, lambda: self.runtime is not None)
        self.add_post_set_parameters_callback(self._apply_live_parameters)
        self._steady = RclClock(clock_type=ClockType.STEADY_TIME)
        self._target = self.create_publisher(PoseStamped, "~/target_pose", RELIABLE_LATEST)
        self._path = self.create_publisher(PathMessage, "~/plan", RELIABLE_LATEST)
        self._state = self.create_publisher(DiagnosticStatus, "~/state", LATCHED)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self.create_service(Trigger, "~/stop", self._on_stop)
        self.create_service(SetBool, "~/pause", self._on_pause)
        self.create_subscription(PoseStamped, "~/robot_pose", self._on_robot_pose, RELIABLE_LATEST)
        # One timer for both: each wake-up of rclpy's executor costs about a millisecond.
        self.create_timer(0.05, self._tell_state, clock=self._steady)
        self._told = 0
        self.create_timer(1.0, self._publish_diagnostics, clock=self._steady)
        self._frame = Frame("base")
        self._target_message = PoseStamped()
        self._refused_poses = 0
        self._last_error = ""

    def _LifecycleNodeMixin__on_change_state(self, request: Any, response: Any) -> Any:
        """Refuse a transition that the present state does not have. In Jazzy it escapes as an exception instead, which
        ends the node and leaves the caller without an answer."""
        try:
            return super()._LifecycleNodeMixin__on_change_state(request, response)
        except rclpy._rclpy_pybind11.RCLError as error:
            self.get_logger().warning(f"transition refused: {str(error).splitlines()[0]}")
            response.success = False
            return response

    # Transitions. rclpy swallows exceptions in them without a word, so each is caught, logged and refused here.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("configure", self._configure)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        result = self._transition("activate", self._activate)
        return super().on_activate(state) if result == TransitionCallbackReturn.SUCCESS else result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._transition("deactivate", self._deactivate)
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("clean up", self.close)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("shut down", self.close)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("recover from an error", self.close)

    def _transition(self, name: str, work: Any) -> TransitionCallbackReturn:
        try:
            work()
        except SdnpuError as error:
            self._last_error = str(error)
            self.get_logger().error(f"cannot {name}: {error}")
            return TransitionCallbackReturn.FAILURE
        except Exception as error:
            self._last_error = f"{type(error).__name__}: {error}"
            self.get_logger().error(f"cannot {name}: {self._last_error} (this is a bug)")
            return TransitionCallbackReturn.FAILURE
        self._last_error = ""
        return TransitionCallbackReturn.SUCCESS

    def _configure(self) -> None:
        values = read_parameters(self)
        self._frame = Frame(values["frame_id"], values["tf_prefix"])
        use_sim_time = bool(self.get_parameter("use_sim_time").value)
        topics = [self.resolve_topic_name(topic) for topic in values["image_topics"]]
        ros_arguments = _perception_arguments(self.get_name(), use_sim_time)
        self.runtime = Runtime.configure(values, topics, ros_arguments, self._say)
        self.get_logger().info(self.runtime.describe())

    def _activate(self) -> None:
        assert self.runtime is not None
        self.runtime.activate(self.publish_target)
        self.active = True

    def _deactivate(self) -> None:
        self.active = False
        if self.runtime is not None:
            self.runtime.deactivate()

    def close(self) -> None:
        """Stop the arm and the processes, from whatever state."""
        try:
            self._deactivate()
        finally:
            runtime, self.runtime = self.runtime, None
            if runtime is not None:
                runtime.close()

    # Topics

    def publish_target(self, pose: Any) -> None:
        """Publish one target; called by the control thread each tick."""
        stamp = self.get_clock().now().to_msg()
        self._target.publish(fill_pose(self._target_message, pose, self._frame, stamp))

    def _on_robot_pose(self, message: PoseStamped) -> None:
        runtime = self.runtime
        if runtime is None or runtime.values["output"] == "rtde":
            return
        try:
            pose = pose_of(message, self._frame)
        except SdnpuError as error:
            self._refused_poses += 1
            self.get_logger().warning(str(error), throttle_duration_sec=5.0)
            return
        runtime.external_robot = RobotView(pose=pose, stamp_ns=time.monotonic_ns(), servo_on=False)

    def _tell_state(self) -> None:
        """Log each change of the ladder once, with its numbers; publish the state on a change and at 10 Hz."""
        self._told += 1
        runtime = self.runtime
        changes = []
        if runtime is not None and self.active:
            runtime.watch_children()
            changes = runtime.new_changes()
        for ladder in changes:
            self._log_change(ladder)
        if changes or self._told % 2 == 0:
            self._publish_state()

    def _log_change(self, ladder: Ladder) -> None:
        log = self.get_logger()
        if ladder.state == State.STOPPED:
            log.error(ladder.describe())
        elif {ladder.state, ladder.previous} == {State.NOMINAL, State.COAST}:
            log.debug(ladder.describe())  # a late step: counted, and many times a second on a slow device
        else:
            log.info(ladder.describe())

    def _publish_state(self) -> None:
        runtime = self.runtime
        if runtime is None or not self.active:
            message = self._last_error or ("configured, not active" if runtime else "not configured")
            level = DiagnosticStatus.ERROR if self._last_error else DiagnosticStatus.STALE
            self._state.publish(diagnostics.status(self.get_name(), level, message, {"state": "INACTIVE"}))
            return
        ladder = runtime.loop.ladder
        self._state.publish(
            diagnostics.status(
                self.get_name(), diagnostics.LEVELS[ladder.state], runtime.state_text(), runtime.state_values()
            )
        )
        waypoints = runtime.loop.plan.waypoints()
        if waypoints is not None and self._path.get_subscription_count():
            stamp = self.get_clock().now().to_msg()
            self._path.publish(path_message(waypoints[1], self._frame, stamp))

    def _publish_diagnostics(self) -> None:
        runtime = self.runtime
        name = self.get_name()
        if runtime is None:
            level = DiagnosticStatus.ERROR if self._last_error else DiagnosticStatus.STALE
            statuses = [diagnostics.status(f"{name}: node", level, self._last_error or "not configured", {})]
        else:
            statuses = [
                diagnostics.status(f"{name}: {part}", level, message, values)
                for part, level, message, values in parts(runtime, self.active)
            ]
            if self._refused_poses:
                text = f"{self._refused_poses} poses on ~/robot_pose were refused"
                statuses.append(diagnostics.status(f"{name}: robot pose", DiagnosticStatus.WARN, text, {}))
        self._diagnostics.publish(diagnostics.array(self.get_clock().now().to_msg(), statuses))

    # Services

    def _on_reset(self, _request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, lambda runtime: runtime.reset())

    def _on_stop(self, _request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, lambda runtime: runtime.stop("~/stop was called"))

    def _on_pause(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        return self._answer(response, lambda runtime: runtime.pause(bool(request.data)))

    def _answer(self, response: Any, work: Any) -> Any:
        runtime = self.runtime
        if runtime is None or not self.active:
            response.success, response.message = False, "the node is not active"
            return response
        try:
            response.message = str(work(runtime))
            response.success = True
        except SdnpuError as error:
            response.success, response.message = False, str(error)
            self.get_logger().error(str(error))
        return response

    def _apply_live_parameters(self, parameters: list[Any]) -> None:
        if self.runtime is None:
            return
        for parameter in parameters:
            if parameter.name in PARAMETERS and PARAMETERS[parameter.name].live:
                self.runtime.set_live(parameter.name, parameter.value)

    def _say(self, line: str) -> None:
        self.get_logger().warning(line)


def _perception_arguments(node_name: str, use_sim_time: bool) -> list[str]:
    """This process's ROS arguments for its perception process: same remappings and parameter files, its own name."""
    given = sys.argv[1:]
    if "--ros-args" not in given:
        given = ["--ros-args"]
    start = given.index("--ros-args")
    kept = [given[start]]
    rest = iter(given[start + 1 :])
    for argument in rest:
        if argument in ("-r", "--remap"):
            rule = next(rest, "")
            if not rule.startswith(("__node:=", "__name:=")):
                kept += [argument, rule]
        elif argument != "--":
            kept.append(argument)
    return [*kept, "-r", f"__node:={node_name}_perception", "-p", f"use_sim_time:={str(use_sim_time).lower()}"]


def main() -> int:
    """Run the node until SIGINT or SIGTERM: then the arm is stopped, a last target published, exit status 0."""
    # rclpy's own handlers would tear the context down before the last target is out.
    try:
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:  # a parameter file that is not there or not YAML, an argument that is none
        print(f"sdnpu_policy: error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    stop = install_stop_handlers()
    try:
        node = PolicyNode()
    except SdnpuError as error:
        print(f"sdnpu_policy: error: {error}", file=sys.stderr)
        rclpy.try_shutdown()
        return 2
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    sys.setswitchinterval(0.0002)  # a busy callback gives way to the control thread within 0.2 ms
    try:
        while not stop.is_set():
            try:
                executor.spin_once(timeout_sec=0.05)
            except ExternalShutdownException:
                break
            except rclpy._rclpy_pybind11.RCLError as error:
                # an invalid transition escapes from the lifecycle service in Jazzy; refuse it and live
                node.get_logger().warning(f"refused: {str(error).splitlines()[0]}")
    finally:
        node.get_logger().info(f"stopping ({stop.reason or 'shut down'})")
        node.close()
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
