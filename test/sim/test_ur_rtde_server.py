"""The RTDE side of the simulated controller, spoken to with bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.sim.ur_controller import Controller
from sdnpu_policy.sim.ur_network import Connection, Network, ProtocolError
from sdnpu_policy.sim.ur_registers import FORMATS, INPUT_TYPES, OUTPUT_TYPES, REGISTERS
from sdnpu_policy.sim.ur_robot import DT_S, Robot
from sdnpu_policy.sim.ur_rtde_server import RtdeServer

TICKS_NS = count(1_000_000_000, 2_000_000)


def frame(kind: str, payload: bytes = b"") -> bytes:
    return struct.pack(">HB", len(payload) + 3, ord(kind)) + payload


def output_recipe(names: str, rate_hz: float = 500.0) -> bytes:
    return frame("O", struct.pack(">d", rate_hz) + names.encode() + b",")


class RtdeClient:
    """A client of a controller in this process: `ask` has the controller work until the answer is here."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.socket = socket.create_connection((controller.network.address, 30004), 5.0)
        self.socket.setblocking(False)
        self.received = b""
        self.work()

    def work(self, ticks: int = 0) -> None:
        for _ in range(ticks):
            self.controller.network.poll(0.0)
            self.controller.tick(next(TICKS_NS))
        for _ in range(5):
            self.controller.network.poll(0.001)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self.received += self.socket.recv(1 << 20)

    def ask(self, data: bytes) -> tuple[str, bytes]:
        self.socket.sendall(data)
        self.work()
        return self.packages()[0]

    def packages(self) -> list[tuple[str, bytes]]:
        found = []
        while len(self.received) >= 3:
            size, kind = struct.unpack_from(">HB", self.received)
            found.append((chr(kind), self.received[3:size]))
            self.received = self.received[size:]
        return found

    @property
    def closed(self) -> bool:
        self.work()
        try:
            return self.socket.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True


@pytest.fixture
def controller(loopback: str) -> Iterator[Controller]:
    controller = Controller(loopback)
    yield controller
    controller.shut_down()


@pytest.fixture
def client(controller: Controller) -> Iterator[RtdeClient]:
    client = RtdeClient(controller)
    yield client
    client.socket.close()


def test_it_speaks_version_two_only(client: RtdeClient) -> None:
    assert client.ask(frame("V", b"\x00\x02")) == ("V", b"\x01")
    assert client.ask(frame("V", b"\x00\x01")) == ("V", b"\x00")
    assert client.ask(frame("v")) == ("v", struct.pack(">4I", 5, 21, 2, 0))


def test_data_arrive_in_the_layout_of_the_recipe(client: RtdeClient) -> None:
    names = "timestamp,actual_q,actual_TCP_pose,safety_mode,runtime_state,safety_status_bits,robot_mode"
    answer = client.ask(output_recipe(names))
    assert answer == ("O", b"\x01DOUBLE,VECTOR6D,VECTOR6D,INT32,UINT32,UINT32,INT32")
    assert client.ask(frame("S")) == ("S", b"\x01")
    client.work(ticks=3)
    packages = client.packages()
    assert [kind for kind, _ in packages] == ["U"] * 3
    recipe, t_s, *values = struct.unpack(">B13diIIi", packages[-1][1])
    robot = client.controller.robot
    assert (recipe, t_s) == (1, pytest.approx(robot.t_s))
    np.testing.assert_allclose(values[:12], [*robot.q, *robot.tool_pose])
    assert values[12:] == [1, 1, 1, 7]


def test_a_lower_rate_is_a_share_of_the_ticks(client: RtdeClient) -> None:
    client.ask(output_recipe("timestamp", 125.0))
    client.ask(frame("S"))
    client.work(ticks=40)
    times = [struct.unpack(">Bd", body)[1] for _, body in client.packages()]
    assert len(times) == 10
    np.testing.assert_allclose(np.diff(times), 4 * DT_S)


def test_a_paused_client_gets_no_data(client: RtdeClient) -> None:
    client.ask(output_recipe("timestamp"))
    client.ask(frame("S"))
    client.ask(frame("P"))
    client.packages()
    client.work(ticks=5)
    assert client.packages() == []


def test_a_frozen_clock_stands_while_the_rest_goes_on(client: RtdeClient) -> None:
    client.ask(output_recipe("timestamp"))
    client.ask(frame("S"))
    client.controller.rtde.frozen_t_s = 1.25
    client.work(ticks=3)
    assert {struct.unpack(">Bd", body)[1] for _, body in client.packages()} == {1.25}


@pytest.mark.parametrize("recipe", [output_recipe("nonsense"), output_recipe("timestamp", 0.0), output_recipe("")])
def test_an_output_recipe_it_cannot_serve_is_refused_and_not_started(client: RtdeClient, recipe: bytes) -> None:
    kind, body = client.ask(recipe)
    assert (kind, body[0]) == ("O", 0)
    assert client.ask(frame("S")) == ("S", b"\x00")


