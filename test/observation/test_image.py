"""Raw images: read as declared, or refused with a reason; the ids are those of the list of faults seen in the field."""

from __future__ import annotations

import array
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.observation.compressed import decode_compressed
from sdnpu_policy.observation.image import RawImage, decode_raw
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

PIXEL_BYTES = {
    "rgb8": 3,
    "bgr8": 3,
    "rgba8": 4,
    "bgra8": 4,
    "mono8": 1,
    "mono16": 2,
    "8UC1": 1,
    "8UC3": 3,
    "yuv422": 2,
    "uyvy": 2,
    "yuv422_yuy2": 2,
    "yuyv": 2,
    "bayer_rggb8": 1,
    "bayer_bggr8": 1,
    "bayer_gbrg8": 1,
    "bayer_grbg8": 1,
}
# how a picture (H, W, 3) of RGB is written in an encoding that loses nothing
WRITTEN = {
    "rgb8": lambda rgb: rgb,
    "bgr8": lambda rgb: rgb[:, :, ::-1],
    "8UC3": lambda rgb: rgb[:, :, ::-1],
    "rgba8": lambda rgb: np.dstack([rgb, 255 - rgb[:, :, 0]]),
    "bgra8": lambda rgb: np.dstack([rgb[:, :, ::-1], 255 - rgb[:, :, 0]]),
}
DEPTH = ["16UC1", "16SC1", "32FC1", "32SC1", "64FC1"]


def raw(
    data: Any,
    *,
    height: int = 1,
    width: int = 1,
    encoding: str = "rgb8",
    step: int | None = None,
    is_bigendian: bool = False,
) -> RawImage:
    step = width * PIXEL_BYTES.get(encoding, 4) if step is None else step
    return RawImage(height, width, encoding, step, is_bigendian, data)


def refusal(image: RawImage, **options: int) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        decode_raw(image, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def padded(height: int = 4, width: int = 3, padding: int = 7) -> tuple[bytes, np.ndarray]:
    picture = np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)
    rows = [row.tobytes() + b"\xee" * padding for row in picture]
    return b"".join(rows), picture


def test_a_padded_row_is_cropped_not_skewed() -> None:
    """IMG-01, T-IMG-01"""
    data, picture = padded()
    np.testing.assert_array_equal(decode_raw(raw(data, height=4, width=3, step=16)), picture)


def test_a_step_larger_than_the_row_is_accepted_and_a_smaller_one_refused() -> None:
    """IMG-02, T-IMG-02"""
    data, picture = padded()
    assert decode_raw(raw(data, height=4, width=3, step=16)).shape == picture.shape
    assert refusal(raw(data, height=4, width=3, step=8)).reason is RejectReason.STEP


def test_a_step_of_zero_is_refused_with_its_reason() -> None:
    """IMG-03, T-IMG-03"""
    rejected = refusal(raw(padded()[0], height=4, width=3, step=0))
    assert rejected.reason is RejectReason.STEP
    assert "step is 0 (the driver left it out): at least 9 is needed" in str(rejected)


def test_an_image_without_its_data_is_refused() -> None:
    """IMG-04, T-IMG-04"""
    rejected = refusal(raw(b"", height=200, width=200, encoding="bgr8", step=600))
    assert rejected.reason is RejectReason.SHORT


def test_data_shorter_than_declared_is_refused() -> None:
    """IMG-05, IMG-21, T-IMG-05"""
    rejected = refusal(raw(b"x" * 30, height=480, width=640, step=1920))
    assert rejected.reason is RejectReason.SHORT
    assert "30 bytes" in str(rejected) and "921600" in str(rejected)


def test_one_missing_byte_of_the_last_row_is_noticed() -> None:
    """IMG-05"""
    data, _ = padded()
    assert decode_raw(raw(data[:-7], height=4, width=3, step=16)).shape == (4, 3, 3)
    assert refusal(raw(data[:-8], height=4, width=3, step=16)).reason is RejectReason.SHORT


def test_more_data_than_declared_is_left_alone() -> None:
    """IMG-05"""
    data, picture = padded()
    np.testing.assert_array_equal(decode_raw(raw(data + b"\xee" * 99, height=4, width=3, step=16)), picture)


@pytest.mark.parametrize(("height", "width"), [(0, 0), (480, 0), (0, 640), (-1, 3)])
def test_an_image_without_pixels_is_refused(height: int, width: int) -> None:
    """IMG-04, T-IMG-zero"""
    assert refusal(raw(b"", height=height, width=width, step=0)).reason is RejectReason.EMPTY


