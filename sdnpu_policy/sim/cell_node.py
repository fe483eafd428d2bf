"""ROS 2 node: the work cell's camera, which sees the arm of the simulated controller where it really is.

Publishes `image_raw` (rgb8) and `camera_info`, and `image_raw/compressed` (JPEG) while someone listens. Until the
controller has told a pose nothing is published; when it goes away, the arm stays where it was.
"""

from __future__ import annotations

import sys
import time
from array import array

import cv2
import numpy as np
import rclpy
import rclpy.executors
from numpy.typing import NDArray
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.exceptions import ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from rclpy.time import Duration
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from sdnpu_policy.clock import SECOND
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.process import install_stop_handlers
from sdnpu_policy.sim.cell import FOCAL_PX, PRINCIPAL_POINT_PX, make_scene, render
from sdnpu_policy.sim.cell_feed import PoseFeed

FAULTS = {
    "none": "a healthy camera",
    "frozen": "the same picture again and again, with fresh stamps",
    "black": "black pictures",
    "stopped": "no pictures",
    "stale": "stamps of a second ago",
}
JPEG_QUALITY = 90
STALE_BY_S = 1.0


class CellCamera(Node):  # type: ignore[misc]  # rclpy has no type information
    """Draws and publishes a picture when told to; everything runs in the thread that spins the node."""

    def __init__(self) -> None:
        super().__init__("cell_camera")
        self._declare("robot_ip", "127.0.0.1", "address of the simulated controller", read_only=True)
        self._declare("frame_id", "camera_optical_frame", "frame of the pictures", read_only=True)
        self._declare("rate_hz", 30.0, "pictures a second", low=1.0, high=120.0)
        self._declare("seed", 0, "family of scenes", low=0, high=2**31 - 1)
        self._declare("scene", 0, "number of the scene in its family", low=0, high=2**31 - 1)
        self._declare("fault", "none", "; ".join(f"{name}: {text}" for name, text in FAULTS.items()))
        self._declare("compressed", False, "publish image_raw/compressed even if nobody is known to listen")
        problem = _problem(self.get_parameters(["fault", "frame_id", "robot_ip"]))
        if problem:
            raise SdnpuError(problem)
        self.add_on_set_parameters_callback(_check)

        self._raw = self.create_publisher(Image, "image_raw", qos_profile_sensor_data)
        self._jpeg = self.create_publisher(CompressedImage, "image_raw/compressed", qos_profile_sensor_data)
        self._info = self.create_publisher(CameraInfo, "camera_info", qos_profile_sensor_data)
        self._feed = PoseFeed(str(self.get_parameter("robot_ip").value))
        self._was_connected: bool | None = None
        self._numbers = (-1, -1)
        self._scene = make_scene(0, 0)
        self._rng = np.random.default_rng()
        self._last: NDArray[np.uint8] | None = None

    @property
    def period_ns(self) -> int:
        """Between two pictures."""
        return int(SECOND / float(self.get_parameter("rate_hz").value))

    def publish(self) -> None:
        """Draw the cell as it is now and send it out, as the fault allows."""
        self._follow_robot()
        self._follow_scene()
        fault = str(self.get_parameter("fault").value)
        if self._feed.pose is None or fault == "stopped":
            return
        now = self.get_clock().now()
        if fault == "stale":
            now -= Duration(seconds=STALE_BY_S)
        if fault != "frozen" or self._last is None:
            self._last = render(self._scene, self._feed.pose, self._rng)
        picture = np.zeros_like(self._last) if fault == "black" else self._last
        header = Header(stamp=now.to_msg(), frame_id=str(self.get_parameter("frame_id").value))
        self._raw.publish(_raw_image(header, picture))
        self._info.publish(_camera_info(header, *picture.shape[:2]))
        if self._jpeg.get_subscription_count() or bool(self.get_parameter("compressed").value):
            self._jpeg.publish(_jpeg_image(header, picture))

    def close(self) -> None:
        """Leave the controller."""
        self._feed.close()

    def _follow_robot(self) -> None:
        self._feed.poll(time.monotonic_ns())
        if self._feed.connected != self._was_connected:
            self._was_connected = self._feed.connected
            address = self.get_parameter("robot_ip").value
            state = "sees the arm of" if self._was_connected else "waits for"
            self.get_logger().info(f"{state} the simulated controller at {address}")

    def _follow_scene(self) -> None:
        numbers = (int(self.get_parameter("seed").value), int(self.get_parameter("scene").value))
        if numbers != self._numbers:
            self._numbers = numbers
            self._scene = make_scene(*numbers)
            self._rng = np.random.default_rng([*numbers, 1])
            self._last = None
            self.get_logger().info(f"scene {numbers[1]} of seed {numbers[0]}")

    def _declare(
        self,
        name: str,
        default: str | float | int | bool,
        text: str,
        *,
        low: float | None = None,
        high: float | None = None,
        read_only: bool = False,
    ) -> None:
        descriptor = ParameterDescriptor(description=text, read_only=read_only)
        if isinstance(default, float) and low is not None and high is not None:
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
        elif low is not None and high is not None:
            descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high))]
        try:
            self.declare_parameter(name, default, descriptor)
        except ParameterException as error:
            bounds = f", {low:g} to {high:g}" if low is not None and high is not None else ""
            raise SdnpuError(
                f"parameter '{name}': {' '.join(str(error).split())}; a {type(default).__name__}{bounds} is needed"
            ) from None


