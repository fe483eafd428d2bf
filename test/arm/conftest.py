"""A simulated controller and the real arm process beside it, with real mailboxes in between."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from sdnpu_policy.letters import ROBOT_STATE, TARGET, ArmFault, ArmStatus, TargetMode
from sdnpu_policy.mailbox import Letter, open_mailbox
from sdnpu_policy.process import Child, spawn
from sdnpu_policy.sim.ur_control_client import ControlChannel

TIMEOUT_S = 20.0
TICK_S = 0.004
LIMITS = {
    "max_speed_m_s": 0.3,
    "max_acceleration_m_s2": 4.0,
    "max_jerk_m_s3": 200.0,
    "max_angular_speed_rad_s": 1.8,
    "max_angular_acceleration_rad_s2": 25.0,
    "max_angular_jerk_rad_s3": 1000.0,
}


class Arm:
    """The arm process, and the control process's side of it."""

    def __init__(self, address: str, **settings: Any) -> None:
        self.states, self.history = None, []
        state_writer, self.states = open_mailbox(ROBOT_STATE)
        self.targets, target_reader = open_mailbox(TARGET)
        given = {"robot_ip": address, "limits": LIMITS, **settings}
        argv = [sys.executable, "-m", "sdnpu_policy.arm.ur", "--settings", json.dumps(given)]
        for option, end in (("--targets", target_reader), ("--states", state_writer)):
            argv += [option, ",".join(map(str, end.fds))]
        fds = (*target_reader.fds, *state_writer.fds)
        self.child: Child = spawn(argv, name="arm", pass_fds=fds, on_parent_death=None, stderr=subprocess.PIPE)
        state_writer.close()
        target_reader.close()

    def close(self) -> None:
        """End it, however far it is."""
        self.targets.close()
        self.states.close()
        self.child.stop(timeout_s=1.0)
        if self.child.process.stderr is not None:
            self.child.process.stderr.close()

    def wait_for(self, wanted: Callable[[Letter], bool]) -> Letter:
        """The first state from now on for which ``wanted`` holds."""
        end_s = time.monotonic() + TIMEOUT_S
        seen = None
        while time.monotonic() < end_s:
            letter = self.states.take()
            if letter is None:
                if self.states.writer_gone and (letter := self.states.take()) is None:
                    break
                self.states.wait(0.05)
            if letter is not None:
                seen = letter
                if wanted(letter):
                    return letter
        raise AssertionError(
            f"not seen; the arm process {self.child.describe_exit()}, last state {described(seen)}"
        )

    def wait_status(self, *statuses: ArmStatus) -> Letter:
        """The first state from now on with one of these statuses."""
        return self.wait_for(lambda letter: letter.value["status"] in statuses)

    def fault(self) -> tuple[ArmFault, str]:
        """The fault it ends with: code and text."""
        value = self.wait_status(ArmStatus.FAULT).value
        return ArmFault(int(value["fault"])), text_of(value)

    def ask(self, mode: TargetMode, pose: np.ndarray | None = None, twist: Any = (0.0,) * 6) -> None:
        """One target letter, due in a tick."""
        letter = np.zeros((), TARGET)
        letter["mode"], letter["twist"] = mode, twist
        now_ns = time.monotonic_ns()
        letter["due_ns"] = now_ns + int(TICK_S * 1e9)
        if pose is not None:
            letter["pose"] = pose
        self.targets.post(letter, now_ns)

    def stream(self, line: Line, until_s: float) -> None:
        """Targets along the line, one a tick, up to that time on it."""
        while line.t_s < until_s:
            pose, twist = line.next()
            self.ask(TargetMode.STREAM, pose, twist)
            line.sleep()


class Line:
    """A motion along y from a pose: faster at 2 m/s2 up to a speed. A time on it for each tick of real time."""

    def __init__(self, start: np.ndarray, speed_m_s: float = 0.25) -> None:
        self.t_s = 0.0
        self._start, self._top_m_s = start, speed_m_s
        self._speed_m_s = self._y_m = 0.0
        self._due_s = time.monotonic()

    def next(self) -> tuple[np.ndarray, np.ndarray]:
        """The next target, and the mean velocity up to it."""
        self.t_s += TICK_S
        self._speed_m_s = min(self._top_m_s, self._speed_m_s + 2.0 * TICK_S)
        self._y_m += self._speed_m_s * TICK_S
        pose, twist = self._start.copy(), np.zeros(6)
        pose[1] += self._y_m
        twist[1] = self._speed_m_s
        return pose, twist

    def sleep(self) -> None:
        """Until the next tick."""
        self._due_s += TICK_S
        time.sleep(max(0.0, self._due_s - time.monotonic()))


def described(letter: Letter | None) -> str:
    """A state in words."""
    if letter is None:
        return "none"
    value = letter.value
    return f"{ArmStatus(int(value['status'])).name}, {ArmFault(int(value['fault'])).name}, {text_of(value)!r}"


def text_of(state: np.ndarray) -> str:
    """The text in a state."""
    return bytes(state["detail"]).rstrip(b"\0").decode()


@pytest.fixture
def controller(loopback: str) -> Iterator[ControlChannel]:
    """A simulated controller on this test's address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sdnpu_policy.sim.ur_controller", "--address", loopback], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the simulated controller did not start"
        with ControlChannel(loopback) as channel:
            yield channel
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


@pytest.fixture
def start_arm(loopback: str) -> Iterator[Callable[..., Arm]]:
    """Starts arm processes for this test's address; the argument are settings."""
    arms = []

    def start(**settings: Any) -> Arm:
        arms.append(Arm(loopback, **settings))
        return arms[-1]

    yield start
    for arm in arms:
        arm.close()


@pytest.fixture
def arm(controller: ControlChannel, start_arm: Callable[..., Arm]) -> Arm:
    """An arm process that is connected, and patient where a loaded machine would make it give up."""
    started = start_arm(watchdog_hz=3.0, link_timeout_ms=300.0)
    started.wait_status(ArmStatus.READY)
    return started
