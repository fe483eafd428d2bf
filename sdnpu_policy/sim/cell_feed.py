"""Where the simulated arm really is: follows the pose stream of the simulated controller's control channel.

The channel is TCP with a JSON object a line. This side asks once with {"op": "subscribe", "hz": ...} and reads
lines with a "pose" of x, y, z in metres and a rotation vector in radians, in the base frame.
"""

from __future__ import annotations

import errno
import json
import select
import socket

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import SECOND
from sdnpu_policy.motion.pose import ur_to_pose

CONTROL_PORT = 30099
RATE_HZ = 125  # a pose is at most 8 ms old when a picture is drawn
RETRY_NS = SECOND // 2
_LARGEST_LINE = 1 << 16


class PoseFeed:
    """Keeps the newest pose; `poll` never waits, connects, and connects again when the controller was gone."""

    def __init__(self, address: str, port: int = CONTROL_PORT) -> None:
        self.pose: NDArray[np.float64] | None = None
        """Newest pose (7,) of the tool in the base frame; kept while the controller is gone."""
        self._remote = (address, port)
        self._socket: socket.socket | None = None
        self._connected = False
        self._retry_ns: int | None = None
        self._unread = b""

    @property
    def connected(self) -> bool:
        """Whether there is a controller at the other end."""
        return self._connected

    def poll(self, now_ns: int) -> None:
        """Take what has arrived, or go on with connecting."""
        if self._socket is None:
            if self._retry_ns is not None and now_ns < self._retry_ns:
                return
            self._retry_ns = now_ns + RETRY_NS
            self._begin()
        try:
            if not self._connected:
                self._finish()
            if self._connected:
                self._drain()
        except OSError:
            self.close()

    def close(self) -> None:
        """Drop the connection; the next `poll` may open another."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._connected, self._unread = None, False, b""

    def _begin(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            result = self._socket.connect_ex(self._remote)
        except OSError:  # not an address
            result = errno.EINVAL
        if result not in (0, errno.EINPROGRESS):
            self.close()

    def _finish(self) -> None:
        if self._socket is None or not select.select([], [self._socket], [], 0)[1]:
            return
        failure = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, "connect")
        self._socket.sendall(json.dumps({"op": "subscribe", "hz": RATE_HZ}).encode() + b"\n")
        self._connected = True

    def _drain(self) -> None:
        assert self._socket is not None
        while True:
            try:
                received = self._socket.recv(_LARGEST_LINE)
            except BlockingIOError:
                break
            if not received:
                raise ConnectionError
            self._unread += received
        *lines, self._unread = self._unread.split(b"\n")
        if len(self._unread) > _LARGEST_LINE:
            raise ConnectionError
        for line in reversed(lines):
            pose = _pose_in(line)
            if pose is not None:
                self.pose = pose
                break


def _pose_in(line: bytes) -> NDArray[np.float64] | None:
    """The pose of one line, None where it has none."""
    try:
        values = np.array(json.loads(line)["pose"], np.float64)
    except (ValueError, KeyError, TypeError):
        return None
    if values.shape != (6,) or not np.isfinite(values).all():
        return None
    return ur_to_pose(values)
