"""From pictures and poses to the numbers a policy was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transforms3d
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.bundle.fields import STATE_PART_WIDTHS
from sdnpu_policy.bundle.schema import Camera, CropSize, StateObservation
from sdnpu_policy.bundle.statistics import Normalizer
from sdnpu_policy.clock import MS
from sdnpu_policy.observation.history import PoseHistory
from sdnpu_policy.observation.preprocess import CameraTransform, state_vector
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason


def normalizer(scale: Any = 1.0, offset: Any = 0.0, constant: Any = 0.0) -> Normalizer:
    scale, offset, constant = (
        np.broadcast_to(np.reshape(v, (-1, 1, 1)), (3, 1, 1)).astype(float) for v in (scale, offset, constant)
    )
    return Normalizer("camera", "MEAN_STD", scale, offset, constant)


def transformed(rgb: np.ndarray, normalize: Normalizer | None = None, **camera: Any) -> np.ndarray:
    settings = Camera(**camera)
    out = np.full((3, settings.height, settings.width), np.nan, np.float32)
    CameraTransform(settings, normalize or normalizer()).into(rgb, out)
    return out


def coordinates(height: int, width: int) -> np.ndarray:
    """Red says the row, green the column."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, np.zeros_like(rows)], axis=-1).astype(np.uint8)


def test_channels_come_first_and_values_are_255ths() -> None:
    rgb = np.array([[[255, 0, 51]]], np.uint8)
    np.testing.assert_allclose(transformed(rgb, width=1, height=1).ravel(), [1.0, 0.0, 0.2], rtol=1e-6)


def test_the_colour_order_is_the_policys() -> None:
    """IMG-11"""
    rgb = np.array([[[255, 102, 0]]], np.uint8)
    found = transformed(rgb, width=1, height=1, color_order="bgr")
    np.testing.assert_allclose(found.ravel(), [0.0, 0.4, 1.0], rtol=1e-6)


def test_statistics_are_per_channel_in_the_policys_order() -> None:
    rgb = np.array([[[255, 102, 0]]], np.uint8)
    statistics = normalizer(scale=[0.5, 0.25, 2.0], offset=[0.1, 0.2, 0.3])
    found = transformed(rgb, statistics, width=1, height=1, color_order="bgr")
    np.testing.assert_allclose(
        found.ravel(), [(0.0 - 0.1) / 0.5, (0.4 - 0.2) / 0.25, (1.0 - 0.3) / 2.0], rtol=1e-5
    )


def test_a_channel_that_did_not_vary_has_its_training_value() -> None:
    rgb = np.array([[[255, 102, 0]]], np.uint8)
    found = transformed(rgb, normalizer(scale=[1, 0, 1], constant=[0, 0.7, 0]), width=1, height=1)
    np.testing.assert_allclose(found.ravel(), [1.0, 0.7, 0.0], rtol=1e-6)


@given(
    mean=st.floats(0.0, 1.0),
    deviation=st.floats(0.05, 2.0),
    pixel=st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255)),
)
def test_the_fused_line_equals_the_normaliser(mean: float, deviation: float, pixel: tuple[int, int, int]) -> None:
    statistics = normalizer(deviation, mean)
    rgb = np.array([[pixel]], np.uint8)
    found = transformed(rgb, statistics, width=1, height=1)
    wanted = statistics.normalize(np.array(pixel).reshape(3, 1, 1) / 255.0)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_the_centre_square_is_what_the_reference_policy_sees() -> None:
    found = np.rint(transformed(coordinates(48, 64), width=48, height=48, crop="center_square") * 255)
    assert found[0, [0, -1], 0].tolist() == [0, 47]
    assert found[1, 0, [0, -1]].tolist() == [8, 55]


def test_a_crop_of_given_size_is_centred() -> None:
    found = np.rint(
        transformed(coordinates(96, 96), width=84, height=80, crop=CropSize(width=84, height=80)) * 255
    )
    assert found[0, [0, -1], 0].tolist() == [8, 87]
    assert found[1, 0, [0, -1]].tolist() == [6, 89]


