"""The perception process: receives camera images, encodes them, hands conditions to the control process.

A process of its own, because receiving images in the control process makes hundreds of ticks in 4000 late. Started by
the policy node, which gives it mailboxes; it ends when they close. An image that can't be used is counted and named,
and never ends the process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import rclpy
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CompressedImage, Image

from sdnpu_policy.bundle.golden import load_golden
from sdnpu_policy.bundle.interface import check_interface
from sdnpu_policy.bundle.manifest import Bundle, load_bundle
from sdnpu_policy.clock import MS
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.letters import PERCEPTION_STATUS, ROBOT_STATE, ArmStatus, condition_dtype
from sdnpu_policy.mailbox import Reader, Writer
from sdnpu_policy.motion.pose import turn_base
from sdnpu_policy.npu.durations import DurationRing
from sdnpu_policy.npu.providers import Session, StepFailed, check_golden, input_shapes, open_session, warm_up
from sdnpu_policy.observation.compressed import decode_compressed
from sdnpu_policy.observation.condition import ConditionMaker
from sdnpu_policy.observation.history import FrozenDetector, PoseHistory, RateMeter
from sdnpu_policy.observation.image import RawImage, decode_raw
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason
from sdnpu_policy.observation.stamps import StampLimits, StampWatch
from sdnpu_policy.process import install_stop_handlers
from sdnpu_policy.ros.parameters import parse_options
from sdnpu_policy.ros.qos import SENSOR_LATEST

POSE_HISTORY = 2048
"""Robot poses kept: four seconds at 500 Hz."""
STATUS_PERIOD_NS = 100 * MS


class Perception:
    """What becomes of images; made of the bundle and the encoder, fed by the node's callbacks. One thread."""

    def __init__(
        self,
        settings: dict[str, Any],
        bundle: Bundle,
        maker: ConditionMaker,
        conditions: Writer,
        states: Reader,
    ) -> None:
        self.bundle = bundle
        self.features = list(bundle.manifest.observation.cameras)
        self.status: Any = np.zeros((), PERCEPTION_STATUS)
        self._maker = maker
        self._poses = PoseHistory(POSE_HISTORY)
        self._turned = bundle.manifest.action.frame == "base_link"
        self._conditions = conditions
        self._states = states
        self._letter: Any = np.zeros((), condition_dtype(maker.size))
        self._max_pixels = settings["max_pixels"]
        limits = StampLimits(max_age_ms=settings["max_age_ms"], max_future_ms=settings["max_future_ms"])
        self._stamps = [StampWatch(limits) for _ in self.features]
        self._frozen = [FrozenDetector(settings["frozen_after"]) for _ in self.features]
        self._rate = RateMeter()
        self._times = DurationRing(1024)
        self._newest_ns: int | None = None

    def take_robot_states(self) -> None:
        """Take over the newest pose of the robot."""
        letter = self._states.take()
        if letter is None or letter.value["status"] == ArmStatus.STARTING:
            return
        pose = letter.value["pose"].astype(np.float64)
        self._poses.push(letter.stamp_ns, turn_base(pose) if self._turned else pose)

    def on_image(self, camera: int, message: Any, ros_now_ns: int) -> str:
        """Use an image, or say in one line why not (empty when it was used)."""
        received_ns = time.monotonic_ns()
        self.status["images"] += 1
        try:
            stamp = message.header.stamp
            age_ns = self._stamps[camera].check(int(stamp.sec), int(stamp.nanosec), ros_now_ns)
            observed_ns = received_ns - (age_ns or 0)
            rgb = self._decode(message)
            if self._frozen[camera].see(rgb):
                self.status["frozen"] += 1
                raise ImageRejected(
                    RejectReason.FROZEN,
                    "the camera repeats one picture with new stamps (parameter 'image_frozen_after')",
                )
            self._rate.see(received_ns)
            self._newest_ns = observed_ns
            self.take_robot_states()
            self._maker.see(self.features[camera], rgb, observed_ns)
            made = self._maker.make(self._poses)
        except ImageRejected as rejected:
            self.status["rejected"] += 1
            self.status["detail"] = f"{self.features[camera]}: {rejected}".encode()[:400]
            return str(rejected)
        except StepFailed as failed:
            self.status["detail"] = f"the encoder failed: {failed}".encode()[:400]
            return str(failed)
        if made is None:
            self.status["detail"] = self._maker.missing.encode()[:400]
            return ""
        encoded_ns = time.monotonic_ns()
        self._times.record(encoded_ns - received_ns)
        letter = self._letter
        letter["condition"] = made.condition
        letter["observed_pose"] = made.observed_pose
        letter["observed_ns"] = made.observed_ns
        letter["received_ns"] = received_ns
        letter["encoded_ns"] = encoded_ns
        self._conditions.post(letter, encoded_ns)
        self.status["used"] += 1
        return ""

    def fill_status(self) -> None:
        """Bring the numbers of the status up to date."""
        now_ns = time.monotonic_ns()
        times = self._times.statistics()
        self.status["image_rate_hz"] = self._rate.hz(now_ns)
        self.status["image_age_ms"] = np.inf if self._newest_ns is None else (now_ns - self._newest_ns) / MS
        self.status["encode_p50_ms"] = times.p50_ms
        self.status["encode_p99_ms"] = times.p99_ms

    def _decode(self, message: Any) -> Any:
        if isinstance(message, CompressedImage):
            return decode_compressed(message.format, message.data, self._max_pixels)
        return decode_raw(
            RawImage(
                height=message.height,
                width=message.width,
                encoding=message.encoding,
                step=message.step,
                is_bigendian=bool(message.is_bigendian),
                data=message.data,
            )
        )


