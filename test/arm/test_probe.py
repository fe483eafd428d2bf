"""Finding out whether a robot is there, from servers that are not quite one."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from sdnpu_policy.arm.probe import DASHBOARD_PORT, RTDE_PORT, SCRIPT_PORT, NotReadyError, probe
from sdnpu_policy.letters import ArmFault

READY = {"safetymode": "Safetymode: NORMAL", "robotmode": "Robotmode: RUNNING", "is in remote control": "true"}
RTDE_ACCEPTS = b"\x00\x04V\x01"

Serve = Callable[..., None]


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@pytest.fixture
def serve(loopback: str) -> Iterator[Serve]:
    """Starts the three servers of a controller; ``rtde`` None does not answer, ``dashboard`` None is silent."""
    with ExitStack() as stack:

        def start(*, rtde: bytes | None = RTDE_ACCEPTS, dashboard: dict[str, str] | None = READY) -> None:
            class Rtde(socketserver.StreamRequestHandler):
                def handle(self) -> None:
                    while self.request.recv(100):
                        if rtde is not None:
                            self.request.sendall(rtde)

            class Dashboard(socketserver.StreamRequestHandler):
                def handle(self) -> None:
                    if dashboard is not None:
                        self.wfile.write(b"Connected: Universal Robots Dashboard Server\n")
                    for line in self.rfile:
                        if dashboard is not None:
                            self.wfile.write(dashboard[line.decode().strip()].encode() + b"\n")

            class Script(socketserver.StreamRequestHandler):
                def handle(self) -> None:
                    pass

            for port, handler in ((RTDE_PORT, Rtde), (DASHBOARD_PORT, Dashboard), (SCRIPT_PORT, Script)):
                server = stack.enter_context(Server((loopback, port), handler))
                threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
                stack.callback(server.shutdown)

        yield start


def refusal(address: str) -> tuple[ArmFault, str]:
    with pytest.raises(NotReadyError) as refused:
        probe(address, 0.3)
    assert "\n" not in str(refused.value)
    assert address in str(refused.value)
    return refused.value.fault.code, str(refused.value)


def test_a_ready_robot_passes(serve: Serve, loopback: str) -> None:
    serve()
    probe(loopback, 2.0)


def test_nobody_there(loopback: str) -> None:
    code, text = refusal(loopback)
    assert code == ArmFault.CANNOT_CONNECT
    assert "port 30004 (RTDE): Connection refused" in text


def test_a_host_that_accepts_and_says_nothing(serve: Serve, loopback: str) -> None:
    serve(rtde=None)
    code, text = refusal(loopback)
    assert code == ArmFault.CANNOT_CONNECT
    assert "no answer on port 30004" in text


def test_a_host_that_speaks_something_else(serve: Serve, loopback: str) -> None:
    serve(rtde=b"SSH-")
    assert "does not speak RTDE version 2" in refusal(loopback)[1]


def test_a_dashboard_that_says_nothing(serve: Serve, loopback: str) -> None:
    serve(dashboard=None)
    assert "no answer on port 29999" in refusal(loopback)[1]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"is in remote control": "false"}, ArmFault.NOT_REMOTE_CONTROL, "switch it to remote control"),
        ({"robotmode": "Robotmode: POWER_OFF"}, ArmFault.NOT_RUNNING, "in mode POWER_OFF: power it on"),
        ({"safetymode": "Safetymode: PROTECTIVE_STOP"}, ArmFault.PROTECTIVE_STOP, "unlock it"),
        ({"safetymode": "Safetymode: SAFEGUARD_STOP"}, ArmFault.SAFEGUARD_STOP, "close the guard"),
        ({"safetymode": "Safetymode: ROBOT_EMERGENCY_STOP"}, ArmFault.EMERGENCY_STOP, "release the emergency"),
        ({"safetymode": "Safetymode: VIOLATION"}, ArmFault.SAFETY_FAULT, "safety mode VIOLATION"),
    ],
)
def test_a_robot_that_can_not_move_says_what_to_do(
    serve: Serve, loopback: str, change: dict[str, str], code: ArmFault, words: str
) -> None:
    serve(dashboard={**READY, **change})
    found, text = refusal(loopback)
    assert found == code
    assert words in text


def test_a_controller_without_remote_control_mode_passes(serve: Serve, loopback: str) -> None:
    serve(dashboard={**READY, "is in remote control": "could not understand: 'is in remote control'"})
    probe(loopback, 2.0)