def _check(changes: list[Parameter]) -> SetParametersResult:
    problem = _problem(changes)
    return SetParametersResult(successful=problem is None, reason=problem or "")


def _problem(parameters: list[Parameter]) -> str | None:
    """What no range can say: why one of the values can't be, as one line."""
    for parameter in parameters:
        if parameter.name == "fault" and parameter.value not in FAULTS:
            return f"parameter 'fault' is {parameter.value!r}: one of {', '.join(FAULTS)} is needed"
        if parameter.name in ("frame_id", "robot_ip") and not parameter.value:
            return f"parameter '{parameter.name}' is empty: a name is needed"
    return None


def _raw_image(header: Header, picture: NDArray[np.uint8]) -> Image:
    height, width, channels = picture.shape
    return Image(
        header=header,
        height=int(height),
        width=int(width),
        encoding="rgb8",
        is_bigendian=0,
        step=int(width * channels),
        data=array("B", picture.tobytes()),
    )


def _jpeg_image(header: Header, picture: NDArray[np.uint8]) -> CompressedImage:
    _, encoded = cv2.imencode(".jpg", picture[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return CompressedImage(header=header, format="rgb8; jpeg compressed bgr8", data=array("B", encoded.tobytes()))


def _camera_info(header: Header, height: int, width: int) -> CameraInfo:
    f, (cx, cy) = float(FOCAL_PX), PRINCIPAL_POINT_PX
    return CameraInfo(
        header=header,
        height=int(height),
        width=int(width),
        distortion_model="plumb_bob",
        d=[0.0] * 5,
        k=[f, 0.0, float(cx), 0.0, f, float(cy), 0.0, 0.0, 1.0],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[f, 0.0, float(cx), 0.0, 0.0, f, float(cy), 0.0, 0.0, 0.0, 1.0, 0.0],
    )


def main() -> int:
    """Run the node until SIGINT or SIGTERM; exit status 0, or 2 where a parameter is wrong."""
    cv2.setNumThreads(1)
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    stop = install_stop_handlers()
    try:
        camera = CellCamera()
    except SdnpuError as error:
        print(f"cell_node: error: {error}", file=sys.stderr)
        rclpy.try_shutdown()
        return 2
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(camera)
    next_ns = time.monotonic_ns()
    try:
        while not stop.is_set():
            now_ns = time.monotonic_ns()
            if now_ns < next_ns:
                executor.spin_once(timeout_sec=min((next_ns - now_ns) / SECOND, 0.05))
                continue
            camera.publish()
            # Pictures that were missed are not made up for.
            next_ns = max(next_ns + camera.period_ns, now_ns)
    finally:
        camera.close()
        executor.shutdown(timeout_sec=1.0)
        camera.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
