"""The arm process's cycle, with a robot that only answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from sdnpu_policy.arm.report import Reporter
from sdnpu_policy.arm.session import Session
from sdnpu_policy.arm.settings import ArmSettings
from sdnpu_policy.arm.streamer import ArmLimits
from sdnpu_policy.arm.verdict import Fault, Reading
from sdnpu_policy.clock import MS, VirtualClock
from sdnpu_policy.letters import ROBOT_STATE, TARGET, ArmFault, ArmStatus, TargetMode
from sdnpu_policy.mailbox import open_mailbox
from sdnpu_policy.motion.pose import pose_to_ur

HERE = np.array([0.5, -0.2, 0.2, 1.0, 0.0, 0.0, 0.0])
SETTINGS = ArmSettings("1.2.3.4", ArmLimits(0.25, 2.5, 200.0, 1.5, 15.0, 1000.0))


@dataclass
class Robot:
    """Does what it is told at once, and notes it."""

    clock: VirtualClock
    calls: list[str] = field(default_factory=list)
    poses: list[np.ndarray] = field(default_factory=list)
    frozen_s: float | None = None
    change: dict[str, int] = field(default_factory=dict)
    takes_targets: bool = True
    crash: Exception | None = None
    stops: bool = True

    def read(self) -> Reading | None:
        time_s = self.clock.now_ns() / 1e9 if self.frozen_s is None else self.frozen_s
        pose = self.poses[-1] if self.poses else HERE
        return Reading(time_s, pose_to_ur(pose).tolist(), [0.0] * 6, 1, 7, 2, 1.0, True)._replace(**self.change)

    def servo(self, pose: np.ndarray) -> bool:
        if self.crash is not None:
            raise self.crash
        self.calls.append("servo")
        self.poses.append(pose)
        return self.takes_targets

    def kick(self) -> None:
        self.calls.append("kick")

    def servo_stop(self) -> bool:
        self.calls.append("servo_stop")
        return self.stops


class Cell:
    """A session on a virtual clock; ``script`` is called before each cycle with its number and may do anything."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.robot = Robot(self.clock)
        state_writer, self.states = open_mailbox(ROBOT_STATE)
        self.targets, target_reader = open_mailbox(TARGET)
        self.asked_to_stop = False
        self.reporter = Reporter(state_writer)
        self.statuses: list[ArmStatus] = []
        self._session = Session(
            SETTINGS, self.robot, target_reader, self.reporter, self.clock, lambda: self.asked_to_stop
        )
        self._ends = (state_writer, self.states, self.targets, target_reader)

    def run(self, script: Callable[[int], None]) -> Fault | None:
        read, cycle = self.robot.read, 0

        def read_after_script() -> Reading | None:
            nonlocal cycle
            cycle += 1
            assert cycle < 2000, "the session does not end"
            letter = self.states.take()
            if letter is not None:
                self.statuses.append(ArmStatus(int(letter.value["status"])))
            script(cycle)
            return read()

        self.robot.read = read_after_script  # type: ignore[method-assign]
        return self._session.run()

    def ask(self, mode: TargetMode, *, dy: float = 0.0, speed: float = 0.0) -> None:
        letter = np.zeros((), TARGET)
        letter["mode"], letter["pose"] = mode, HERE
        letter["pose"][1] += dy
        letter["twist"][1] = speed
        letter["due_ns"] = self.clock.now_ns() + 4 * MS
        self.targets.post(letter, self.clock.now_ns())

    def stream(self, cycle: int) -> None:
        """Targets that run along y at 0.1 m/s from cycle 10 on, every other cycle."""
        if cycle >= 10 and cycle % 2 == 0:
            self.ask(TargetMode.STREAM, dy=0.1 * 0.002 * (cycle - 8), speed=0.1)

    def close(self) -> None:
        for end in self._ends:
            end.close()


@pytest.fixture
def cell() -> Iterator[Cell]:
    made = Cell()
    yield made
    made.close()


def test_without_targets_it_is_ready_and_keeps_the_robots_watchdog_quiet(cell: Cell) -> None:
    def script(cycle: int) -> None:
        cell.asked_to_stop = cycle == 50

    assert cell.run(script) is None
    assert cell.robot.calls == ["kick"] * 50
    assert set(cell.statuses) == {ArmStatus.READY}
    assert cell.states.take().value["status"] == ArmStatus.GONE  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["letter", "signal", "closed"])
def test_asked_to_leave_it_brakes_ends_the_servo_motion_and_leaves(cell: Cell, how: str) -> None:
    def script(cycle: int) -> None:
        if cycle < 100:
            cell.stream(cycle)
        elif how == "letter":
            cell.ask(TargetMode.SHUT_DOWN)
        elif how == "signal":
            cell.asked_to_stop = True
        else:
            cell.targets.close()

    assert cell.run(script) is None
    assert cell.robot.calls[-1] == "servo_stop"
    steps = np.diff(np.array(cell.robot.poses)[:, 1]) / 0.002
    assert steps[80] > 0.08
    assert steps[-1] == pytest.approx(0.0, abs=1e-3)
    assert np.abs(np.diff(steps)).max() <= 2.5 * 0.002 * (1 + 1e-6)