def test_an_odd_rest_is_rounded_as_in_training() -> None:
    # torchvision's center_crop: round half to even
    for rest, first in ((1, 0), (3, 2), (5, 2), (7, 4)):
        crop = CropSize(width=4, height=4)
        found = np.rint(transformed(coordinates(4 + rest, 4), width=4, height=4, crop=crop) * 255)
        assert found[0, 0, 0] == first


def test_a_cover_keeps_the_proportions_and_cuts_off_evenly() -> None:
    found = np.rint(transformed(coordinates(40, 80), width=20, height=20, resize="cover") * 255)
    assert found[1, 0, [0, -1]].tolist() == pytest.approx([20.5, 58.5], abs=0.6)
    assert found[0, [0, -1], 0].tolist() == pytest.approx([0.5, 38.5], abs=0.6)


def test_a_stretch_uses_the_whole_picture() -> None:
    found = np.rint(transformed(coordinates(40, 80), width=20, height=20) * 255)
    assert found[1, 0, [0, -1]].tolist() == pytest.approx([1.5, 77.5], abs=0.6)


def test_area_takes_the_mean_where_nearest_takes_a_pixel() -> None:
    checked = np.zeros((8, 8, 3), np.uint8)
    checked[::2, ::2] = checked[1::2, 1::2] = 200
    area = transformed(checked, width=4, height=4, interpolation="area") * 255
    nearest = transformed(checked, width=4, height=4, interpolation="nearest") * 255
    np.testing.assert_allclose(area, 100.0, atol=0.01)
    assert set(np.rint(nearest).ravel()) <= {0.0, 200.0}


@pytest.mark.parametrize(("height", "width"), [(79, 100), (100, 83), (1, 1)])
def test_a_picture_smaller_than_the_crop_is_refused_with_both_sizes(height: int, width: int) -> None:
    with pytest.raises(ImageRejected, match=f"{width}x{height}.*84x80") as caught:
        transformed(coordinates(height, width), width=84, height=80, crop=CropSize(width=84, height=80))
    assert caught.value.reason is RejectReason.TOO_SMALL


@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    wanted=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    crop=st.sampled_from(["none", "center_square"]),
    resize=st.sampled_from(["stretch", "cover"]),
    interpolation=st.sampled_from(["area", "linear", "cubic", "nearest"]),
    grey=st.integers(0, 255),
)
def test_every_size_fills_the_whole_tensor_and_a_flat_picture_stays_flat(
    size: tuple[int, int], wanted: tuple[int, int], crop: Any, resize: Any, interpolation: Any, grey: int
) -> None:
    rgb = np.full((*size, 3), grey, np.uint8)
    found = transformed(
        rgb, height=wanted[0], width=wanted[1], crop=crop, resize=resize, interpolation=interpolation
    )
    np.testing.assert_allclose(found, grey / 255.0, atol=1e-6)


def test_a_view_with_padded_rows_gives_the_same_tensor() -> None:
    """IMG-01"""
    wide = np.random.default_rng(0).integers(0, 256, (48, 70, 3), np.uint8)
    view = wide[:, :64]
    found, wanted = (transformed(rgb, width=24, height=24, crop="center_square") for rgb in (view, view.copy()))
    np.testing.assert_array_equal(found, wanted)


def quaternion(axis: tuple[float, float, float], angle: float) -> np.ndarray:
    return np.array([*(np.sin(angle / 2) * np.asarray(axis)), np.cos(angle / 2)])


def two_poses() -> tuple[PoseHistory, np.ndarray, np.ndarray]:
    """A tool pointing down, 64 ms apart, as the reference policy sees it."""
    poses = PoseHistory(8)
    found = []
    for t_ms, x, yaw in ((0, 0.5, 0.2), (64, 0.6, 0.3)):
        c, s = np.cos(yaw / 2), np.sin(yaw / 2)
        pose = np.array([x, 0.1, 0.2, c, s, 0.0, 0.0])  # Rz(yaw) after half a turn about x
        poses.push(t_ms * MS, pose)
        found.append(pose)
    return poses, found[0], found[1]


