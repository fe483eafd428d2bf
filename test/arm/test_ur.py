"""The arm process itself, with the real ur_rtde, against the simulated controller."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sdnpu_policy.arm.ur import ur_vector
from sdnpu_policy.letters import ArmFault, ArmStatus, TargetMode
from sdnpu_policy.motion.pose import pose_to_ur, quat_angle_rad, quat_normalize, rotvec_to_quat
from sdnpu_policy.sim.ur_control_client import ControlChannel
from sdnpu_policy.sim.ur_record import load_record

from .conftest import LIMITS, Arm, Line, text_of

pytestmark = pytest.mark.cell

EXIT_S = 5.0
MOVING_S = 0.4
"""Into a motion at 0.25 m/s."""
GAVE_UP = 3


def moving(arm: Arm) -> Line:
    """An arm in the middle of a motion."""
    line = Line(arm.wait_status(ArmStatus.READY).value["pose"])
    arm.stream(line, MOVING_S)
    return line


def stood_after_s(controller: ControlChannel, since_t: float) -> float:
    """How long after that simulated time the arm stood for good."""
    end_s = time.monotonic() + EXIT_S
    while time.monotonic() < end_s:
        at_t = controller.extremes(since_t)["stands_since_t_s"]
        if at_t is not None and controller.state()["t"] - at_t > 0.05:
            return float(at_t) - since_t
        time.sleep(0.05)
    raise AssertionError("the arm still moves")


def events(controller: ControlChannel) -> str:
    return " | ".join(text for _, text in controller.state()["events"])


@given(st.lists(st.floats(-1.0, 1.0), min_size=7, max_size=7), st.sampled_from([1.0, 1e-7, 0.0]))
def test_the_robot_is_sent_the_same_vector_as_the_pose_arithmetic_gives(values: list[float], turn: float) -> None:
    pose = np.array(values)
    pose[3:6] *= turn
    assume(np.linalg.norm(pose[3:]) > 1e-3)
    pose[3:] = quat_normalize(pose[3:])
    vector = ur_vector(pose)
    np.testing.assert_allclose(vector[:3], pose[:3])
    assert quat_angle_rad(rotvec_to_quat(vector[3:]), pose[3:]) < 1e-12
    np.testing.assert_allclose(np.linalg.norm(vector[3:]), np.linalg.norm(pose_to_ur(pose)[3:]), atol=1e-12)


def test_a_line_is_followed_within_the_limits(controller: ControlChannel, arm: Arm, tmp_path: Path) -> None:
    began_t = controller.state()["t"]
    line = Line(arm.wait_status(ArmStatus.READY).value["pose"])
    arm.stream(line, 0.8)
    for _ in range(8):
        state = arm.wait_status(ArmStatus.STREAMING).value
        pose, _ = line.next()
        if np.abs(state["target_pose"][:3] - pose[:3]).max() < 0.005:
            break  # what a late cycle lost is caught up
        arm.stream(line, 0.1)
    assert state["refused_targets"] == 0
    np.testing.assert_allclose(state["target_pose"][:3], pose[:3], atol=0.005)
    np.testing.assert_allclose(state["pose"][:3], pose[:3], atol=0.03)  # behind by the lookahead time
    assert np.linalg.norm(state["twist"][:3]) > 0.15
    arm.wait_status(ArmStatus.STANDING)
    assert controller.extremes(began_t)["max_speed_m_s"] <= LIMITS["max_speed_m_s"] * 1.01
    controller.save_record(tmp_path / "record.npz", began_t)
    targets = load_record(tmp_path / "record.npz").targets[:, :3]
    steps = np.linalg.norm(np.diff(targets[np.isfinite(targets).all(axis=1)], axis=0), axis=1)
    assert steps.max() <= 2 * 3 * LIMITS["max_speed_m_s"] * 0.002  # two late cycles in one tick of the robot's


def test_when_targets_stop_it_brakes_stands_and_goes_on_with_new_ones(arm: Arm) -> None:
    moving(arm)
    arm.wait_status(ArmStatus.BRAKING)
    stood = arm.wait_status(ArmStatus.STANDING).value["target_pose"]
    arm.stream(Line(stood), 0.1)
    assert arm.wait_status(ArmStatus.STREAMING).value["target_pose"][1] > stood[1]


def test_when_control_dies_the_arm_stands_and_the_process_leaves(controller: ControlChannel, arm: Arm) -> None:
    moving(arm)
    closed_t = controller.state()["t"]
    arm.targets.close()
    arm.states.close()
    assert arm.child.wait(EXIT_S) == 0
    assert stood_after_s(controller, closed_t) < 0.2
    assert "it ended" in events(controller)


def test_when_the_arm_process_is_killed_the_robot_stops_by_itself(
    controller: ControlChannel, start_arm: Callable[..., Arm]
) -> None:
    arm = start_arm(watchdog_hz=10.0)
    moving(arm)
    killed_t = controller.state()["t"]
    arm.child.process.kill()
    assert stood_after_s(controller, killed_t) < 0.3
    assert "watchdog expired" in events(controller)


def test_released_another_may_move_the_arm_and_it_resumes_from_there(controller: ControlChannel, arm: Arm) -> None:
    moving(arm)
    arm.ask(TargetMode.RELEASE)
    arm.wait_status(ArmStatus.READY)
    stood_after_s(controller, controller.state()["t"] - 0.1)
    elsewhere = np.array([0.45, 0.05, 0.2, 1.0, 0.0, 0.0, 0.0])
    controller.place(pose=elsewhere)
    arm.wait_for(lambda letter: bool(np.allclose(letter.value["pose"][:3], elsewhere[:3], atol=1e-6)))
    began_t = controller.state()["t"]
    arm.stream(Line(elsewhere), 0.1)
    state = arm.wait_status(ArmStatus.STREAMING).value
    assert 0.0 < state["target_pose"][1] - elsewhere[1] < 0.02
    assert controller.extremes(began_t)["max_speed_m_s"] <= LIMITS["max_speed_m_s"]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_target_that_is_not_a_number_is_refused_and_does_not_move_the_arm(arm: Arm, streaming: bool) -> None:
    if streaming:
        moving(arm)
        arm.wait_status(ArmStatus.STANDING)
    before = arm.wait_for(lambda letter: True).value
    arm.ask(TargetMode.STREAM, np.full(7, np.nan))
    after = arm.wait_for(lambda letter: letter.value["refused_targets"] == 1).value
    assert text_of(after) == "target refused: not finite"
    assert after["status"] == before["status"]
    np.testing.assert_array_equal(after["target_pose"][:3], before["target_pose"][:3])


@pytest.mark.parametrize("ask", ["SIGTERM", "SHUT_DOWN"])
def test_asked_to_end_it_stops_the_arm_and_its_program(controller: ControlChannel, arm: Arm, ask: str) -> None:
    moving(arm)
    asked_t = controller.state()["t"]
    arm.child.process.send_signal(signal.SIGINT)  # the parent's business
    if ask == "SIGTERM":
        arm.child.process.terminate()
    else:
        arm.ask(TargetMode.SHUT_DOWN)
    arm.wait_status(ArmStatus.GONE)
    assert arm.child.wait(EXIT_S) == 0
    assert stood_after_s(controller, asked_t) < 0.3
    assert "it ended" in events(controller)


@pytest.mark.parametrize(
    ("happen", "code", "words"),
    [
        (ControlChannel.protective_stop, ArmFault.PROTECTIVE_STOP, "unlock it on the pendant"),
        (ControlChannel.emergency_stop, ArmFault.EMERGENCY_STOP, "release the button"),
        (ControlChannel.safeguard, ArmFault.SAFEGUARD_STOP, "close the guard"),
        (ControlChannel.stop_program, ArmFault.PROGRAM_STOPPED, "its program was stopped"),
        (ControlChannel.power, ArmFault.NOT_RUNNING, "powered off"),
        (ControlChannel.freeze_clock, ArmFault.CLOCK_STALLED, "nothing new from the controller"),
        (ControlChannel.stall, ArmFault.CLOCK_STALLED, "nothing new from the controller"),
    ],
)
def test_what_stops_the_robot_is_told_by_code_and_text(
    controller: ControlChannel, arm: Arm, happen: Callable[..., Any], code: ArmFault, words: str
) -> None:
    moving(arm)
    arguments = {ControlChannel.power: (False,), ControlChannel.stall: (1.0,)}.get(happen, ())
    happen(controller, *arguments)
    found, text = arm.fault()
    assert found == code
    assert words in text
    assert arm.child.wait(EXIT_S) == GAVE_UP
    assert arm.child.process.stderr is not None
    assert text in arm.child.process.stderr.read().decode()


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_is_cut_ends_the_process(controller: ControlChannel, arm: Arm, reset: bool) -> None:
    moving(arm)
    controller.drop(reset=reset)
    status = arm.child.wait(EXIT_S)
    assert status in (GAVE_UP, -signal.SIGSEGV)  # ur_rtde's reconnecting may crash before the process has seen it
    if status == GAVE_UP:
        assert arm.fault()[0] == ArmFault.LINK_LOST


def test_driven_out_of_its_reach_the_robot_stops_and_that_is_told(arm: Arm) -> None:
    line = Line(arm.wait_status(ArmStatus.READY).value["pose"])
    outwards, _ = line.next()
    code = ArmFault.NONE
    while code == ArmFault.NONE:
        outwards[0] += 0.001
        arm.ask(TargetMode.STREAM, outwards, [0.25, 0, 0, 0, 0, 0])
        line.sleep()
        letter = arm.states.take()
        if letter is not None:
            code = ArmFault(int(letter.value["fault"]))
    # at the wrist's singularity the joints would have to be too fast; beyond it there is no solution
    assert code in (ArmFault.PROTECTIVE_STOP, ArmFault.PROGRAM_STOPPED)
    assert arm.child.wait(EXIT_S) == GAVE_UP


@pytest.mark.parametrize(
    ("prepare", "code", "words"),
    [
        (lambda controller: controller.remote(False), ArmFault.NOT_REMOTE_CONTROL, "switch it to remote control"),
        (lambda controller: controller.power(False), ArmFault.NOT_RUNNING, "power it on"),
        (lambda controller: controller.protective_stop(), ArmFault.PROTECTIVE_STOP, "unlock it"),
        (lambda controller: controller.refuse(), ArmFault.CANNOT_CONNECT, "Connection refused"),
        (lambda controller: controller.silent(), ArmFault.CANNOT_CONNECT, "no answer on port 30004"),
    ],
)
def test_a_robot_that_is_not_ready_is_told_at_once(
    controller: ControlChannel,
    start_arm: Callable[..., Arm],
    prepare: Callable[[ControlChannel], None],
    code: ArmFault,
    words: str,
) -> None:
    prepare(controller)
    arm = start_arm(connect_timeout_s=1.0)
    found, text = arm.fault()
    assert found == code
    assert words in text
    assert arm.child.wait(EXIT_S) == GAVE_UP


def test_a_second_client_is_told_that_the_robot_is_taken(arm: Arm, start_arm: Callable[..., Arm]) -> None:
    found, text = start_arm().fault()
    assert found == ArmFault.CANNOT_CONNECT
    assert "already in use" in text
    line = Line(arm.wait_status(ArmStatus.READY).value["pose"])
    arm.stream(line, 0.05)  # the first is unaffected
    arm.wait_status(ArmStatus.STREAMING)


def test_wrong_settings_are_told_in_the_state_and_end_with_their_own_status(
    start_arm: Callable[..., Arm],
) -> None:
    arm = start_arm(gain=9000)
    code, text = arm.fault()
    assert code == ArmFault.INTERNAL
    assert "'gain' 9000" in text
    assert arm.child.wait(EXIT_S) == 2


@pytest.fixture
def half_a_controller(loopback: str) -> Iterator[None]:
    """Answers what the probe asks, and then says nothing to ur_rtde."""
    answers = {b"safetymode": b"Safetymode: NORMAL", b"robotmode": b"Robotmode: RUNNING"}
    with ExitStack() as stack:

        def serve(listener: socket.socket) -> None:
            kept = []
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    kept.append(connection)  # open, or ur_rtde would notice
                    if len(kept) > 1:
                        continue
                    if listener.getsockname()[1] == 29999:
                        connection.sendall(b"Connected\n")
                    while data := connection.recv(100):
                        answer = answers.get(data.strip(), b"true") + b"\n"
                        connection.sendall(b"\x00\x04V\x01" if data[:1] == b"\0" else answer)

        for port in (30004, 29999, 30003):
            listener = stack.enter_context(socket.create_server((loopback, port)))
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield


@pytest.mark.usefixtures("half_a_controller")
def test_a_robot_that_hangs_in_the_library_ends_the_process_with_its_last_words_said(
    start_arm: Callable[..., Arm],
) -> None:
    arm = start_arm(connect_timeout_s=1.0)
    assert arm.child.wait(EXIT_S) == -signal.SIGALRM
    letter = arm.states.take()
    assert letter is not None
    assert (letter.value["status"], letter.value["fault"]) == (ArmStatus.STARTING, ArmFault.CANNOT_CONNECT)
    assert "did not get through" in text_of(letter.value)
