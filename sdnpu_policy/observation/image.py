"""sensor_msgs/Image to 8-bit RGB: by its declared encoding, step and byte order, and nothing is believed unchecked.

A driver may pad rows, leave fields at 0, declare more than it sends, or send another encoding from one day to the
next. What can be read is read as declared; the rest is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

Rgb = NDArray[np.uint8]
"""(H, W, 3) 8-bit RGB."""

MAX_PIXELS = 40_000_000
"""More is no camera's picture."""


@dataclass(frozen=True, slots=True)
class RawImage:
    """The fields of sensor_msgs/Image."""

    height: int
    width: int
    encoding: str
    step: int
    is_bigendian: bool
    data: Any
    """Any buffer of bytes."""


@dataclass(frozen=True, slots=True)
class _Encoding:
    channels: int
    bytes_per_channel: int
    to_rgb: Callable[[NDArray[Any]], NDArray[Any]]
    """From (H, W) or (H, W, channels) of the encoding's dtype to (H, W, 3) uint8."""


def _by_cv(code: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    # The copy costs a tenth of what resizing a view with reordered channels would.
    return lambda picture: np.asarray(cv2.cvtColor(np.ascontiguousarray(picture), code))


_grey = _by_cv(cv2.COLOR_GRAY2RGB)


def _grey16(picture: NDArray[Any]) -> NDArray[Any]:
    # The upper byte: a scale that does not depend on what is in the picture, unlike stretching to its brightest pixel.
    return _grey((picture >> 8).astype(np.uint8))


def _bayer(code: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    convert = _by_cv(code)

    def to_rgb(picture: NDArray[Any]) -> NDArray[Any]:
        if min(picture.shape) < 3:  # OpenCV gives black for these
            raise ImageRejected(
                RejectReason.TOO_SMALL, "image with a Bayer pattern: at least 3x3 pixels are needed"
            )
        return convert(picture)

    return to_rgb


_ENCODINGS: dict[str, _Encoding] = {
    "rgb8": _Encoding(3, 1, lambda picture: picture),
    "bgr8": _Encoding(3, 1, _by_cv(cv2.COLOR_BGR2RGB)),
    "8uc3": _Encoding(3, 1, _by_cv(cv2.COLOR_BGR2RGB)),  # OpenCV's convention for an unnamed three
    "rgba8": _Encoding(4, 1, _by_cv(cv2.COLOR_RGBA2RGB)),  # alpha is dropped, not blended
    "bgra8": _Encoding(4, 1, _by_cv(cv2.COLOR_BGRA2RGB)),
    "mono8": _Encoding(1, 1, _grey),
    "8uc1": _Encoding(1, 1, _grey),
    "mono16": _Encoding(1, 2, _grey16),
    "yuv422": _Encoding(2, 1, _by_cv(cv2.COLOR_YUV2RGB_UYVY)),
    "uyvy": _Encoding(2, 1, _by_cv(cv2.COLOR_YUV2RGB_UYVY)),
    "yuv422_yuy2": _Encoding(2, 1, _by_cv(cv2.COLOR_YUV2RGB_YUY2)),
    "yuyv": _Encoding(2, 1, _by_cv(cv2.COLOR_YUV2RGB_YUY2)),
    # OpenCV names a Bayer pattern by its second row, ROS by its first.
    "bayer_rggb8": _Encoding(1, 1, _bayer(cv2.COLOR_BayerBG2RGB)),
    "bayer_bggr8": _Encoding(1, 1, _bayer(cv2.COLOR_BayerRG2RGB)),
    "bayer_gbrg8": _Encoding(1, 1, _bayer(cv2.COLOR_BayerGR2RGB)),
    "bayer_grbg8": _Encoding(1, 1, _bayer(cv2.COLOR_BayerGB2RGB)),
}
_DEPTH = ("16uc1", "16sc1", "32fc1", "32sc1", "64fc1")


def is_depth(encoding: str) -> bool:
    """Whether an encoding is one of depth or raw values."""
    return encoding.strip().lower() in _DEPTH


def decode_raw(image: RawImage, max_pixels: int = MAX_PIXELS) -> Rgb:
    """The picture as (H, W, 3) 8-bit RGB; for rgb8 a view of the message's bytes, without a copy.

    mono16 is scaled by 1/256. Alpha is dropped. 8UC3 is read as bgr8, 8UC1 as mono8.

    Raises:
        ImageRejected: the fields contradict each other or the data, or the encoding is none of a colour camera.
    """
    height, width = image.height, image.width
    if height <= 0 or width <= 0:
        raise ImageRejected(RejectReason.EMPTY, f"image is {width}x{height}: it has no pixels")
    if height * width > max_pixels:
        raise ImageRejected(RejectReason.TOO_LARGE, f"image is {width}x{height}: more than {max_pixels} pixels")
    encoding = _encoding(image.encoding)
    row_bytes = width * encoding.channels * encoding.bytes_per_channel
    if image.step < row_bytes:
        why = " (the driver left it out)" if image.step == 0 else ""
        raise ImageRejected(
            RejectReason.STEP,
            f"image step is {image.step}{why}: at least {row_bytes} is needed for {width} pixels of {image.encoding}",
        )
    try:
        data = np.frombuffer(image.data, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise ImageRejected(RejectReason.SHORT, f"image data can't be read: {error}") from None
    needed = image.step * (height - 1) + row_bytes
    if data.size < needed:
        raise ImageRejected(
            RejectReason.SHORT,
            f"image data has {data.size} bytes: {width}x{height} {image.encoding} with step {image.step} needs {needed}",
        )
    return _convert(_rows(data, image, row_bytes), image, encoding)


def _encoding(name: str) -> _Encoding:
    key = name.strip().lower()
    if is_depth(name):
        raise ImageRejected(
            RejectReason.DEPTH, f"image encoding is {name}: that is depth or raw values, a colour camera is needed"
        )
    if key not in _ENCODINGS:
        raise ImageRejected(
            RejectReason.ENCODING, f"image encoding is {name!r:.60}: one of {', '.join(_ENCODINGS)} is needed"
        )
    return _ENCODINGS[key]


def _rows(data: NDArray[np.uint8], image: RawImage, row_bytes: int) -> NDArray[np.uint8]:
    """(H, row_bytes): the rows without their padding. The last row may come without it."""
    whole = image.step * image.height
    if data.size >= whole:
        return data[:whole].reshape(image.height, image.step)[:, :row_bytes]
    return np.lib.stride_tricks.as_strided(data, (image.height, row_bytes), (image.step, 1), writeable=False)


def _convert(rows: NDArray[np.uint8], image: RawImage, encoding: _Encoding) -> Rgb:
    picture: NDArray[Any] = rows
    if encoding.bytes_per_channel == 2:
        order = ">u2" if image.is_bigendian else "<u2"
        picture = np.ascontiguousarray(rows).view(order).astype(np.uint16)
    if encoding.channels > 1:
        picture = picture.reshape(image.height, image.width, encoding.channels)
    try:
        return np.asarray(encoding.to_rgb(picture), np.uint8)
    except cv2.error as error:
        raise ImageRejected(
            RejectReason.DAMAGED,
            f"image {image.width}x{image.height} {image.encoding} can't be converted: {_first_line(error)}",
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
