"""The tick as a whole, in virtual time: what the arm is told when steps are late, images stop or outputs are bad."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sdnpu_policy.clock import MS
from sdnpu_policy.control.watchdog import Cause, State
from sdnpu_policy.letters import TargetMode

_spec = importlib.util.spec_from_file_location("virtual_cell", Path(__file__).with_name("virtual_cell.py"))
assert _spec is not None and _spec.loader is not None
virtual_cell = importlib.util.module_from_spec(_spec)
sys.modules["virtual_cell"] = virtual_cell
_spec.loader.exec_module(virtual_cell)
VirtualCell, path, LIMITS = virtual_cell.VirtualCell, virtual_cell.path, virtual_cell.LIMITS
TICK_S = virtual_cell.TICK_NS / 1e9


def moving(**changes: object) -> VirtualCell:
    """A cell whose arm moves along a plan."""
    cell = VirtualCell(**changes)
    cell.run_until(State.NOMINAL)
    cell.tick(150)
    return cell


def speeds(cell: VirtualCell, last: int) -> np.ndarray:
    return np.linalg.norm(np.diff(path(cell.commands)[-last:, :3], axis=0), axis=1) / TICK_S


def assert_within_limits(poses: np.ndarray) -> None:
    velocity = np.diff(poses[:, :3], axis=0) / TICK_S
    assert np.linalg.norm(velocity, axis=1).max(initial=0.0) <= LIMITS.max_speed_m_s * 1.001
    acceleration = np.linalg.norm(np.diff(velocity, axis=0), axis=1) / TICK_S
    assert acceleration.max(initial=0.0) <= LIMITS.max_acceleration_m_s2 * 1.001
    assert (poses[:, :3] >= np.array(LIMITS.workspace_min_m) - 1e-6).all()
    assert (poses[:, :3] <= np.array(LIMITS.workspace_max_m) + 1e-6).all()


def test_the_arm_follows_the_plan_at_its_speed() -> None:
    cell = moving()
    assert speeds(cell, 50).mean() == pytest.approx(0.1, rel=0.1)


def test_the_first_target_is_where_the_arm_is() -> None:
    cell = VirtualCell()
    cell.tick(3)
    np.testing.assert_allclose(path(cell.commands)[0], virtual_cell.START, atol=1e-9)


def test_no_denoising_is_begun_without_an_image() -> None:
    cell = VirtualCell(images=False)
    cell.tick(100)
    assert cell.loop.denoiser.steps == 0
    assert cell.loop.ladder.state == State.HOLD


def test_as_many_steps_as_fit_the_deadline_are_done_in_a_tick() -> None:
    cell = moving(step_ms=0.8)
    rows = cell.loop.log.rows()
    assert rows["steps"].max() == 3
    assert rows["step_ms"].max() <= 3.0


def test_one_step_a_tick_is_done_where_that_is_asked_for() -> None:
    cell = moving(step_ms=0.2, steps_per_tick=1)
    assert cell.loop.log.rows()["steps"].max() == 1


def test_a_late_step_coasts_and_the_arm_keeps_its_speed() -> None:
    cell = moving()
    cell.step_ms = 25.0
    cell.run_until(State.COAST)
    cell.step_ms = 0.8
    cell.tick(6)
    assert State.BRAKE not in cell.states[-20:]
    assert speeds(cell, 8).min() > 0.08
    cell.run_until(State.NOMINAL)


def test_holding_on_late_stops_the_arm_where_coasting_does_not() -> None:
    cell = moving(on_late="hold")
    cell.step_ms = 25.0
    cell.run_until(State.BRAKE)


def test_blocking_on_late_ends_the_tick_late() -> None:
    cell = moving(on_late="block")
    cell.step_ms = 25.0
    cell.tick(20)
    assert cell.loop.log.rows()["tick_us"].max() >= 25_000


def test_a_late_result_is_used_when_it_lands() -> None:
    cell = moving()
    chunks = cell.loop.denoiser.chunks
    cell.step_ms = 7.0
    cell.tick(60)
    assert cell.loop.denoiser.late_steps > 0
    assert cell.loop.denoiser.chunks > chunks + 2
    assert State.BRAKE not in cell.states[-60:]


def test_a_step_that_never_returns_brakes_the_arm_and_holds_it() -> None:
    cell = moving()
    cell.step_ms = 1e9
    cell.run_until(State.BRAKE)
    cell.run_until(State.HOLD)
    standing = path(cell.commands)[-1]
    cell.tick(50)
    np.testing.assert_array_equal(path(cell.commands)[-1], standing)
    assert_within_limits(path(cell.commands))


def test_when_images_stop_the_arm_brakes_along_its_path_and_holds() -> None:
    cell = moving()
    cell.images = False
    assert cell.run_until(State.BRAKE) * TICK_S <= 0.3
    assert cell.run_until(State.HOLD) * TICK_S <= 0.3
    assert cell.loop.ladder.cause == Cause.CONDITION_STALE
    assert_within_limits(path(cell.commands))


def test_hold_ends_with_a_fresh_image_and_the_arm_ramps_in() -> None:
    cell = moving()
    cell.images = False
    cell.run_until(State.HOLD)
    cell.tick(20)
    cell.images = True
    cell.run_until(State.NOMINAL)
    cell.tick(100)
    assert speeds(cell, 30).mean() == pytest.approx(0.1, rel=0.1)
    assert_within_limits(path(cell.commands))


def test_a_robot_state_that_stops_brakes_the_arm() -> None:
    cell = moving()
    cell.robot_states = False
    cell.run_until(State.BRAKE)
    assert cell.loop.ladder.cause == Cause.ROBOT_STATE_STALE


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_outputs_that_are_not_finite_again_and_again_stop_the_node(bad: float) -> None:
    cell = moving()
    cell.bad_output = bad
    cell.run_until(State.STOPPED)
    assert cell.loop.ladder.cause == Cause.BAD_OUTPUTS
    cell.tick(100)
    assert cell.commands[-1].mode == TargetMode.RELEASE
    assert_within_limits(path(cell.commands))


def test_one_output_that_is_not_finite_brakes_and_recovers() -> None:
    cell = moving()
    cell.bad_output = np.nan
    cell.run_until(State.BRAKE)
    cell.bad_output = None
    cell.run_until(State.NOMINAL)


def test_stopped_is_left_only_by_reset() -> None:
    cell = moving()
    cell.loop.request_stop("by hand")
    cell.tick(300)
    assert cell.loop.ladder.state == State.STOPPED
    assert cell.loop.at_rest
    cell.loop.request_reset()
    cell.tick()
    assert cell.loop.ladder.state == State.HOLD
    cell.run_until(State.NOMINAL)


def test_a_reset_is_refused_with_a_reason_while_the_robot_has_a_fault() -> None:
    cell = moving()
    cell.fault = "protective stop"
    cell.run_until(State.STOPPED)
    cell.tick(100)
    cell.loop.request_reset()
    cell.tick()
    assert cell.loop.ladder.state == State.STOPPED
    assert "protective stop" in cell.loop.reset_refusal


def test_a_pause_releases_the_arm_and_resuming_starts_where_it_was_put() -> None:
    cell = moving()
    cell.loop.request_pause(True)
    cell.tick(200)
    assert cell.loop.at_rest and cell.commands[-1].mode == TargetMode.RELEASE
    put = virtual_cell.START + np.array([0.05, 0.1, 0.05, 0, 0, 0, 0])
    cell.pose = put.copy()
    cell.tick(5)
    count = len(path(cell.commands))
    cell.loop.request_pause(False)
    cell.run_until(State.NOMINAL)
    cell.tick(50)
    after = path(cell.commands)[count:]
    np.testing.assert_allclose(after[0], put, atol=1e-9)
    assert_within_limits(after)


def test_a_pause_has_no_time_limit() -> None:
    cell = moving()
    cell.loop.request_pause(True)
    cell.tick(1000)
    assert cell.loop.ladder.state == State.HOLD


def test_held_too_long_ends_stopped() -> None:
    cell = moving()
    cell.images = False
    cell.run_until(State.HOLD)
    assert cell.run_until(State.STOPPED) * TICK_S == pytest.approx(2.0, abs=0.1)


def test_a_network_that_asks_for_too_much_is_kept_within_the_limits() -> None:
    cell = VirtualCell(velocity_m_s=(0.0, 1.5, -0.8))
    cell.run_until(State.NOMINAL)
    cell.tick(500)
    assert cell.loop.envelope.counts.sum() > 0
    assert_within_limits(path(cell.commands))


def test_a_warm_start_runs_fewer_steps() -> None:
    cold, warm = moving(), moving(warm_start_steps=2)
    assert (
        warm.loop.denoiser.steps / warm.loop.denoiser.chunks < cold.loop.denoiser.steps / cold.loop.denoiser.chunks
    )
    assert speeds(warm, 50).mean() == pytest.approx(0.1, rel=0.1)


def test_the_same_run_gives_the_same_targets_bit_for_bit() -> None:
    runs = []
    for _ in range(2):
        cell = VirtualCell()
        for number in range(300):
            cell.step_ms = 9.0 if number % 17 == 0 else 0.8
            cell.tick()
        runs.append(path(cell.commands))
    np.testing.assert_array_equal(runs[0], runs[1])


def test_each_change_of_the_ladder_is_kept_for_the_log() -> None:
    cell = moving()
    cell.images = False
    cell.run_until(State.HOLD)
    told = [ladder.state for ladder in cell.loop.changes]
    assert told == [State.NOMINAL, State.BRAKE, State.HOLD]


EVENTS = st.sampled_from(
    ["step 25 ms", "step 200 ms", "fast", "no images", "images", "no robot", "robot", "nan", "good", "pause",
     "resume", "stop", "reset", "fault", "mended", "fast plan", "slow plan"]
)  # fmt: skip


@settings(max_examples=30)
@example(events=[("no robot", 50)])
@example(events=[("no robot", 30), ("no images", 60), ("images", 60), ("robot", 60)])
@given(events=st.lists(st.tuples(EVENTS, st.integers(1, 60)), min_size=1, max_size=25))
def test_whatever_happens_the_targets_keep_the_limits_and_never_jump(events: list[tuple[str, int]]) -> None:
    cell = VirtualCell()
    cell.tick(40)
    for event, ticks in events:
        match event:
            case "step 25 ms":
                cell.step_ms = 25.0
            case "step 200 ms":
                cell.step_ms = 200.0
            case "fast":
                cell.step_ms = 0.8
            case "no images" | "images":
                cell.images = event == "images"
            case "no robot" | "robot":
                cell.robot_states = event == "robot"
            case "nan" | "good":
                cell.bad_output = np.nan if event == "nan" else None
            case "pause" | "resume":
                cell.loop.request_pause(event == "pause")
            case "stop":
                cell.loop.request_stop("by hand")
            case "reset":
                cell.loop.request_reset()
            case "fault" | "mended":
                cell.fault = "e-stop" if event == "fault" else ""
            case "fast plan" | "slow plan":
                cell.velocity_m_s = (0.0, 0.6, 0.3) if event == "fast plan" else (0.05, 0.0, 0.0)
        cell.tick(ticks)
        assert cell.loop.plan.age_ms(cell.clock.now_ns()) <= 400 + 5 or cell.loop.ladder.state not in (
            State.NOMINAL,
            State.COAST,
        )
    assert_within_limits(path(cell.commands))


def test_a_tick_costs_no_more_than_its_deadline_when_a_step_hangs() -> None:
    cell = moving()
    cell.step_ms = 1e6
    before = len(cell.commands)
    cell.tick(200)
    assert cell.loop.log.rows()["tick_us"][before:].max() <= 3 * MS / 1e3
