"""The simulated arm under the program of ur_rtde, in simulated time: motions, limits, stops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.sim import ur_script
from sdnpu_policy.sim.ur_modes import SAFETY_BITS, RobotMode, RuntimeState, SafetyMode
from sdnpu_policy.sim.ur_record import Extremes, motion_extremes
from sdnpu_policy.sim.ur_robot import DT_S, START_POSE, Robot, RobotSettings
from sdnpu_policy.sim.ur_script import ControlProgram, control_program

TICK_NS = 2_000_000
LOOKAHEAD_S, GAIN = 0.1, 300.0
LAG_S = LOOKAHEAD_S / 2 + 10 / GAIN


class Cell:
    """A robot with a running program, and what a client would do to its registers."""

    def __init__(self, settings: RobotSettings | None = None) -> None:
        self.robot = Robot(settings)
        self.now_ns = 1_000_000_000
        self.poses: list[tuple[float, ...]] = []
        self.speeds: list[list[float]] = []
        self.placed: list[bool] = []
        self.upload()

    def upload(self) -> None:
        self.write(0)
        self.robot.load(ControlProgram(self.robot, 0, 0))
        self.tick(60)
        self.poses.clear()

    def write(self, command: int, floats: list[float] | tuple[float, ...] = (), flag: int = 0) -> None:
        registers = self.robot.registers
        registers.input_ints[:2] = [command, flag]
        registers.input_floats[: len(floats)] = floats
        registers.written_ns[0] = self.now_ns

    def servo(self, pose: list[float] | tuple[float, ...]) -> None:
        self.write(ur_script.SERVO_L, [*pose, 0.5, 0.5, 0.002, LOOKAHEAD_S, GAIN])

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_ns += TICK_NS
            self.robot.tick(self.now_ns)
            self.poses.append((*self.robot.tool[1], *self.robot.tool_quaternion))
            self.speeds.append(list(self.robot.qd))
            self.placed.append(self.robot.placed)

    def call(self, command: int, floats: list[float] | tuple[float, ...] = (), flag: int = 0) -> list[float]:
        """A command with its handshake, as the client does it; the answer's numbers."""
        self.write(command, floats, flag)
        self.tick_until(lambda: self.robot.registers.output_ints[0] == ur_script.DONE)
        self.write(0)
        self.tick_until(lambda: self.robot.registers.output_ints[0] == ur_script.READY)
        return self.robot.registers.output_floats[:6]

    def tick_until(self, happened: Callable[[], bool], at_most: int = 5000) -> None:
        for _ in range(at_most):
            self.tick()
            if happened():
                return
        raise AssertionError(f"nothing in {at_most} ticks: {list(self.robot.events)}")

    def stream_line(self, speed_m_s: float, ticks: int) -> None:
        """Servo along y from where it is, starting with a ramp of 2 m/s²."""
        start = self.robot.tool_pose
        for tick in range(ticks):
            t_s = tick * DT_S
            ramp_s = min(t_s, speed_m_s / 2.0)
            way = ramp_s * ramp_s + speed_m_s * (t_s - ramp_s)
            self.servo((start[0], start[1] + way, *start[2:]))
            self.tick()

    def extremes(self) -> Extremes:
        return motion_extremes(np.arange(len(self.poses)) * DT_S, self.poses, self.placed[-len(self.poses) :])

    @property
    def last_event(self) -> str:
        return self.robot.events[-1][1]


@pytest.fixture
def cell() -> Cell:
    return Cell()


def decelerations(speeds: list[list[float]]) -> np.ndarray:
    """Change of the fastest joint's speed per second, tick by tick."""
    return -np.diff(np.abs(speeds).max(axis=1)) / DT_S


def assert_slows_down_along_its_direction(speeds: list[list[float]], at_most_rad_s2: float) -> None:
    moving = [np.array(qd) for qd in speeds if any(qd)]
    assert len(moving) > 3
    for qd in moving:
        np.testing.assert_allclose(qd / np.linalg.norm(qd), moving[0] / np.linalg.norm(moving[0]), atol=1e-9)
    assert decelerations(speeds).max() <= at_most_rad_s2 * (1 + 1e-9)
    assert (np.diff(np.abs(speeds).max(axis=1)) <= 1e-12).all()
    assert not any(speeds[-1])


