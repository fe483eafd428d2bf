"""Compressed images: the header is believed before the decoder; ids are those of the faults seen in the field."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sdnpu_policy.observation import compressed
from sdnpu_policy.observation.compressed import decode_compressed
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

MOST = 1_000_000


def picture(height: int = 24, width: int = 32) -> np.ndarray:
    """Red in the upper half, blue in the lower."""
    rgb = np.zeros((height, width, 3), np.uint8)
    rgb[: height // 2, :, 0] = 255
    rgb[height // 2 :, :, 2] = 255
    return rgb


def encode(kind: str, image: np.ndarray | None = None, *options: int) -> bytes:
    image = cv2.cvtColor(picture(), cv2.COLOR_RGB2BGR) if image is None else image
    return bytes(cv2.imencode(f".{kind}", image, list(options))[1])


JPEG, PNG = encode("jpg"), encode("png")
PROGRESSIVE = encode("jpg", None, cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 1)
GREY_16_BIT = encode("png", np.full((4, 4), 0x1234, np.uint16))


def png_declaring(width: int, height: int) -> bytes:
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", b""), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def jpeg_declaring(width: int, height: int) -> bytes:
    at = JPEG.index(b"\xff\xc0") + 5
    return JPEG[:at] + struct.pack(">HH", height, width) + JPEG[at + 4 :]


def refusal(format_text: str, data: Any, max_pixels: int = MOST) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        decode_compressed(format_text, data, max_pixels)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("data", [JPEG, PROGRESSIVE, PNG], ids=["jpeg", "progressive", "png"])
def test_the_picture_is_rgb(data: bytes) -> None:
    """IMG-11"""
    np.testing.assert_allclose(decode_compressed("", data, MOST)[[0, -1]].astype(int), picture()[[0, -1]], atol=3)


@pytest.mark.parametrize(
    ("format_text", "data"),
    [
        ("jpeg", JPEG),
        ("JPG", JPEG),
        (" jpeg ", JPEG),
        ("bgr8; jpeg compressed bgr8", JPEG),
        ("mono8; jpeg compressed ", JPEG),
        ("png", PNG),
        ("rgb8; png compressed", PNG),
        ("", JPEG),
        ("", PNG),
    ],
)
def test_the_format_is_read_as_drivers_write_it(format_text: str, data: bytes) -> None:
    """IMG-15, T-IMG-15"""
    assert decode_compressed(format_text, data, MOST).shape == (24, 32, 3)


@pytest.mark.parametrize("format_text", ["h264", "theora", "bgr8; tiff compressed"])
def test_another_codec_is_refused_by_name(format_text: str) -> None:
    """IMG-15, T-IMG-15"""
    rejected = refusal(format_text, JPEG)
    assert rejected.reason is RejectReason.FORMAT
    assert format_text in str(rejected) and "jpeg or png" in str(rejected)


@pytest.mark.parametrize(
    "format_text", ["16UC1; png compressed ", "32FC1; png compressed", " 16sc1; png compressed"]
)
def test_depth_in_a_png_is_refused(format_text: str) -> None:
    """IMG-15, IMG-09"""
    assert refusal(format_text, GREY_16_BIT).reason is RejectReason.DEPTH


def test_a_16_bit_grey_png_is_no_picture_unless_its_format_says_so() -> None:
    """IMG-09, IMG-20"""
    assert refusal("png", GREY_16_BIT).reason is RejectReason.DEPTH
    decoded = decode_compressed("mono16; png compressed mono16", GREY_16_BIT, MOST)
    assert (decoded == 0x12).all()


@pytest.mark.parametrize(
    "format_text",
    ["16UC1; compressedDepth", "32FC1; compressedDepth png", "16UC1; compressedDepth rvl", "png", ""],
)
def test_compressed_depth_is_refused_whatever_its_format_says(format_text: str) -> None:
    """IMG-16, T-IMG-15, T-IMG-16"""
    data = struct.pack("<iff", 0, 1.0, 2.0) + GREY_16_BIT
    assert refusal(format_text, data).reason is RejectReason.DEPTH


@pytest.mark.parametrize("format_text", ["jpeg", "png", ""])
def test_an_image_without_data_is_refused(format_text: str) -> None:
    """IMG-17, T-IMG-17"""
    assert refusal(format_text, b"").reason is RejectReason.EMPTY


@pytest.mark.parametrize("data", [b"\xff\xd8\xff\xd9", JPEG[:2], b"0123456789", PNG[:10], b"\xff"])
def test_a_few_bytes_are_no_picture(data: bytes) -> None:
    """IMG-17, IMG-21"""
    assert refusal("jpeg", data).reason in (RejectReason.DAMAGED, RejectReason.TRUNCATED, RejectReason.FORMAT)


@pytest.mark.parametrize("data", [JPEG, PROGRESSIVE, PNG], ids=["jpeg", "progressive", "png"])
def test_a_picture_cut_off_anywhere_is_refused_not_grey(data: bytes) -> None:
    """IMG-17"""
    for length in range(40, len(data), 7):
        assert refusal("", data[:length]).reason is RejectReason.TRUNCATED


@pytest.mark.parametrize("data", [JPEG, PROGRESSIVE, PNG], ids=["jpeg", "progressive", "png"])
def test_a_buffer_padded_behind_the_picture_is_read(data: bytes) -> None:
    """IMG-05"""
    np.testing.assert_array_equal(
        decode_compressed("", data + bytes(4096), MOST), decode_compressed("", data, MOST)
    )


def test_the_end_of_a_thumbnail_is_not_the_end_of_the_picture() -> None:
    """IMG-17"""
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 4) + b"\xff\xd9\xff\xd9"
    data = JPEG[:2] + comment + JPEG[2:]
    assert decode_compressed("jpeg", data, MOST).shape == (24, 32, 3)
    assert refusal("jpeg", data[:-2]).reason is RejectReason.TRUNCATED


@pytest.mark.parametrize("data", [jpeg_declaring(65535, 65535), png_declaring(2**31 - 1, 2**31 - 1)])
def test_a_huge_declared_size_never_reaches_the_decoder(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoder(*_: Any) -> None:
        raise AssertionError("the decoder was called")

    monkeypatch.setattr(compressed.cv2, "imdecode", decoder)
    rejected = refusal("", data)
    assert rejected.reason is RejectReason.TOO_LARGE and f"{MOST}" in str(rejected)


def test_exactly_as_many_pixels_as_allowed_pass() -> None:
    assert decode_compressed("jpeg", JPEG, 24 * 32).shape == (24, 32, 3)
    assert refusal("jpeg", JPEG, 24 * 32 - 1).reason is RejectReason.TOO_LARGE


@pytest.mark.parametrize("data", [jpeg_declaring(0, 24), png_declaring(0, 5)])
def test_a_declared_size_without_pixels_is_refused(data: bytes) -> None:
    assert refusal("", data).reason is RejectReason.EMPTY


def test_an_orientation_in_exif_does_not_turn_the_picture() -> None:
    turned = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    data = JPEG[:2] + b"\xff\xe1" + struct.pack(">H", len(turned) + 2) + turned + JPEG[2:]
    assert decode_compressed("jpeg", data, MOST).shape == (24, 32, 3)


@pytest.mark.parametrize("part", [b"\xff\xfe\0\x02", b"\xff\x01"])
def test_endless_segments_are_refused(part: bytes) -> None:
    assert refusal("jpeg", b"\xff\xd8" + part * 100_000).reason is RejectReason.DAMAGED


def test_endless_chunks_are_refused() -> None:
    assert refusal("png", png_declaring(4, 4)[:33] + (bytes(4) + b"teXt" + bytes(4)) * 9000).reason in (
        RejectReason.DAMAGED,
    )


@pytest.mark.parametrize("data", [None, [1, 2, 3], "abc", memoryview(bytes(60))[::2]])
def test_what_is_no_buffer_is_refused(data: Any) -> None:
    assert refusal("jpeg", data).reason is RejectReason.SHORT


@settings(max_examples=200)
@given(
    format_text=st.sampled_from(["jpeg", "png", "", "bgr8; jpeg compressed bgr8"]) | st.text(max_size=20),
    data=st.binary(max_size=64)
    | st.builds(
        lambda whole, at, new: whole[: at % len(whole)] + new + whole[at % len(whole) + len(new) :],
        st.sampled_from([JPEG, PROGRESSIVE, PNG, GREY_16_BIT]),
        st.integers(0, 5000),
        st.binary(min_size=1, max_size=4),
    ),
)
@example(format_text="jpeg", data=b"\xff\xd8\xff\xc0\x00\x00")
@example(format_text="png", data=PNG[:8] + b"\xff" * 30)
def test_whatever_the_bytes_there_is_a_picture_or_a_refusal(format_text: str, data: bytes) -> None:
    try:
        decoded = decode_compressed(format_text, data, MOST)
    except ImageRejected as rejected:
        assert isinstance(rejected.reason, RejectReason) and "\n" not in str(rejected)
    else:
        assert decoded.ndim == 3 and decoded.shape[2] == 3 and decoded.dtype == np.uint8
        assert decoded.shape[0] * decoded.shape[1] <= MOST


@given(size=st.tuples(st.integers(1, 9), st.integers(1, 9)), seed=st.integers(0, 99))
def test_a_png_is_read_back_exactly_without_its_alpha(size: tuple[int, int], seed: int) -> None:
    """IMG-11, IMG-19"""
    bgra = np.random.default_rng(seed).integers(0, 256, (*size, 4), np.uint8)
    for stored in (bgra, np.ascontiguousarray(bgra[:, :, :3])):
        np.testing.assert_array_equal(decode_compressed("png", encode("png", stored)), bgra[:, :, 2::-1])


@given(value=st.integers(0, 65535))
def test_16_bits_of_a_png_are_scaled_as_those_of_a_raw_image(value: int) -> None:
    """IMG-19, IMG-20"""
    grey = encode("png", np.full((1, 1), value, np.uint16))
    assert decode_compressed("mono16; png compressed", grey).tolist() == [[[value // 256] * 3]]
    colour = encode("png", np.array([[[0, 256, value]]], np.uint16))
    assert decode_compressed("rgb16; png compressed", colour).tolist() == [[[value // 256, 1, 0]]]


def test_a_flipped_byte_of_a_png_is_noticed() -> None:
    """IMG-17"""
    noise = encode("png", np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8))
    for at in range(50, len(noise) - 16, 5):
        damaged = bytearray(noise)
        damaged[at] ^= 0x55
        assert refusal("png", bytes(damaged)).reason in (RejectReason.DAMAGED, RejectReason.TRUNCATED)
