"""The policy node seen from outside: transitions, services, parameters and state, for commands and tests.

Everything is synchronous and bounded: a call spins this client's own node until the answer is there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import SetBool, Trigger

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.ros.qos import LATCHED

TRANSITIONS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
}


@dataclass(frozen=True, slots=True)
class StateChange:
    """The node's `~/state` at one of its changes."""

    time_ns: int
    """When it was received, steady clock."""
    state: str
    message: str


@dataclass(slots=True)
class Remote:
    """A connection to one policy node. Use as a context manager."""

    node_name: str = "sdnpu_policy"
    camera_name: str = "cell_camera"
    namespace: str = ""
    client_name: str = "sdnpu_client"
    changes: list[StateChange] = field(default_factory=list)
    status: DiagnosticStatus | None = None
    diagnostics: dict[str, DiagnosticStatus] = field(default_factory=dict)
    _node: Any = None
    _executor: Any = None

    def __enter__(self) -> Remote:
        if not rclpy.ok():
            rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node(self.client_name, namespace=self.namespace)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._node.create_subscription(DiagnosticStatus, f"{self.node_name}/state", self._on_state, LATCHED)
        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(timeout_sec=1.0)
        self._node.destroy_node()
        rclpy.try_shutdown()

    def spin(self, seconds: float) -> None:
        """Receive for so long, and what is there at least."""
        end_s = time.monotonic() + seconds
        while True:
            left_s = end_s - time.monotonic()
            self._executor.spin_once(timeout_sec=max(0.0, left_s))
            if left_s <= 0:
                return

    def transition(self, name: str, timeout_s: float = 90.0) -> None:
        """One of TRANSITIONS.

        Raises:
            SdnpuError: the node refused; the message is what it says of itself.
        """
        self.lifecycle_state()  # so that the node that answers is a living one
        request = ChangeState.Request(transition=Transition(id=TRANSITIONS[name]))
        answer = self._call(ChangeState, f"{self.node_name}/change_state", request, timeout_s)
        if not answer.success:
            self.spin(0.3)
            why = self.status.message if self.status is not None else "its log says why"
            raise SdnpuError(f"the policy node refused to {name}: {why}")

    def lifecycle_state(self, timeout_s: float = 20.0) -> str:
        """unconfigured, inactive, active, ..."""
        name = f"{self.node_name}/get_state"
        answer = self._call(GetState, name, GetState.Request(), timeout_s, ask_again_s=1.0)
        return str(answer.current_state.label)

    def trigger(self, service: str, timeout_s: float = 30.0) -> tuple[bool, str]:
        """Call `~/reset` or `~/stop`: whether it went well, and what the node said."""
        answer = self._call(Trigger, f"{self.node_name}/{service}", Trigger.Request(), timeout_s)
        return bool(answer.success), str(answer.message)

    def pause(self, paused: bool, timeout_s: float = 10.0) -> tuple[bool, str]:
        """Call `~/pause`."""
        answer = self._call(SetBool, f"{self.node_name}/pause", SetBool.Request(data=paused), timeout_s)
        return bool(answer.success), str(answer.message)

    def set_parameters(self, node: str, values: dict[str, Any], timeout_s: float = 10.0) -> None:
        """Set parameters of any node.

        Raises:
            SdnpuError: a value was refused.
        """
        request = SetParameters.Request(
            parameters=[Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]
        )
        answer = self._call(SetParameters, f"{node}/set_parameters", request, timeout_s)
        for result in answer.results:
            if not result.successful:
                raise SdnpuError(f"node {node}: {result.reason}")

    def wait_for(self, state: str, timeout_s: float) -> bool:
        """Spin until the ladder is in this state."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            if self.state == state:
                return True
            self._executor.spin_once(timeout_sec=0.05)
        return False

    @property
    def state(self) -> str:
        """The ladder's state as last published, INACTIVE, or empty before the first message."""
        if self.status is None:
            return ""
        return next((str(pair.value) for pair in self.status.values if pair.key == "state"), "")

    def _call(self, kind: Any, name: str, request: Any, timeout_s: float, ask_again_s: float | None = None) -> Any:
        """The answer of a service. A killed server is believed to be there for a while yet, and a request sent to it
        is lost: with ``ask_again_s`` it is sent again that often."""
        client = self._node.create_client(kind, name)
        try:
            end_s = time.monotonic() + timeout_s
            while not client.service_is_ready():
                if time.monotonic() > end_s:
                    raise SdnpuError(f"service {name} did not appear within {timeout_s:g} s: is the node running?")
                self._executor.spin_once(timeout_sec=0.02)
            future = client.call_async(request)
            asked_s = time.monotonic()
            while not future.done():
                if ask_again_s is not None and time.monotonic() - asked_s > ask_again_s:
                    future, asked_s = client.call_async(request), time.monotonic()
                if time.monotonic() > end_s:
                    raise SdnpuError(f"service {name} did not answer within {timeout_s:g} s")
                self._executor.spin_once(timeout_sec=0.02)
            return future.result()
        finally:
            self._node.destroy_client(client)

    def _on_state(self, message: DiagnosticStatus) -> None:
        before = self.state
        self.status = message
        if self.state != before:
            self.changes.append(StateChange(time.monotonic_ns(), self.state, str(message.message)))

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics[str(status.name)] = status
