"""Time on the plan: exact while running, slowed down to brake along the path."""

from __future__ import annotations

import math

import numpy as np

from sdnpu_policy.clock import MS
from sdnpu_policy.motion.follower import PathClock, path_speeds
from sdnpu_policy.motion.plan import Chunk, Plan, PlanSettings

DT = 0.004
TICK = 4 * MS
START = 1_000 * MS


def advance(clock: PathClock, now_ns: int, *, braking: bool = False, speed: float = 0.25) -> int:
    return clock.advance(now_ns, DT, braking=braking, path_speed_m_s=speed, deceleration_m_s2=2.0)


def running(lead_ns: int = 0) -> PathClock:
    clock = PathClock(lead_ns)
    clock.restart(START)
    while clock.rate < 1.0:
        advance(clock, START, speed=0.25)
    clock.resync(START)
    return clock


def test_running_it_is_the_present_plus_the_lead_exactly() -> None:
    clock = running(lead_ns=6 * MS)
    for k in range(1, 100):
        now = START + k * TICK + (k % 3) * 1_001
        assert advance(clock, now) == now + 6 * MS
    assert clock.debt_ns == 0


def test_after_a_restart_the_first_target_is_where_the_plan_starts_and_the_motion_ramps_in() -> None:
    clock = PathClock()
    clock.restart(START)
    assert clock.plan_ns(START) == START
    speeds = []
    for k in range(1, 60):
        advance(clock, START + k * TICK)
        speeds.append(clock.rate * 0.25)
    assert np.diff([0.0, *speeds]).max() <= 2.0 * DT + 1e-12
    assert clock.rate == 1.0


def test_braking_takes_the_deceleration_off_the_speed_each_tick_until_it_stands() -> None:
    clock = running()
    advance(clock, START)
    speeds = [0.25]
    k = 0
    while not clock.standing:
        k += 1
        advance(clock, START + k * TICK, braking=True)
        speeds.append(clock.rate * 0.25)
    np.testing.assert_allclose(np.diff(speeds)[:-1], -2.0 * DT)
    assert k == math.ceil(0.25 / (2.0 * DT))
    where = clock.plan_ns(START + k * TICK)
    assert advance(clock, START + (k + 9) * TICK, braking=True) == where


def test_a_plan_that_speeds_up_is_still_slowed_down() -> None:
    clock = running()
    advance(clock, START, speed=0.1)
    for k in range(1, 20):
        speed = 0.1 + 0.01 * k
        advance(clock, START + k * TICK, braking=True, speed=speed)
        assert clock.rate * speed <= max(0.0, 0.1 - 2.0 * DT * k) + 1e-12


def test_a_turn_on_the_spot_is_braked_by_its_angular_deceleration() -> None:
    clock = running()
    turning = {"path_angular_speed_rad_s": 0.5, "angular_deceleration_rad_s2": 5.0}
    spin = [0.5]
    clock.advance(START, DT, braking=False, path_speed_m_s=0.0, deceleration_m_s2=2.0, **turning)
    for k in range(1, 30):
        clock.advance(START + k * TICK, DT, braking=True, path_speed_m_s=0.0, deceleration_m_s2=2.0, **turning)
        spin.append(clock.rate * 0.5)
    assert np.diff(spin).min() >= -5.0 * DT - 1e-12
    assert clock.standing


def test_where_the_plan_itself_stands_braking_is_over_at_once() -> None:
    clock = running()
    advance(clock, START, speed=0.0)
    advance(clock, START + TICK, braking=True, speed=0.0)
    assert clock.standing


def test_after_a_brake_the_rest_of_the_plan_is_followed_late_and_none_of_it_skipped() -> None:
    clock = running()
    last = advance(clock, START)
    for k in range(1, 200):
        plan_ns = advance(clock, START + k * TICK, braking=10 <= k < 25)
        assert 0 <= plan_ns - last <= TICK
        last = plan_ns
    assert clock.rate == 1.0
    assert clock.debt_ns > 20 * MS
    assert last == START + 199 * TICK - clock.debt_ns


def test_a_fresh_chunk_pays_the_debt() -> None:
    clock = running()
    for k in range(40):
        advance(clock, START + k * TICK, braking=True)
    clock.resync(START + 40 * TICK)
    assert clock.plan_ns(START + 40 * TICK) == START + 40 * TICK
    assert clock.standing


def test_the_arm_neither_jumps_nor_speeds_up_hard_over_a_brake_and_a_fresh_chunk() -> None:
    """The whole of it: run, brake along a curve, get a fresh chunk, go on."""

    def chunk(observed_ns: int, angle: float) -> Chunk:
        k = np.arange(0, 17)
        a = angle + k * 0.064 * 2.0
        poses = np.stack(
            [0.4 + 0.1 * np.sin(a), 0.1 * np.cos(a), 0 * a + 0.3, 1 + 0 * a, 0 * a, 0 * a, 0 * a], axis=1
        )
        return Chunk(observed_ns + k * 64 * MS, poses, observed_ns)

    plan, clock = Plan(PlanSettings(blend_ms=100)), PathClock()
    plan.stitch(chunk(START, 0.0), START)
    clock.restart(START)
    path, speed, turn = [], 0.0, 0.0
    for k in range(1, 250):
        now = START + k * TICK
        if k == 110:
            angle = math.atan2(path[-1][0] - 0.4, path[-1][1])
            assert plan.stitch(chunk(now - 20 * MS, angle), now, followed_ns=clock.plan_ns(now)).accepted
            clock.resync(now)
        plan_ns = clock.advance(
            now,
            DT,
            braking=80 <= k < 125,
            path_speed_m_s=speed,
            deceleration_m_s2=2.0,
            path_angular_speed_rad_s=turn,
        )
        sample = plan.sample(plan_ns)
        assert sample is not None
        speed, turn = path_speeds(sample.twist.tolist())
        path.append(sample.pose[:3])
    points = np.array(path)
    # On the circle all the time: braking does not leave the path.
    np.testing.assert_allclose(np.hypot(points[:109, 0] - 0.4, points[:109, 1]), 0.1, atol=2e-4)
    velocity = np.diff(points, axis=0) / DT
    assert np.linalg.norm(velocity, axis=1).max() < 0.3
    assert np.linalg.norm(np.diff(velocity, axis=0), axis=1).max() / DT < 4.0
    assert np.linalg.norm(velocity[105]) < 1e-9
