"""Following a moving target within bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.arm.pursuit import Pursuit
from sdnpu_policy.motion.tracking import Vector

DT_S = 0.002
MAX_SPEED, MAX_ACCELERATION, MAX_JERK = 0.25, 2.5, 200.0
STILL: Vector = (0.0, 0.0, 0.0)

wild = st.one_of(
    st.floats(-1.0, 1.0), st.sampled_from([0.0, 1e-12, -1e-9, 1e6, -1e6, 1e300, math.inf, -math.inf, math.nan])
)
vectors = st.tuples(wild, wild, wild)


def pursuit() -> Pursuit:
    return Pursuit(MAX_SPEED, MAX_ACCELERATION, MAX_JERK, DT_S)


def run_to(target: np.ndarray, periods: int) -> np.ndarray:
    """Positions [N,3] on the way from the origin to a target that stands."""
    follower, place, places = pursuit(), np.zeros(3), []
    for _ in range(periods):
        place = place + DT_S * np.array(follower.follow(tuple(target - place), STILL, STILL))
        places.append(place)
    return np.array(places)


def norms(vectors_: np.ndarray) -> np.ndarray:
    return np.linalg.norm(vectors_, axis=1)


@given(st.lists(st.tuples(st.booleans(), vectors, vectors, vectors), max_size=40))
def test_speed_and_acceleration_stay_within_bounds_whatever_the_target_does(
    steps: list[tuple[bool, Vector, Vector, Vector]],
) -> None:
    follower, before = pursuit(), np.zeros(3)
    for braking, ahead, velocity, acceleration in steps:
        speed = math.hypot(*velocity)
        velocity = velocity if speed <= MAX_SPEED else STILL  # what the caller promises
        acceleration = acceleration if math.hypot(*acceleration) <= MAX_ACCELERATION else STILL
        mean = np.array(follower.brake() if braking else follower.follow(ahead, velocity, acceleration))
        assert np.linalg.norm(mean) <= MAX_SPEED * (1 + 1e-9)
        assert np.linalg.norm(mean - before) <= MAX_ACCELERATION * DT_S * (1 + 1e-9)
        before = mean


@pytest.mark.parametrize("way", [(0.08, 0.0, 0.0), (0.05, 0.05, 0.05), (-0.03, 0.01, 0.06), (1e-5, 0.0, 0.0)])
def test_a_standing_target_is_reached_almost_straight_and_without_overshoot(way: Vector) -> None:
    target = np.array(way)
    places = run_to(target, 400)
    length = np.linalg.norm(target)
    along = places @ target / length
    across = norms(places - np.outer(along, target / length))
    assert along.max() - length < 2e-3 * length
    assert across.max() < 0.1 * length
    assert norms(places[-1:] - target)[0] < 1e-7


def test_the_jerk_limit_holds_on_the_way_to_a_standing_target() -> None:
    places = np.vstack([np.zeros((3, 3)), run_to(np.array([0.01, 0.0, 0.0]), 300)])
    assert norms(np.diff(places, 3, axis=0) / DT_S**3).max() <= MAX_JERK


def test_a_target_on_a_curve_is_caught_from_rest_and_then_followed_exactly() -> None:
    radius, rate = 0.05, 3.6  # 0.18 m/s, 0.65 m/s2
    follower, place = pursuit(), np.array([radius, 0.0, 0.0])
    distances = []
    for period in range(1000):
        angle = rate * period * DT_S
        out, on = (
            np.array([math.cos(angle), math.sin(angle), 0.0]),
            np.array([-math.sin(angle), math.cos(angle), 0.0]),
        )
        ahead, velocity, acceleration = radius * out - place, radius * rate * on, -radius * rate**2 * out
        place = place + DT_S * np.array(follower.follow(tuple(ahead), tuple(velocity), tuple(acceleration)))
        distances.append(np.linalg.norm(ahead))
    assert max(distances) < 0.03
    assert max(distances[-200:]) < 1e-5


def test_braking_keeps_the_direction_and_ends_at_rest_in_the_time_the_bounds_allow() -> None:
    follower, place = pursuit(), np.zeros(3)
    target = np.array([0.2, 0.1, -0.05])
    for _ in range(150):
        place = place + DT_S * np.array(follower.follow(tuple(target - place), STILL, STILL))
    direction = np.array(follower.mean) / np.linalg.norm(follower.mean)
    periods = 0
    while not follower.standing:
        velocity = np.array(follower.brake())
        assert np.linalg.norm(np.cross(velocity, direction)) < 0.02 * MAX_SPEED
        periods += 1
    assert periods * DT_S <= MAX_SPEED / MAX_ACCELERATION + 2 * 0.02
    assert follower.brake() == STILL