# --- at rest


def test_it_starts_at_its_start_pose_with_the_elbow_up() -> None:
    robot = Robot()
    np.testing.assert_allclose(robot.tool_pose[:3], START_POSE[:3], atol=1e-9)
    assert abs(abs(robot.tool_pose[3]) - math.pi) < 1e-9
    assert robot.q[2] > 0.5 > robot.q[1]


def test_the_pose_is_that_of_the_tool_centre_point(cell: Cell) -> None:
    flange = cell.call(44, [*cell.robot.q, *[0.0] * 6])
    np.testing.assert_allclose(np.subtract(flange[:3], cell.robot.tool_pose[:3]), [0, 0, 0.16], atol=1e-9)
    assert cell.call(40) == [0.0, 0.0, 0.16, 0.0, 0.0, 0.0]


def test_another_tcp_marks_the_record_instead_of_looking_like_motion(cell: Cell) -> None:
    cell.call(29, [0.0, 0.0, 0.3, 0.0, 0.0, 0.0])
    assert cell.robot.tool_pose[2] == pytest.approx(0.02)
    assert cell.placed.count(True) == 2  # the start is one
    assert cell.extremes().max_step_m == 0.0


def test_kinematics_are_answered(cell: Cell) -> None:
    np.testing.assert_allclose(cell.call(43), cell.robot.tool_pose)
    np.testing.assert_allclose(cell.call(46, cell.robot.tool_pose), cell.robot.q, atol=1e-9)
    np.testing.assert_allclose(cell.call(30, [*START_POSE, *cell.robot.q, 0, 0]), cell.robot.q, atol=1e-9)
    np.testing.assert_allclose(cell.call(39, [1, 2, 3, 0, 0, 0, 0.1, 0, 0, 0, 0, 0]), [1.1, 2, 3, 0, 0, 0])


def test_limits_are_answered(cell: Cell) -> None:
    def yes(command: int, values: list[float]) -> int:
        cell.call(command, values)
        return cell.robot.registers.output_ints[1]

    assert yes(36, list(START_POSE)) == 1
    assert yes(36, [1.5, 0, 0, 0, 0, 0]) == 0
    assert yes(37, [0.0] * 6) == 1
    assert yes(37, [7.0] * 6) == 0
    assert yes(47, []) == 1


def test_payload_is_kept(cell: Cell) -> None:
    cell.call(17, [1.5, 0.0, 0.01, 0.05])
    assert (cell.robot.payload_kg, cell.robot.payload_cog_m) == (1.5, (0.0, 0.01, 0.05))


# --- servo


def test_the_arm_stays_behind_a_moving_target_by_the_two_lags(cell: Cell) -> None:
    cell.stream_line(0.1, 500)
    behind_m = cell.robot.registers.input_floats[1] - cell.robot.tool_pose[1]
    # the registers are read in the tick itself, so the last step is already in
    assert behind_m / 0.1 == pytest.approx(LAG_S, abs=2 * DT_S)


def test_a_smooth_target_gives_a_smooth_motion_on_the_line(cell: Cell) -> None:
    cell.stream_line(0.25, 600)
    extremes = cell.extremes()
    assert extremes.max_speed_m_s == pytest.approx(0.25, rel=0.05)
    assert extremes.max_raw_acceleration_m_s2 < 2.2
    assert np.ptp(np.array(cell.poses)[:, [0, 2]], axis=0).max() < 5e-4
    assert cell.robot.commanded is not None


def test_the_last_target_is_reached_and_held(cell: Cell) -> None:
    cell.stream_line(0.1, 200)
    target = cell.robot.registers.input_floats[:6]
    cell.tick(1000)
    np.testing.assert_allclose(cell.robot.tool_pose[:3], target[:3], atol=1e-6)
    assert cell.robot.program is not None
    assert cell.robot.program.moving


