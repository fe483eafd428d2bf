"""The two text services of the controller: the dashboard (port 29999) and the one that takes programs (port 30003)."""

from __future__ import annotations

import re

from .ur_modes import RobotMode, RuntimeState, SafetyMode
from .ur_network import Connection, Network
from .ur_robot import Robot
from .ur_script import control_program

SERIAL_NUMBER = "20235500001"

_BEGIN = re.compile(r"(?:def|sec)\s+(\w+)\s*\(")


class Dashboard:
    """A line in, a line out."""

    name = "dashboard"
    port = 29999
    can_fail = True

    def __init__(self, robot: Robot, network: Network, version: tuple[int, int, int, int]) -> None:
        self._robot = robot
        self._network = network
        self._version = version

    def opened(self, connection: Connection) -> None:
        connection.send(b"Connected: Universal Robots Dashboard Server\n")

    def closed(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection) -> None:
        for line in lines_of(connection):
            connection.send(answer(self._robot, line.strip(), self._version).encode() + b"\n")
            if line.strip() == "quit":
                self._network.flush(connection)
                self._network.close(connection)
                return


def answer(robot: Robot, command: str, version: tuple[int, int, int, int]) -> str:
    """What the dashboard server says to a command, after doing it."""
    words = command.lower()
    if words in _DONE:
        return _DONE[words]
    match words:
        case "polyscopeversion":
            return "URSoftware {}.{}.{}.{} (simulated)".format(*version)
        case "get serial number":
            return SERIAL_NUMBER
        case "get robot model":
            return "UR5"  # what a UR5e says
        case "is in remote control":
            return str(robot.remote_control).lower()
        case "robotmode":
            return f"Robotmode: {RobotMode(robot.robot_mode).name}"
        case "safetymode" | "safetystatus":
            return f"S{words[1:]}: {SafetyMode(robot.safety_mode).name}"
        case "running":
            return f"Program running: {str(robot.runtime_state is RuntimeState.PLAYING).lower()}"
        case "programstate":
            return f"{RuntimeState(robot.runtime_state).name} untitled.urp"
        case "stop":
            robot.stop_program("dashboard stop")
            return "Stopped"
        case "unlock protective stop":
            try:
                robot.unlock()
            except ValueError as error:
                return str(error)
            return "Protective stop releasing"
        case "power on":
            robot.power_on()
            return "Powering on"
        case "power off":
            robot.power_off()
            return "Powering off"
        case "brake release":
            robot.release_brakes()
            return "Brake releasing"
        case "play" | "pause":
            return f"Failed to execute: {words}"
    if words.startswith("popup "):
        return "showing popup"
    if words.startswith("addtolog "):
        robot.note(f"dashboard: {command[9:]}")
        return "Added log message"
    return f"could not understand: '{command}'"


_DONE = {
    "close popup": "closing popup",
    "close safety popup": "closing safety popup",
    "isprogramsaved": "true untitled.urp",
    "get loaded program": "No program loaded",
    "get operational mode": "NONE",
    "quit": "Disconnected",
}
"""Commands that change nothing here."""


class ScriptPort:
    """Takes URScript: ur_rtde's own program is loaded, anything else only ends the one that runs."""

    name = "script"
    port = 30003
    can_fail = True

    def __init__(self, robot: Robot) -> None:
        self._robot = robot

    def opened(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection) -> None:
        text = connection.inbox.decode(errors="replace")
        rest = text
        while rest:
            begin = _BEGIN.match(rest)
            if begin is not None:
                end = rest.find("\nend\n")
                if end < 0:
                    break
                end += len("\nend\n")
                self._run(begin[1], rest[:end])
            else:
                end = rest.find("\n") + 1
                if end == 0:
                    break
                self._line(rest[:end].strip())
            rest = rest[end:]
        if len(rest) < len(text):
            connection.inbox[:] = rest.encode()

    def _run(self, name: str, text: str) -> None:
        if not self._robot.remote_control:
            self._robot.note(f"program {name} refused: not in remote control")
            return
        program = control_program(self._robot, text)
        if program is not None:
            self._robot.load(program)
        else:
            self._robot.stop_program(f"replaced by {name}, which is not simulated")

    def _line(self, line: str) -> None:
        """A single line is a program of its own and replaces the running one."""
        if line and not line.startswith("#") and self._robot.remote_control:
            self._robot.stop_program(f"replaced by the line {line[:80]!r}")


def lines_of(connection: Connection) -> list[str]:
    """The complete lines of a connection's inbox, taken out of it."""
    *lines, rest = bytes(connection.inbox).split(b"\n")
    connection.inbox[:] = rest
    return [line.decode(errors="replace") for line in lines]
