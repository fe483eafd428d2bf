"""The text services of the simulated controller: dashboard and program port."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.sim.ur_dashboard import ScriptPort, answer
from sdnpu_policy.sim.ur_modes import RobotMode, RuntimeState, SafetyMode
from sdnpu_policy.sim.ur_network import Connection
from sdnpu_policy.sim.ur_robot import Robot

VERSION = (5, 21, 2, 0)
CONTROL_SCRIPT = "def rtde_control():\n# float register offset\n0\n# int register offset\n0\nend\n"


def say(robot: Robot, command: str) -> str:
    return answer(robot, command, VERSION)


def start(robot: Robot) -> None:
    for _ in range(60):
        robot.tick(0)


@pytest.fixture
def robot() -> Robot:
    return Robot()


class Upload:
    def __init__(self, robot: Robot, sock: socket.socket) -> None:
        self.port = ScriptPort(robot)
        self.connection = Connection(sock, self.port)

    def send(self, text: str) -> None:
        self.connection.inbox += text.encode()
        self.port.received(self.connection)


@pytest.fixture
def upload(robot: Robot) -> Iterator[Upload]:
    here, there = socket.socketpair()
    with here, there:
        yield Upload(robot, here)


def test_it_tells_what_ur_rtde_asks_before_it_connects(robot: Robot) -> None:
    assert say(robot, "PolyscopeVersion").startswith("URSoftware 5.21.2.0")
    assert say(robot, "get serial number").isdigit()
    assert say(robot, "is in remote control") == "true"
    robot.remote_control = False
    assert say(robot, "is in remote control") == "false"


def test_it_tells_the_modes(robot: Robot) -> None:
    assert say(robot, "robotmode") == "Robotmode: RUNNING"
    assert say(robot, "safetymode") == "Safetymode: NORMAL"
    assert say(robot, "running") == "Program running: false"
    assert say(robot, "programState") == "STOPPED untitled.urp"
    robot.protective_stop("test")
    assert say(robot, "safetystatus") == "Safetystatus: PROTECTIVE_STOP"


def test_power_and_brakes_follow_the_commands(robot: Robot) -> None:
    assert say(robot, "power off") == "Powering off"
    assert robot.robot_mode is RobotMode.POWER_OFF
    assert say(robot, "power on") == "Powering on"
    assert robot.robot_mode is RobotMode.IDLE
    assert say(robot, "brake release") == "Brake releasing"
    assert robot.robot_mode is RobotMode.RUNNING


def test_unlocking_too_early_is_refused_in_the_controllers_words(robot: Robot) -> None:
    robot.protective_stop("test")
    assert say(robot, "unlock protective stop").startswith(
        "Cannot unlock protective stop until 5s after occurrence"
    )
    for _ in range(2500):
        robot.tick(0)
    assert say(robot, "unlock protective stop") == "Protective stop releasing"
    assert robot.safety_mode is SafetyMode.NORMAL


def test_what_it_does_not_know_it_says(robot: Robot) -> None:
    assert say(robot, "make coffee") == "could not understand: 'make coffee'"
    assert say(robot, "play") == "Failed to execute: play"


@given(st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_every_line_has_one_line_as_its_answer(text: str) -> None:
    command = " ".join(text.split())
    assert "\n" not in say(Robot(), command)


def test_the_control_script_is_loaded_and_started(robot: Robot, upload: Upload) -> None:
    for part in (CONTROL_SCRIPT[:30], CONTROL_SCRIPT[30:]):
        upload.send(part)
    start(robot)
    assert robot.runtime_state is RuntimeState.PLAYING
    assert say(robot, "stop") == "Stopped"
    assert robot.runtime_state is RuntimeState.STOPPED


def test_another_script_only_ends_the_running_one(robot: Robot, upload: Upload) -> None:
    upload.send(CONTROL_SCRIPT)
    start(robot)
    upload.send("def other():\n  popup()\nend\n")
    assert robot.events[-1][1] == "program rtde_control stopped: replaced by other, which is not simulated"


def test_a_single_line_is_a_program_too(robot: Robot, upload: Upload) -> None:
    upload.send(CONTROL_SCRIPT)
    start(robot)
    upload.send("\n# nothing\n")
    assert robot.runtime_state is RuntimeState.PLAYING
    upload.send("stopj(2.0)\n")
    assert robot.runtime_state is RuntimeState.STOPPED


def test_in_local_control_scripts_are_refused(robot: Robot, upload: Upload) -> None:
    robot.remote_control = False
    upload.send(CONTROL_SCRIPT)
    start(robot)
    assert robot.runtime_state is RuntimeState.STOPPED
    assert "not in remote control" in robot.events[-1][1]


@given(
    st.lists(st.binary(max_size=30) | st.sampled_from([b"def f():\n", b"\nend\n", b"# int register offset\n99\n"]))
)
@settings(max_examples=100, deadline=None)
def test_no_text_breaks_the_program_port(chunks: list[bytes]) -> None:
    robot = Robot()
    port = ScriptPort(robot)
    here, there = socket.socketpair()
    with here, there:
        connection = Connection(here, port)
        for chunk in chunks:
            connection.inbox += chunk
            port.received(connection)