def test_joint_targets_are_followed_too(cell: Cell) -> None:
    q = [angle + 0.05 for angle in cell.robot.q]
    cell.write(ur_script.SERVO_J, [*q, 0, 0, 0.002, LOOKAHEAD_S, GAIN])
    cell.tick(1000)
    np.testing.assert_allclose(cell.robot.q, q, atol=1e-6)


def test_a_servo_stop_slows_the_tool_as_asked(cell: Cell) -> None:
    cell.stream_line(0.25, 400)
    cell.poses.clear()
    cell.call(ur_script.SERVO_STOP, [2.0])
    assert cell.extremes().max_raw_acceleration_m_s2 == pytest.approx(2.0, rel=0.1)
    assert not any(cell.robot.qd)
    assert cell.robot.commanded is None


def test_a_jump_of_the_target_is_a_protective_stop(cell: Cell) -> None:
    cell.stream_line(0.1, 200)
    x, *rest = cell.robot.tool_pose
    cell.speeds.clear()
    cell.servo((x - 0.2, *rest))
    cell.tick(200)
    assert cell.robot.safety_mode is SafetyMode.PROTECTIVE_STOP
    assert cell.robot.runtime_state is RuntimeState.PAUSED
    assert "the target jumped" in cell.last_event
    assert_slows_down_along_its_direction(cell.speeds, 12.0)


def test_too_fast_a_tool_is_a_protective_stop() -> None:
    cell = Cell(replace(RobotSettings(), max_tool_speed_m_s=0.2))
    cell.stream_line(0.3, 400)
    assert cell.robot.safety_mode is SafetyMode.PROTECTIVE_STOP
    assert "tool speed" in cell.last_event


def test_too_fast_a_joint_is_a_protective_stop(cell: Cell) -> None:
    q = list(cell.robot.q)
    for _ in range(20):
        q[5] += 0.15
        cell.write(ur_script.SERVO_J, [*q, 0, 0, 0.002, 0.03, 2000])
        cell.tick()
    assert cell.robot.safety_mode is SafetyMode.PROTECTIVE_STOP
    assert "joint speed" in cell.last_event


@pytest.mark.parametrize("wrong", [(1.5, 0.0, 0.1, 0.0, 0.0, 0.0), (math.nan,) * 6, (math.inf, *[0.0] * 5)])
def test_a_pose_it_cannot_reach_ends_the_program_not_the_safety_mode(cell: Cell, wrong: tuple[float, ...]) -> None:
    cell.stream_line(0.2, 300)
    cell.speeds.clear()
    cell.servo(wrong)
    cell.tick(200)
    assert cell.robot.runtime_state is RuntimeState.STOPPED
    assert cell.robot.safety_mode is SafetyMode.NORMAL
    assert "get_inverse_kin" in cell.last_event
    assert_slows_down_along_its_direction(cell.speeds, 4.0)


def test_servo_arguments_out_of_range_end_the_program(cell: Cell) -> None:
    cell.write(ur_script.SERVO_L, [*START_POSE, 0.5, 0.5, 0.002, 0.01, GAIN])
    cell.tick()
    assert cell.robot.program is None
    assert "lookahead_time 0.01" in cell.last_event


# --- watchdog


def test_silence_beyond_the_watchdog_stops_the_program_within_bounds(cell: Cell) -> None:
    cell.call(35, [100.0])
    cell.stream_line(0.25, 400)
    cell.speeds.clear()
    cell.poses.clear()
    cell.tick(300)
    assert cell.last_event == "program rtde_control stopped: RTDE watchdog expired"
    assert_slows_down_along_its_direction(cell.speeds[6:], 4.0)
    assert cell.extremes().max_acceleration_m_s2 < 3.0
    assert cell.robot.watchdog is None


def test_writes_in_time_keep_the_watchdog_quiet(cell: Cell) -> None:
    cell.call(35, [10.0])
    for _ in range(20):
        cell.write(0)
        cell.tick(49)
    assert cell.robot.runtime_state is RuntimeState.PLAYING
    cell.tick(5)
    assert cell.robot.runtime_state is RuntimeState.STOPPED


