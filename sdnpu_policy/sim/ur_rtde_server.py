"""RTDE version 2, the controller's side: recipes, data packages, and what malformed input does (nothing much).

Frames are big-endian: u16 size with the header, u8 type, then the payload. Written after Universal Robots' Real-Time
Data Exchange guide and what ur_rtde 1.6 sends.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite

from .ur_modes import SAFETY_BITS, RobotMode, RuntimeState
from .ur_network import Connection, Network, ProtocolError
from .ur_registers import FORMATS, INPUT_TYPES, OUTPUT_TYPES, register_number
from .ur_robot import DT_S, STANDING, Robot

PROTOCOL_VERSION, CONTROLLER_VERSION, DATA = ord("V"), ord("v"), ord("U")
OUTPUT_RECIPE, INPUT_RECIPE, START, PAUSE = ord("O"), ord("I"), ord("S"), ord("P")
RATE_HZ = round(1.0 / DT_S)
MALFORMED = struct.pack(">HBB", 9, DATA, 1) + b"\xff" * 5
"""A data package too short for any recipe."""

_HEADER = struct.Struct(">HB")
_MOST_NAMES = 256
_JOINT_RUNNING = 253
_SUPPLY_V = 48.0

Values = Sequence[float]


@dataclass(slots=True)
class InputRecipe:
    """What one kind of data package from a client sets."""

    names: list[str]
    layout: struct.Struct
    ints: list[tuple[int, int]] = field(default_factory=list)
    """Register and its place among the values."""
    floats: list[tuple[int, int]] = field(default_factory=list)
    slider: int | None = None
    """Place of the speed slider's fraction."""


@dataclass(slots=True)
class Client:
    """What one connection has set up."""

    inputs: list[InputRecipe] = field(default_factory=list)
    sources: list[Callable[[], Values]] = field(default_factory=list)
    layout: struct.Struct | None = None
    every: int = 1
    """Ticks from one package to the next."""
    since_last: int = 0
    started: bool = False


