"""Pose algebra against transforms3d and against its own laws."""

from __future__ import annotations

import numpy as np
import pytest
import transforms3d
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.motion import pose

unit = st.integers(0, 2**32 - 1).map(lambda seed: pose.quat_normalize(np.random.default_rng(seed).normal(size=4)))


def wxyz(q: np.ndarray) -> np.ndarray:
    return np.roll(q, 1)


def same_rotation(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(pose.quat_angle_rad(a, b).max() < 1e-9)


@given(unit, unit)
def test_the_product_and_the_matrix_are_those_of_transforms3d(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(
        wxyz(pose.quat_multiply(a, b)), transforms3d.quaternions.qmult(wxyz(a), wxyz(b)), atol=1e-14
    )
    np.testing.assert_allclose(pose.quat_to_matrix(a), transforms3d.quaternions.quat2mat(wxyz(a)), atol=1e-14)


@given(unit)
def test_rotations_survive_every_way_of_writing_them(q: np.ndarray) -> None:
    assert same_rotation(pose.matrix_to_quat(pose.quat_to_matrix(q)), q)
    assert same_rotation(pose.rotvec_to_quat(pose.quat_to_rotvec(q)), q)
    for layout in ("columns", "rows"):
        assert same_rotation(pose.rotation_6d_to_quat(pose.quat_to_rotation_6d(q, layout), layout), q)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("angle_rad", [0.0, 1e-12, 1e-7, 1.0, np.pi - 1e-7, np.pi])
def test_small_angles_and_half_turns_keep_their_digits(axis: int, angle_rad: float) -> None:
    rotvec = np.zeros(3)
    rotvec[axis] = angle_rad
    q = pose.rotvec_to_quat(rotvec)
    assert pose.quat_angle_rad(q, [0, 0, 0, 1]) == pytest.approx(angle_rad, rel=1e-9)
    assert np.linalg.norm(pose.quat_to_rotvec(q)) == pytest.approx(angle_rad, rel=1e-9)
    assert same_rotation(pose.matrix_to_quat(pose.quat_to_matrix(q)), q)


@given(unit, st.integers(0, 2**32 - 1))
def test_turning_a_vector_is_its_product_with_the_matrix(q: np.ndarray, seed: int) -> None:
    vector = np.random.default_rng(seed).normal(size=3)
    np.testing.assert_allclose(pose.quat_rotate(q, vector), pose.quat_to_matrix(q) @ vector, atol=1e-13)


def test_a_rotation_vector_is_read_as_axis_and_angle() -> None:
    q = pose.rotvec_to_quat([0.3, -0.2, 0.9])
    angle = float(np.linalg.norm([0.3, -0.2, 0.9]))
    expected = transforms3d.quaternions.axangle2quat([0.3, -0.2, 0.9], angle)
    np.testing.assert_allclose(wxyz(q), expected, atol=1e-15)


def test_six_numbers_that_are_not_at_right_angles_are_made_so() -> None:
    q = pose.rotation_6d_to_quat([2.0, 0.0, 0.0, 5.0, 3.0, 0.0])
    assert same_rotation(q, np.array([0.0, 0.0, 0.0, 1.0]))


def test_columns_and_rows_are_each_others_inverse() -> None:
    six = pose.quat_to_rotation_6d(pose.rotvec_to_quat([0.1, 0.2, 0.3]), "columns")
    turned = pose.rotation_6d_to_quat(six, "rows")
    assert same_rotation(turned, pose.quat_conjugate(pose.rotvec_to_quat([0.1, 0.2, 0.3])))


@pytest.mark.parametrize("six", [[0] * 6, [1, 0, 0, 2, 0, 0], [np.nan, 0, 0, 0, 1, 0], [np.inf, 0, 0, 0, 1, 0]])
def test_six_numbers_without_two_directions_are_refused(six: list[float]) -> None:
    with pytest.raises(ValueError, match="6-D rotation"):
        pose.rotation_6d_to_quat(six)


@pytest.mark.parametrize("q", [[0, 0, 0, 0], [np.nan, 0, 0, 1], [np.inf, 0, 0, 1]])
def test_a_quaternion_without_length_is_refused(q: list[float]) -> None:
    with pytest.raises(ValueError, match="quaternion"):
        pose.quat_normalize(q)


@given(unit, unit, st.floats(0, 1))
def test_slerp_goes_the_shorter_way_at_an_even_rate(a: np.ndarray, b: np.ndarray, fraction: float) -> None:
    total = float(pose.quat_angle_rad(a, b))
    between = pose.slerp(a, b, fraction)
    assert float(pose.quat_angle_rad(a, between)) == pytest.approx(fraction * total, abs=1e-7)
    assert same_rotation(between, pose.slerp(a, -b, fraction))


def test_a_sequence_with_alternating_signs_becomes_continuous() -> None:
    q = np.array([[0.0, 0, 0, 1], [0, 0, 0, -1], [0, 0, 0.1, -0.995], [0, 0, 0, 1]])
    smooth = pose.continuous_hemisphere(q, reference=np.array([0.0, 0, 0, -1]))
    assert (smooth[:, 3] < 0).all()


def test_base_link_is_base_turned_half_around_z() -> None:
    turned = pose.turn_base([0.4, 0.2, 0.3, 0, 0, 0, 1])
    np.testing.assert_allclose(turned, [-0.4, -0.2, 0.3, 0, 0, 1, 0])
    matrix = pose.quat_to_matrix(pose.turn_base([0, 0, 0, *pose.rotvec_to_quat([0.1, 0.5, -0.3])])[3:])
    half_turn = np.diag([-1.0, -1.0, 1.0])
    np.testing.assert_allclose(
        matrix, half_turn @ pose.quat_to_matrix(pose.rotvec_to_quat([0.1, 0.5, -0.3])), atol=1e-15
    )


@given(unit)
def test_turning_the_base_twice_changes_nothing(q: np.ndarray) -> None:
    there_and_back = pose.turn_base(pose.turn_base(np.concatenate([[0.1, 0.2, 0.3], q])))
    np.testing.assert_allclose(there_and_back[:3], [0.1, 0.2, 0.3])
    assert same_rotation(there_and_back[3:], q)


@given(unit)
def test_a_pose_survives_the_robots_way_of_writing_it(q: np.ndarray) -> None:
    there_and_back = pose.ur_to_pose(pose.pose_to_ur(np.concatenate([[0.1, 0.2, 0.3], q])))
    np.testing.assert_allclose(there_and_back[:3], [0.1, 0.2, 0.3])
    assert same_rotation(there_and_back[3:], q)


def test_halfway_between_two_poses_is_halfway_in_both() -> None:
    a = np.array([0, 0, 0, 0, 0, 0, 1.0])
    b = np.concatenate([[1.0, 2.0, 3.0], pose.rotvec_to_quat([0, 0, 1.0])])
    np.testing.assert_allclose(
        pose.interpolate_pose(a, b, 0.5), np.concatenate([[0.5, 1.0, 1.5], pose.rotvec_to_quat([0, 0, 0.5])])
    )


def test_every_function_takes_stacks_of_rotations() -> None:
    q = pose.rotvec_to_quat(np.random.default_rng(0).normal(size=(5, 3, 3)))
    assert pose.quat_multiply(q, q).shape == (5, 3, 4)
    assert pose.rotation_6d_to_quat(pose.quat_to_rotation_6d(q)).shape == (5, 3, 4)
    assert pose.slerp(q, q[::-1], np.full((5, 3), 0.5)).shape == (5, 3, 4)
    poses = np.concatenate([np.zeros((5, 3, 3)), q], axis=-1)
    assert pose.turn_base(poses).shape == pose.ur_to_pose(pose.pose_to_ur(poses)).shape == (5, 3, 7)
