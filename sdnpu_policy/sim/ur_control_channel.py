"""The hand on the simulation that no robot has: state, placing, faults and the record, as JSON lines on port 30099.

A client sends an object with "op" a line, and gets a line back: {"ok": true, ...} or {"ok": false, "error": "..."}.
After "subscribe" lines with the arm's pose come as well; they have no "ok". `OPERATIONS` lists all.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from sdnpu_policy.motion.pose import pose_to_ur, quat_normalize

from .ur_background import Background
from .ur_dashboard import lines_of
from .ur_network import Connection, Network
from .ur_record import Ring, motion_extremes
from .ur_robot import DT_S, ELBOW_UP, ProgramError, Robot
from .ur_rtde_server import MALFORMED, RATE_HZ, RtdeServer

PORT = 30099

_LONGEST_STALL_S = 3600.0
_MOST_ROWS = 1000
_UNREAD_BYTES = 1 << 14
_LATENESS_TICKS = 10_000

Arguments = Mapping[str, Any]
Answer = dict[str, Any]


class Timing:
    """How punctual the ticks are."""

    def __init__(self) -> None:
        self.slipped = 0
        """Ticks given up because the process was too far behind."""
        self._late_ns = array("q", [0]) * _LATENESS_TICKS
        self._count = 0

    def note(self, late_ns: int) -> None:
        """A tick began that late."""
        self._late_ns[self._count % _LATENESS_TICKS] = late_ns
        self._count += 1

    def figures(self) -> Answer:
        """Of the last 10,000 ticks: lateness in ms; CPU time of the process in all."""
        late = sorted(self._late_ns[: min(self._count, _LATENESS_TICKS)]) or [0]
        quantiles = {f"late_ms_{name}": late[int(q * (len(late) - 1))] / 1e6 for name, q in _QUANTILES.items()}
        return {"slipped": self.slipped, **quantiles, "cpu_s": time.process_time()}


_QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


class ControlChannel:
    """The service on port 30099."""

    name = "control channel"
    port = PORT
    can_fail = False

    def __init__(self, robot: Robot, rtde: RtdeServer, network: Network, ring: Ring, timing: Timing) -> None:
        self._robot = robot
        self._rtde = rtde
        self._network = network
        self._ring = ring
        self._timing = timing
        self._background = Background(network)
        self._subscribers: dict[Connection, int] = {}
        """Ticks from one line to the next."""

    def opened(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection) -> None:
        self._subscribers.pop(connection, None)

    def received(self, connection: Connection) -> None:
        for line in lines_of(connection):
            if line.strip():
                answer = self._answer(connection, line)
                if answer is not None:
                    _send(connection, answer)

    def push(self) -> None:
        """Send this tick's line to the subscribers whose turn it is; one who does not read misses it."""
        robot, line = self._robot, b""
        for connection, every in list(self._subscribers.items()):
            if robot.ticks % every or len(connection.outbox) > _UNREAD_BYTES:
                continue
            line = line or _line(
                {
                    "t": robot.t_s,
                    "steady_ns": time.monotonic_ns(),
                    "pose": robot.tool_pose,
                    "q": robot.q,
                    "speed": robot.tool_speed,
                    "safety_mode": robot.safety_mode,
                    "runtime_state": robot.runtime_state,
                }
            )
            connection.send(line)
            self._network.flush(connection)

    def shut_down(self) -> None:
        """End what still runs for it."""
        self._background.shut_down()

    def _answer(self, connection: Connection, line: str) -> Answer | None:
        """What to say at once; None where the answer comes later."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            return _refusal(f"not JSON: {error}")
        if not isinstance(request, dict) or not isinstance(request.get("op"), str):
            return _refusal('a request is an object with "op", like {"op": "state"}')
        name = request.pop("op")
        operation = OPERATIONS.get(name)
        if operation is None:
            return _refusal(f"op {name!r:.80} is none of: {', '.join(sorted(OPERATIONS))}")
        action, known = operation
        unknown = sorted(set(request) - set(known))
        if unknown:
            return _refusal(
                f"op {name!r} has no argument {unknown[0]!r:.80}; it has: {', '.join(known) or 'none'}"
            )
        try:
            answer = action(self, connection, request)
        except (ValueError, ProgramError) as error:
            return _refusal(f"op {name!r}: {error}")
        return None if answer is None else {"ok": True, **answer}

    # --- operations

    def _state(self, _: Connection, __: Arguments) -> Answer:
        robot = self._robot
        return {
            "t": robot.t_s,
            "steady_ns": time.monotonic_ns(),
            "pose": robot.tool_pose,
            "q": robot.q,
            "qd": robot.qd,
            "speed": robot.tool_speed,
            "tcp_offset": robot.tcp_offset,
            "robot_mode": robot.robot_mode,
            "safety_mode": robot.safety_mode,
            "runtime_state": robot.runtime_state,
            "remote": robot.remote_control,
            "speed_slider": robot.speed_slider,
            "speed_scaling": robot.speed_scaling,
            "program": None if robot.program is None else robot.program.name,
            "moving": robot.program is not None and robot.program.moving,
            "watchdog_hz": None if robot.watchdog is None else 1e9 / robot.watchdog[1],
            "rtde_clients": len(self._network.of(self._rtde)),
            "events": list(robot.events)[-50:],
        }

    def _timing_figures(self, _: Connection, __: Arguments) -> Answer:
        return {"ticks": self._robot.ticks, **self._timing.figures()}

    def _subscribe(self, connection: Connection, arguments: Arguments) -> Answer:
        hz = _number(arguments, "hz", 125.0, least=0.1, most=RATE_HZ)
        self._subscribers[connection] = max(1, round(RATE_HZ / hz))
        return {"hz": RATE_HZ / self._subscribers[connection]}

    def _place(self, _: Connection, arguments: Arguments) -> Answer:
        if ("pose" in arguments) == ("q" in arguments):
            raise ValueError("give either pose (x y z and rotation vector or quaternion) or q (six joint angles)")
        if "q" in arguments:
            self._robot.place(_numbers(arguments, "q", (6,)))
        else:
            pose = _numbers(arguments, "pose", (6, 7))
            self._robot.place(self._robot.inverse(pose if len(pose) == 6 else _six(pose), ELBOW_UP))
        self._robot.note("placed")
        return {"pose": self._robot.tool_pose, "q": self._robot.q}

    def _protective_stop(self, _: Connection, __: Arguments) -> Answer:
        self._robot.protective_stop("asked for on the control channel")
        return {"safety_mode": self._robot.safety_mode}

    def _unlock(self, _: Connection, arguments: Arguments) -> Answer:
        self._robot.unlock(at_once=_flag(arguments, "at_once", False))
        return {"safety_mode": self._robot.safety_mode}

    def _emergency_stop(self, _: Connection, __: Arguments) -> Answer:
        self._robot.emergency_stop()
        return {"safety_mode": self._robot.safety_mode}

    def _release(self, _: Connection, arguments: Arguments) -> Answer:
        self._robot.release_emergency_stop()
        if _flag(arguments, "power", False):
            self._robot.power_on()
            self._robot.release_brakes()
        return {"safety_mode": self._robot.safety_mode, "robot_mode": self._robot.robot_mode}

    def _safeguard(self, _: Connection, arguments: Arguments) -> Answer:
        if _flag(arguments, "on", True):
            self._robot.safeguard_stop()
        else:
            self._robot.reset_safeguard()
        return {"safety_mode": self._robot.safety_mode}

    def _power(self, _: Connection, arguments: Arguments) -> Answer:
        if _flag(arguments, "on", True):
            self._robot.power_on()
            self._robot.release_brakes()
        else:
            self._robot.power_off()
        return {"robot_mode": self._robot.robot_mode}

    def _stop_program(self, _: Connection, __: Arguments) -> Answer:
        self._robot.stop_program("asked for on the control channel")
        return {}

    def _slider(self, _: Connection, arguments: Arguments) -> Answer:
        self._robot.set_slider(_number(arguments, "fraction", None, least=0.0, most=1.0))
        return {"speed_slider": self._robot.speed_slider}

    def _remote(self, _: Connection, arguments: Arguments) -> Answer:
        self._robot.remote_control = _flag(arguments, "on", True)
        return {"remote": self._robot.remote_control}

    def _stall(self, _: Connection, arguments: Arguments) -> Answer:
        self._network.stall(_number(arguments, "seconds", None, least=0.0, most=_LONGEST_STALL_S))
        return {}

    def _drop(self, _: Connection, arguments: Arguments) -> Answer:
        return {"dropped": self._network.drop(reset=_flag(arguments, "reset", False))}

    def _refuse(self, _: Connection, arguments: Arguments) -> Answer:
        self._network.refuse(_flag(arguments, "on", True))
        return {}

    def _silent(self, _: Connection, arguments: Arguments) -> Answer:
        self._network.silent = _flag(arguments, "on", True)
        return {}

    def _malformed(self, _: Connection, arguments: Arguments) -> Answer:
        data = arguments.get("hex", MALFORMED.hex())
        if not isinstance(data, str):
            raise ValueError("hex must be a string of hexadecimal digits")
        return {"clients": self._rtde.send_malformed(bytes.fromhex(data))}

    def _freeze_clock(self, _: Connection, arguments: Arguments) -> Answer:
        self._rtde.frozen_t_s = self._robot.t_s if _flag(arguments, "on", True) else None
        return {}

    def _reset(self, _: Connection, __: Arguments) -> Answer:
        self._robot.restore()
        self._network.refuse(False)
        self._network.silent = False
        self._network.stall(0.0)
        self._rtde.frozen_t_s = None
        return {}

    def _record(self, connection: Connection, arguments: Arguments) -> Answer | None:
        since, until = _period(arguments)
        if "path" not in arguments:
            record = self._ring.since(since, until)
            if len(record.t_s) > _MOST_ROWS:
                raise ValueError(
                    f"{len(record.t_s)} ticks are more than {_MOST_ROWS}: take less time, or give a path for an .npz"
                )
            return {
                "t": record.t_s.tolist(),
                "steady_ns": record.steady_ns.tolist(),
                "q": record.q.tolist(),
                "pose": record.poses.tolist(),
                "flags": record.flags.tolist(),
            }
        given = arguments["path"]
        if not isinstance(given, str) or not given.startswith("/") or not given.endswith(".npz"):
            raise ValueError(f"path {given!r:.200} must be absolute and end in .npz")
        path = Path(given)

        def save() -> Answer:
            record = self._ring.since(since, until)
            record.save(path)
            return {"ticks": len(record.t_s)}

        self._later(connection, save)
        return None

    def _extremes(self, connection: Connection, arguments: Arguments) -> None:
        since, until = _period(arguments)

        def judge() -> Answer:
            record = self._ring.since(since, until)
            return motion_extremes(record.t_s, record.poses, record.placed).as_dict()

        self._later(connection, judge)

    def _later(self, connection: Connection, work: Callable[[], Answer]) -> None:
        def done(result: Answer) -> None:
            _send(connection, _refusal(result["error"]) if "error" in result else {"ok": True, **result})
            if connection.open:
                self._network.flush(connection)

        self._background.start(work, done)


Operation = Callable[[ControlChannel, Connection, Arguments], Answer | None]

OPERATIONS: dict[str, tuple[Operation, tuple[str, ...]]] = {
    "state": (ControlChannel._state, ()),
    "timing": (ControlChannel._timing_figures, ()),
    "subscribe": (ControlChannel._subscribe, ("hz",)),
    "place": (ControlChannel._place, ("pose", "q")),
    "protective_stop": (ControlChannel._protective_stop, ()),
    "unlock": (ControlChannel._unlock, ("at_once",)),
    "emergency_stop": (ControlChannel._emergency_stop, ()),
    "release": (ControlChannel._release, ("power",)),
    "safeguard": (ControlChannel._safeguard, ("on",)),
    "power": (ControlChannel._power, ("on",)),
    "stop_program": (ControlChannel._stop_program, ()),
    "slider": (ControlChannel._slider, ("fraction",)),
    "remote": (ControlChannel._remote, ("on",)),
    "stall": (ControlChannel._stall, ("seconds",)),
    "drop": (ControlChannel._drop, ("reset",)),
    "refuse": (ControlChannel._refuse, ("on",)),
    "silent": (ControlChannel._silent, ("on",)),
    "malformed": (ControlChannel._malformed, ("hex",)),
    "freeze_clock": (ControlChannel._freeze_clock, ("on",)),
    "reset": (ControlChannel._reset, ()),
    "record": (ControlChannel._record, ("path", "since_t", "until_t")),
    "extremes": (ControlChannel._extremes, ("since_t", "until_t")),
}
"""Each operation and the arguments it knows."""


def _number(arguments: Arguments, name: str, default: float | None, *, least: float, most: float) -> float:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} {value!r:.80} must be a number from {least:g} to {most:g}")
    return float(value)


def _numbers(arguments: Arguments, name: str, sizes: tuple[int, ...]) -> list[float]:
    values = arguments[name]
    good = isinstance(values, list) and len(values) in sizes
    if not good or not all(isinstance(v, int | float) and abs(v) < 1e6 and isfinite(v) for v in values):
        raise ValueError(f"{name} {values!r:.80} must be a list of {' or '.join(map(str, sizes))} numbers")
    return [float(value) for value in values]


def _flag(arguments: Arguments, name: str, default: bool) -> bool:
    value = arguments.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name} {value!r:.80} must be true or false")
    return value


def _period(arguments: Arguments) -> tuple[float, float]:
    end = 1e12
    since = _number(arguments, "since_t", 0.0, least=-end, most=end)
    until = _number(arguments, "until_t", end, least=-end, most=end)
    return since - 0.5 * DT_S, until + 0.5 * DT_S


def _six(pose: list[float]) -> list[float]:
    """UR's pose vector of xyz and quaternion."""
    length = sum(value * value for value in pose[3:]) ** 0.5
    if not 0.99 < length < 1.01:
        raise ValueError(f"the quaternion of pose has length {length:g}; it must be 1")
    vector: list[float] = pose_to_ur([*pose[:3], *quat_normalize(pose[3:])]).tolist()
    return vector


def _refusal(text: str) -> Answer:
    return {"ok": False, "error": text}


def _send(connection: Connection, answer: Answer) -> None:
    connection.send(_line(answer))


def _line(answer: Answer) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"