def test_more_pixels_than_allowed_are_refused_before_the_data_is_touched() -> None:
    assert refusal(raw(b"", height=65536, width=65536)).reason is RejectReason.TOO_LARGE
    assert refusal(raw(bytes(27), height=3, width=3), max_pixels=8).reason is RejectReason.TOO_LARGE
    assert decode_raw(raw(bytes(27), height=3, width=3), max_pixels=9).shape == (3, 3, 3)


def test_the_byte_order_of_16_bit_is_that_of_the_message() -> None:
    """IMG-07, T-IMG-07"""
    data = bytes([1, 0, 0, 2])
    big = decode_raw(raw(data, width=2, encoding="mono16", is_bigendian=True))
    little = decode_raw(raw(data, width=2, encoding="mono16"))
    assert big[0, :, 0].tolist() == [256 >> 8, 2 >> 8]
    assert little[0, :, 0].tolist() == [1 >> 8, 512 >> 8]


def test_16_bit_grey_is_two_bytes_a_pixel() -> None:
    """IMG-08"""
    values = np.array([[0x1234, 0xFFFF], [0x00FF, 0x8000]], "<u2")
    picture = decode_raw(raw(values.tobytes(), height=2, width=2, encoding="mono16"))
    assert picture[:, :, 0].tolist() == [[0x12, 0xFF], [0x00, 0x80]]


@pytest.mark.parametrize("encoding", DEPTH)
def test_depth_is_refused_in_plain_words(encoding: str) -> None:
    """IMG-09, T-IMG-09"""
    data = np.array([[1.0, np.nan], [0.0, 2.0]], np.float64).tobytes()
    rejected = refusal(raw(data, height=2, width=2, encoding=encoding, step=16))
    assert rejected.reason is RejectReason.DEPTH
    assert encoding in str(rejected) and "colour camera" in str(rejected)