def test_a_new_program_has_no_watchdog_until_it_is_set_again(cell: Cell) -> None:
    cell.call(35, [10.0])
    cell.upload()
    cell.tick(1000)
    assert cell.robot.runtime_state is RuntimeState.PLAYING


# --- stops


def test_a_program_stop_is_a_motion(cell: Cell) -> None:
    cell.stream_line(0.25, 400)
    cell.speeds.clear()
    cell.robot.stop_program("test")
    cell.tick(200)
    assert_slows_down_along_its_direction(cell.speeds, 4.0)


def test_an_emergency_stop_takes_power_and_stops_harder_but_within_bounds(cell: Cell) -> None:
    cell.stream_line(0.25, 400)
    cell.speeds.clear()
    cell.robot.emergency_stop()
    cell.tick(100)
    assert cell.robot.robot_mode is RobotMode.POWER_OFF
    assert cell.robot.runtime_state is RuntimeState.STOPPED
    assert_slows_down_along_its_direction(cell.speeds, 12.0)


def test_after_an_emergency_stop_it_needs_release_power_and_brakes(cell: Cell) -> None:
    robot = cell.robot
    robot.emergency_stop()
    robot.power_on()
    assert robot.robot_mode is RobotMode.POWER_OFF
    robot.release_emergency_stop()
    cell.upload()
    assert "not started: NORMAL, POWER_OFF" in cell.last_event
    robot.power_on()
    assert robot.robot_mode is RobotMode.IDLE
    robot.release_brakes()
    cell.upload()
    assert robot.runtime_state is RuntimeState.PLAYING


def test_a_protective_stop_can_be_unlocked_after_five_seconds(cell: Cell) -> None:
    cell.robot.protective_stop("test")
    cell.tick(2499)
    with pytest.raises(ValueError, match="until 5s after occurrence"):
        cell.robot.unlock()
    cell.tick()
    cell.robot.unlock()
    assert cell.robot.safety_mode is SafetyMode.NORMAL
    assert cell.robot.runtime_state is RuntimeState.PAUSED
    cell.upload()
    assert cell.robot.runtime_state is RuntimeState.PLAYING


def test_a_program_that_comes_during_a_protective_stop_does_not_start(cell: Cell) -> None:
    cell.robot.protective_stop("test")
    cell.upload()
    assert cell.robot.program is None
    assert "not started: PROTECTIVE_STOP" in cell.last_event


def test_a_safeguard_stop_ends_with_its_input(cell: Cell) -> None:
    cell.robot.safeguard_stop()
    assert SAFETY_BITS[cell.robot.safety_mode] == 1 << 4 | 1 << 10
    cell.robot.reset_safeguard()
    assert cell.robot.safety_mode is SafetyMode.NORMAL


def test_restoring_takes_every_stop_away(cell: Cell) -> None:
    cell.robot.emergency_stop()
    cell.robot.set_slider(0.2)
    cell.robot.restore()
    cell.upload()
    assert cell.robot.runtime_state is RuntimeState.PLAYING
    assert cell.robot.speed_slider == 1.0


# --- speed slider


def test_at_slider_zero_the_servo_motion_stands(cell: Cell) -> None:
    cell.robot.set_slider(0.0)
    cell.tick(300)
    cell.poses.clear()
    cell.stream_line(0.1, 200)
    assert cell.extremes().max_step_m == 0.0


def test_the_slider_holds_the_tool_to_its_share_of_the_speed_limit(cell: Cell) -> None:
    cell.robot.set_slider(0.1)
    cell.tick(300)
    cell.poses.clear()
    cell.stream_line(0.2, 300)
    assert cell.extremes().max_speed_m_s == pytest.approx(0.1, rel=0.02)  # of 1 m/s


def test_moving_the_slider_does_not_jerk_the_arm(cell: Cell) -> None:
    cell.stream_line(0.25, 400)
    cell.poses.clear()
    cell.robot.set_slider(0.0)
    cell.tick(500)
    assert not any(cell.robot.qd)
    assert cell.extremes().max_acceleration_m_s2 < 2.5


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, math.inf])
def test_a_slider_value_that_is_no_fraction_is_ignored(cell: Cell, wrong: float) -> None:
    cell.robot.set_slider(wrong)
    assert cell.robot.speed_slider == 1.0