def test_the_reference_policys_state_is_worked_out_as_in_its_training() -> None:
    poses, before, now = two_poses()
    layout = ("position", "rotation_6d", "position_delta", "rotation_6d_delta")
    found = state_vector(StateObservation(layout=layout, delta_s=0.064), poses, 64 * MS)
    assert found is not None
    six = [[np.cos(y), np.sin(y), 0.0, np.sin(y), -np.cos(y), 0.0] for y in (0.2, 0.3)]
    wanted = [*now[:3], *six[1], *(now[:3] - before[:3]), *(np.array(six[1]) - six[0])]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_rows_and_columns_are_the_two_conventions_of_6d() -> None:
    poses = PoseHistory(2)
    poses.push(0, np.array([0, 0, 0, *quaternion((0.0, 0.0, 1.0), 0.4)]))
    c, s = np.cos(0.4), np.sin(0.4)
    for layout, wanted in (("columns", [c, s, 0, -s, c, 0]), ("rows", [c, -s, 0, s, c, 0])):
        state = StateObservation(layout=("rotation_6d",), rotation_6d_layout=layout)
        np.testing.assert_allclose(state_vector(state, poses, 0), wanted, atol=1e-12)


@given(
    axis=st.sampled_from([(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.6, 0.0, 0.8)]),
    angle=st.floats(-3.1, 3.1),
    sign=st.sampled_from([1.0, -1.0]),
)
def test_a_rotation_reads_the_same_whichever_of_its_quaternions_came(
    axis: tuple[float, float, float], angle: float, sign: float
) -> None:
    """MOT-03"""
    poses = PoseHistory(2)
    poses.push(0, np.array([0, 0, 0, *(sign * quaternion(axis, angle))]))
    found = state_vector(StateObservation(layout=("quaternion", "rotvec")), poses, 0)
    assert found is not None
    np.testing.assert_allclose(found[:4], quaternion(axis, angle), atol=1e-9)
    np.testing.assert_allclose(found[4:], angle * np.asarray(axis), atol=1e-9)


def test_no_rotation_has_a_rotation_vector_of_zero() -> None:
    poses = PoseHistory(2)
    poses.push(0, np.array([0, 0, 0, 0, 0, 0, 1.0]))
    np.testing.assert_array_equal(state_vector(StateObservation(layout=("rotvec",)), poses, 0), np.zeros(3))


def test_without_a_pose_at_the_time_or_before_it_there_is_no_state() -> None:
    poses, _, _ = two_poses()
    delta = StateObservation(layout=("position_delta",), delta_s=0.064)
    assert state_vector(delta, poses, 64 * MS) is not None
    assert state_vector(delta, poses, 64 * MS + 31 * MS) is None
    assert state_vector(delta, poses, 0) is None
    assert state_vector(StateObservation(layout=("position",)), PoseHistory(2), 0) is None


@pytest.mark.parametrize("part", STATE_PART_WIDTHS)
def test_the_width_is_the_manifests(part: Any) -> None:
    poses, _, _ = two_poses()
    state = StateObservation(layout=(part, part), delta_s=0.064 if part.endswith("_delta") else None)
    found = state_vector(state, poses, 64 * MS)
    assert found is not None and found.shape == (state.width,)


def axis_weights(kind: str, most: int, count: int) -> np.ndarray:
    """(count, most): how much of each pixel of an axis is in each pixel of the resized one."""
    weights, factor = np.zeros((count, most)), most / count
    for i in range(count):
        if kind == "nearest":
            weights[i, min(int(i * factor), most - 1)] = 1.0
        elif kind == "linear":
            at = np.clip((i + 0.5) * factor - 0.5, 0, most - 1)
            low = int(at)
            weights[i, low] += 1.0 - (at - low)
            weights[i, min(low + 1, most - 1)] += at - low
        else:
            for j in range(most):
                weights[i, j] = max(0.0, min((i + 1) * factor, j + 1) - max(i * factor, j)) / factor
    return weights


