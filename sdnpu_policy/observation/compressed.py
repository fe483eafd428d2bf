"""sensor_msgs/CompressedImage to 8-bit RGB: JPEG and PNG, after a look at what the file says of itself.

The size is read from the file's header before anything is decoded: a few bytes can declare gigabytes.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from sdnpu_policy.observation.image import MAX_PIXELS, Rgb, is_depth
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_END_OF_IMAGE = 0xD9
_NO_LENGTH = (0x01, 0xD8)
"""JPEG markers that no length follows."""
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that declare the picture's size (SOF)."""
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""A JPEG marker behind coded data, in which 0xFF is followed by 0 or a restart marker's number."""
_MOST_PARTS = 4096
"""JPEG segments or PNG chunks that are walked through; a camera's picture has some tens."""
_DEPTH_HEADER = 12
"""Bytes before the PNG in compressedDepth: an int32 and two float32."""


@dataclass(frozen=True, slots=True)
class _Header:
    width: int
    height: int
    grey_16_bit: bool = False


def decode_compressed(format_text: str, data: Any, max_pixels: int = MAX_PIXELS) -> Rgb:
    """The picture as (H, W, 3) 8-bit RGB. ``format_text`` is read as tolerantly as drivers write it.

    The first bytes tell JPEG from PNG. An orientation in EXIF is ignored: the camera's raw images have none.

    Raises:
        ImageRejected: neither JPEG nor PNG, depth, empty, cut off, damaged, or larger than ``max_pixels``.
    """
    encoding = _check_format(format_text)
    try:
        content = memoryview(data).cast("B")
    except (TypeError, ValueError, BufferError) as error:
        raise ImageRejected(RejectReason.SHORT, f"compressed image data can't be read: {error}") from None
    if not len(content):
        raise ImageRejected(RejectReason.EMPTY, "compressed image has no data")
    head = bytes(content[:8])
    if head == _PNG:
        header = _read_png(content)
    elif head[:2] == _JPEG:
        header = _read_jpeg(content)
    elif bytes(content[_DEPTH_HEADER : _DEPTH_HEADER + 8]) == _PNG:
        raise ImageRejected(
            RejectReason.DEPTH,
            f"compressed image ({format_text!r:.60}) is compressedDepth: that is depth, a colour camera is needed",
        )
    else:
        raise ImageRejected(
            RejectReason.FORMAT,
            f"compressed image ({format_text!r:.60}) begins with {head.hex()}: neither JPEG nor PNG",
        )
    width, height = header.width, header.height
    if width <= 0 or height <= 0:
        raise ImageRejected(RejectReason.EMPTY, f"compressed image declares {width}x{height}: it has no pixels")
    if width * height > max_pixels:
        raise ImageRejected(
            RejectReason.TOO_LARGE,
            f"compressed image declares {width}x{height}: 1 to {max_pixels} pixels are allowed",
        )
    if header.grey_16_bit and encoding != "mono16":
        raise ImageRejected(
            RejectReason.DEPTH,
            f"compressed image ({format_text!r:.60}) is a 16-bit grey PNG, which may be depth: its format must name "
            "mono16, or a colour camera is needed",
        )
    try:
        picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise ImageRejected(
            RejectReason.DAMAGED, f"compressed image can't be decoded: {str(error)[:120]}"
        ) from None
    if picture is None or picture.shape != (height, width, 3):
        raise ImageRejected(RejectReason.DAMAGED, f"compressed image of {len(content)} bytes can't be decoded")
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), np.uint8)


def _check_format(text: str) -> str:
    """The encoding that stands before a semicolon in ``format``, lower case, or nothing."""
    words = text.strip().lower()
    encoding = words.partition(";")[0].strip() if ";" in words else ""
    if "compresseddepth" in words or is_depth(encoding):
        raise ImageRejected(
            RejectReason.DEPTH,
            f"compressed image format is {text!r:.60}: that is depth or raw values, a colour camera is needed",
        )
    if words and not any(token in words for token in ("jpeg", "jpg", "png")):
        raise ImageRejected(RejectReason.FORMAT, f"compressed image format is {text!r:.60}: jpeg or png is needed")
    return encoding


def _read_png(content: memoryview) -> _Header:
    """Read IHDR, then walk the chunks to IEND (ISO/IEC 15948): without it rows may be missing."""
    if len(content) < 33:
        raise _truncated("PNG", content)
    length, kind, width, height, bits, colour = struct.unpack_from(">I4sIIBB", content, 8)
    if kind != b"IHDR" or length != 13:
        raise _damaged("PNG", "does not begin with IHDR")
    at = 33
    for _ in range(_MOST_PARTS):
        if at + 12 > len(content):
            break
        length, kind = struct.unpack_from(">I4s", content, at)
        at += 12 + length
        if kind == b"IEND" and at <= len(content):
            return _Header(width, height, grey_16_bit=bits == 16 and colour in (0, 4))
    else:
        raise _damaged("PNG", f"has more than {_MOST_PARTS} chunks")
    raise _truncated("PNG", content)


def _read_jpeg(content: memoryview) -> _Header:
    """Walk the segments (ITU-T T.81, annex B) to the frame header and on to the end marker, behind which may be padding.

    Without the end marker rows may be missing, and the decoder would make them grey.
    """
    header: _Header | None = None
    at = 2
    for _ in range(_MOST_PARTS):
        found = _MARKER.search(content, at)
        if found is None:
            raise _truncated("JPEG", content)
        at = found.end()
        marker = content[at - 1]
        if marker == _END_OF_IMAGE:
            if header is None:
                raise _damaged("JPEG", "ends before its frame header")
            return header
        if marker in _NO_LENGTH:
            continue
        if at + 8 > len(content):
            raise _truncated("JPEG", content)
        (length,) = struct.unpack_from(">H", content, at)
        if marker in _FRAMES:
            if length < 8 or header is not None:
                raise _damaged("JPEG", "has a frame header that is too short or comes twice")
            height, width = struct.unpack_from(">HH", content, at + 3)
            header = _Header(width, height)
        at += max(length, 2)
    raise _damaged("JPEG", f"has more than {_MOST_PARTS} segments")


def _truncated(kind: str, content: memoryview) -> ImageRejected:
    return ImageRejected(
        RejectReason.TRUNCATED,
        f"compressed image of {len(content)} bytes is a {kind} without its end: it is cut off",
    )


def _damaged(kind: str, detail: str) -> ImageRejected:
    return ImageRejected(RejectReason.DAMAGED, f"compressed image is a damaged {kind}: it {detail}")
