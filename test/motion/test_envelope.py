"""The last gate: no limit is ever broken, and a motion within the limits passes unchanged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.motion.envelope import Envelope, EnvelopeSettings, Limited, Reason
from sdnpu_policy.motion.pose import quat_angle_rad, quat_conjugate, quat_multiply, quat_to_rotvec, rotvec_to_quat

DT = 0.004
LIMITS = EnvelopeSettings(
    workspace_min_m=(0.2, -0.4, 0.02),
    workspace_max_m=(0.75, 0.4, 0.6),
    max_reach_m=0.8,
    max_speed_m_s=0.25,
    max_acceleration_m_s2=3.0,
    max_angular_speed_rad_s=1.0,
    max_angular_acceleration_rad_s2=8.0,
    max_step_m=0.1,
)
HERE = np.array([0.4, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0])


def placed(pose: np.ndarray = HERE, limits: EnvelopeSettings = LIMITS) -> Envelope:
    envelope = Envelope(limits)
    envelope.reset(pose)
    return envelope


def moved(dx: float = 0.0, dy: float = 0.0, dz: float = 0.0, pose: np.ndarray = HERE) -> np.ndarray:
    out = pose.copy()
    out[:3] += dx, dy, dz
    return out


def check_limits(outputs: list[np.ndarray], start: np.ndarray, limits: EnvelopeSettings = LIMITS) -> None:
    """By finite differences of what came out after standing at ``start``."""
    poses = np.array([start, start, *outputs])
    assert np.isfinite(poses).all()
    velocity = np.diff(poses[:, :3], axis=0) / DT
    spin = quat_to_rotvec(quat_multiply(poses[1:, 3:], quat_conjugate(poses[:-1, 3:]))) / DT
    for rate, most, hardest in (
        (velocity, limits.max_speed_m_s, limits.max_acceleration_m_s2),
        (spin, limits.max_angular_speed_rad_s, limits.max_angular_acceleration_rad_s2),
    ):
        assert np.linalg.norm(rate, axis=1).max() <= most * (1 + 1e-6) + 1e-9
        assert np.linalg.norm(np.diff(rate, axis=0), axis=1).max(initial=0) / DT <= hardest * (1 + 1e-6) + 1e-6
    np.testing.assert_allclose(np.linalg.norm(poses[:, 3:], axis=1), 1, atol=1e-12)
    assert (np.einsum("ti,ti->t", poses[1:, 3:], poses[:-1, 3:]) > 0).all()


def check_workspace(poses: np.ndarray, limits: EnvelopeSettings = LIMITS) -> None:
    assert (poses[:, :3] >= np.array(limits.workspace_min_m) - 1e-8).all()
    assert (poses[:, :3] <= np.array(limits.workspace_max_m) + 1e-8).all()
    assert np.linalg.norm(poses[:, :3], axis=1).max() <= limits.max_reach_m + 1e-8


def test_the_first_target_after_reset_is_the_pose_itself() -> None:
    limited = placed().limit(HERE, None, DT)
    np.testing.assert_array_equal(limited.pose, HERE)
    assert not limited.refused and limited.reasons == 0


def test_a_target_before_reset_is_a_fault_of_the_program() -> None:
    with pytest.raises(RuntimeError, match="reset"):
        Envelope(LIMITS).limit(HERE, None, DT)
    with pytest.raises(ValueError, match="not finite"):
        Envelope(LIMITS).reset(np.full(7, np.nan))
    with pytest.raises(ValueError, match="dt_s"):
        placed().limit(HERE, None, 0.0)


def test_minus_q_is_the_same_rotation_and_turns_nothing() -> None:
    envelope = placed(np.array([0.4, 0, 0.3, 0, 0, 0, 1.0]))
    limited = envelope.limit(np.array([0.4, 0, 0.3, 0, 0, 0, -1.0]), None, DT)
    assert quat_angle_rad(limited.pose[3:], [0, 0, 0, 1.0]) == 0
    np.testing.assert_array_equal(limited.pose[3:], [0, 0, 0, 1.0])
    assert envelope.counts[Reason.HEMISPHERE] == 1
    assert not limited.refused


def test_a_step_of_300_mm_in_one_tick_is_refused_and_counted() -> None:
    envelope = placed()
    limited = envelope.limit(moved(0.30), None, DT)
    assert limited.refused
    assert limited.names() == ["STEP"]
    np.testing.assert_array_equal(limited.pose, HERE)
    assert envelope.counts[Reason.STEP] == 1


@pytest.mark.parametrize(
    ("quaternion", "reason"),
    [
        ([0, 0, 0, 0], "QUATERNION_NORM"),
        ([0, 0, 0, 0.5], "QUATERNION_NORM"),
        ([1.02, 0, 0, 0], "QUATERNION_NORM"),
        ([np.nan, 0, 0, 1], "NON_FINITE"),
        ([np.inf, 0, 0, 1], "NON_FINITE"),
    ],
)
def test_a_quaternion_that_is_no_rotation_is_refused(quaternion: list[float], reason: str) -> None:
    envelope = placed()
    limited = envelope.limit(np.array([0.4, 0, 0.3, *quaternion]), None, DT)
    assert limited.refused
    assert limited.names() == [reason]
    assert envelope.counts[Reason[reason]] == 1
    np.testing.assert_array_equal(limited.pose, HERE)


def test_a_quaternion_within_one_percent_of_unit_length_is_normalised() -> None:
    limited = placed().limit(np.concatenate([HERE[:3], HERE[3:] * 1.009]), None, DT)
    assert not limited.refused
    np.testing.assert_allclose(limited.pose, HERE)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["pose", "twist"])
def test_a_refused_pose_brakes_instead_of_stopping_dead(bad: float, where: str) -> None:
    envelope = placed()
    outputs = [envelope.limit(moved(0.001 * k), np.array([0.25, 0, 0, 0, 0, 0]), DT).pose for k in range(1, 60)]
    speed = 0.25
    pose, twist = moved(0.06), np.zeros(6)
    (pose if where == "pose" else twist)[1] = bad
    while not envelope.standing:
        limited = envelope.limit(pose, twist, DT)
        assert limited.refused and limited.names() == ["NON_FINITE"]
        speed = max(0.0, speed - 3.0 * DT)
        assert np.linalg.norm(limited.twist[:3]) == pytest.approx(speed, abs=1e-6)
        outputs.append(limited.pose)
    check_limits(outputs, HERE)


def circle(t: float) -> tuple[np.ndarray, np.ndarray]:
    """A circle of 0.2 m/s with a swinging tool, which keeps all limits."""
    rate, radius = 2.0, 0.1
    c, s = math.cos(rate * t), math.sin(rate * t)
    swing, swing_rate = 0.3 * math.sin(1.5 * t), 0.45 * math.cos(1.5 * t)
    pose = np.concatenate([[0.45 + radius * s, radius * (c - 1), 0.3], rotvec_to_quat([0, 0, swing])])
    return pose, np.array([radius * rate * c, -radius * rate * s, 0, 0, 0, swing_rate])


def test_a_motion_within_the_limits_is_followed_without_lag() -> None:
    envelope = placed(circle(0.0)[0])
    lag = []
    for k in range(1, 1000):
        pose, twist = circle(k * DT)
        limited = envelope.limit(pose, twist, DT)
        lag.append(np.linalg.norm(limited.pose[:3] - pose[:3]))
        turn_lag = quat_angle_rad(limited.pose[3:], pose[3:])
        if k > 60:
            assert lag[-1] < 1e-9
            assert turn_lag < 1e-7
            assert limited.reasons == 0
    assert max(lag) < 0.01


@pytest.mark.parametrize("distance", [0.0001, 0.003, 0.02, 0.0999])
def test_a_target_that_stands_is_reached_without_overshoot(distance: float) -> None:
    envelope = placed()
    target = moved(distance * 0.6, -distance * 0.8)
    target[3:] = quat_multiply(rotvec_to_quat([0, 0, 0.4]), HERE[3:])
    outputs = np.array([envelope.limit(target, None, DT).pose for _ in range(400)])
    along = (outputs[:, :3] - HERE[:3]) @ np.array([0.6, -0.8, 0.0])
    assert along.max() <= distance + 1e-9
    np.testing.assert_allclose(outputs[-1, :3], target[:3], atol=1e-9)
    assert quat_angle_rad(outputs[-1, 3:], target[3:]) < 1e-9
    assert envelope.standing
    check_limits(list(outputs), HERE)


def test_a_step_is_closed_in_nearly_the_shortest_time() -> None:
    envelope = placed()
    ticks = 0
    while np.linalg.norm(envelope.pose[:3] - moved(0.08)[:3]) > 1e-6:
        envelope.limit(moved(0.08), None, DT)
        ticks += 1
    shortest_s = 0.08 / 0.25 + 0.25 / 3.0
    assert ticks * DT < 1.1 * shortest_s


def test_the_arm_stops_at_the_wall_and_slides_along_it() -> None:
    start = np.array([0.4, 0.35, 0.3, 1.0, 0, 0, 0])
    envelope = placed(start)
    outputs = []
    for k in range(1, 400):
        # Sideways into the wall at y = 0.4, and along it in x.
        desired = np.array([0.4 + 0.1 * k * DT, min(0.35 + 0.2 * k * DT, 0.47), 0.3, 1.0, 0, 0, 0])
        limited = envelope.limit(desired, np.array([0.1, 0.2, 0, 0, 0, 0]), DT)
        outputs.append(limited.pose)
    path = np.array(outputs)
    check_limits(outputs, start)
    check_workspace(path)
    assert path[-1, 1] == pytest.approx(0.4, abs=1e-6)
    assert path[-1, 0] == pytest.approx(desired[0], abs=1e-4)
    assert envelope.counts[Reason.WORKSPACE] > 100


def test_the_arm_stops_at_the_end_of_its_reach() -> None:
    start = np.array([0.6, 0.0, 0.45, 1.0, 0, 0, 0])
    envelope = placed(start)
    outputs = []
    for k in range(1, 500):
        desired = moved(0.15 * k * DT, 0, 0.15 * k * DT, pose=start)
        outputs.append(envelope.limit(desired, np.array([0.15, 0, 0.15, 0, 0, 0]), DT).pose)
    check_limits(outputs, start)
    check_workspace(np.array(outputs))
    assert envelope.counts[Reason.REACH] > 10


def test_a_brake_slows_down_straight_ahead_at_the_deceleration_asked_for() -> None:
    envelope = placed()
    for k in range(1, 60):
        envelope.limit(moved(0.001 * k), np.array([0.25, 0, 0, 0, 0, 0]), DT)
    start, speeds = envelope.pose, []
    while not envelope.standing:
        speeds.append(np.linalg.norm(envelope.brake(DT, 1.5).twist[:3]))
    np.testing.assert_allclose(np.diff(speeds)[:-1], -1.5 * DT, atol=1e-9)
    np.testing.assert_allclose(envelope.pose[1:], start[1:], atol=1e-12)


def test_a_gentle_brake_near_a_wall_brakes_harder_rather_than_leave() -> None:
    start = np.array([0.4, 0.35, 0.3, 1.0, 0, 0, 0])
    envelope = placed(start)
    outputs = [
        envelope.limit(moved(0, 0.35 + 0.001 * k), np.array([0, 0.25, 0, 0, 0, 0]), DT).pose for k in range(1, 42)
    ]
    assert np.linalg.norm(outputs[-1][:3] - outputs[-2][:3]) / DT > 0.2
    while not envelope.standing:
        outputs.append(envelope.brake(DT, 0.2).pose)
    check_limits(outputs, start)
    check_workspace(np.array(outputs))


def test_an_arm_parked_outside_may_come_in_but_not_go_farther_out() -> None:
    parked = np.array([0.4, 0.45, 0.3, 1.0, 0, 0, 0])
    outward = placed(parked)
    out = np.array([outward.limit(moved(0, 0.05, pose=parked), None, DT).pose for _ in range(100)])
    assert out[:, 1].max() <= 0.45 + 1e-9
    inward = placed(parked)
    path = np.array([inward.limit(moved(0, -0.09, pose=parked), None, DT).pose for _ in range(300)])
    assert path[-1, 1] == pytest.approx(0.36)
    check_limits(list(path), parked)
    back = np.array([inward.limit(moved(0, -0.01, pose=parked), None, DT).pose for _ in range(300)])
    assert back[:, 1].max() <= 0.4 + 1e-8


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"workspace_min_m": (0.8, -0.4, 0.0)}, "workspace_min_m.x"),
        ({"max_speed_m_s": 0.0}, "max_speed_m_s"),
        ({"max_step_m": float("inf")}, "max_step_m"),
        ({"max_reach_m": 0.1}, "max_reach_m"),
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        EnvelopeSettings(**{**{name: getattr(LIMITS, name) for name in LIMITS.__slots__}, **wrong})  # type: ignore[arg-type]


def wild_desires(rng: np.random.Generator, envelope: Envelope, count: int) -> list[Limited]:
    """Whatever may come in: drifts, targets out of the workspace, far jumps, broken numbers, flipped signs."""
    outputs = []
    drift = rng.normal(size=3)
    target = envelope.pose
    twist: np.ndarray | None = None
    for _ in range(count):
        kind = rng.integers(0, 24)
        if kind == 0:
            drift = rng.normal(size=3) * rng.choice([0.02, 0.2, 2.0])
        elif kind == 1:
            target = envelope.pose + np.concatenate([rng.uniform(-0.1, 0.1, 3), np.zeros(4)])
        elif kind == 2:
            target[:3] = rng.uniform(-1, 1, 3)
        elif kind == 3:
            target[3:] = rotvec_to_quat(rng.normal(size=3) * 2)
        elif kind == 4:
            twist = rng.normal(size=6) * rng.choice([0.0, 0.3, 5.0, 1e200])
        elif kind == 5:
            twist = None
        target[:3] += drift * DT
        desired, given_twist = target.copy(), None if twist is None else twist.copy()
        if kind == 6:
            desired[rng.integers(7)] = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1e308])
        elif kind == 7:
            desired[3:] *= rng.choice([-1.0, 0.0, 0.5, 1.005, -0.995])
        elif kind == 8 and given_twist is not None:
            given_twist[rng.integers(6)] = rng.choice([np.nan, np.inf, 1e308])
        elif kind == 9:
            target = envelope.pose
        if kind == 10:
            outputs.append(envelope.brake(DT, float(rng.uniform(0, 6))))
        else:
            outputs.append(envelope.limit(desired, given_twist, DT))
    return outputs


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_limit_is_broken_whatever_comes_in(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corner = np.array([0.72, 0.3, 0.1, 1.0, 0, 0, 0])
    envelope = placed([HERE, corner, moved(0, 0.4), moved(0, 0, -0.28)][rng.integers(4)])
    start = envelope.pose
    poses = np.array([limited.pose for limited in wild_desires(rng, envelope, 600)])
    check_limits(list(poses), start)
    check_workspace(poses)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_limit_is_broken_by_a_fast_arm_in_a_small_box(seed: int) -> None:
    limits = EnvelopeSettings((0.3, -0.1, 0.2), (0.5, 0.1, 0.4), 0.55, 1.5, 5.0, 4.0, 20.0, 0.5)
    rng = np.random.default_rng(seed)
    envelope = placed(HERE, limits)
    start = envelope.pose
    poses = np.array([limited.pose for limited in wild_desires(rng, envelope, 400)])
    check_limits(list(poses), start, limits)
    check_workspace(poses, limits)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_ticks_of_uneven_length_break_no_limit_either(seed: int) -> None:
    rng = np.random.default_rng(seed)
    envelope = placed(moved(0, 0.38))
    last, velocity = envelope.pose, np.zeros(3)
    for _ in range(300):
        dt = float(rng.choice([0.001, 0.004, 0.02, 0.1]))
        limited = envelope.limit(moved(*rng.uniform(-0.09, 0.09, 3), pose=envelope.pose), rng.normal(size=6), dt)
        now = (limited.pose[:3] - last[:3]) / dt
        assert np.linalg.norm(now) <= 0.25 + 1e-9
        assert np.linalg.norm(now - velocity) / dt <= 3.0 + 1e-6
        check_workspace(limited.pose[None])
        last, velocity = limited.pose, now


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_an_arm_placed_outside_never_goes_farther_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parked = np.array([0.7, 0.5, 0.65, 1.0, 0, 0, 0])
    envelope = placed(parked)
    start = envelope.pose
    poses = np.array([limited.pose for limited in wild_desires(rng, envelope, 400)])
    check_limits(list(poses), start)
    assert (poses[:, 1] <= 0.5 + 1e-8).all()
    assert (poses[:, 2] <= 0.65 + 1e-8).all()
    assert np.linalg.norm(poses[:, :3], axis=1).max() <= np.linalg.norm(parked[:3]) + 1e-8


def test_an_arm_held_on_a_turned_pose_counts_as_standing_in_spite_of_rounding() -> None:
    pose = np.array([0.553778068, -0.0411526012, 0.130453724, -0.907766054, 0.419474994, -6.72525e-4, 1.03326e-3])
    pose[3:] /= np.linalg.norm(pose[3:])
    envelope = placed(pose)
    for tick in range(50):
        envelope.limit(pose + np.array([0, 0, 0, 1e-17 * (tick % 3), 0, 0, 0]), np.zeros(6), DT)
    assert envelope.standing
