"""Actions to poses and back, for each way a policy may write them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.motion.actions import ROTATION_WIDTH, ActionSpec, decode_actions, encode_actions
from sdnpu_policy.motion.pose import quat_angle_rad, quat_multiply, quat_to_rotation_6d, rotvec_to_quat

WAYS = list(
    itertools.product(
        ("absolute", "relative"), ("rotation_6d", "rotvec", "quaternion"), ("columns", "rows"), ("base", "tool")
    )
)
TOOL_DOWN = np.array([0.45, -0.05, 0.2, 1.0, 0.0, 0.0, 0.0])


def spec(
    position: str = "relative",
    rotation: str = "rotation_6d",
    layout: str = "columns",
    axes: str = "base",
    extra: int = 0,
) -> ActionSpec:
    dim = 3 + ROTATION_WIDTH[rotation] + extra
    return ActionSpec(16, dim, 15.625, 1, position, rotation, layout, axes, np.ones(dim), np.zeros(dim))  # type: ignore[arg-type]


def random_poses(seed: int, count: int = 16) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(-1, 1, (count, 3)), rotvec_to_quat(rng.normal(size=(count, 3)))], axis=1)


@given(st.sampled_from(WAYS), st.integers(0, 10_000))
def test_encoded_poses_decode_to_themselves(way: tuple[str, str, str, str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    plain = spec(*way)
    written = replace(plain, scale=rng.uniform(0.1, 2.0, (16, plain.dim)), offset=rng.normal(size=(16, plain.dim)))
    poses, here = random_poses(seed), random_poses(seed + 1, 1)[0]
    chunk = decode_actions(encode_actions(poses, written, here), written, here, 0)
    np.testing.assert_allclose(chunk.poses[:, :3], poses[:, :3], atol=1e-5)
    assert quat_angle_rad(chunk.poses[:, 3:], poses[:, 3:]).max() < 1e-4


def test_relative_in_base_adds_the_displacement_and_turns_in_fixed_axes() -> None:
    numbers = np.tile(np.concatenate([[0.1, 0.0, -0.02], [0.0, 0.0, 0.3]]), (16, 1))
    chunk = decode_actions(numbers, spec(rotation="rotvec"), TOOL_DOWN, 0)
    np.testing.assert_allclose(chunk.poses[0, :3], [0.55, -0.05, 0.18])
    assert quat_angle_rad(chunk.poses[0, 3:], quat_multiply(rotvec_to_quat([0, 0, 0.3]), TOOL_DOWN[3:])) < 1e-9


def test_relative_in_the_tool_moves_along_the_tools_axes() -> None:
    numbers = np.tile(np.concatenate([[0.1, 0.02, 0.03], [0.0, 0.0, 0.3]]), (16, 1))
    chunk = decode_actions(numbers, spec(rotation="rotvec", axes="tool"), TOOL_DOWN, 0)
    # The tool hangs down: its y and z are those of the base, reversed.
    np.testing.assert_allclose(chunk.poses[0, :3], [0.55, -0.07, 0.17])
    assert quat_angle_rad(chunk.poses[0, 3:], quat_multiply(TOOL_DOWN[3:], rotvec_to_quat([0, 0, 0.3]))) < 1e-9


def test_waypoints_are_stamped_from_the_observation() -> None:
    chunk = decode_actions(np.tile([0, 0, 0, 1, 0, 0, 0, 1, 0], (16, 1)).astype(float), spec(), TOOL_DOWN, 5_000)
    assert chunk.times_ns[0] == 5_000 + 64_000_000
    assert chunk.times_ns[-1] == 5_000 + 16 * 64_000_000
    assert chunk.observed_ns == 5_000
    np.testing.assert_array_equal(chunk.observed_pose, TOOL_DOWN)


def test_a_scale_that_grows_with_the_step_is_undone_step_by_step() -> None:
    steps = np.arange(1, 17)[:, None]
    offset = np.tile([0, 0, 0, 1, 0, 0, 0, 1, 0], (16, 1)).astype(float)
    scale = np.concatenate([np.tile(steps * 0.0165, 3), np.tile(steps * 0.1, 6)], axis=1)
    numbers = np.zeros((16, 9))
    numbers[:, 0] = 1.0
    chunk = decode_actions(numbers, replace(spec(), scale=scale, offset=offset), TOOL_DOWN, 0)
    np.testing.assert_allclose(chunk.poses[:, 0], 0.45 + steps[:, 0] * 0.0165)
    assert quat_angle_rad(chunk.poses[:, 3:], TOOL_DOWN[3:]).max() < 1e-9


def test_a_grippers_column_is_left_alone() -> None:
    chunk = decode_actions(np.tile([0, 0, 0, 1, 0, 0, 0, 1, 0, 7.0], (16, 1)), spec(extra=1), TOOL_DOWN, 0)
    np.testing.assert_allclose(chunk.poses[0, :3], TOOL_DOWN[:3])
    assert (encode_actions(chunk.poses, spec(extra=1), TOOL_DOWN)[:, 9] == 0).all()


def test_a_number_that_never_varied_encodes_to_zero() -> None:
    flat = replace(spec(), scale=np.array([0.0] + [1.0] * 8))
    assert (encode_actions(random_poses(0), flat, TOOL_DOWN)[:, 0] == 0).all()


def test_signs_of_quaternions_follow_the_observed_pose() -> None:
    poses = random_poses(3)
    poses[:, 3:] = TOOL_DOWN[3:]
    poses[::2, 3:] *= -1
    numbers = np.concatenate([poses[:, :3], poses[:, 3:]], axis=1)
    chunk = decode_actions(numbers, spec("absolute", "quaternion"), TOOL_DOWN, 0)
    np.testing.assert_allclose(chunk.poses[:, 3:], np.tile(TOOL_DOWN[3:], (16, 1)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_actions_that_are_not_finite_are_refused(bad: float) -> None:
    numbers = np.tile([0, 0, 0, 1, 0, 0, 0, 1, 0], (16, 1)).astype(np.float32)
    numbers[7, 1] = bad
    with pytest.raises(ValueError, match="not finite"):
        decode_actions(numbers, spec(), TOOL_DOWN, 0)


def test_a_rotation_without_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="6-D rotation"):
        decode_actions(np.zeros((16, 9)), spec(), TOOL_DOWN, 0)


def test_the_wrong_shape_names_both_shapes() -> None:
    with pytest.raises(ValueError, match=r"\[16, 7\], not \[16, 9\]"):
        decode_actions(np.zeros((16, 7)), spec(), TOOL_DOWN, 0)
    with pytest.raises(ValueError, match=r"\[3, 7\], not \[16, 7\]"):
        encode_actions(np.zeros((3, 7)), spec(), TOOL_DOWN)


def test_widths_that_do_not_fit_are_refused_when_the_spec_is_made() -> None:
    with pytest.raises(ValueError, match="need 9"):
        replace(spec(), dim=7)
    with pytest.raises(ValueError, match="scale has shape"):
        replace(spec(), scale=np.ones(7))
    with pytest.raises(ValueError, match="offset is not finite"):
        replace(spec(), offset=np.full(9, np.inf))


def test_six_numbers_are_read_in_the_layout_of_the_spec() -> None:
    turn = rotvec_to_quat([0.2, 0.1, 0.7])
    numbers = np.tile(np.concatenate([np.zeros(3), quat_to_rotation_6d(turn, "rows")]), (16, 1))
    chunk = decode_actions(numbers, spec("absolute", layout="rows"), TOOL_DOWN, 0)
    assert quat_angle_rad(chunk.poses[0, 3:], turn) < 1e-9