def slowly(rgb: np.ndarray, camera: Camera, statistics: Normalizer) -> np.ndarray:
    """What the manifest says of a camera, pixel by pixel in float64."""

    def centre(high: int, wide: int) -> np.ndarray:
        top, left = round((rgb.shape[0] - high) / 2), round((rgb.shape[1] - wide) / 2)
        return np.array([[rgb[top + i, left + j] for j in range(wide)] for i in range(high)])

    if camera.crop == "center_square":
        rgb = centre(min(rgb.shape[:2]), min(rgb.shape[:2]))
    elif isinstance(camera.crop, CropSize):
        rgb = centre(camera.crop.height, camera.crop.width)
    if camera.resize == "cover":
        factor = max(camera.height / rgb.shape[0], camera.width / rgb.shape[1])
        rgb = centre(
            *(
                min(max(round(side / factor), 1), most)
                for side, most in zip((camera.height, camera.width), rgb.shape[:2], strict=True)
            )
        )
    down, across = (
        axis_weights(camera.interpolation, most, count)
        for most, count in zip(rgb.shape[:2], (camera.height, camera.width), strict=True)
    )
    small = np.einsum("yi,ijc,xj->cyx", down, rgb.astype(float), across)
    if camera.color_order == "bgr":
        small = small[::-1]
    return np.asarray(statistics.normalize(small / 255.0))


@given(
    wanted=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    more=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    cropped=st.sampled_from(["none", "center_square", "size"]),
    resize=st.sampled_from(["stretch", "cover"]),
    interpolation=st.sampled_from(["area", "linear", "nearest"]),
    color_order=st.sampled_from(["rgb", "bgr"]),
    seed=st.integers(0, 99),
)
def test_a_camera_transform_equals_the_slow_one(
    wanted: tuple[int, int],
    more: tuple[int, int],
    cropped: str,
    resize: Any,
    interpolation: Any,
    color_order: Any,
    seed: int,
) -> None:
    """IMG-11"""
    # area enlarges by another rule, so the picture is at least as large as the tensor, with and without the crop
    least = max(wanted)
    size = (least + more[0], least + more[1])
    crop: Any = CropSize(height=size[0] - more[0] // 2, width=size[1]) if cropped == "size" else cropped
    camera = Camera(
        height=wanted[0],
        width=wanted[1],
        crop=crop,
        resize=resize,
        interpolation=interpolation,
        color_order=color_order,
    )
    statistics = normalizer(scale=[0.5, 0.25, 2.0], offset=[0.1, 0.2, 0.3])
    rgb = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    out = np.full((3, *wanted), np.nan, np.float32)
    CameraTransform(camera, statistics).into(rgb, out)
    off = np.abs(out - slowly(rgb, camera, statistics)) * statistics.scale * 255.0
    assert off.max() < 1.01, "more than the rounding to 8 bits"


@given(
    parts=st.lists(st.sampled_from(sorted(STATE_PART_WIDTHS)), min_size=1, max_size=8),
    rows=st.booleans(),
    seed=st.integers(0, 999),
)
def test_each_part_of_the_state_is_that_of_transforms3d(parts: list[Any], rows: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    poses, at = PoseHistory(4), []
    for t_ns in (0, 64 * MS):
        rotation = rng.normal(size=4)
        at.append(np.array([*rng.normal(size=3), *(rotation / np.linalg.norm(rotation))]))
        poses.push(t_ns, at[-1])

    def part(name: str, pose: np.ndarray) -> np.ndarray:
        wxyz = pose[[6, 3, 4, 5]]
        if name == "position":
            return pose[:3]
        if name == "quaternion":
            return np.sign(wxyz[0]) * pose[3:]
        if name == "rotvec":
            axis, angle = transforms3d.quaternions.quat2axangle(wxyz)
            return np.asarray(axis * (angle if angle <= np.pi else angle - 2 * np.pi))
        matrix = transforms3d.quaternions.quat2mat(wxyz)
        return np.asarray((matrix if rows else matrix.T)[:2].ravel())

    wanted = [
        part(name.removesuffix("_delta"), at[1]) - part(name.removesuffix("_delta"), at[0])
        if name.endswith("_delta")
        else part(name, at[1])
        for name in parts
    ]
    state = StateObservation(
        layout=tuple(parts),
        delta_s=0.064 if any(name.endswith("_delta") for name in parts) else None,
        rotation_6d_layout="rows" if rows else "columns",
    )
    np.testing.assert_allclose(state_vector(state, poses, 64 * MS), np.concatenate(wanted), atol=1e-9)