def test_values_land_in_their_registers(client: RtdeClient) -> None:
    assert client.ask(frame("I", b"input_int_register_3,input_double_register_5,speed_slider_fraction")) == (
        "I",
        b"\x01INT32,DOUBLE,DOUBLE",
    )
    client.socket.sendall(frame("U", struct.pack(">Bidd", 1, -7, 2.5, 0.5)))
    client.work()
    robot = client.controller.robot
    assert robot.registers.input_ints[3] == -7
    assert robot.registers.input_floats[5] == 2.5
    assert robot.registers.written_ns[3] > 0
    assert robot.speed_slider == 0.5


def test_a_register_belongs_to_the_first_client_until_it_leaves(client: RtdeClient) -> None:
    client.ask(frame("I", b"input_int_register_0"))
    second = RtdeClient(client.controller)
    assert second.ask(frame("I", b"input_int_register_0,input_int_register_1")) == ("I", b"\x00IN_USE,INT32")
    client.socket.close()
    second.work()
    assert second.ask(frame("I", b"input_int_register_0")) == ("I", b"\x01INT32")
    second.socket.close()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x02U", "shorter than its header"),
        (b"\x00\x00\x00", "shorter than its header"),
        (frame("U", b"\x05"), "recipe 5, which was not set up"),
        (frame("U"), "recipe 0, which was not set up"),
        (frame("O", b"\x01"), "without a frequency"),
        (frame("I", b"a," * 300), "300 names"),
    ],
)
def test_malformed_input_costs_its_sender_the_connection_and_nobody_else(
    client: RtdeClient, data: bytes, why: str
) -> None:
    other = RtdeClient(client.controller)
    client.socket.sendall(data)
    assert client.closed
    assert why in client.controller.robot.events[-1][1]
    assert other.ask(frame("V", b"\x00\x02")) == ("V", b"\x01")
    other.socket.close()


def test_data_of_the_wrong_size_are_not_taken(client: RtdeClient) -> None:
    client.ask(frame("I", b"input_int_register_3"))
    client.socket.sendall(frame("U", b"\x01\x00\x00"))
    assert client.closed
    assert client.controller.robot.registers.input_ints[3] == 0


def test_a_package_in_pieces_is_put_together(client: RtdeClient) -> None:
    for byte in frame("V", b"\x00\x02"):
        client.socket.sendall(bytes([byte]))
        client.work()
    assert client.packages() == [("V", b"\x01")]


def test_a_client_that_does_not_read_is_dropped(client: RtdeClient) -> None:
    client.ask(output_recipe("actual_q,actual_qd,actual_TCP_pose," * 20))
    client.ask(frame("S"))
    controller = client.controller
    controller.network.of(controller.rtde)[0].socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(5000):
        controller.tick(next(TICKS_NS))
        if not controller.network.of(controller.rtde):
            break
    assert controller.robot.events[-1][1] == "RTDE: a client that does not read was dropped"


def test_every_variable_can_be_asked_for(client: RtdeClient) -> None:
    names = list(OUTPUT_TYPES)
    for start in range(0, len(names), 100):
        part = names[start : start + 100]
        kind, body = client.ask(output_recipe(",".join(part)))
        assert (kind, body[0]) == ("O", 1)
        client.ask(frame("S"))
        client.work(ticks=1)
        _, body = client.packages()[-1]
        assert len(body) == 1 + struct.calcsize(">" + "".join(FORMATS[OUTPUT_TYPES[name]] for name in part))
    assert all(f"input_double_register_{i}" in INPUT_TYPES for i in range(REGISTERS))


names = st.sampled_from(
    ["timestamp", "input_int_register_0", "input_double_register_1", "speed_slider_fraction", "x"]
)
recipe_text = st.lists(names, max_size=5).map(lambda parts: ",".join(parts).encode())
frames = st.builds(
    frame,
    st.sampled_from(list("VvOISPUMx")),
    st.binary(max_size=40)
    | recipe_text
    | recipe_text.map(lambda text: struct.pack(">d", 500.0) + text)
    | st.builds(lambda number, rest: bytes([number]) + rest, st.integers(0, 3), st.binary(max_size=24)),
)


@given(st.lists(frames | st.binary(max_size=60), max_size=12))
@settings(max_examples=150, deadline=None)
def test_no_bytes_break_the_server(chunks: list[bytes]) -> None:
    robot = Robot()
    server = RtdeServer(robot, Network("127.0.0.1", robot.note), (5, 21, 2, 0), lambda: 0)
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        connection = Connection(here, server)
        server.opened(connection)
        for chunk in chunks:
            connection.inbox += chunk
            try:
                server.received(connection)
            except ProtocolError:
                connection.inbox.clear()
            robot.tick(0)
            server.send_packages()
    assert 0.0 <= robot.speed_slider <= 1.0
