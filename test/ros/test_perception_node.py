"""The perception process, for real: cameras of every quality of service, and floods of images that can't be used.

Each test has its own ROS domain. Ids are those of the faults seen in the field.
"""

from __future__ import annotations

import array
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from builtin_interfaces.msg import Time  # noqa: E402
from rcl_interfaces.srv import ListParameters  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy  # noqa: E402
from sensor_msgs.msg import CompressedImage, Image  # noqa: E402
from std_msgs.msg import Header  # noqa: E402

from sdnpu_policy.bundle.manifest import load_bundle  # noqa: E402
from sdnpu_policy.clock import MS  # noqa: E402
from sdnpu_policy.letters import ROBOT_STATE, ArmStatus  # noqa: E402
from sdnpu_policy.ros.assembly import perception_settings  # noqa: E402
from sdnpu_policy.ros.links import PerceptionLink, text_of  # noqa: E402
from sdnpu_policy.ros.parameters import PARAMETERS  # noqa: E402
from sdnpu_policy.ros.qos import SENSOR_LATEST  # noqa: E402

pytestmark = pytest.mark.cell

REFERENCE = Path(__file__).resolve().parents[2] / "models" / "reference"
CONDITION_SIZE = 64 + 18
"""The reference encoder's features and the state that is appended."""
TOPIC = "/camera/image_raw"
WAIT_S = 20.0

BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
RELIABLE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE, history=HistoryPolicy.KEEP_LAST)
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class Rig:
    """A perception process, the robot whose poses it hears, and a node for cameras."""

    def __init__(self, transport: str, ros_arguments: list[str]) -> None:
        values = {name: spec.default for name, spec in PARAMETERS.items()} | {"image_transport": transport}
        settings = perception_settings(values, load_bundle(REFERENCE), [TOPIC])
        self.link = PerceptionLink.start(settings, CONDITION_SIZE, ros_arguments)
        self.node = Node("cameras")
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.status: Any = None
        self.conditions: list[Any] = []
        self._noise = np.random.default_rng(0)

    def camera(self, qos: QoSProfile, kind: type = Image) -> Any:
        topic = f"{TOPIC}/compressed" if kind is CompressedImage else TOPIC
        publisher = self.node.create_publisher(kind, topic, qos)
        self.until(lambda: publisher.get_subscription_count() > 0)
        return publisher

    def image(self, height: int = 96, width: int = 128, **fields: Any) -> Image:
        """A picture of noise, with some of its fields set otherwise."""
        data = array.array("B", self._noise.bytes(96 * 128 * 3 if "data" not in fields else 0))
        message = Image(height=height, width=width, encoding="rgb8", step=384, data=data)
        message.header.stamp = self.node.get_clock().now().to_msg()
        for name, value in fields.items():
            setattr(message, name, value)
        return message

    def vga(self) -> Image:
        """A picture as large as a camera's: many packets."""
        data = array.array("B", self._noise.bytes(480 * 640 * 3))
        return self.image(height=480, width=640, step=1920, data=data)

    def compressed(self, format_text: str, data: bytes) -> CompressedImage:
        message = CompressedImage(format=format_text, data=array.array("B", data))
        message.header.stamp = self.node.get_clock().now().to_msg()
        return message

    def jpeg(self) -> bytes:
        pixels = self._noise.integers(0, 256, (96, 128, 3), np.uint8)
        return bytes(cv2.imencode(".jpg", pixels)[1])

    def turn(self) -> None:
        """What the control process does: post the robot's pose, take what has come."""
        state: Any = np.zeros((), ROBOT_STATE)
        state["status"] = ArmStatus.READY
        state["pose"] = [0.5, 0.0, 0.2, 1.0, 0.0, 0.0, 0.0]
        self.link.states.post(state, time.monotonic_ns())
        self.executor.spin_once(timeout_sec=0.005)
        condition, status = self.link.conditions.take(), self.link.statuses.take()
        if condition is not None:
            self.conditions.append(condition.value)
        if status is not None:
            self.status = status.value

    def until(self, condition: Callable[[], object]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end_s, f"in vain; the last status was {self.status}"
            assert self.link.child.alive, self.link.child.describe_exit()
            self.turn()

    def counted(self, field: str) -> int:
        return 0 if self.status is None else int(self.status[field])

    def stream_until(self, camera: Any, make: Callable[[], Any], condition: Callable[[], object]) -> None:
        """Publish a message every 33 ms; a best-effort subscription may miss some."""
        next_s = 0.0

        def publish_and_ask() -> object:
            nonlocal next_s
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + 0.033
                camera.publish(make())
            return condition()

        self.until(publish_and_ask)

    def rejects(self, camera: Any, make: Callable[[], Any], why: str) -> None:
        """Publish such messages until the status says of one that it is refused, and why."""
        before = self.counted("rejected")
        self.stream_until(
            camera,
            make,
            lambda: self.counted("rejected") > before and why in text_of(self.status["detail"]),
        )


@pytest.fixture
def start(ros_domain_id: int) -> Iterator[Callable[..., Rig]]:
    """Starts a perception process and waits until it is ready."""
    rclpy.init(args=[])
    rigs: list[Rig] = []

    def make(transport: str = "raw", ros_arguments: list[str] | None = None) -> Rig:
        rigs.append(Rig(transport, ros_arguments or []))
        rigs[-1].link.wait_ready(WAIT_S)
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.link.close()
        rig.executor.shutdown()
        rig.node.destroy_node()
    rclpy.shutdown()


def parameters_of(rig: Rig, node: str) -> list[str]:
    client = rig.node.create_client(ListParameters, f"{node}/list_parameters")
    rig.until(client.service_is_ready)
    answer = client.call_async(ListParameters.Request())
    rig.until(answer.done)
    return list(answer.result().result.names)


def test_images_of_every_camera_arrive_and_become_conditions(start: Callable[..., Rig]) -> None:
    """QOS-01, QOS-02, T-QOS"""
    rig = start()
    for qos in (BEST_EFFORT, RELIABLE, LATCHED):
        camera = rig.camera(qos)
        before = len(rig.conditions)
        rig.stream_until(camera, rig.vga, lambda before=before: len(rig.conditions) > before)
        rig.node.destroy_publisher(camera)
    condition = rig.conditions[-1]
    assert np.isfinite(condition["condition"]).all() and condition["condition"][:64].any()
    assert condition["observed_pose"].tolist() == [0.5, 0.0, 0.2, 1.0, 0.0, 0.0, 0.0]
    assert condition["observed_ns"] <= condition["received_ns"] <= condition["encoded_ns"]
    assert condition["received_ns"] - condition["observed_ns"] <= 200 * MS
    overrides = [name for name in parameters_of(rig, "/sdnpu_policy_perception") if "qos_overrides" in name]
    for policy in ("depth", "history", "reliability"):
        assert f"qos_overrides.{TOPIC}.subscription.{policy}" in overrides


def test_the_subscription_keeps_the_newest_image_alone() -> None:
    """QOS-03"""
    assert (SENSOR_LATEST.depth, SENSOR_LATEST.history) == (1, HistoryPolicy.KEEP_LAST)
    assert SENSOR_LATEST.reliability is ReliabilityPolicy.BEST_EFFORT
    assert SENSOR_LATEST.durability is DurabilityPolicy.VOLATILE


def test_a_camera_whose_qos_does_not_fit_is_told_in_the_status(start: Callable[..., Rig]) -> None:
    """QOS-01, QOS-02"""
    override = f"qos_overrides.{TOPIC}.subscription.reliability:=reliable"
    rig = start(ros_arguments=["--ros-args", "-p", override])
    rig.node.create_publisher(Image, TOPIC, BEST_EFFORT)
    rig.until(lambda: rig.status is not None and "qos_overrides" in text_of(rig.status["detail"]))
    assert TOPIC in text_of(rig.status["detail"])
    assert rig.counted("images") == 0


def test_a_flood_of_broken_raw_images_is_counted_and_the_process_lives(start: Callable[..., Rig]) -> None:
    """IMG-03, IMG-04, IMG-05, IMG-09, IMG-12, IMG-21, STAMP-01, STAMP-02"""
    rig = start()
    camera = rig.camera(RELIABLE)
    broken: list[tuple[dict[str, Any], str]] = [
        ({"step": 0}, "step is 0"),
        ({"step": 383}, "at least 384"),
        ({"data": array.array("B")}, "has 0 bytes"),
        ({"data": array.array("B", bytes(30))}, "has 30 bytes"),
        ({"height": 0, "width": 0, "step": 0}, "no pixels"),
        ({"height": 2**32 - 1, "width": 2**32 - 1, "step": 2**32 - 1}, "more than"),
        ({"step": 2**32 - 1}, "with step 4294967295 needs"),
        ({"encoding": ""}, "encoding is ''"),
        ({"encoding": "nonsense\n\x1b[2J"}, "encoding is 'nonsense"),
        ({"encoding": "16UC1"}, "encoding is 16UC1: that is depth"),
        ({"encoding": "32FC1", "step": 512}, "encoding is 32FC1: that is depth"),
        ({"encoding": "yuv422_yuy2", "width": 127}, "can't be converted"),
        ({"encoding": "bayer_rggb8", "height": 2}, "at least 3x3"),
        ({"encoding": "mono16", "height": 1000}, "128x1000 mono16"),
    ]
    for fields, why in broken:
        rig.rejects(camera, lambda fields=fields: rig.image(**fields), why)
    for sec, nanosec, why in (
        (1, 0, "ms old"),
        (2_147_483_647, 0, "in the future"),
        (5, 2**32 - 1, "nanosec 4294967295"),
        (-5, 0, "sec -5"),
    ):
        header = Header(stamp=Time(sec=sec, nanosec=nanosec))
        rig.rejects(camera, lambda header=header: rig.image(header=header), why)
    assert rig.counted("rejected") == rig.counted("images") >= len(broken) + 4
    assert rig.counted("used") == 0 and not rig.conditions
    rig.stream_until(camera, rig.image, lambda: rig.counted("used") > 0)


def test_a_flood_of_broken_compressed_images_is_counted_and_the_process_lives(start: Callable[..., Rig]) -> None:
    """IMG-15, IMG-16, IMG-17, IMG-21"""
    rig = start(transport="compressed")
    camera = rig.camera(RELIABLE, CompressedImage)
    good = rig.jpeg()
    at = good.index(b"\xff\xc0") + 5
    png = bytes(cv2.imencode(".png", np.zeros((4, 4), np.uint16))[1])
    broken = [
        ("jpeg", b"", "no data"),
        ("jpeg", b"0123456789", "neither JPEG nor PNG"),
        ("jpeg", good[:5000], "JPEG without its end"),
        ("jpeg", good[:at] + struct.pack(">HH", 20_000, 20_000) + good[at + 4 :], "declares 20000x20000"),
        ("png", png[:20], "PNG without its end"),
        ("png", png, "may be depth"),
        ("16UC1; compressedDepth", struct.pack("<iff", 0, 1.0, 2.0) + png, "colour camera"),
        ("h264", good, "format is 'h264'"),
        ("\n\x1b[2J" * 200, good, "jpeg or png is needed"),
    ]
    for format_text, data, why in broken:
        rig.rejects(camera, lambda f=format_text, d=data: rig.compressed(f, d), why)
    assert rig.counted("rejected") == rig.counted("images") >= len(broken)
    assert rig.counted("used") == 0 and not rig.conditions
    rig.stream_until(
        camera, lambda: rig.compressed("bgr8; jpeg compressed bgr8", rig.jpeg()), lambda: rig.conditions
    )


def test_a_camera_that_stops_and_repeats_itself_gives_no_conditions_until_it_is_back(
    start: Callable[..., Rig],
) -> None:
    """CAM-01, T-CAM"""
    rig = start()
    camera = rig.camera(RELIABLE)
    rig.stream_until(camera, rig.image, lambda: rig.counted("used") > 2)
    fresh_ns = int(rig.conditions[-1]["observed_ns"])
    rig.until(lambda: rig.status["image_age_ms"] > 400.0)
    assert int(rig.conditions[-1]["observed_ns"]) - fresh_ns < 400 * MS
    still = rig.image().data
    rig.stream_until(camera, lambda: rig.image(data=still), lambda: rig.counted("frozen") > 3)
    assert "repeats one picture" in text_of(rig.status["detail"])
    used = rig.counted("used")
    rig.rejects(camera, lambda: rig.image(data=still), "repeats one picture")
    assert rig.counted("used") == used
    rig.stream_until(camera, rig.image, lambda: rig.counted("used") > used)


def test_a_wrong_policy_is_said_in_one_line_and_ends_the_process(ros_domain_id: int) -> None:
    values = {name: spec.default for name, spec in PARAMETERS.items()}
    settings = perception_settings(values, load_bundle(REFERENCE), [TOPIC]) | {"policy": "/nowhere"}
    link = PerceptionLink.start(settings, CONDITION_SIZE, [])
    try:
        with pytest.raises(Exception, match=r"/nowhere: there is no such directory"):
            link.wait_ready(WAIT_S)
        assert link.child.wait(WAIT_S) == 2
    finally:
        link.close()
