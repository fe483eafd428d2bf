"""What is wrong with a robot, from its own words."""

from __future__ import annotations

import pytest

from sdnpu_policy.arm.verdict import Fault, Heartbeat, Reading, state_fault
from sdnpu_policy.clock import MS
from sdnpu_policy.letters import ArmFault

GOOD = Reading(1.0, [0.0] * 6, [0.0] * 6, 1, 7, 2, 1.0, True)


def test_a_robot_that_plays_a_program_is_all_right() -> None:
    assert state_fault(GOOD, "it") is None
    assert state_fault(GOOD._replace(safety_bits=2), "it") is None  # reduced mode


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"connected": False}, ArmFault.LINK_LOST, "connection is lost"),
        ({"safety_bits": 1 << 2 | 1 << 10}, ArmFault.PROTECTIVE_STOP, "unlock it"),
        ({"safety_bits": 1 << 4 | 1 << 10}, ArmFault.SAFEGUARD_STOP, "close the guard"),
        ({"safety_bits": 1 << 10}, ArmFault.SAFEGUARD_STOP, "see the pendant"),
        # an emergency stop also takes the power and ends the program
        (
            {"safety_bits": 1 << 6 | 1 << 7 | 1 << 10, "robot_mode": 3, "runtime_state": 1},
            ArmFault.EMERGENCY_STOP,
            "release the button",
        ),
        ({"safety_bits": 1 << 3}, ArmFault.SAFETY_FAULT, "recovery mode"),
        ({"safety_bits": 1 << 8 | 1 << 10}, ArmFault.SAFETY_FAULT, "violation"),
        ({"safety_bits": 1 << 9 | 1 << 10}, ArmFault.SAFETY_FAULT, "fault"),
        ({"robot_mode": 3, "runtime_state": 1}, ArmFault.NOT_RUNNING, "powered off"),
        ({"robot_mode": 99}, ArmFault.NOT_RUNNING, "mode 99"),
        ({"runtime_state": 4}, ArmFault.PROGRAM_STOPPED, "paused"),
        ({"runtime_state": 1}, ArmFault.PROGRAM_STOPPED, "stopped"),
    ],
)
def test_each_state_has_its_fault_and_says_what_to_do(change: dict[str, int], code: ArmFault, words: str) -> None:
    fault = state_fault(GOOD._replace(**change), "the robot at 1.2.3.4")
    assert fault is not None
    assert fault.code == code
    assert words in fault.text
    assert fault.text.startswith("the robot at 1.2.3.4")


def test_no_values_at_all_are_a_lost_link() -> None:
    fault = state_fault(None, "it")
    assert fault is not None
    assert fault.code == ArmFault.LINK_LOST


def look(heartbeat: Heartbeat, controller_time_s: float, from_ms: int, to_ms: int) -> Fault | None:
    """A cycle every 2 ms."""
    fault = None
    for now_ms in range(from_ms, to_ms + 1, 2):
        fault = heartbeat.beat(controller_time_s, now_ms * MS)
    return fault


def test_time_that_stands_is_first_doubtful_then_a_fault() -> None:
    heartbeat = Heartbeat("it", 100.0)
    assert look(heartbeat, 1.0, 0, 20) is None
    assert not heartbeat.doubtful
    assert look(heartbeat, 1.0, 22, 100) is None
    assert heartbeat.doubtful
    fault = look(heartbeat, 1.0, 102, 102)
    assert fault is not None
    assert fault.code == ArmFault.CLOCK_STALLED


def test_time_that_goes_on_again_takes_the_doubt_away() -> None:
    heartbeat = Heartbeat("it", 100.0)
    look(heartbeat, 1.0, 0, 50)
    assert heartbeat.doubtful
    look(heartbeat, 1.002, 52, 52)
    assert not heartbeat.doubtful


def test_a_process_that_was_not_run_blames_nobody_for_it() -> None:
    heartbeat = Heartbeat("it", 100.0)
    look(heartbeat, 1.0, 0, 10)
    assert look(heartbeat, 1.0, 500, 502) is None
    assert heartbeat.still_ms < 25.0