class RtdeServer:
    """The service on port 30004."""

    name = "RTDE"
    port = 30004
    can_fail = True

    def __init__(
        self,
        robot: Robot,
        network: Network,
        version: tuple[int, int, int, int],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.frozen_t_s: float | None = None
        """The time stamp all packages carry instead of the real one, while it is frozen."""
        self._robot = robot
        self._network = network
        self._version = version
        self._now_ns = now_ns
        self._clients: dict[Connection, Client] = {}
        self._sources = _sources(robot, self)

    def opened(self, connection: Connection) -> None:
        self._clients[connection] = Client()

    def closed(self, connection: Connection) -> None:
        del self._clients[connection]

    def received(self, connection: Connection) -> None:
        inbox = connection.inbox
        start = 0
        while len(inbox) - start >= _HEADER.size:
            size, kind = _HEADER.unpack_from(inbox, start)
            if size < _HEADER.size:
                raise ProtocolError(f"a package of {size} bytes is shorter than its header")
            if len(inbox) - start < size:
                break
            body = bytes(inbox[start + _HEADER.size : start + size])
            start += size
            self._package(connection, kind, body)
        del inbox[:start]

    def send_packages(self) -> None:
        """Send this tick's data packages to the clients whose turn it is."""
        if self._network.stalled:
            return
        for connection, client in list(self._clients.items()):
            if not client.started or client.layout is None:
                continue
            client.since_last += 1
            if client.since_last < client.every:
                continue
            client.since_last = 0
            values: list[float] = []
            for source in client.sources:
                values.extend(source())
            connection.send(client.layout.pack(client.layout.size, DATA, 1, *values))
            self._network.flush(connection)

    def send_malformed(self, data: bytes) -> int:
        """Send these bytes to every started client; how many there were."""
        started = [connection for connection, client in self._clients.items() if client.started]
        for connection in started:
            connection.send(data)
            self._network.flush(connection)
        return len(started)

    def _package(self, connection: Connection, kind: int, body: bytes) -> None:
        client = self._clients[connection]
        if kind == DATA:
            self._take(client, body)
        elif kind == PROTOCOL_VERSION:
            _reply(connection, kind, bytes([body == b"\x00\x02"]))
        elif kind == CONTROLLER_VERSION:
            _reply(connection, kind, struct.pack(">4I", *self._version))
        elif kind == OUTPUT_RECIPE:
            self._set_up_output(connection, client, body)
        elif kind == INPUT_RECIPE:
            self._set_up_input(connection, client, body)
        elif kind in (START, PAUSE):
            client.started = kind == START and client.layout is not None
            _reply(connection, kind, bytes([kind == PAUSE or client.started]))
        # other kinds, as text messages: ignored

    def _set_up_output(self, connection: Connection, client: Client, body: bytes) -> None:
        if len(body) < 8:
            raise ProtocolError("an output recipe without a frequency")
        (rate_hz,) = struct.unpack_from(">d", body)
        names = _names(body[8:])
        types = [OUTPUT_TYPES.get(name, "NOT_FOUND") for name in names]
        accepted = bool(names) and "NOT_FOUND" not in types and isfinite(rate_hz) and rate_hz > 0.0
        if accepted:
            client.sources = [self._source(name) for name in names]
            client.layout = struct.Struct(">HBB" + "".join(FORMATS[each] for each in types))
            client.every = max(1, round(min(RATE_HZ / rate_hz, 1e6)))
        _reply(connection, OUTPUT_RECIPE, bytes([accepted]) + ",".join(types).encode())

    def _set_up_input(self, connection: Connection, client: Client, body: bytes) -> None:
        names = _names(body)
        taken = {
            name
            for other in self._clients.values()
            if other is not client
            for recipe in other.inputs
            for name in recipe.names
        }
        types = ["IN_USE" if name in taken else INPUT_TYPES.get(name, "NOT_FOUND") for name in names]
        recipe_id = 0
        if names and not {"IN_USE", "NOT_FOUND"}.intersection(types) and len(client.inputs) < 255:
            client.inputs.append(_input_recipe(names, types))
            recipe_id = len(client.inputs)
        _reply(connection, INPUT_RECIPE, bytes([recipe_id]) + ",".join(types).encode())

    def _take(self, client: Client, body: bytes) -> None:
        number = body[0] if body else 0
        if not 1 <= number <= len(client.inputs):
            raise ProtocolError(f"data for recipe {number}, which was not set up")
        recipe = client.inputs[number - 1]
        if len(body) - 1 != recipe.layout.size:
            raise ProtocolError(f"data of {len(body) - 1} bytes for a recipe of {recipe.layout.size}")
        values = recipe.layout.unpack_from(body, 1)
        registers = self._robot.registers
        for register, place in recipe.floats:
            registers.input_floats[register] = values[place]
        now_ns = self._now_ns()
        for register, place in recipe.ints:
            registers.input_ints[register] = values[place]
            registers.written_ns[register] = now_ns
        if recipe.slider is not None:
            self._robot.set_slider(values[recipe.slider])

    def _source(self, name: str) -> Callable[[], Values]:
        registers = self._robot.registers
        int_register = register_number(name, "output_int")
        if int_register is not None:
            return lambda: (registers.output_ints[int_register],)
        float_register = register_number(name, "output_double")
        if float_register is not None:
            return lambda: (registers.output_floats[float_register],)
        if name in self._sources:
            return self._sources[name]
        format_of_it = FORMATS[OUTPUT_TYPES[name]]
        zeros = struct.unpack(">" + format_of_it, bytes(struct.calcsize(">" + format_of_it)))
        return lambda: zeros


def _sources(robot: Robot, server: RtdeServer) -> dict[str, Callable[[], Values]]:
    """Where the variables with a meaning here come from; all others are 0."""

    def timestamp() -> Values:
        return (robot.t_s if server.frozen_t_s is None else server.frozen_t_s,)

    def status_bits() -> Values:
        powered = robot.robot_mode is not RobotMode.POWER_OFF
        return (int(powered) | (robot.runtime_state is RuntimeState.PLAYING) << 1,)

    sources: dict[str, Callable[[], Values]] = {
        "timestamp": timestamp,
        "robot_status_bits": status_bits,
        "safety_status_bits": lambda: (SAFETY_BITS[robot.safety_mode],),
        "robot_mode": lambda: (robot.robot_mode,),
        "runtime_state": lambda: (robot.runtime_state,),
        "speed_scaling": lambda: (robot.speed_scaling,),
        "target_speed_fraction": lambda: (robot.speed_slider,),
        "payload": lambda: (robot.payload_kg,),
        "payload_cog": lambda: robot.payload_cog_m,
        "tcp_offset": lambda: robot.tcp_offset,
    }
    shared: dict[str, Callable[[], Values]] = {
        "safety_mode safety_status": lambda: (robot.safety_mode,),
        "actual_q target_q": lambda: robot.q,
        "actual_qd target_qd": lambda: robot.qd,
        "actual_TCP_pose target_TCP_pose": lambda: robot.tool_pose,
        "actual_TCP_speed target_TCP_speed": lambda: robot.tool_speed,
        "actual_main_voltage actual_robot_voltage": lambda: (_SUPPLY_V,),
        "joint_mode": lambda: (_JOINT_RUNNING,) * 6,
        "target_qdd": lambda: STANDING,
    }
    for names, source in shared.items():
        sources.update(dict.fromkeys(names.split(), source))
    return sources


def _input_recipe(names: list[str], types: list[str]) -> InputRecipe:
    formats = [FORMATS[each] for each in types]
    recipe = InputRecipe(names, struct.Struct(">" + "".join(formats)))
    place = 0
    for name, letters in zip(names, formats, strict=True):
        number = register_number(name, "input_int")
        if number is not None:
            recipe.ints.append((number, place))
        number = register_number(name, "input_double")
        if number is not None:
            recipe.floats.append((number, place))
        if name == "speed_slider_fraction":
            recipe.slider = place
        place += int(letters[:-1] or 1)
    return recipe


def _names(body: bytes) -> list[str]:
    names = [name for name in body.decode(errors="replace").split(",") if name]
    if len(names) > _MOST_NAMES:
        raise ProtocolError(f"a recipe of {len(names)} names")
    return names


def _reply(connection: Connection, kind: int, payload: bytes) -> None:
    connection.send(_HEADER.pack(_HEADER.size + len(payload), kind) + payload)
