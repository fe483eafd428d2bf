"""The arm's kinematics against themselves, against differences, and against another implementation."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.motion.pose import matrix_to_quat, quat_angle_rad, ur_to_pose
from sdnpu_policy.sim.ur_kinematics import (
    IDENTITY,
    Transform,
    compose,
    flange,
    from_ur,
    inverse,
    invert,
    jacobian,
    nearest_inverse,
    plausible,
    quaternion,
    solve,
    to_ur,
)

angle = st.floats(-2 * pi, 2 * pi)
joints = st.lists(angle, min_size=6, max_size=6)
pose_vector = st.lists(st.floats(-3.0, 3.0), min_size=6, max_size=6)


def matrix(transform: Transform) -> np.ndarray:
    result = np.eye(4)
    result[:3, :3], result[:3, 3] = transform
    return result


@given(joints)
@settings(max_examples=150, deadline=None)
def test_the_inverse_of_a_reached_pose_reaches_it_again(q: list[float]) -> None:
    target = flange(q)
    found = nearest_inverse(target, q)
    if found is None:  # a fully stretched arm may miss by rounding
        assert abs(np.sin(q[2])) < 1e-6
        return
    np.testing.assert_allclose(matrix(flange(found)), matrix(target), atol=2e-6)
    assert max(map(abs, found)) <= 2 * pi


@given(joints)
@settings(max_examples=100, deadline=None)
def test_every_configuration_found_reaches_the_pose(q: list[float]) -> None:
    target = flange(q)
    for solution in inverse(target, q):
        np.testing.assert_allclose(matrix(flange(solution)), matrix(target), atol=2e-6)


def test_the_nearest_configuration_is_the_one_it_came_from() -> None:
    rng = np.random.default_rng(3)
    for q in rng.uniform(-6.0, 6.0, (300, 6)):
        if min(abs(np.sin(q[2])), abs(np.sin(q[4]))) < 0.05:
            continue
        np.testing.assert_allclose(nearest_inverse(flange(q), q + rng.uniform(-0.02, 0.02, 6)), q, atol=1e-8)


def test_whole_turns_are_added_to_stay_near_but_not_beyond_the_joint_limit() -> None:
    q = [0.3, -1.4, 1.8, -2.0, -1.5, 0.2]
    turned = [*q[:5], q[5] + 2 * pi - 0.5]
    np.testing.assert_allclose(nearest_inverse(flange(turned), turned), turned, atol=1e-9)
    found = nearest_inverse(flange(q), [*q[:5], 2 * pi])
    assert found is not None
    assert max(map(abs, found)) <= 2 * pi  # joint 6 at 0.2 and one turn would be nearer, but is out of range


def test_at_the_singular_wrist_joint_six_stays() -> None:
    q = [0.3, -1.4, 1.8, -2.0, 0.0, 0.7]
    np.testing.assert_allclose(nearest_inverse(flange(q), q), q, atol=1e-7)


@pytest.mark.parametrize("position", [(1.2, 0.0, 0.3), (0.0, 0.0, 3.0), (0.02, 0.02, 0.4), (1e5, 0.0, 0.0)])
def test_a_pose_out_of_reach_has_no_solution(position: tuple[float, float, float]) -> None:
    assert nearest_inverse(from_ur((*position, pi, 0.0, 0.0)), [0.0] * 6) is None


@given(joints)
@settings(max_examples=100, deadline=None)
def test_the_jacobian_is_the_derivative_of_the_pose(q: list[float]) -> None:
    tool = from_ur((0.02, -0.01, 0.16, 0.1, 0.2, 0.3))
    here = compose(flange(q), tool)
    columns = np.array(jacobian(q, here[1])).T
    step = 1e-6
    for joint in range(6):
        moved = [*q[:joint], q[joint] + step, *q[joint + 1 :]]
        there = compose(flange(moved), tool)
        turn = to_ur(compose(there, invert(here)))[3:]
        np.testing.assert_allclose(columns[joint, :3], np.subtract(there[1], here[1]) / step, atol=1e-5)
        np.testing.assert_allclose(columns[joint, 3:], np.array(turn) / step, atol=1e-5)


@given(pose_vector)
@settings(max_examples=100, deadline=None)
def test_pose_vectors_come_back_as_the_same_pose(vector: list[float]) -> None:
    transform = from_ur(vector)
    np.testing.assert_allclose(matrix(from_ur(to_ur(transform))), matrix(transform), atol=1e-9)
    expected = ur_to_pose(vector)
    np.testing.assert_allclose(transform[1], expected[:3])
    assert quat_angle_rad(quaternion(transform[0]), expected[3:]) < 1e-7
    assert quat_angle_rad(quaternion(transform[0]), matrix_to_quat(transform[0])) < 1e-7


@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (1 / sqrt(2), -1 / sqrt(2), 0)])
def test_half_turns_keep_their_axis(axis: tuple[float, float, float]) -> None:
    turn = from_ur((0.0, 0.0, 0.0, *(pi * value for value in axis)))
    back = to_ur(turn)
    np.testing.assert_allclose(matrix(from_ur(back)), matrix(turn), atol=1e-12)
    assert np.linalg.norm(back[3:]) == pytest.approx(pi)


@given(pose_vector)
@settings(max_examples=100, deadline=None)
def test_a_transform_and_its_inverse_cancel(vector: list[float]) -> None:
    transform = from_ur(vector)
    np.testing.assert_allclose(matrix(compose(transform, invert(transform))), matrix(IDENTITY), atol=1e-12)


def test_equations_are_solved_and_singular_ones_refused() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(6, 6)), rng.normal(size=6)
    np.testing.assert_allclose(solve(a.tolist(), b.tolist()), np.linalg.solve(a, b), rtol=1e-9)
    a[3] = 2.0 * a[1]
    assert solve(a.tolist(), b.tolist()) is None


def test_numbers_that_cannot_be_a_pose_are_told_apart() -> None:
    assert plausible([0.0, -1.0, 5.0])
    for wrong in (float("nan"), float("inf"), -float("inf"), 1e200):
        assert not plausible([0.0, wrong])


@pytest.fixture
def second_opinion() -> Any:
    return pytest.importorskip("ur_analytic_ik", reason="a second implementation, on x86-64 only").ur5e


def test_forward_kinematics_agree_with_another_implementation(second_opinion: Any) -> None:
    for q in np.random.default_rng(5).uniform(-2 * pi, 2 * pi, (300, 6)):
        np.testing.assert_allclose(matrix(flange(q)), second_opinion.forward_kinematics(*q), atol=1e-12)


def test_inverse_kinematics_find_what_another_implementation_finds(second_opinion: Any) -> None:
    for q in np.random.default_rng(6).uniform(-pi, pi, (200, 6)):
        if min(abs(np.sin(q[2])), abs(np.sin(q[4]))) < 0.05:
            continue
        theirs = np.array([np.ravel(s) for s in second_opinion.inverse_kinematics(matrix(flange(q)))])
        ours = np.array(inverse(flange(q)))
        assert len(ours) == len(theirs)
        for solution in theirs:
            off = np.abs((ours - solution + pi) % (2 * pi) - pi).max(axis=1)
            assert off.min() < 1e-7
