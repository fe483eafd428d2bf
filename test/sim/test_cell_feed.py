"""The camera's view of the arm: the pose stream of the simulated controller's control channel."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from sdnpu_policy.sim.cell_feed import CONTROL_PORT, RETRY_NS, PoseFeed

POSE = [0.5, 0.1, 0.2, 0.0, np.pi, 0.0]  # tool down, yaw pi


@pytest.fixture
def server(loopback: str) -> Iterator[socket.socket]:
    """A control channel that accepts, at the test's own address."""
    with socket.create_server((loopback, CONTROL_PORT)) as listening:
        listening.settimeout(5)
        yield listening


def until(condition: Callable[[], bool], feed: PoseFeed, now_ns: int = 0) -> None:
    """Poll until the loopback network has delivered."""
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        feed.poll(now_ns)
        time.sleep(0.001)


def connect(server: socket.socket, feed: PoseFeed, now_ns: int = 0) -> socket.socket:
    until(lambda: feed.connected, feed, now_ns)
    return server.accept()[0]


def line(**values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"


def test_it_asks_for_the_stream_once_connected(server: socket.socket, loopback: str) -> None:
    feed = PoseFeed(loopback)
    with connect(server, feed) as peer:
        request = json.loads(peer.makefile().readline())
    assert request["op"] == "subscribe"
    assert request["hz"] >= 60
    feed.close()


def test_the_newest_pose_is_kept_whatever_else_arrives(server: socket.socket, loopback: str) -> None:
    feed = PoseFeed(loopback)
    with connect(server, feed) as peer:
        older = [0.4, *POSE[1:]]
        peer.sendall(line(ok=True) + line(t=1.0, pose=older) + line(t=2.0, pose=POSE) + line(note="no pose"))
        peer.sendall(b'{"t": 3.0, "po')
        until(lambda: feed.pose is not None and feed.pose[0] == 0.5, feed)
    assert feed.pose is not None
    assert feed.pose[:3] == pytest.approx([0.5, 0.1, 0.2])
    assert np.abs(feed.pose[3:]) == pytest.approx([0, 1, 0, 0], abs=1e-9)
    feed.close()


def test_a_line_in_two_pieces_is_put_together(server: socket.socket, loopback: str) -> None:
    feed = PoseFeed(loopback)
    whole = line(t=1.0, pose=POSE)
    with connect(server, feed) as peer:
        peer.sendall(whole[:20])
        feed.poll(0)
        peer.sendall(whole[20:])
        until(lambda: feed.pose is not None, feed)
    feed.close()


@pytest.mark.parametrize(
    "damaged", [b"not json\n", b"[1, 2]\n", line(pose=[1, 2, 3]), line(pose="up"), line(pose=[float("nan")] * 6)]
)
def test_a_damaged_line_does_not_change_the_pose(server: socket.socket, loopback: str, damaged: bytes) -> None:
    feed = PoseFeed(loopback)
    with connect(server, feed) as peer:
        peer.sendall(line(pose=POSE) + damaged)
        until(lambda: feed.pose is not None, feed)
        assert feed.connected
    feed.close()


def test_the_pose_stays_when_the_controller_goes_and_the_feed_connects_again(
    server: socket.socket, loopback: str
) -> None:
    feed = PoseFeed(loopback)
    with connect(server, feed) as peer:
        peer.sendall(line(pose=POSE))
        until(lambda: feed.pose is not None, feed)
    until(lambda: not feed.connected, feed)
    assert feed.pose is not None
    with connect(server, feed, now_ns=2 * RETRY_NS):
        assert feed.connected
    feed.close()


def test_no_controller_means_no_pose_and_no_waiting(loopback: str) -> None:
    feed = PoseFeed(loopback)
    for tick in range(10):
        feed.poll(tick * RETRY_NS)
    assert feed.pose is None
    assert not feed.connected


def test_what_is_no_address_is_borne(slot: int) -> None:
    feed = PoseFeed("not an address")
    feed.poll(0)
    assert not feed.connected


def test_a_line_without_end_is_cut_off(server: socket.socket, loopback: str) -> None:
    feed = PoseFeed(loopback)
    with connect(server, feed) as peer:
        peer.settimeout(5)
        peer.sendall(b"x" * 100_000)
        until(lambda: not feed.connected, feed)