@pytest.mark.parametrize(
    ("encoding", "data", "rgb"),
    [
        ("rgb8", "ff0000", [255, 0, 0]),
        ("bgr8", "ff0000", [0, 0, 255]),
        ("8UC3", "ff0000", [0, 0, 255]),
        ("BGR8 ", "ff0000", [0, 0, 255]),
        ("rgba8", "01020300", [1, 2, 3]),
        ("bgra8", "01020300", [3, 2, 1]),
        ("mono8", "07", [7, 7, 7]),
        ("8UC1", "07", [7, 7, 7]),
    ],
)
def test_the_declared_encoding_orders_the_colours(encoding: str, data: str, rgb: list[int]) -> None:
    """IMG-11, T-IMG-11"""
    image = raw(bytes.fromhex(data), encoding=encoding, step=len(data) // 2)
    assert decode_raw(image).tolist() == [[rgb]]


@pytest.mark.parametrize(("encoding", "data"), [("yuv422", [128, 235, 128, 16]), ("uyvy", [128, 235, 128, 16])])
def test_uyvy_is_converted(encoding: str, data: list[int]) -> None:
    """IMG-12"""
    assert decode_raw(raw(bytes(data), width=2, encoding=encoding)).tolist() == [[[255] * 3, [0] * 3]]


@pytest.mark.parametrize("encoding", ["yuv422_yuy2", "yuyv"])
def test_yuy2_is_converted(encoding: str) -> None:
    """IMG-12"""
    white_black = bytes([235, 128, 16, 128])
    assert decode_raw(raw(white_black, width=2, encoding=encoding)).tolist() == [[[255] * 3, [0] * 3]]


def test_an_odd_width_of_yuv_is_refused_not_an_opencv_error() -> None:
    """IMG-12"""
    assert refusal(raw(bytes(6), width=3, encoding="yuv422_yuy2")).reason is RejectReason.DAMAGED


@pytest.mark.parametrize(
    ("encoding", "corner"),
    [("bayer_rggb8", 0), ("bayer_bggr8", 2), ("bayer_gbrg8", 1), ("bayer_grbg8", 1)],
)
def test_a_bayer_pattern_begins_with_its_first_letter(encoding: str, corner: int) -> None:
    """IMG-12"""
    mosaic = np.zeros((8, 8), np.uint8)
    mosaic[0::2, 0::2] = 200  # only what lies where the pattern's first letter is
    inside = decode_raw(raw(mosaic.tobytes(), height=8, width=8, encoding=encoding))[2:-2, 2:-2]
    means = inside.reshape(-1, 3).mean(axis=0)
    assert means.argmax() == corner and means.min() == 0.0


def test_a_bayer_pattern_too_small_to_be_interpolated_is_refused() -> None:
    """IMG-12"""
    assert refusal(raw(bytes(8), height=2, width=4, encoding="bayer_rggb8")).reason is RejectReason.TOO_SMALL


@pytest.mark.parametrize("encoding", ["nv21", "h264", "16UC3", "bayer_rggb16", "", "rgb\n8", "x" * 5000])
def test_an_unknown_encoding_is_refused_in_one_line_with_those_that_are_known(encoding: str) -> None:
    """IMG-12"""
    rejected = refusal(raw(bytes(64), encoding=encoding))
    assert rejected.reason is RejectReason.ENCODING
    assert "rgb8, bgr8" in str(rejected) and len(str(rejected)) < 500


def test_alpha_is_dropped_not_blended() -> None:
    """IMG-19, T-IMG-19"""
    transparent = raw(bytes([1, 2, 3, 0]), encoding="rgba8")
    assert decode_raw(transparent).tolist() == [[[1, 2, 3]]]


@given(value=st.integers(0, 65535), big=st.booleans())
def test_16_bit_grey_is_scaled_by_one_256th(value: int, big: bool) -> None:
    """IMG-20"""
    data = value.to_bytes(2, "big" if big else "little")
    assert decode_raw(raw(data, encoding="mono16", is_bigendian=big)).tolist() == [[[value // 256] * 3]]


def test_rgb_is_a_view_of_the_messages_bytes() -> None:
    """PY-02"""
    data = array.array("B", range(27))
    picture = decode_raw(raw(data, height=3, width=3))
    data[0] = 99
    assert picture[0, 0, 0] == 99


def test_any_buffer_is_read() -> None:
    wanted = np.arange(9, dtype=np.uint8)
    for data in (bytes(wanted), bytearray(wanted), memoryview(bytes(wanted)), array.array("B", wanted), wanted):
        assert decode_raw(raw(data, width=3)).ravel().tolist() == wanted.tolist()


@pytest.mark.parametrize("data", [None, [1, 2, 3], "abc", 3.5, memoryview(bytes(60))[::2]])
def test_what_is_no_buffer_is_refused(data: Any) -> None:
    assert refusal(raw(data, width=3)).reason is RejectReason.SHORT


@given(
    encoding=st.sampled_from([*PIXEL_BYTES, *DEPTH, "nonsense"]),
    height=st.integers(-1, 6),
    width=st.integers(-1, 6),
    step=st.integers(-1, 40) | st.just(2**32 - 1),
    is_bigendian=st.booleans(),
    data=st.binary(max_size=300),
)
def test_whatever_is_in_a_message_gives_a_picture_or_a_refusal(
    encoding: str, height: int, width: int, step: int, is_bigendian: bool, data: bytes
) -> None:
    try:
        picture = decode_raw(RawImage(height, width, encoding, step, is_bigendian, data))
    except ImageRejected as rejected:
        assert isinstance(rejected.reason, RejectReason) and "\n" not in str(rejected)
    else:
        assert picture.shape == (height, width, 3) and picture.dtype == np.uint8
        assert len(data) >= step * (height - 1) + width * PIXEL_BYTES[encoding]


@given(
    encoding=st.sampled_from(list(PIXEL_BYTES)),
    size=st.tuples(st.integers(3, 7), st.integers(2, 4).map(lambda half: 2 * half)),
    padding=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_padding_never_changes_the_picture(encoding: str, size: tuple[int, int], padding: int, seed: int) -> None:
    """IMG-01"""
    height, width = size
    row = width * PIXEL_BYTES[encoding]
    content = np.random.default_rng(seed).integers(0, 256, (height, row), np.uint8)
    rows = np.full((height, row + padding), 0xEE, np.uint8)
    rows[:, :row] = content
    tight = decode_raw(raw(content.tobytes(), height=height, width=width, encoding=encoding, step=row))
    loose = decode_raw(raw(rows.tobytes(), height=height, width=width, encoding=encoding, step=row + padding))
    np.testing.assert_array_equal(tight, loose)


@given(
    encoding=st.sampled_from(list(WRITTEN)),
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    padding=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_colours_are_read_back_exactly(encoding: str, size: tuple[int, int], padding: int, seed: int) -> None:
    """IMG-01, IMG-11, IMG-19"""
    rgb = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    rows = WRITTEN[encoding](rgb).reshape(size[0], -1)
    data = np.pad(rows, ((0, 0), (0, padding)), constant_values=0xEE)
    image = raw(data.tobytes(), height=size[0], width=size[1], encoding=encoding, step=data.shape[1])
    np.testing.assert_array_equal(decode_raw(image), rgb)


@given(
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    padding=st.integers(0, 5),
    big=st.booleans(),
    seed=st.integers(0, 99),
)
def test_padded_16_bit_grey_is_read_in_its_byte_order(
    size: tuple[int, int], padding: int, big: bool, seed: int
) -> None:
    """IMG-01, IMG-07, IMG-08, IMG-20"""
    values = np.random.default_rng(seed).integers(0, 65536, size, np.uint16)
    rows = values.astype(">u2" if big else "<u2").view(np.uint8)
    data = np.pad(rows, ((0, 0), (0, padding)), constant_values=0xEE)
    picture = decode_raw(
        raw(
            data.tobytes(),
            height=size[0],
            width=size[1],
            encoding="mono16",
            step=data.shape[1],
            is_bigendian=big,
        )
    )
    np.testing.assert_array_equal(picture, np.repeat((values // 256)[:, :, None], 3, axis=2))


@given(
    pattern=st.sampled_from(["rggb", "bggr", "gbrg", "grbg"]),
    size=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    colour=st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255)),
)
def test_a_mosaic_of_one_colour_is_that_colour(
    pattern: str, size: tuple[int, int], colour: tuple[int, int, int]
) -> None:
    """IMG-12"""
    rows, columns = np.indices(size)
    letters = np.array(["rgb".index(letter) for letter in pattern])
    mosaic = np.array(colour, np.uint8)[letters[2 * (rows % 2) + columns % 2]]
    picture = decode_raw(raw(mosaic.tobytes(), height=size[0], width=size[1], encoding=f"bayer_{pattern}8"))
    np.testing.assert_array_equal(picture, np.broadcast_to(np.array(colour, np.uint8), (*size, 3)))


@given(luma=st.tuples(st.integers(16, 235), st.integers(16, 235)), u=st.integers(16, 240), v=st.integers(16, 240))
def test_yuv_is_that_of_bt_601_in_both_byte_orders(luma: tuple[int, int], u: int, v: int) -> None:
    """IMG-12"""
    wanted = []
    for y in luma:
        light, blue, red = 1.164 * (y - 16), u - 128, v - 128
        wanted.append([light + 1.596 * red, light - 0.392 * blue - 0.813 * red, light + 2.017 * blue])
    for encoding, data in (
        ("yuv422", [u, luma[0], v, luma[1]]),
        ("uyvy", [u, luma[0], v, luma[1]]),
        ("yuv422_yuy2", [luma[0], u, luma[1], v]),
        ("yuyv", [luma[0], u, luma[1], v]),
    ):
        picture = decode_raw(raw(bytes(data), width=2, encoding=encoding))
        np.testing.assert_allclose(picture[0], np.clip(wanted, 0, 255), atol=1.5)


def test_the_frames_of_a_real_camera_are_read(shared_data: Path) -> None:
    """IMG-11, STAMP-01: a recording whose time began at zero"""
    path = shared_data / "bags" / "amber_soccer_goal" / "soccer_goal_12.mcap"
    mcap = pytest.importorskip("mcap.reader")
    zstandard = pytest.importorskip("zstandard")
    typesys = pytest.importorskip("rosbags.typesys")
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    types = typesys.get_typestore(typesys.Stores.ROS2_JAZZY)
    frames = []
    with path.open("rb") as file:
        for _, _, record in mcap.make_reader(file).iter_messages():
            # each message is compressed by itself, which only the bag's metadata says
            data = zstandard.ZstdDecompressor().decompress(record.data)
            frames.append(types.deserialize_cdr(data, "sensor_msgs/msg/Image"))
    assert [frame.header.stamp.sec for frame in frames] == [8, 8]
    pictures = []
    for frame in frames:
        image = RawImage(
            frame.height, frame.width, frame.encoding, frame.step, bool(frame.is_bigendian), frame.data
        )
        pictures.append(decode_raw(image))
        assert pictures[-1].shape == (480, 640, 3)
        np.testing.assert_array_equal(pictures[-1].ravel(), frame.data)
    # green grass in the lower half, and almost the same of it 33 ms later
    red, green, blue = pictures[0][320:].reshape(-1, 3).mean(axis=0)
    assert green > 1.5 * red and green > 1.5 * blue
    assert 0 < np.abs(pictures[0].astype(int) - pictures[1]).mean() < 20
    bgr = pictures[0][:, :, ::-1]
    png, jpeg = (bytes(cv2.imencode(kind, bgr)[1]) for kind in (".png", ".jpg"))
    np.testing.assert_array_equal(decode_compressed("rgb8; png compressed", png), pictures[0])
    assert np.abs(decode_compressed("jpeg", jpeg).astype(int) - pictures[0]).mean() < 5
