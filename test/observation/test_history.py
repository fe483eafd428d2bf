"""Poses by time, frozen cameras, rates; ids are those of the faults seen in the field."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.observation.history import HELD_NS, LONGEST_HOLE_NS, FrozenDetector, PoseHistory, RateMeter

STEP = 10 * MS


def pose(x: float = 0.0, half_yaw: float = 0.0) -> np.ndarray:
    return np.array([x, 2.0 * x, 0.3, 0.0, 0.0, np.sin(half_yaw), np.cos(half_yaw)])


def history(count: int, capacity: int = 64, first_ns: int = 0) -> PoseHistory:
    poses = PoseHistory(capacity)
    for i in range(count):
        poses.push(first_ns + i * STEP, pose(float(i)))
    return poses


def test_an_empty_history_knows_nothing() -> None:
    poses = PoseHistory(4)
    assert poses.at(0) is None and poses.newest_ns is None


def test_a_pose_that_was_pushed_is_given_back_as_it_was() -> None:
    poses = history(5)
    np.testing.assert_array_equal(poses.at(3 * STEP), pose(3.0))
    assert poses.newest_ns == 4 * STEP


def test_between_two_poses_the_time_decides() -> None:
    found = history(5).at(3 * STEP + STEP // 4)
    assert found is not None and found[:2] == pytest.approx([3.25, 6.5])


@given(count=st.integers(1, 50), capacity=st.integers(1, 9), part=st.floats(0.0, 1.0))
def test_the_newest_poses_are_found_however_often_the_room_was_used_up(
    count: int, capacity: int, part: float
) -> None:
    poses = history(count, capacity)
    oldest = max(0, count - capacity)
    t_ns = round((oldest + part * (count - 1 - oldest)) * STEP)
    found = poses.at(t_ns)
    assert found is not None and found[0] == pytest.approx(t_ns / STEP)
    assert poses.at(oldest * STEP - HELD_NS - 1) is None


def test_a_little_outside_the_end_is_held_and_further_is_nothing() -> None:
    poses = history(5, first_ns=SECOND)
    for t_ns, x in ((SECOND - HELD_NS, 0.0), (SECOND + 4 * STEP + HELD_NS, 4.0)):
        found = poses.at(t_ns)
        assert found is not None and found[0] == x
    assert poses.at(SECOND - HELD_NS - 1) is None
    assert poses.at(SECOND + 4 * STEP + HELD_NS + 1) is None


def test_in_a_hole_nothing_is_known() -> None:
    poses = history(2)
    poses.push(STEP + LONGEST_HOLE_NS + 1, pose(9.0))
    assert poses.at(STEP + LONGEST_HOLE_NS // 2) is None
    assert poses.at(STEP) is not None and poses.at(STEP + LONGEST_HOLE_NS + 1) is not None


def test_a_pose_that_is_not_newer_is_left_out() -> None:
    poses = history(3)
    poses.push(2 * STEP, pose(99.0))
    poses.push(STEP, pose(99.0))
    np.testing.assert_array_equal(poses.at(2 * STEP), pose(2.0))


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_pose_that_is_not_finite_is_left_out(at: int, value: float) -> None:
    poses, wrong = history(1), pose(5.0)
    wrong[at] = value
    poses.push(STEP, wrong)
    assert poses.newest_ns == 0


@pytest.mark.parametrize("norm", [0.0, 0.5, 1.1])
def test_a_pose_without_a_unit_quaternion_is_left_out(norm: float) -> None:
    poses, wrong = history(1), pose(5.0)
    wrong[3:] *= norm
    poses.push(STEP, wrong)
    assert poses.newest_ns == 0


@given(first=st.floats(-3.0, 3.0), turn=st.floats(-0.2, 0.2), part=st.floats(0.0, 1.0), flipped=st.booleans())
def test_rotations_are_mixed_on_the_short_way_whatever_their_signs(
    first: float, turn: float, part: float, flipped: bool
) -> None:
    """MOT-03"""
    poses = PoseHistory(4)
    a, b = pose(half_yaw=first), pose(half_yaw=first + turn)
    if flipped:
        b[3:] *= -1.0
    poses.push(0, a)
    poses.push(STEP, b)
    t_ns = round(part * STEP)
    found = poses.at(t_ns)
    assert found is not None and np.linalg.norm(found[3:]) == pytest.approx(1.0)
    wanted = pose(half_yaw=first + turn * t_ns / STEP)[3:]
    assert abs(found[3:] @ wanted) == pytest.approx(1.0, abs=1e-5)


def test_what_is_given_back_is_a_copy() -> None:
    poses = history(3)
    for t_ns in (0, STEP // 2, 2 * STEP):
        found = poses.at(t_ns)
        assert found is not None
        found[:] = -1.0
    np.testing.assert_array_equal(poses.at(0), pose(0.0))
    np.testing.assert_array_equal(poses.at(2 * STEP), pose(2.0))


def test_a_camera_that_repeats_its_picture_is_noticed_and_may_recover() -> None:
    """CAM-01, T-CAM"""
    rng = np.random.default_rng(0)
    moving = [rng.integers(0, 256, (48, 64, 3), np.uint8) for _ in range(4)]
    watch = FrozenDetector(3)
    assert [watch.see(rgb) for rgb in moving] == [False] * 4
    assert [watch.see(moving[-1].copy()) for _ in range(5)] == [False, False, True, True, True]
    assert watch.see(moving[0]) is False
    assert watch.see(moving[0]) is False


def test_the_noise_of_a_camera_that_stands_still_keeps_it_alive() -> None:
    """CAM-01"""
    rng = np.random.default_rng(1)
    still = np.full((480, 640, 3), 100, np.uint8)
    watch = FrozenDetector(2)
    seen = [watch.see(still + (rng.random(still.shape) < 0.01)) for _ in range(6)]
    assert seen == [False] * 6


def test_padded_and_small_pictures_are_watched_too() -> None:
    watch = FrozenDetector(1)
    assert [watch.see(np.zeros((1, 1, 3), np.uint8)) for _ in range(2)] == [False, True]


@pytest.mark.parametrize("hz", [5, 10, 30, 60])
def test_the_rate_is_that_of_the_images(hz: int) -> None:
    """QOS-03"""
    rate = RateMeter()
    for i in range(3 * hz):
        rate.see(i * SECOND // hz)
    assert rate.hz(3 * SECOND - SECOND // hz) == pytest.approx(hz, rel=1e-6)


def test_the_rate_follows_a_camera_that_slows_down_and_stops() -> None:
    """QOS-03, CAM-01"""
    rate, now_ns = RateMeter(), 0
    for period_ns in [SECOND // 30] * 60 + [SECOND // 5] * 10:
        now_ns += period_ns
        rate.see(now_ns)
    assert rate.hz(now_ns) == pytest.approx(5.0, rel=1e-6)
    assert rate.hz(now_ns + 2 * SECOND) == 0.0


def test_images_at_the_same_instant_are_no_division_by_zero() -> None:
    rate = RateMeter()
    assert rate.hz(0) == 0.0
    rate.see(5)
    rate.see(5)
    assert rate.hz(5) > 0.0


def test_the_rate_falls_as_soon_as_the_next_image_is_overdue() -> None:
    """CAM-01, T-RATE"""
    rate = RateMeter()
    for i in range(60):
        rate.see(i * SECOND // 30)
    last_ns = 59 * SECOND // 30
    assert rate.hz(last_ns + SECOND // 60) == pytest.approx(30.0)
    overdue = [rate.hz(last_ns + t_ms * MS) for t_ms in range(50, 1100, 50)]
    assert overdue == sorted(overdue, reverse=True)
    assert overdue[0] < 30.0 and overdue[9] < 16.1 and overdue[-1] == 0.0


@given(gaps_ms=st.lists(st.integers(0, 400), min_size=1, max_size=60), later_ms=st.integers(0, 2000))
def test_the_rate_is_never_more_than_the_images_there_were(gaps_ms: list[int], later_ms: int) -> None:
    """QOS-03"""
    rate, times_ns = RateMeter(), []
    for gap_ms in gaps_ms:
        times_ns.append((times_ns[-1] if times_ns else 0) + gap_ms * MS)
        rate.see(times_ns[-1])
    now_ns = times_ns[-1] + later_ms * MS
    lately = [t_ns for t_ns in times_ns if now_ns - t_ns <= SECOND]
    assert rate.hz(now_ns) >= 0.0
    if len(lately) > 1 and now_ns > lately[0]:
        assert rate.hz(now_ns) <= len(lately) * SECOND / (now_ns - lately[0]) * (1 + 1e-9)


@given(
    steps_ms=st.lists(st.integers(1, 120), min_size=1, max_size=40),
    capacity=st.integers(1, 12),
    t_ms=st.integers(-60, 3000),
)
def test_a_time_is_answered_as_a_search_through_all_poses_would(
    steps_ms: list[int], capacity: int, t_ms: int
) -> None:
    poses, known, t_ns = PoseHistory(capacity), [], 0
    for i, step_ms in enumerate(steps_ms):
        t_ns += step_ms * MS
        known.append((t_ns, pose(float(i % 7))))
        poses.push(*known[-1])
    known = known[-capacity:]
    t_ns = t_ms * MS
    found = poses.at(t_ns)
    before = [entry for entry in known if entry[0] <= t_ns]
    after = [entry for entry in known if entry[0] >= t_ns]
    if not before or not after:
        end_ns, end_pose = known[0] if not before else known[-1]
        wanted = end_pose if abs(end_ns - t_ns) <= HELD_NS else None
    elif before[-1][0] == after[0][0]:
        wanted = after[0][1]
    else:
        span_ns = after[0][0] - before[-1][0]
        part = (t_ns - before[-1][0]) / span_ns
        wanted = None if span_ns > LONGEST_HOLE_NS else (1 - part) * before[-1][1] + part * after[0][1]
    if wanted is None:
        assert found is None
    else:
        assert found is not None
        np.testing.assert_allclose(found, wanted, atol=1e-12)


@given(stretch=st.floats(0.991, 1.009))
def test_a_quaternion_that_is_almost_of_unit_length_becomes_one(stretch: float) -> None:
    poses, almost = PoseHistory(2), pose(1.0, 0.4)
    almost[3:] *= stretch
    poses.push(0, almost)
    found = poses.at(0)
    assert found is not None
    np.testing.assert_allclose(found, pose(1.0, 0.4), atol=1e-12)
