"""A hand on a running simulated controller: what the demo, the tests and the camera use of its control channel."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sdnpu_policy.errors import SdnpuError

PORT = 30099
_RECEIVE_BYTES = 1 << 16


class ControlChannel:
    """A connection to the control channel. Every method waits for the answer; use as a context manager.

    Raises:
        SdnpuError: no controller there, it went away, it does not answer in time, or it refuses with a reason.
    """

    def __init__(self, address: str, timeout_s: float = 10.0, port: int = PORT) -> None:
        self._where = f"simulated controller at {address}:{port}"
        self._timeout_s = timeout_s
        self._received = b""
        try:
            self._socket = socket.create_connection((address, port), timeout_s)
        except OSError as error:
            raise SdnpuError(f"{self._where} is not there: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> ControlChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Send one operation and return its answer."""
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(json.dumps({"op": op, **arguments}).encode() + b"\n")
        except OSError as error:
            raise SdnpuError(f"{self._where} went away: {error}") from error
        while True:
            answer = self._next(self._timeout_s)
            if "ok" in answer:  # a subscription's lines have none
                break
        if not answer["ok"]:
            raise SdnpuError(f"{self._where} refuses: {answer.get('error')}")
        return answer

    # --- looking

    def state(self) -> dict[str, Any]:
        """Time, pose, joints, modes, program, events; see the keys."""
        return self.request("state")

    def timing(self) -> dict[str, Any]:
        """Lateness of the ticks and CPU time."""
        return self.request("timing")

    def subscribe(self, hz: float = 125.0, timeout_s: float = 1.0) -> Iterator[dict[str, Any]]:
        """Poses as they happen: dicts with t, steady_ns, pose (UR's vector), q, speed, safety_mode, runtime_state.

        A slow reader gets fewer. Raises SdnpuError when none comes for ``timeout_s``.
        """
        self.request("subscribe", hz=hz)
        return self._samples(timeout_s)

    def _samples(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        while True:
            line = self._next(timeout_s)
            if "pose" in line:
                yield line

    # --- the arm

    def place(self, *, pose: Sequence[float] | None = None, q: Sequence[float] | None = None) -> dict[str, Any]:
        """Put the standing arm somewhere: pose as UR's vector (6) or with quaternion (7), or joint angles."""
        given: dict[str, Any] = {"pose": pose} if q is None else {"q": q}
        return self.request("place", **{name: [float(v) for v in values] for name, values in given.items()})

    def protective_stop(self) -> None:
        """As if the safety system had tripped."""
        self.request("protective_stop")

    def unlock(self, *, at_once: bool = False) -> None:
        """End a protective stop; refused in its first 5 s unless ``at_once``."""
        self.request("unlock", at_once=at_once)

    def emergency_stop(self) -> None:
        """Press the button."""
        self.request("emergency_stop")

    def release(self, *, power: bool = False) -> None:
        """Pull the button out; with ``power`` also power on and release the brakes."""
        self.request("release", power=power)

    def safeguard(self, on: bool = True) -> None:
        """Open or close the safeguard input."""
        self.request("safeguard", on=on)

    def power(self, on: bool = True) -> None:
        """Power on and release the brakes, or power off."""
        self.request("power", on=on)

    def stop_program(self) -> None:
        """As if a person had pressed stop on the pendant."""
        self.request("stop_program")

    def slider(self, fraction: float) -> None:
        """Move the speed slider."""
        self.request("slider", fraction=fraction)

    def remote(self, on: bool = True) -> None:
        """Remote control, or local."""
        self.request("remote", on=on)

    def reset(self) -> None:
        """Take all faults and stops away; ends the program; the arm stays where it is."""
        self.request("reset")

    # --- faults of the network

    def stall(self, seconds: float) -> None:
        """Neither send nor read on the robot's ports for a while."""
        self.request("stall", seconds=seconds)

    def drop(self, *, reset: bool = False) -> int:
        """Close all connections of the robot's ports, by RST where ``reset``; how many."""
        return int(self.request("drop", reset=reset)["dropped"])

    def refuse(self, on: bool = True) -> None:
        """Do not listen on the robot's ports."""
        self.request("refuse", on=on)

    def silent(self, on: bool = True) -> None:
        """Accept new clients on the robot's ports and never answer them."""
        self.request("silent", on=on)

    def malformed(self, data: bytes | None = None) -> None:
        """Send a malformed package, or these bytes, to the RTDE clients."""
        self.request("malformed", **({} if data is None else {"hex": data.hex()}))

    def freeze_clock(self, on: bool = True) -> None:
        """Let the packages' time stamp stand still."""
        self.request("freeze_clock", on=on)

    # --- what the arm did

    def save_record(self, path: Path, since_t: float = 0.0, until_t: float | None = None) -> int:
        """Have the controller write its record of that simulated time, as `ur_record.load_record` reads it; ticks."""
        answer = self.request("record", path=str(path.absolute()), **_period(since_t, until_t))
        return int(answer["ticks"])

    def record(self, since_t: float, until_t: float | None = None) -> dict[str, Any]:
        """At most 1000 ticks (2 s) of the record: lists under t, steady_ns, q, pose, flags."""
        return self.request("record", **_period(since_t, until_t))

    def extremes(self, since_t: float = 0.0, until_t: float | None = None) -> dict[str, Any]:
        """What `ur_record.motion_extremes` says of that simulated time, by the names of `Extremes`."""
        return self.request("extremes", **_period(since_t, until_t))

    def _next(self, timeout_s: float) -> dict[str, Any]:
        while b"\n" not in self._received:
            try:
                self._socket.settimeout(timeout_s)
                data = self._socket.recv(_RECEIVE_BYTES)
            except TimeoutError as error:
                raise SdnpuError(f"{self._where} sent nothing for {timeout_s:g} s") from error
            except OSError as error:
                raise SdnpuError(f"{self._where} went away: {error}") from error
            if not data:
                raise SdnpuError(f"{self._where} went away")
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer


def _period(since_t: float, until_t: float | None) -> dict[str, float]:
    return {"since_t": since_t} if until_t is None else {"since_t": since_t, "until_t": until_t}
