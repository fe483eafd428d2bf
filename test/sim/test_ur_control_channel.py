"""The control channel of the simulated controller: operations, refusals, faults, the record."""

from __future__ import annotations

import contextlib
import json
import math
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdnpu_policy.sim.ur_control_channel import OPERATIONS
from sdnpu_policy.sim.ur_controller import Controller
from sdnpu_policy.sim.ur_modes import RobotMode, SafetyMode
from sdnpu_policy.sim.ur_record import load_record

HARMLESS = sorted(set(OPERATIONS) - {"record", "extremes"})  # those fork


class Hand:
    """A client of the control channel of a controller in this process."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.robot = controller.robot
        self.now_ns = 0
        self.unread = b""
        self.socket = socket.create_connection((controller.network.address, 30099), 5.0)
        self.socket.setblocking(False)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_ns += 2_000_000
            self.controller.tick(self.now_ns)
            self.controller.network.poll(0.0)

    def lines(self) -> list[dict[str, Any]]:
        with contextlib.suppress(BlockingIOError):
            self.unread += self.socket.recv(1 << 20)
        *complete, self.unread = self.unread.split(b"\n")
        return [json.loads(line) for line in complete]

    def send(self, data: bytes) -> dict[str, Any]:
        """The answer to these bytes."""
        self.socket.sendall(data)
        for _ in range(2000):
            self.controller.network.poll(0.005)
            answers = [line for line in self.lines() if "ok" in line]
            if answers:
                return answers[0]
        raise AssertionError("no answer")

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.send(json.dumps({"op": op, **arguments}).encode() + b"\n")

    def refused(self, op: str, **arguments: Any) -> str:
        answer = self.ask(op, **arguments)
        assert answer["ok"] is False
        return str(answer["error"])


@pytest.fixture
def hand(loopback: str) -> Iterator[Hand]:
    controller = Controller(loopback)
    hand = Hand(controller)
    yield hand
    hand.socket.close()
    controller.shut_down()


def robot_ports_open(hand: Hand) -> list[bool]:
    found = []
    for port in (30004, 30003, 29999):
        try:
            socket.create_connection((hand.controller.network.address, port), 1.0).close()
        except ConnectionRefusedError:
            found.append(False)
        else:
            found.append(True)
    return found


def test_the_state_tells_time_pose_and_modes(hand: Hand) -> None:
    hand.tick(5)
    state = hand.ask("state")
    assert state["t"] == pytest.approx(0.010)
    np.testing.assert_allclose(state["pose"], hand.robot.tool_pose)
    assert (state["safety_mode"], state["robot_mode"], state["runtime_state"]) == (1, 7, 1)
    assert state["program"] is state["watchdog_hz"] is None


def test_subscribers_get_the_pose_at_their_rate(hand: Hand) -> None:
    assert hand.ask("subscribe", hz=100)["hz"] == 100.0
    hand.tick(50)
    lines = hand.lines()
    assert len(lines) == 10
    np.testing.assert_allclose(np.diff([line["t"] for line in lines]), 0.010)
    assert set(lines[0]) == {"t", "steady_ns", "pose", "q", "speed", "safety_mode", "runtime_state"}


def test_a_subscriber_that_does_not_read_misses_lines_and_is_kept(hand: Hand) -> None:
    hand.ask("subscribe", hz=500)
    (connection,) = hand.controller.network.of(hand.controller.control)
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    hand.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(3000):
        hand.controller.tick(0)
    assert connection.open
    assert len(connection.outbox) < 100_000


@pytest.mark.parametrize(
    "pose",
    [
        [0.4, 0.2, 0.3, math.pi, 0.0, 0.0],
        [0.4, 0.2, 0.3, 1.0, 0.0, 0.0, 0.0],
    ],
)
def test_the_arm_is_placed_with_the_elbow_up(hand: Hand, pose: list[float]) -> None:
    assert hand.ask("place", pose=pose)["ok"]
    np.testing.assert_allclose(hand.robot.tool_pose[:3], pose[:3], atol=1e-9)
    assert hand.robot.q[2] > 0.5
    hand.tick()
    assert hand.controller.ring.since(0.0).placed[-1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "either pose"),
        ({"pose": [0] * 6, "q": [0] * 6}, "either pose"),
        ({"pose": [0.4] * 5}, "list of 6 or 7 numbers"),
        ({"pose": "there"}, "list of 6 or 7 numbers"),
        ({"pose": [0.4, 0.2, 0.3, 1.0, 1.0, 0.0, 0.0]}, "length 1.41421; it must be 1"),
        ({"pose": [1.4, 0.2, 0.3, 3.1, 0.0, 0.0]}, "unable to find an inverse kinematics solution"),
        ({"q": [0, 0, 0, 0, 0, float("nan")]}, "list of 6 numbers"),
        ({"q": [9.0] * 6}, "within one turn"),
        ({"to": 1}, "no argument 'to'; it has: pose, q"),
    ],
)
def test_a_place_that_is_none_is_refused_with_the_reason(hand: Hand, arguments: dict[str, Any], why: str) -> None:
    q = list(hand.robot.q)
    assert why in hand.refused("place", **arguments)
    assert hand.robot.q == q


def test_stops_and_their_ends(hand: Hand) -> None:
    hand.ask("protective_stop")
    assert "until 5s" in hand.refused("unlock")
    hand.ask("unlock", at_once=True)
    assert hand.robot.safety_mode is SafetyMode.NORMAL
    hand.ask("emergency_stop")
    assert hand.ask("release", power=True)["robot_mode"] == RobotMode.RUNNING
    assert hand.ask("safeguard")["safety_mode"] == SafetyMode.SAFEGUARD_STOP
    assert hand.ask("safeguard", on=False)["safety_mode"] == SafetyMode.NORMAL
    assert hand.ask("power", on=False)["robot_mode"] == RobotMode.POWER_OFF


def test_slider_and_remote_control(hand: Hand) -> None:
    assert hand.ask("slider", fraction=0.25)["speed_slider"] == 0.25
    assert "fraction 2 must be a number from 0 to 1" in hand.refused("slider", fraction=2)
    assert "fraction None must be" in hand.refused("slider")
    assert hand.ask("remote", on=False)["remote"] is False
    assert "on 1 must be true or false" in hand.refused("remote", on=1)


def test_refusing_closes_the_robots_ports_and_not_the_control_channel(hand: Hand) -> None:
    hand.ask("refuse")
    assert robot_ports_open(hand) == [False] * 3
    hand.ask("refuse", on=False)
    assert robot_ports_open(hand) == [True] * 3


def test_reset_takes_every_fault_away(hand: Hand) -> None:
    for op in ("refuse", "silent", "freeze_clock", "emergency_stop"):
        hand.ask(op)
    hand.ask("stall", seconds=100.0)
    hand.ask("reset")
    assert robot_ports_open(hand) == [True] * 3
    assert not hand.controller.network.silent
    assert not hand.controller.network.stalled
    assert hand.controller.rtde.frozen_t_s is None
    assert hand.robot.safety_mode is SafetyMode.NORMAL


@pytest.mark.parametrize("silent", [True, False])
def test_a_silent_controller_accepts_and_never_answers(hand: Hand, silent: bool) -> None:
    hand.ask("silent", on=silent)
    with socket.create_connection((hand.controller.network.address, 29999), 1.0) as client:
        client.settimeout(0.05)
        for _ in range(5):
            hand.controller.network.poll(0.002)
        if silent:
            with pytest.raises(TimeoutError):
                client.recv(100)
        else:
            assert client.recv(100).startswith(b"Connected: Universal Robots")


def test_a_stall_leaves_what_clients_sent_unread(hand: Hand) -> None:
    with socket.create_connection((hand.controller.network.address, 29999), 1.0) as client:
        for _ in range(5):
            hand.controller.network.poll(0.002)
        assert client.recv(100)
        client.settimeout(0.05)
        hand.ask("stall", seconds=100.0)
        client.sendall(b"robotmode\n")
        hand.tick(5)
        with pytest.raises(TimeoutError):
            client.recv(100)
        hand.ask("stall", seconds=0.0)
        hand.tick(5)
        assert client.recv(100) == b"Robotmode: RUNNING\n"


@pytest.mark.parametrize("reset", [False, True])
def test_a_drop_closes_connections_softly_or_hard(hand: Hand, reset: bool) -> None:
    with socket.create_connection((hand.controller.network.address, 30004), 1.0) as client:
        client.settimeout(1.0)
        for _ in range(5):
            hand.controller.network.poll(0.002)
        assert hand.ask("drop", reset=reset)["dropped"] == 1
        if reset:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        else:
            assert client.recv(1) == b""


def test_malformed_bytes_must_be_hexadecimal(hand: Hand) -> None:
    assert hand.ask("malformed")["clients"] == 0
    assert "hex" in hand.refused("malformed", hex="zz")
    assert "hex" in hand.refused("malformed", hex=5)


def test_the_record_is_written_to_a_file(hand: Hand, tmp_path: Path) -> None:
    hand.tick(30)
    path = tmp_path / "record.npz"
    assert hand.ask("record", path=str(path), since_t=0.02, until_t=0.04)["ticks"] == 11
    record = load_record(path)
    np.testing.assert_allclose(record.t_s[[0, -1]], [0.02, 0.04])


def test_a_short_stretch_of_the_record_comes_in_the_answer(hand: Hand) -> None:
    hand.tick(1200)
    assert len(hand.ask("record", since_t=2.0)["pose"]) == 201
    assert "1200 ticks are more than 1000" in hand.refused("record")


@pytest.mark.parametrize("path", ["record.npz", "/tmp/record.txt", 5])
def test_a_path_for_the_record_must_be_absolute_and_an_npz(hand: Hand, path: object) -> None:
    assert "must be absolute and end in .npz" in hand.refused("record", path=path)


def test_a_directory_that_is_not_there_is_said(hand: Hand) -> None:
    assert "No such file or directory" in hand.refused("record", path="/nowhere/at/all/record.npz")


def test_extremes_are_computed(hand: Hand) -> None:
    hand.tick(20)
    hand.ask("place", q=hand.robot.q)
    hand.tick(20)
    extremes = hand.ask("extremes", since_t=0.01)
    assert extremes["placed"] == 1
    assert extremes["max_speed_m_s"] == 0.0
    assert extremes["ticks"] == 36


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"hello\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 5000 + b"\n", "not JSON"),
        (b"5\n", "a request is an object"),
        (b'{"op": 5}\n', "a request is an object"),
        (b'{"op": "fly"}\n', "op 'fly' is none of: drop, emergency_stop"),
        (b'{"op": "state", "x": 1}\n', "has no argument 'x'; it has: none"),
    ],
)
def test_what_is_no_request_gets_a_reason(hand: Hand, line: bytes, why: str) -> None:
    answer = hand.send(line)
    assert answer["ok"] is False
    assert why in answer["error"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
argument_names = sorted({name for _, known in OPERATIONS.values() for name in known} - {"path"})
requests = st.builds(
    lambda op, arguments: {**arguments, "op": op},
    st.sampled_from(HARMLESS),
    st.dictionaries(st.sampled_from(argument_names), anything, max_size=3),
)


@given(requests)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_request_breaks_the_channel(hand: Hand, request: dict[str, Any]) -> None:
    answer = hand.ask(**request)
    assert answer["ok"] or answer["error"]
    hand.tick()