class PerceptionNode(Node):  # type: ignore[misc]  # rclpy has no type information
    """Subscribes to the cameras; the newest image of each, best effort (REP-2003)."""

    def __init__(self, perception: Perception, topics: Sequence[str], transport: str) -> None:
        super().__init__("sdnpu_policy_perception")
        self._perception = perception
        for camera, topic in enumerate(topics):
            kind, name = (CompressedImage, f"{topic}/compressed") if transport == "compressed" else (Image, topic)
            self.create_subscription(
                kind,
                name,
                lambda message, camera=camera: self._on_image(camera, message),
                SENSOR_LATEST,
                event_callbacks=SubscriptionEventCallbacks(
                    incompatible_qos=lambda event, name=name: self._on_incompatible(name, event)
                ),
                qos_overriding_options=QoSOverridingOptions.with_default_policies(),
            )

    def _on_image(self, camera: int, message: Any) -> None:
        why = self._perception.on_image(camera, message, self.get_clock().now().nanoseconds)
        if why:
            self.get_logger().warning(f"image refused: {why}", throttle_duration_sec=5.0)

    def _on_incompatible(self, name: str, event: Any) -> None:
        why = (
            f"a camera on {name} offers a QoS this node can't take (policy kind {event.last_policy_kind}): "
            "change the camera's or this node's qos_overrides"
        )
        self._perception.status["detail"] = why.encode()[:400]
        self.get_logger().error(why)


def open_encoder(settings: dict[str, Any]) -> tuple[Bundle, Session]:
    """Load the bundle and its encoder, proven by its golden vectors.

    Raises:
        SdnpuError: the bundle or the provider is wrong.
    """
    bundle = load_bundle(settings["policy"])
    options = parse_options("encoder_provider_options", settings["provider_options"])
    encoder = open_session(bundle.file(bundle.manifest.encoder.file), settings["provider"], options)
    outputs = {name: array.shape for name, array in encoder.outputs.items()}
    check_interface(bundle.manifest, "encoder", input_shapes(encoder), outputs)
    golden = load_golden(bundle, "encoder")
    if golden is not None:
        check_golden(encoder, golden.inputs, golden.outputs, golden.min_snr_db)
    warm_up(encoder, 1 if encoder.placement.simulated else 10)
    return bundle, encoder


def main() -> int:
    """Run until the mailboxes close or a signal asks to stop."""
    parser = argparse.ArgumentParser(description="started by the policy node, not by hand")
    parser.add_argument("--settings", required=True, help="JSON")
    for name in ("conditions", "statuses", "states"):
        parser.add_argument(f"--{name}", required=True, help="file descriptors of a mailbox")
    arguments, ros_arguments = parser.parse_known_args()
    settings = json.loads(arguments.settings)
    statuses = Writer.from_fds(_fds(arguments.statuses), PERCEPTION_STATUS)
    states = Reader.from_fds(_fds(arguments.states), ROBOT_STATE)
    rclpy.init(args=ros_arguments, signal_handler_options=SignalHandlerOptions.NO)
    stop = install_stop_handlers()
    try:
        bundle, encoder = open_encoder(settings)
        maker = ConditionMaker(bundle, encoder)
        conditions = Writer.from_fds(_fds(arguments.conditions), condition_dtype(maker.size))
    except SdnpuError as error:
        status: Any = np.zeros((), PERCEPTION_STATUS)
        status["fatal"] = 1
        status["detail"] = str(error).encode()[:400]
        statuses.post(status, time.monotonic_ns())
        print(f"perception: error: {error}", file=sys.stderr)
        rclpy.try_shutdown()
        return 2
    perception = Perception(settings, bundle, maker, conditions, states)
    perception.status["ready"] = 1
    node = PerceptionNode(perception, settings["topics"], settings["transport"])
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    next_status_ns = 0
    while not stop.is_set() and not states.writer_gone:
        try:
            executor.spin_once(timeout_sec=0.05)
        except ExternalShutdownException:
            break
        perception.take_robot_states()
        now_ns = time.monotonic_ns()
        if now_ns >= next_status_ns:
            next_status_ns = now_ns + STATUS_PERIOD_NS
            perception.fill_status()
            statuses.post(perception.status, now_ns)
    executor.shutdown(timeout_sec=1.0)
    node.destroy_node()
    rclpy.try_shutdown()
    encoder.close()
    return 0


def _fds(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
