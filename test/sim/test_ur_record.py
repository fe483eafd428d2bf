"""The record of the simulated arm, and the judge of its motion."""

from __future__ import annotations

import json
from math import pi
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.motion.pose import rotvec_to_quat
from sdnpu_policy.sim.ur_record import PLACED, Ring, load_record, motion_extremes

DT_S = 0.002
T_S = np.arange(0.0, 2.0, DT_S)


def line(x: np.ndarray) -> np.ndarray:
    """Poses [N,7] along x, tool down."""
    poses = np.zeros((len(x), 7))
    poses[:, 0] = x
    poses[:, 3] = 1.0
    return poses


def test_a_swing_has_the_speed_and_acceleration_of_its_formula() -> None:
    swing, frequency = 0.05, 2 * pi * 0.8
    extremes = motion_extremes(T_S, line(swing * np.sin(frequency * T_S)))
    assert extremes.max_speed_m_s == pytest.approx(swing * frequency, rel=1e-4)
    assert extremes.max_acceleration_m_s2 == pytest.approx(swing * frequency**2, rel=1e-3)
    assert extremes.max_raw_acceleration_m_s2 == pytest.approx(swing * frequency**2, rel=1e-3)
    assert extremes.max_step_m == pytest.approx(swing * frequency * DT_S, rel=1e-4)
    assert extremes.max_angular_speed_rad_s == 0.0


def test_turning_is_measured_in_base_axes_whatever_the_sign_of_the_quaternion() -> None:
    rate = 1.5
    poses = line(np.zeros(len(T_S)))
    poses[:, 3:] = rotvec_to_quat(np.stack([0 * T_S, 0 * T_S, rate * T_S], axis=-1))
    poses[::3, 3:] *= -1.0
    extremes = motion_extremes(T_S, poses)
    assert extremes.max_angular_speed_rad_s == pytest.approx(rate)
    assert extremes.max_angular_acceleration_rad_s2 < 1e-6
    assert extremes.max_step_rad == pytest.approx(rate * DT_S)
    assert extremes.max_speed_m_s == 0.0


def test_a_jump_of_velocity_is_its_height_over_the_window() -> None:
    start = T_S[500]
    extremes = motion_extremes(T_S, line(np.where(start < T_S, 0.25 * (T_S - start), 0.0)))
    assert extremes.max_acceleration_m_s2 == pytest.approx(0.25 / 0.010, rel=1e-6)
    assert extremes.max_raw_acceleration_m_s2 == pytest.approx(0.25 / DT_S, rel=1e-6)


def test_a_jump_of_position_shows_as_a_step() -> None:
    extremes = motion_extremes(T_S, line(np.where(T_S > 1.0, 0.03, 0.0)))
    assert extremes.max_step_m == pytest.approx(0.03)
    assert extremes.max_speed_m_s == pytest.approx(15.0)


def test_placing_the_arm_counts_as_no_motion() -> None:
    placed = np.zeros(len(T_S), bool)
    placed[500] = True
    extremes = motion_extremes(T_S, line(np.where(T_S[500] <= T_S, 0.4, 0.0)), placed)
    assert extremes.placed == 1
    assert extremes.max_step_m == extremes.max_speed_m_s == extremes.max_raw_acceleration_m_s2 == 0.0


def test_what_happens_beside_a_placing_is_still_seen() -> None:
    placed = np.zeros(len(T_S), bool)
    placed[500] = True
    x = np.where(T_S[500] <= T_S, 0.4, 0.0)
    x[700:] += 0.01
    assert motion_extremes(T_S, line(x), placed).max_step_m == pytest.approx(0.01)


def test_standing_is_timed() -> None:
    extremes = motion_extremes(T_S, line(np.clip(T_S - 0.5, 0.0, 0.25) * 0.2))
    assert extremes.stands_since_t_s == pytest.approx(0.75, abs=DT_S)
    assert extremes.standing_s == pytest.approx(T_S[-1] - 0.25, abs=2 * DT_S)
    assert motion_extremes(T_S, line(T_S * 0.2)).stands_since_t_s is None


@pytest.mark.parametrize("ticks", [0, 1, 2, 5])
def test_a_record_of_few_ticks_is_judged_without_fuss(ticks: int) -> None:
    extremes = motion_extremes(T_S[:ticks], line(np.zeros(ticks)))
    assert extremes.ticks == ticks
    assert extremes.max_speed_m_s == extremes.max_acceleration_m_s2 == 0.0
    json.dumps(extremes.as_dict(), allow_nan=False)


@given(st.floats(0.01, 3.0), st.floats(0.05, 5.0))
def test_the_window_never_shows_more_than_the_raw_acceleration(amplitude: float, frequency: float) -> None:
    extremes = motion_extremes(T_S[:300], line(amplitude * np.sin(frequency * T_S[:300])))
    assert extremes.max_acceleration_m_s2 <= extremes.max_raw_acceleration_m_s2 * (1 + 1e-6) + 1e-7


def filled(ring: Ring, ticks: int) -> Ring:
    for tick in range(1, ticks + 1):
        ring.append(
            tick * DT_S,
            tick * 2_000_000,
            [tick + 0.1 * joint for joint in range(6)],
            (0.001 * tick, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
            None if tick % 2 else (0.5,) * 7,
            PLACED if tick == 7 else 0,
        )
    return ring


def test_the_ring_gives_back_what_was_put_in() -> None:
    record = filled(Ring(100), 20).since(0.0)
    np.testing.assert_allclose(record.t_s, np.arange(1, 21) * DT_S)
    assert record.steady_ns.tolist() == [tick * 2_000_000 for tick in range(1, 21)]
    np.testing.assert_allclose(record.q[4], [5.0, 5.1, 5.2, 5.3, 5.4, 5.5])
    np.testing.assert_allclose(record.poses[:, 0], 0.001 * np.arange(1, 21))
    assert np.isnan(record.targets[0]).all()
    assert (record.targets[1] == 0.5).all()
    assert np.flatnonzero(record.placed).tolist() == [6]


@pytest.mark.parametrize("ticks", [99, 100, 101, 250, 300])
def test_a_full_ring_forgets_the_oldest_and_keeps_the_order(ticks: int) -> None:
    record = filled(Ring(100), ticks).since(0.0)
    np.testing.assert_allclose(record.t_s, np.arange(max(1, ticks - 99), ticks + 1) * DT_S)


def test_a_period_is_cut_out_with_both_ends() -> None:
    ring = filled(Ring(100), 130)
    record = ring.since(0.1999, 0.2201)
    np.testing.assert_allclose(record.t_s, np.arange(100, 111) * DT_S)
    np.testing.assert_allclose(ring.since(0.0).between(0.1999, 0.2201).t_s, record.t_s)


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record = filled(Ring(100), 30).since(0.0)
    record.save(tmp_path / "record.npz")
    loaded = load_record(tmp_path / "record.npz")
    np.testing.assert_array_equal(loaded.poses, record.poses)
    np.testing.assert_array_equal(loaded.flags, record.flags)
    assert [path.name for path in tmp_path.iterdir()] == ["record.npz"]


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "record.npz"
    for content in (None, b"", b"PK\x03\x04 broken"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(SdnpuError, match=r"record\.npz: not a record"):
            load_record(path)


def test_speeds_leave_out_placed_steps() -> None:
    t_s, speed_m_s = filled(Ring(100), 20).since(0.0).speed()
    assert len(t_s) == 18
    np.testing.assert_allclose(speed_m_s, 0.5)
