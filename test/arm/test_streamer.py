"""Targets in, limited setpoints out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.arm.streamer import ArmLimits, Setpoint, Streamer
from sdnpu_policy.clock import MS
from sdnpu_policy.letters import TARGET, ArmStatus, TargetMode
from sdnpu_policy.mailbox import Letter
from sdnpu_policy.motion.pose import quat_angle_rad, quat_conjugate, quat_multiply, quat_to_rotvec, rotvec_to_quat

LIMITS = ArmLimits(0.25, 2.5, 200.0, 1.5, 15.0, 1000.0)
DT_NS = 2 * MS
START = np.array([0.5, -0.2, 0.2, 1.0, 0.0, 0.0, 0.0])
NAN, INF = math.nan, math.inf


def target(
    pose: Any = START,
    twist: Any = (0.0,) * 6,
    *,
    at_ns: int,
    due_ns: int | None = None,
    mode: int = TargetMode.STREAM,
) -> Letter:
    value = np.zeros((), TARGET)
    value["mode"], value["pose"], value["twist"] = mode, pose, twist
    value["due_ns"] = at_ns + 4 * MS if due_ns is None else due_ns
    return Letter(1, at_ns, value, 0)


def started(**settings: Any) -> Streamer:
    streamer = Streamer(LIMITS, 0.002, **settings)
    streamer.start(START)
    return streamer


def moved(*, x: float = 0.0, turn: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> np.ndarray:
    pose = START.copy()
    pose[0] += x
    pose[3:] = quat_multiply(rotvec_to_quat(turn), START[3:])
    return pose


def follow_line(streamer: Streamer, speed_m_s: float, until_ns: int, now_ns: int = 0) -> list[Setpoint]:
    """A target every 4 ms, each due 4 ms later, running along x and accelerating at 2 m/s2."""
    setpoints, distance, speed = [], 0.0, 0.0
    while now_ns < until_ns:
        letter = None
        if now_ns % (4 * MS) == 0:
            speed = min(speed_m_s, speed + 2.0 * 0.004)
            distance += speed * 0.004
            letter = target(moved(x=distance), (speed, 0, 0, 0, 0, 0), at_ns=now_ns)
        setpoints.append(streamer.step(now_ns, letter))
        now_ns += DT_NS
    return setpoints


def velocities(poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    turns = quat_to_rotvec(quat_multiply(poses[1:, 3:], quat_conjugate(poses[:-1, 3:])))
    return np.diff(poses[:, :3], axis=0) / 0.002, turns / 0.002


numbers = st.one_of(st.floats(-2.0, 2.0), st.sampled_from([0.0, NAN, INF, -INF, 1e30, 0.5, -0.2]))
letters = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        lambda pose, twist, at, due, mode: target(pose, twist, at_ns=at, due_ns=due, mode=mode),
        st.one_of(
            st.lists(numbers, min_size=7, max_size=7),
            st.builds(
                lambda x, a, b, c: moved(x=x, turn=(a, b, c)),
                st.floats(-0.15, 0.15),
                *[st.floats(-1.0, 1.0)] * 3,
            ),
        ),
        st.lists(numbers, min_size=6, max_size=6),
        st.integers(-50 * MS, 50 * MS),
        st.integers(-50 * MS, 50 * MS),
        st.sampled_from([0, 1, 1, 1, 1, 2, 3, 7]),
    ),
)


@given(st.lists(letters, min_size=1, max_size=60))
def test_no_setpoint_breaks_a_limit_whatever_letters_come(received: list[Letter | None]) -> None:
    streamer = started()
    now_ns, poses = 0, [START, START]
    for letter in received:
        now_ns += DT_NS
        if letter is not None:
            letter.value["due_ns"] += now_ns
            letter = letter._replace(stamp_ns=letter.stamp_ns + now_ns)
        setpoint = streamer.step(now_ns, letter)
        poses.append(setpoint.pose)
    rows = np.array(poses)
    assert np.isfinite(rows).all()
    slack = 1 + 1e-6
    for velocity, speed, acceleration in zip(
        velocities(rows),
        (LIMITS.max_speed_m_s, LIMITS.max_angular_speed_rad_s),
        (LIMITS.max_acceleration_m_s2, LIMITS.max_angular_acceleration_rad_s2),
        strict=True,
    ):
        assert np.linalg.norm(velocity, axis=1).max() <= speed * slack
        assert np.linalg.norm(np.diff(velocity, axis=0), axis=1).max() <= acceleration * 0.002 * slack


def test_without_a_target_it_stands_where_it_was_started() -> None:
    setpoint = started().step(0, None)
    assert setpoint.status == ArmStatus.STANDING
    np.testing.assert_array_equal(setpoint.pose, START)
    np.testing.assert_array_equal(setpoint.twist, np.zeros(6))


def test_targets_every_4_ms_are_followed_smoothly_every_2_ms() -> None:
    setpoints = follow_line(started(), 0.2, 400 * MS)
    x = np.array([setpoint.pose[0] for setpoint in setpoints]) - START[0]
    speed = np.diff(x) / 0.002
    assert setpoints[-1].status == ArmStatus.STREAMING
    np.testing.assert_allclose(speed[-50:], 0.2, atol=1e-6)
    assert np.abs(np.diff(speed)).max() / 0.002 < 2.5


def test_a_setpoint_is_where_the_target_is_at_that_time() -> None:
    setpoints = follow_line(started(), 0.2, 400 * MS)
    # 0.2 m/s since 100 ms, at 2 m/s2 up to then: the last target was for 400 ms, the last setpoint is for 398 ms
    expected = sum(min(0.2, 0.008 * n) * 0.004 for n in range(1, 101)) - 0.2 * 0.002
    assert setpoints[-1].pose[0] - START[0] == pytest.approx(expected, abs=1e-6)


def test_when_targets_stop_it_goes_on_for_the_timeout_then_brakes_and_stands() -> None:
    streamer = started(target_timeout_ms=40.0)
    follow_line(streamer, 0.2, 400 * MS)
    statuses, now_ns = [], 400 * MS
    while not statuses or statuses[-1] != ArmStatus.STANDING:
        statuses.append(streamer.step(now_ns, None).status)
        now_ns += DT_NS
    assert (
        statuses.count(ArmStatus.STREAMING) == 19
    )  # the last letter is 4 ms old at the first, and 40 at the last
    assert statuses.count(ArmStatus.BRAKING) * 0.002 < 0.2 / 2.5 + 2 * 0.02
    assert streamer.refused == 0


def test_after_braking_it_follows_again_from_where_it_stands() -> None:
    streamer = started()
    follow_line(streamer, 0.2, 400 * MS)
    now_ns = 400 * MS
    while (setpoint := streamer.step(now_ns, None)).status != ArmStatus.STANDING:
        now_ns += DT_NS
    goal = setpoint.pose.copy()
    goal[0] += 0.01
    first = streamer.step(now_ns, target(goal, at_ns=now_ns))
    assert first.status == ArmStatus.STREAMING
    assert np.linalg.norm(first.pose[:3] - setpoint.pose[:3]) < 2.5 * 0.002**2
    for _ in range(300):
        now_ns += DT_NS
        last = streamer.step(now_ns, target(goal, at_ns=now_ns))
    np.testing.assert_allclose(last.pose[:3], goal[:3], atol=1e-7)


@pytest.mark.parametrize("mode", [TargetMode.RELEASE, TargetMode.STAND, TargetMode.SHUT_DOWN])
def test_a_stop_is_obeyed_at_once_however_old_it_is(mode: TargetMode) -> None:
    streamer = started()
    follow_line(streamer, 0.2, 400 * MS)
    setpoint = streamer.step(400 * MS, target(np.full(7, NAN), at_ns=-500 * MS, mode=mode))
    assert setpoint.status == ArmStatus.BRAKING
    assert streamer.mode == mode
    assert streamer.refused == 0


@pytest.mark.parametrize(
    ("letter", "why"),
    [
        (target([NAN, 0, 0, 0, 0, 0, 1], at_ns=0), "not finite"),
        (target(moved(), [0, 0, INF, 0, 0, 0], at_ns=0), "not finite"),
        (target([0.5, -0.2, 0.2, 0, 0, 0, 0], at_ns=0), "quaternion of length 0"),
        (target([0.5, -0.2, 0.2, 0.5, 0, 0, 0], at_ns=0), "quaternion of length 0.5"),
        (target(moved(x=0.3), at_ns=0), "0.300 m and 0.000 rad away"),
        (target(moved(turn=(0.0, 0.6, 0.0)), at_ns=0), "0.000 m and 0.600 rad away"),
        (target(at_ns=-41 * MS), "given 41.0 ms ago"),
        (target(at_ns=10_000 * MS), "in the future"),
        (target(at_ns=0, due_ns=10_000 * MS), "due 10000.0 ms in the future"),
        (target(at_ns=0, mode=9), "unknown mode 9"),
    ],
)
def test_a_bad_target_is_refused_counted_and_does_not_move_the_arm(letter: Letter, why: str) -> None:
    streamer = started()
    setpoint = streamer.step(0, letter)
    assert (streamer.refused, setpoint.status) == (1, ArmStatus.STANDING)
    assert why in streamer.refusal
    np.testing.assert_array_equal(setpoint.pose, START)


def test_q_and_minus_q_are_the_same_target() -> None:
    streamer = started()
    pose = moved()
    pose[3:] *= -1.0
    setpoint = streamer.step(0, target(pose, at_ns=0))
    assert streamer.refused == 0
    assert quat_angle_rad(setpoint.pose[3:], START[3:]) == 0.0


def test_an_orientation_is_followed_on_the_shorter_way() -> None:
    streamer = started(target_timeout_ms=1000.0)
    goal = moved(turn=(0.1, 0.3, -0.2))
    for n in range(400):
        setpoint = streamer.step(n * DT_NS, target(goal, at_ns=n * DT_NS))
    assert quat_angle_rad(setpoint.pose[3:], goal[3:]) < 1e-6


def test_a_start_pose_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(ValueError, match="not finite"):
        Streamer(LIMITS, 0.002).start(np.full(7, NAN))


def test_a_limit_that_is_not_above_zero_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_jerk_m_s3 0"):
        ArmLimits(0.25, 2.5, 0.0, 1.5, 15.0, 1000.0)
