"""sensor_msgs/CompressedImage to 8-bit RGB: JPEG and PNG, after a look at what the file says of itself.

The size is read from the file's header before anything is decoded: a few bytes can declare gigabytes.
"""

from __future__ import annotations

import struct
from typing import Any

import cv2
import numpy as np

from sdnpu_policy.observation.image import MAX_PIXELS, Rgb
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_NO_LENGTH = {0x01, *range(0xD0, 0xDA)}
"""JPEG markers that no length follows."""
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that declare the picture's size (SOF)."""


def decode_compressed(format_text: str, data: Any, max_pixels: int = MAX_PIXELS) -> Rgb:
    """The picture as (H, W, 3) 8-bit RGB. ``format_text`` is read as tolerantly as drivers write it.

    Raises:
        ImageRejected: neither JPEG nor PNG, depth, empty, damaged, or larger than ``max_pixels``.
    """
    _check_format(format_text)
    try:
        content = memoryview(data).cast("B")
    except (TypeError, ValueError, BufferError) as error:
        raise ImageRejected(RejectReason.SHORT, f"compressed image data can't be read: {error}") from None
    if not len(content):
        raise ImageRejected(RejectReason.EMPTY, "compressed image has no data")
    head = bytes(content[:8])
    if head == _PNG:
        size = _png_size(content)
    elif head[:2] == _JPEG:
        size = _jpeg_size(content)
    else:
        raise ImageRejected(
            RejectReason.FORMAT,
            f"compressed image ({format_text!r:.60}) begins with {head.hex()}: neither JPEG nor PNG",
        )
    if size is None:
        raise ImageRejected(
            RejectReason.DAMAGED, f"compressed image of {len(content)} bytes has no whole header or end"
        )
    width, height = size
    if width <= 0 or height <= 0 or width * height > max_pixels:
        raise ImageRejected(
            RejectReason.TOO_LARGE,
            f"compressed image declares {width}x{height}: 1 to {max_pixels} pixels are allowed",
        )
    try:
        picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise ImageRejected(
            RejectReason.DAMAGED, f"compressed image can't be decoded: {str(error)[:120]}"
        ) from None
    if picture is None:
        raise ImageRejected(RejectReason.DAMAGED, f"compressed image of {len(content)} bytes can't be decoded")
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), np.uint8)


def _check_format(text: str) -> None:
    words = text.lower()
    if "compresseddepth" in words:
        raise ImageRejected(
            RejectReason.DEPTH,
            f"compressed image format is {text!r:.60}: that is depth, a colour camera is needed",
        )
    if words.lstrip().startswith(("16uc1", "32fc1")):
        raise ImageRejected(
            RejectReason.DEPTH,
            f"compressed image format is {text!r:.60}: those are raw values, a colour camera is needed",
        )
    if words.strip() and not any(token in words for token in ("jpeg", "jpg", "png")):
        raise ImageRejected(RejectReason.FORMAT, f"compressed image format is {text!r:.60}: jpeg or png is needed")


def _png_size(content: memoryview) -> tuple[int, int] | None:
    if len(content) < 33 or bytes(content[12:16]) != b"IHDR" or bytes(content[-8:-4]) != b"IEND":
        return None
    width, height = struct.unpack(">II", content[16:24])
    return int(width), int(height)


def _jpeg_size(content: memoryview) -> tuple[int, int] | None:
    """From the frame header; None where it is missing, or the end marker, without which rows may be."""
    if b"\xff\xd9" not in bytes(content[-64:]):
        return None
    at = 2
    while at + 4 <= len(content):
        if content[at] != 0xFF:
            return None
        marker = content[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker in _NO_LENGTH:
            at += 2
            continue
        (length,) = struct.unpack(">H", content[at + 2 : at + 4])
        if marker in _FRAMES:
            if at + 9 > len(content):
                return None
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return int(width), int(height)
        if marker == 0xDA or length < 2:
            return None
        at += 2 + length
    return None