# --- other motions


def test_a_tool_speed_is_reached_at_the_acceleration_asked_for_and_kept(cell: Cell) -> None:
    cell.write(ur_script.SPEED_L, [0.0, 0.05, 0.02, 0.0, 0.0, 0.1, 0.5, 0.0])
    cell.tick(300)
    np.testing.assert_allclose(cell.robot.tool_speed, [0.0, 0.05, 0.02, 0.0, 0.0, 0.1], atol=1e-3)
    assert cell.extremes().max_acceleration_m_s2 < 0.55
    cell.call(ur_script.SPEED_STOP, [1.0])
    assert not any(cell.robot.qd)


def test_joint_speeds_are_kept(cell: Cell) -> None:
    cell.write(ur_script.SPEED_J, [0.1, 0.0, 0.0, 0.0, 0.0, -0.2, 1.0, 0.0])
    cell.tick(200)
    np.testing.assert_allclose(cell.robot.qd, [0.1, 0, 0, 0, 0, -0.2])
    cell.call(ur_script.SPEED_STOP, [2.0])


def test_a_linear_move_arrives_on_a_straight_line_within_its_limits(cell: Cell) -> None:
    pose = [0.45, -0.1, 0.25, math.pi, 0.0, 0.0]
    start = cell.robot.tool_pose[:3]
    cell.call(ur_script.MOVE_L, [*pose, 0.2, 0.8])
    np.testing.assert_allclose(cell.robot.tool_pose[:3], pose[:3], atol=1e-9)
    extremes = cell.extremes()
    assert extremes.max_speed_m_s <= 0.2001
    assert extremes.max_raw_acceleration_m_s2 <= 0.9
    way = np.subtract(pose[:3], start)
    off = np.cross(np.array(cell.poses)[:, :3] - start, way / np.linalg.norm(way))
    assert np.abs(off).max() < 1e-6


def test_a_joint_move_arrives_within_its_limits(cell: Cell) -> None:
    q = [angle + offset for angle, offset in zip(cell.robot.q, (0.3, -0.1, 0.2, 0, 0.1, 0.5), strict=True)]
    cell.speeds.clear()
    cell.call(ur_script.MOVE_J, [*q, 0.6, 1.5])
    np.testing.assert_allclose(cell.robot.q, q, atol=1e-9)
    assert np.abs(cell.speeds).max() <= 0.6001
    assert np.abs(np.diff(cell.speeds, axis=0)).max() <= 1.51 * DT_S


def test_a_move_to_where_it_is_ends_at_once(cell: Cell) -> None:
    cell.call(ur_script.MOVE_J, [*cell.robot.q, 0.6, 1.5])
    cell.call(ur_script.MOVE_L, [*cell.robot.tool_pose, 0.6, 1.5])
    cell.call(ur_script.MOVE_J_IK, [*cell.robot.tool_pose, 0.6, 1.5])
    cell.call(ur_script.MOVE_L_FK, [*cell.robot.q, 0.6, 1.5])
    assert not any(cell.robot.qd)


def test_an_asynchronous_move_reports_its_progress_and_can_be_stopped(cell: Cell) -> None:
    def running() -> bool:
        return bool(cell.robot.registers.output_ints[2] & 1 << 15)

    cell.call(ur_script.MOVE_L, [0.45, -0.1, 0.25, math.pi, 0.0, 0.0, 0.2, 0.8], flag=1)
    assert running()
    cell.tick(100)
    cell.call(ur_script.STOP_L, [2.0])
    assert not running()
    assert not any(cell.robot.qd)


def test_two_motions_at_once_end_the_program(cell: Cell) -> None:
    cell.stream_line(0.1, 100)
    cell.write(0)
    cell.tick(2)
    cell.write(ur_script.MOVE_L, [*START_POSE, 0.1, 0.5])
    cell.tick()
    assert "another thread is already controlling the robot" in cell.last_event


