"""Stitching chunks: what is kept, what is refused, and that the path never jumps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.clock import MS
from sdnpu_policy.motion.plan import Chunk, Plan, PlanSettings
from sdnpu_policy.motion.pose import quat_angle_rad, quat_multiply, rotvec_to_quat

START = 50_000 * MS
HERE = np.array([0.4, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0])


def line(
    observed_ns: int, x_from: float, speed: float, count: int = 16, step_ms: float = 64, observed: bool = True
) -> Chunk:
    """A chunk along x at an even speed, its first action one step after the observation."""
    k = np.arange(1, count + 1)
    poses = np.tile(HERE, (count, 1))
    poses[:, 0] = x_from + k * step_ms / 1e3 * speed
    here = HERE.copy()
    here[0] = x_from
    return Chunk((observed_ns + k * step_ms * MS).astype(np.int64), poses, observed_ns, here if observed else None)


def planned(chunk: Chunk, now_ns: int, **settings: float) -> Plan:
    plan = Plan(PlanSettings(**settings))
    assert plan.stitch(chunk, now_ns).accepted
    return plan


def x_at(plan: Plan, t_ns: int) -> float:
    sample = plan.sample(t_ns)
    assert sample is not None
    return float(sample.pose[0])


def test_without_a_chunk_there_is_no_plan() -> None:
    plan = Plan(PlanSettings())
    assert plan.sample(START) is None
    assert plan.sample_many(np.array([START])) is None
    assert plan.future_ms(START) == 0
    assert plan.age_ms(START) == np.inf
    assert plan.waypoints() is None


def test_the_observed_pose_is_the_waypoint_before_the_first() -> None:
    plan = planned(line(START, 0.4, 0.25), START + 20 * MS)
    assert x_at(plan, START + 20 * MS) == pytest.approx(0.4 + 0.020 * 0.25)
    assert x_at(plan, START + 64 * MS) == pytest.approx(0.4 + 0.064 * 0.25)


def test_the_twist_is_the_speed_along_the_path() -> None:
    plan = planned(line(START, 0.4, 0.25), START)
    sample = plan.sample(START + 500 * MS)
    assert sample is not None
    np.testing.assert_allclose(sample.twist, [0.25, 0, 0, 0, 0, 0], atol=1e-9)


def test_the_angular_part_of_the_twist_is_in_the_axes_of_base() -> None:
    k = np.arange(0, 17)
    tool_down = np.array([1.0, 0, 0, 0])
    turned = rotvec_to_quat(np.stack([0 * k, 0 * k, 0.02 * k], axis=1))
    poses = np.concatenate([np.tile(HERE[:3], (17, 1)), quat_multiply(turned, tool_down)], axis=1)
    plan = planned(Chunk(START + k * 64 * MS, poses, START), START)
    sample = plan.sample(START + 500 * MS)
    assert sample is not None
    np.testing.assert_allclose(sample.twist, [0, 0, 0, 0, 0, 0.02 / 0.064], atol=1e-4)


def test_actions_whose_time_has_passed_are_dropped() -> None:
    plan = Plan(PlanSettings())
    stitch = plan.stitch(line(START, 0.4, 0.25), START + 200 * MS)
    assert stitch.dropped == 3
    assert x_at(plan, START + 200 * MS) == pytest.approx(0.4 + 0.2 * 0.25)
    waypoints = plan.waypoints()
    assert waypoints is not None
    assert len(waypoints[0]) == len(waypoints[1]) == 13


def test_a_chunk_of_8_at_10_hz_arriving_900_ms_late_is_refused_whole() -> None:
    plan = Plan(PlanSettings(max_age_ms=2000))
    plan.start_from(HERE, START)
    stitch = plan.stitch(line(START, 0.4, 0.25, count=8, step_ms=100), START + 900 * MS)
    assert not stitch.accepted
    assert stitch.reason == "its last action was due 100 ms ago"
    assert x_at(plan, START + 900 * MS) == HERE[0]


def test_a_chunk_from_too_old_an_observation_is_refused() -> None:
    stitch = Plan(PlanSettings(max_age_ms=400)).stitch(line(START, 0.4, 0.25), START + 401 * MS)
    assert stitch.reason == "observed 401 ms ago, more than 400 ms"


def test_a_chunk_from_the_future_is_refused() -> None:
    stitch = Plan(PlanSettings()).stitch(line(START + 10_000 * MS, 0.4, 0.25), START)
    assert stitch.reason == "observed 10000 ms in the future"


def test_a_chunk_older_than_the_plan_is_refused() -> None:
    plan = planned(line(START, 0.4, 0.25), START + 20 * MS)
    stitch = plan.stitch(line(START - 30 * MS, 0.4, 0.25), START + 24 * MS)
    assert stitch.reason == "observed 30 ms before the plan under way"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("column", [0, 6])
def test_a_chunk_that_is_not_finite_is_refused_and_changes_nothing(bad: float, column: int) -> None:
    plan = planned(line(START, 0.4, 0.25), START)
    chunk = line(START + 30 * MS, 0.4, 0.25)
    chunk.poses[5, column] = bad
    before = x_at(plan, START + 300 * MS)
    assert plan.stitch(chunk, START + 50 * MS).reason == "a waypoint is not finite"
    assert x_at(plan, START + 300 * MS) == before


def test_a_chunk_with_an_empty_quaternion_is_refused() -> None:
    chunk = line(START, 0.4, 0.25)
    chunk.poses[5, 3:] = 0
    assert Plan(PlanSettings()).stitch(chunk, START).reason == "a waypoint's quaternion has no length"


def test_times_that_do_not_rise_are_refused() -> None:
    chunk = line(START, 0.4, 0.25)
    chunk.times_ns[3] = chunk.times_ns[2]
    assert "must rise" in Plan(PlanSettings()).stitch(chunk, START).reason


def test_a_chunk_that_begins_behind_the_last_makes_no_jump_and_no_roll_back_beyond_the_blend() -> None:
    plan = planned(line(START, 0.40, 0.10, count=16), START)
    end = START + 16 * 64 * MS
    assert x_at(plan, end) == pytest.approx(0.5024, abs=1e-6)
    stitch = plan.stitch(line(end - 100 * MS, 0.46 - 0.01, 0.10), end)
    assert stitch.jump_m == pytest.approx(0.5024 - 0.46, abs=1e-3)
    path = np.array([x_at(plan, end + k * MS) for k in range(900)])
    assert path[0] == pytest.approx(0.5024, abs=1e-6)
    assert np.abs(np.diff(path)).max() < 1e-3
    assert path.min() >= 0.46
    assert (np.diff(path[101:]) > 0).all()


def test_the_first_chunk_after_standing_starts_from_the_standing_pose_at_no_speed() -> None:
    plan = Plan(PlanSettings())
    plan.start_from(HERE, START)
    plan.stitch(line(START - 20 * MS, 0.42, 0.25), START)
    sample = plan.sample(START)
    assert sample is not None
    np.testing.assert_allclose(sample.pose, HERE)
    np.testing.assert_allclose(sample.twist, 0, atol=1e-9)


def test_an_observation_before_the_plan_was_started_is_not_older_than_it() -> None:
    plan = Plan(PlanSettings())
    plan.start_from(HERE, START)
    assert plan.age_ms(START) == np.inf
    assert plan.stitch(line(START - 20 * MS, 0.4, 0.25), START).accepted
    assert plan.age_ms(START) == 20


def test_after_the_blend_the_path_is_the_new_chunk() -> None:
    plan = planned(line(START, 0.4, 0.25), START, blend_ms=50)
    plan.stitch(line(START + 100 * MS, 0.39, 0.20), START + 120 * MS)
    for ms in (171, 300, 700):
        assert x_at(plan, START + ms * MS) == pytest.approx(0.39 + (ms - 100) / 1e3 * 0.2)


def test_without_a_blend_the_new_chunk_holds_at_once() -> None:
    plan = planned(line(START, 0.4, 0.25), START, blend_ms=0)
    plan.stitch(line(START + 100 * MS, 0.39, 0.20), START + 120 * MS)
    assert x_at(plan, START + 121 * MS) == pytest.approx(0.39 + 0.021 * 0.2)


def test_an_old_plan_that_ends_earlier_fades_from_its_last_pose() -> None:
    plan = planned(line(START, 0.4, 0.25, count=2), START)
    plan.stitch(line(START + 90 * MS, 0.43, 0.0), START + 100 * MS)
    path = np.array([x_at(plan, START + k * MS) for k in range(100, 250)])
    assert path[0] == pytest.approx(0.425)
    assert path.min() >= 0.425 and path.max() <= 0.432 + 1e-3
    assert np.abs(np.diff(path)).max() < 5e-4


def test_a_chunk_without_its_observed_pose_starts_from_the_plan_under_way() -> None:
    plan = Plan(PlanSettings(blend_ms=20))
    plan.start_from(HERE, START)
    stitch = plan.stitch(line(START, 0.4, 0.25, observed=False), START)
    assert stitch.jump_m == 0
    assert x_at(plan, START + 64 * MS) == pytest.approx(0.416)


def test_alternating_quaternion_signs_do_not_turn_the_arm() -> None:
    chunk = line(START, 0.4, 0.25)
    chunk.poses[::2, 3:] *= -1
    plan = planned(chunk, START)
    many = plan.sample_many(START + np.arange(0, 1024, 4) * MS)
    assert many is not None
    assert quat_angle_rad(many[:, 3:], HERE[3:]).max() < 1e-9
    assert (np.einsum("ti,ti->t", many[1:, 3:], many[:-1, 3:]) > 0.99).all()


def test_the_path_never_overshoots_the_waypoints() -> None:
    chunk = line(START, 0.4, 0.0)
    chunk.poses[:, 2] = np.where(np.arange(16) < 5, 0.1, 0.03)
    plan = planned(chunk, START)
    many = plan.sample_many(START + np.arange(64, 1030) * MS)
    assert many is not None
    assert many[:, 2].min() >= 0.03 - 1e-12
    assert many[:, 2].max() <= 0.1 + 1e-12


def test_the_plan_stands_after_its_end_and_has_no_future() -> None:
    plan = planned(line(START, 0.4, 0.25), START)
    end = START + 16 * 64 * MS
    assert plan.future_ms(START) == 1024
    sample = plan.sample(end + 500 * MS)
    assert sample is not None
    assert sample.pose[0] == pytest.approx(0.4 + 1.024 * 0.25)
    np.testing.assert_array_equal(sample.twist, np.zeros(6))
    assert plan.future_ms(end + 5 * MS) == 0


def test_many_samples_are_the_same_as_one_by_one() -> None:
    plan = planned(line(START, 0.4, 0.25), START)
    plan.stitch(line(START + 50 * MS, 0.43, 0.2), START + 70 * MS)
    times = START + np.arange(0, 1300, 7) * MS
    many = plan.sample_many(times)
    assert many is not None
    for t, pose in zip(times.tolist(), many, strict=True):
        sample = plan.sample(t)
        assert sample is not None
        np.testing.assert_allclose(sample.pose, pose, atol=1e-12)


def test_a_stitch_begins_where_a_slowed_arm_is_on_the_old_plan() -> None:
    plan = planned(line(START, 0.4, 0.25), START)
    now, followed = START + 300 * MS, START + 120 * MS
    where = x_at(plan, followed)
    plan.stitch(line(now - 20 * MS, 0.43, 0.25), now, followed_ns=followed)
    assert x_at(plan, now) == pytest.approx(where)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_chunks_come_pose_and_speed_are_continuous_at_every_stitch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = Plan(PlanSettings(blend_ms=float(rng.uniform(20, 150)), max_age_ms=1e6))
    plan.start_from(HERE, START)
    now = START
    for _ in range(8):
        now += int(rng.integers(1, 200 * MS))
        count = int(rng.integers(2, 17))
        first = now - int(rng.integers(0, 60 * MS))
        times = first + np.cumsum(rng.integers(5 * MS, 90 * MS, count))
        walk = np.cumsum(rng.normal(scale=0.01, size=(count, 3)), axis=0)
        turns = rotvec_to_quat(np.cumsum(rng.normal(scale=0.05, size=(count, 3)), axis=0) + np.array([3, 0, 0]))
        chunk = Chunk(
            times, np.concatenate([HERE[:3] + walk, turns * rng.choice([-1, 1], (count, 1))], axis=1), first
        )
        before = plan.sample(now)
        stitch = plan.stitch(chunk, now)
        after = plan.sample(now)
        assert before is not None and after is not None
        np.testing.assert_allclose(after.pose[:3], before.pose[:3], atol=1e-9)
        assert quat_angle_rad(after.pose[3:], before.pose[3:]) < 1e-7
        if stitch.accepted:
            np.testing.assert_allclose(after.twist, before.twist, atol=1e-6)
        # The twist is the derivative of the pose everywhere.
        for t in rng.integers(now + MS, now + 400 * MS, 5).tolist():
            a, b, c = plan.sample(t - 10_000), plan.sample(t), plan.sample(t + 10_000)
            assert a is not None and b is not None and c is not None
            if plan.future_ms(t) > 1:
                np.testing.assert_allclose((c.pose[:3] - a.pose[:3]) / 2e-5, b.twist[:3], atol=0.05)
                assert abs(np.linalg.norm(b.pose[3:]) - 1) < 1e-9


@pytest.mark.parametrize("wrong", [{"blend_ms": -1.0}, {"max_age_ms": 0.0}, {"grid_ms": float("nan")}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        PlanSettings(**wrong)