def test_released_it_stays_connected_and_starts_again_from_where_the_arm_is(cell: Cell) -> None:
    def script(cycle: int) -> None:
        if cycle < 100:
            cell.stream(cycle)
        elif cycle < 300:
            cell.ask(TargetMode.RELEASE)
        elif cycle == 300:
            cell.robot.poses.append(HERE + [0.0, 0.08, 0.0, 0.0, 0.0, 0.0, 0.0])  # noqa: RUF005 - a sum
        else:
            cell.ask(TargetMode.STREAM, dy=0.09)
            cell.asked_to_stop = cycle == 600

    assert cell.run(script) is None
    first, last = cell.robot.calls.index("servo_stop"), len(cell.robot.calls) - 1
    again = cell.robot.calls.index("servo", first)
    assert set(cell.robot.calls[first + 1 : again]) == {"kick"}
    assert cell.robot.calls[last] == "servo_stop"
    y = np.array(cell.robot.poses)[:, 1] - HERE[1]
    moved_by_hand = int(np.argmax(y == 0.08))
    assert abs(y[moved_by_hand + 1] - 0.08) < 1e-4
    assert y[-1] == pytest.approx(0.09, abs=1e-3)


def test_a_cycle_that_comes_late_is_counted_and_a_long_gap_makes_no_jump(cell: Cell) -> None:
    def script(cycle: int) -> None:
        cell.stream(cycle)
        if cycle in (60, 80):
            cell.clock.advance_ns(5 * MS if cycle == 60 else 35 * MS)
        cell.asked_to_stop = cycle == 150

    assert cell.run(script) is None
    assert cell.reporter.late_cycles == 2
    assert np.abs(np.diff(np.array(cell.robot.poses)[:, 1])).max() <= 3 * 0.25 * 0.002


def test_when_the_controllers_time_stands_still_it_stops_the_arm_before_it_gives_up(cell: Cell) -> None:
    def script(cycle: int) -> None:
        cell.stream(cycle)
        if cycle == 100:
            cell.robot.frozen_s = cell.clock.now_ns() / 1e9

    fault = cell.run(script)
    assert fault is not None
    assert fault.code == ArmFault.CLOCK_STALLED
    np.testing.assert_array_equal(cell.robot.poses[-1], cell.robot.poses[-2])
    letter = cell.states.take()
    assert letter is not None
    assert (letter.value["status"], letter.value["fault"]) == (ArmStatus.FAULT, ArmFault.CLOCK_STALLED)


def test_a_refused_servo_call_is_explained_by_what_the_robot_says_next(cell: Cell) -> None:
    def script(cycle: int) -> None:
        cell.stream(cycle)
        cell.robot.takes_targets = cycle < 100
        if cycle == 104:  # the cause arrives some packages later
            cell.robot.change = {"safety_bits": 1 << 2 | 1 << 10, "runtime_state": 4}

    fault = cell.run(script)
    assert fault is not None
    assert fault.code == ArmFault.PROTECTIVE_STOP


def test_a_refused_servo_call_without_a_cause_names_the_target(cell: Cell) -> None:
    def script(cycle: int) -> None:
        cell.stream(cycle)
        cell.robot.takes_targets = cycle < 20

    fault = cell.run(script)
    assert fault is not None
    assert fault.code == ArmFault.TARGET_REFUSED
    assert "the last was at 0.5000, -0.199" in fault.text


def test_an_error_of_its_own_ends_the_servo_motion_and_is_told(cell: Cell) -> None:
    def script(cycle: int) -> None:
        cell.stream(cycle)
        cell.robot.crash = ZeroDivisionError("made up") if cycle >= 100 else None

    fault = cell.run(script)
    assert fault is not None
    assert fault.code == ArmFault.INTERNAL
    assert "ZeroDivisionError: made up" in fault.text
    assert cell.robot.calls[-1] == "servo_stop"


def test_a_target_that_is_refused_does_not_begin_a_servo_motion(cell: Cell) -> None:
    def script(cycle: int) -> None:
        if cycle == 10:
            cell.ask(TargetMode.STREAM, dy=0.5)
        cell.asked_to_stop = cycle == 20

    assert cell.run(script) is None
    assert set(cell.robot.calls) == {"kick"}


def test_asked_to_stand_it_holds_the_servo_where_the_arm_is(cell: Cell) -> None:
    def script(cycle: int) -> None:
        if cycle == 10:
            cell.ask(TargetMode.STAND)
        cell.asked_to_stop = cycle == 50

    assert cell.run(script) is None
    np.testing.assert_allclose(cell.robot.poses, [HERE] * len(cell.robot.poses), atol=1e-12)
    assert cell.statuses[-1] == ArmStatus.STANDING


def test_a_program_that_the_robots_watchdog_stopped_is_told_as_a_late_process(cell: Cell) -> None:
    def script(cycle: int) -> None:
        cell.stream(cycle)
        if cycle == 100:
            cell.clock.advance_ns(130 * MS)
        if cycle == 103:
            cell.robot.change = {"runtime_state": 1}

    fault = cell.run(script)
    assert fault is not None
    assert fault.code == ArmFault.PROGRAM_STOPPED
    assert "was not run for 130 ms" in fault.text


def test_asked_to_leave_it_does_not_mind_a_program_that_has_ended_by_then(cell: Cell) -> None:
    def script(cycle: int) -> None:
        cell.stream(cycle)
        cell.asked_to_stop, cell.robot.stops = cycle >= 100, False

    assert cell.run(script) is None
    assert cell.robot.calls[-1] == "servo_stop"