@pytest.mark.parametrize("command", [6, 12, 51, 52, 66, 99, -1])
def test_a_command_it_does_not_have_ends_the_program_and_says_so(cell: Cell, command: int) -> None:
    cell.write(command)
    cell.tick()
    assert f"command {command} is not part of the simulated controller" in cell.last_event


def test_the_stop_command_ends_the_program(cell: Cell) -> None:
    cell.write(ur_script.END)
    cell.tick()
    assert cell.last_event == "program rtde_control stopped: it ended"


# --- placing


def test_the_standing_arm_can_be_placed_and_the_record_says_so(cell: Cell) -> None:
    cell.robot.place(cell.robot.inverse([0.4, 0.1, 0.3, math.pi, 0.0, 0.0]))
    cell.tick()
    assert cell.robot.placed
    np.testing.assert_allclose(cell.robot.tool_pose[:3], [0.4, 0.1, 0.3], atol=1e-9)
    cell.tick()
    assert not cell.robot.placed


def test_a_moving_or_servoing_arm_cannot_be_placed(cell: Cell) -> None:
    cell.stream_line(0.1, 100)
    with pytest.raises(ValueError, match="the arm is moving"):
        cell.robot.place(cell.robot.q)
    cell.tick(3000)
    assert max(map(abs, cell.robot.qd)) < 1e-6
    with pytest.raises(ValueError, match="the arm is moving"):
        cell.robot.place(cell.robot.q)
    cell.call(ur_script.SERVO_STOP, [10.0])
    cell.robot.place(cell.robot.q)


def test_joint_angles_beyond_their_limit_are_refused(cell: Cell) -> None:
    for wrong in (7.0, math.nan):
        with pytest.raises(ValueError, match="within one turn"):
            cell.robot.place([wrong] * 6)


# --- programs


def test_the_offsets_in_the_script_say_which_registers_it_uses() -> None:
    text = "def rtde_control():\n  global f = # float register offset\n24\n  global i = # int register offset\n24\nend\n"
    robot = Robot()
    program = control_program(robot, text)
    assert program is not None
    robot.load(program)
    robot.registers.input_ints[24] = 43
    for tick in range(60):
        robot.tick(tick * TICK_NS)
    assert robot.registers.output_ints[24] == ur_script.DONE
    np.testing.assert_allclose(robot.registers.output_floats[24:30], robot.tool_pose)


@pytest.mark.parametrize("offset", ["7", "x", ""])
def test_a_script_without_known_offsets_is_no_control_program(offset: str) -> None:
    text = f"def f():\n# float register offset\n0\n# int register offset\n{offset}\nend\n"
    assert control_program(Robot(), text) is None


# --- whatever comes


numbers = st.floats(width=64) | st.floats(-1.0, 1.0) | st.sampled_from([0.0, 0.1, 0.25, 300.0, math.pi])


@given(st.lists(st.tuples(st.integers(-1, 75), st.lists(numbers, max_size=20), st.integers(0, 30)), max_size=8))
@settings(max_examples=100, deadline=None)
def test_no_content_of_the_registers_breaks_the_controller(
    writes: list[tuple[int, list[float], int]],
) -> None:
    cell = Cell()
    for command, floats, ticks in writes:
        cell.write(command, floats)
        cell.tick(ticks)
        if cell.robot.program is None:
            cell.robot.restore()
            cell.upload()
    assert all(map(math.isfinite, cell.robot.q))


@given(st.lists(st.tuples(st.floats(-0.03, 0.03), st.floats(-0.03, 0.03), st.integers(1, 40)), max_size=15))
@settings(max_examples=50, deadline=None)
def test_whatever_the_targets_joint_acceleration_is_bounded(steps: list[tuple[float, float, int]]) -> None:
    cell = Cell()
    x, y, *rest = cell.robot.tool_pose
    for dx, dy, ticks in steps:
        x, y = x + dx, y + dy
        cell.servo((x, y, *rest))
        cell.tick(ticks)
    cell.robot.stop_program("test")
    cell.tick(400)
    assert np.abs(np.diff(cell.speeds, axis=0)).max() <= 40.0 * DT_S * (1 + 1e-9)
    assert not any(cell.robot.qd)
