"""The simulated camera as a ROS node: pictures of the arm where the controller says it is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from rclpy.qos import qos_profile_sensor_data  # noqa: E402
from sensor_msgs.msg import CameraInfo, CompressedImage, Image  # noqa: E402

from sdnpu_policy.sim import cell_node  # noqa: E402
from sdnpu_policy.sim.cell_feed import CONTROL_PORT  # noqa: E402


@pytest.fixture
def controller(loopback: str) -> Iterator[str]:
    """The control channel of a controller whose arm stands still; its address."""
    with socket.create_server((loopback, CONTROL_PORT)) as listening:
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(1000)
                    peer.sendall(json.dumps({"t": 0.0, "pose": [0.5, -0.2, 0.2, 0, np.pi, 0]}).encode() + b"\n")
                    stop.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        yield loopback
        stop.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


class Rig:
    """The node under test and a listener, spun by the test."""

    def __init__(self, address: str) -> None:
        self.camera = cell_node.CellCamera()
        self.camera.set_parameters([Parameter("scene", value=1)])
        self.listener = Node("listener")
        self.received: dict[type, list[object]] = {Image: [], CompressedImage: [], CameraInfo: []}
        self.executor = SingleThreadedExecutor()
        for node in (self.camera, self.listener):
            self.executor.add_node(node)

    def listen(self, kind: type, topic: str) -> None:
        self.listener.create_subscription(kind, topic, self.received[kind].append, qos_profile_sensor_data)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "nothing came"
            self.camera.publish()
            for _ in range(4):
                self.executor.spin_once(timeout_sec=0.005)

    def next(self, kind: type) -> object:
        """A message published from now on: what was on its way is let pass first."""
        for _ in range(10):
            self.executor.spin_once(timeout_sec=0.005)
        self.received[kind].clear()
        self.until(lambda: bool(self.received[kind]))
        return self.received[kind][-1]


@pytest.fixture
def rig(controller: str, ros_domain_id: int) -> Iterator[Rig]:
    rclpy.init(args=["--ros-args", "-p", f"robot_ip:={controller}"])
    made = Rig(controller)
    yield made
    made.camera.close()
    made.executor.shutdown()
    made.camera.destroy_node()
    made.listener.destroy_node()
    rclpy.shutdown()


def pixels(message: Image) -> np.ndarray:
    return np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)


def test_pictures_are_rgb8_with_a_frame_and_a_fresh_stamp(rig: Rig) -> None:
    rig.listen(Image, "image_raw")
    rig.listen(CameraInfo, "camera_info")
    image = rig.next(Image)
    assert (image.width, image.height, image.encoding, image.step) == (640, 480, "rgb8", 1920)
    assert image.header.frame_id
    age_s = time.time() - image.header.stamp.sec - image.header.stamp.nanosec * 1e-9
    assert 0 <= age_s < 5
    info = rig.next(CameraInfo)
    assert info.header.frame_id == image.header.frame_id
    assert list(info.k) == [615.0, 0.0, 322.0, 0.0, 615.0, 242.0, 0.0, 0.0, 1.0]


def test_the_jpeg_shows_the_same_cell_in_the_same_colours(rig: Rig) -> None:
    rig.listen(Image, "image_raw")
    rig.listen(CompressedImage, "image_raw/compressed")
    raw = pixels(rig.next(Image)).astype(float)
    jpeg = rig.next(CompressedImage)
    decoded = cv2.imdecode(np.frombuffer(jpeg.data, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
    assert np.abs(cv2.blur(raw - decoded, (15, 15))).mean() < 4


def test_another_scene_is_shown_once_the_parameter_says_so(rig: Rig) -> None:
    rig.listen(Image, "image_raw")
    before = pixels(rig.next(Image)).astype(float)
    assert rig.camera.set_parameters([Parameter("scene", value=7)])[0].successful
    assert np.abs(pixels(rig.next(Image)) - before).mean() > 8


@pytest.mark.parametrize("fault", ["frozen", "black", "stale"])
def test_a_fault_shows(rig: Rig, fault: str) -> None:
    rig.listen(Image, "image_raw")
    rig.next(Image)
    rig.camera.set_parameters([Parameter("fault", value=fault)])
    first, second = rig.next(Image), rig.next(Image)
    if fault == "frozen":
        assert np.array_equal(pixels(first), pixels(second))
    elif fault == "black":
        assert not pixels(first).any()
    else:
        assert time.time() - second.header.stamp.sec - second.header.stamp.nanosec * 1e-9 > 0.9
    assert first.header.stamp != second.header.stamp


def test_a_stopped_camera_sends_nothing(rig: Rig) -> None:
    rig.listen(Image, "image_raw")
    rig.next(Image)
    rig.camera.set_parameters([Parameter("fault", value="stopped")])
    for _ in range(10):
        rig.executor.spin_once(timeout_sec=0.005)
    rig.received[Image].clear()
    for _ in range(5):
        rig.camera.publish()
        rig.executor.spin_once(timeout_sec=0.005)
    assert not rig.received[Image]


@pytest.mark.parametrize(
    ("name", "value"),
    [("fault", "broken"), ("scene", -1), ("rate_hz", 0.0), ("frame_id", ""), ("rate_hz", float("nan"))],
)
def test_a_wrong_value_is_refused_at_run_time(rig: Rig, name: str, value: object) -> None:
    assert not rig.camera.set_parameters([Parameter(name, value=value)])[0].successful


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sdnpu_policy.sim.cell_node", "--ros-args", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_a_signal_ends_it_with_status_0(
    controller: str, ros_domain_id: int, signals: list[signal.Signals]
) -> None:
    process = start(["-p", f"robot_ip:={controller}"])
    assert process.stderr is not None
    watchdog = threading.Timer(20, process.kill)  # instead of waiting for ever for a line that does not come
    watchdog.start()
    assert any("sees the arm" in line for line in process.stderr)
    for number in signals:
        process.send_signal(number)
    _, remaining = process.communicate(timeout=20)
    watchdog.cancel()
    assert process.returncode == 0
    assert "Traceback" not in remaining


@pytest.mark.parametrize("argument", ["fault:=broken", "rate_hz:=0.0", "rate_hz:=fast", "frame_id:=''"])
def test_a_wrong_argument_is_one_line_and_status_2(ros_domain_id: int, argument: str) -> None:
    process = start(["-p", argument])
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    lines = [line for line in errors.splitlines() if "error:" in line]
    assert len(lines) == 1
    assert argument.split(":")[0] in lines[0]
    assert "Traceback" not in errors
