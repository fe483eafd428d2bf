"""Whether a robot is there and ready, found out with time-outs before ur_rtde is let near it.

ur_rtde's constructors wait for ever for a host that accepts connections and says nothing, or that drops what is
sent to it, and they hold the interpreter while they wait. So the three ports it will use are tried first with plain
sockets, and the dashboard is asked what a person would otherwise have to find out from the library's messages.
"""

from __future__ import annotations

import socket
import struct
import time

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.letters import ArmFault

from .verdict import Fault

RTDE_PORT, DASHBOARD_PORT, SCRIPT_PORT = 30004, 29999, 30003
"""ur_rtde's Python classes can't use others."""

_ANSWER_S = 2.0
"""A controller answers within milliseconds; more is no controller."""
_PROTOCOL_VERSION = struct.pack(">HBH", 5, ord("V"), 2)
_ACCEPTED = struct.pack(">HBB", 4, ord("V"), 1)

_SAFETY_MODES = {
    "PROTECTIVE_STOP": (ArmFault.PROTECTIVE_STOP, "look at the arm, then unlock it on the pendant"),
    "SAFEGUARD_STOP": (ArmFault.SAFEGUARD_STOP, "close the guard and reset it"),
    "SYSTEM_EMERGENCY_STOP": (ArmFault.EMERGENCY_STOP, "release the cell's emergency stop, power the robot on"),
    "ROBOT_EMERGENCY_STOP": (ArmFault.EMERGENCY_STOP, "release the emergency stop button, power the robot on"),
    "RECOVERY": (ArmFault.SAFETY_FAULT, "move the arm back into its limits by hand"),
}


class NotReadyError(SdnpuError):
    """The robot can't be used as it is. The message is the fault's text."""

    def __init__(self, code: ArmFault, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(code, text)


def probe(robot_ip: str, timeout_s: float) -> None:
    """Return when the robot is there, in remote control, powered, with its brakes released and no stop.

    Raises:
        NotReadyError: it is not, and what to do about it; within ``timeout_s``.
    """
    end_s = time.monotonic() + timeout_s
    _try_rtde(robot_ip, end_s)
    _try_dashboard(robot_ip, end_s)
    _connect(robot_ip, SCRIPT_PORT, "program", end_s).close()


def _try_rtde(robot_ip: str, end_s: float) -> None:
    """The handshake that any RTDE client begins with."""
    with _connect(robot_ip, RTDE_PORT, "RTDE", end_s) as connection:
        try:
            connection.sendall(_PROTOCOL_VERSION)
            answer = connection.recv(len(_ACCEPTED))
        except TimeoutError as error:
            raise _silent(robot_ip, RTDE_PORT, "RTDE") from error
        except OSError as error:
            raise _failed(robot_ip, RTDE_PORT, "RTDE", error) from error
    if answer != _ACCEPTED:
        raise NotReadyError(
            ArmFault.CANNOT_CONNECT,
            f"robot_ip {robot_ip}: port {RTDE_PORT} does not speak RTDE version 2: is this the robot's address, and "
            f"its software 3.5 or newer? It answered {answer.hex() or 'nothing'}",
        )


def _try_dashboard(robot_ip: str, end_s: float) -> None:
    """Ask the dashboard for remote control, safety mode and robot mode."""
    with _connect(robot_ip, DASHBOARD_PORT, "dashboard", end_s) as connection:
        try:
            with connection.makefile("rwb") as lines:
                _line(lines.readline())  # the banner
                answers = []
                for question in (b"safetymode\n", b"robotmode\n", b"is in remote control\n"):
                    lines.write(question)
                    lines.flush()
                    answers.append(_line(lines.readline()))
        except TimeoutError as error:
            raise _silent(robot_ip, DASHBOARD_PORT, "dashboard") from error
        except OSError as error:
            raise _failed(robot_ip, DASHBOARD_PORT, "dashboard", error) from error
    robot = f"the robot at {robot_ip}"
    safety, mode = (answer.rpartition(":")[2].strip().upper() for answer in answers[:2])
    if safety not in ("NORMAL", "REDUCED"):
        code, remedy = _SAFETY_MODES.get(safety, (ArmFault.SAFETY_FAULT, "see the pendant and its log"))
        raise NotReadyError(code, f"{robot} is in {_in_words(safety)}: {remedy}")
    if mode != "RUNNING":
        raise NotReadyError(
            ArmFault.NOT_RUNNING,
            f"{robot} is in mode {mode or 'unknown'}: power it on and release the brakes on the pendant",
        )
    if answers[2].lower() == "false":  # what has no such mode answers something else
        raise NotReadyError(
            ArmFault.NOT_REMOTE_CONTROL,
            f"{robot} is in local control: switch it to remote control at the top right of the pendant",
        )


def _line(received: bytes) -> str:
    if not received:
        raise ConnectionResetError("it closed the connection")
    return received.decode("utf-8", "replace").strip()


def _connect(robot_ip: str, port: int, name: str, end_s: float) -> socket.socket:
    timeout_s = min(_ANSWER_S, max(0.05, end_s - time.monotonic()))
    try:
        return socket.create_connection((robot_ip, port), timeout_s)
    except TimeoutError as error:
        raise _silent(robot_ip, port, name) from error
    except OSError as error:
        raise _failed(robot_ip, port, name, error) from error


def _silent(robot_ip: str, port: int, name: str) -> NotReadyError:
    return NotReadyError(
        ArmFault.CANNOT_CONNECT,
        f"robot_ip {robot_ip}: no answer on port {port} ({name}): is this the robot's address, the network up, the "
        "controller started?",
    )


def _failed(robot_ip: str, port: int, name: str, error: OSError) -> NotReadyError:
    why = error.strerror or str(error)
    return NotReadyError(
        ArmFault.CANNOT_CONNECT,
        f"robot_ip {robot_ip}: cannot connect to port {port} ({name}): {why}: is this the robot's address, is it "
        "switched on, are its services enabled?",
    )


def _in_words(safety_mode: str) -> str:
    """The dashboard's PROTECTIVE_STOP as a person says it; other modes by their name."""
    if safety_mode.endswith("_STOP"):
        return safety_mode.lower().replace("_", " ")
    return f"safety mode {safety_mode or 'unknown'}"
