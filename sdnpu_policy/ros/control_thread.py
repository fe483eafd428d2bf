"""The thread that ticks: mailboxes in, the loop, mailboxes out, until it is told to stop.

Sleeps until absolute times on the steady clock. A tick that would start late by a period or more is skipped and
counted, never made up for.
"""

from __future__ import annotations

import gc
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import Clock
from sdnpu_policy.control.denoiser import Observation
from sdnpu_policy.control.loop import Command, ControlLoop, RobotView
from sdnpu_policy.letters import ROBOT_STATE, TARGET, ArmStatus, TargetMode
from sdnpu_policy.mailbox import Letter
from sdnpu_policy.realtime import request_realtime
from sdnpu_policy.ros.links import ArmLink, PerceptionLink

RELEASED = (ArmStatus.STARTING, ArmStatus.READY, ArmStatus.FAULT, ArmStatus.GONE)
"""The arm's servo is off: another may have moved it."""


class ControlThread:
    """Owns the loop while it runs. ``arm`` and ``perception`` may be replaced by other threads at any time."""

    def __init__(
        self,
        *,
        loop: ControlLoop,
        clock: Clock,
        tick_ns: int,
        perception: PerceptionLink,
        arm: ArmLink | None,
        external_robot: Callable[[], RobotView | None],
        publish: Callable[[NDArray[np.float64]], None],
        realtime_priority: int,
        cpus: set[int] | None,
    ) -> None:
        self.perception = perception
        self.arm = arm
        self.skipped_ticks = 0
        self.crash = ""
        self.realtime = "off"
        """What the system allowed."""
        self._loop = loop
        self._clock = clock
        self._tick_ns = tick_ns
        self._realtime_priority = realtime_priority
        self._cpus = cpus
        self._external_robot = external_robot
        self._publish = publish
        self._robot: RobotView | None = None
        self._target: Any = np.zeros((), TARGET)
        self._state: Any = np.zeros((), ROBOT_STATE)
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Begin to tick."""
        # What exists now lives as long as the loop: keep the collector from looking through it again and again.
        gc.collect()
        gc.freeze()
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End after the present tick, and wait for that."""
        self._stop = True
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        gc.unfreeze()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._tick_on()
        except Exception as error:
            # without targets the arm process brakes by itself; the node sees that this thread is gone
            self.crash = f"{type(error).__name__}: {error}"
            traceback.print_exc()

    def _tick_on(self) -> None:
        self.realtime = request_realtime(self._realtime_priority, cpus=self._cpus)
        due_ns = self._clock.now_ns()
        while not self._stop:
            due_ns += self._tick_ns
            self._clock.sleep_until_ns(due_ns)
            start_ns = self._clock.now_ns()
            behind = (start_ns - due_ns) // self._tick_ns
            if behind > 0:
                self.skipped_ticks += behind
                due_ns += behind * self._tick_ns
            robot = self._read_robot()
            offered = self._read_condition()
            command = self._loop.tick(start_ns, offered, robot, due_ns=due_ns)
            self._send(command)

    def _read_robot(self) -> RobotView | None:
        arm = self.arm
        if arm is None:
            robot = self._external_robot()
            if robot is not None and robot is not self._robot:
                self._state["status"] = ArmStatus.READY
                self._state["pose"] = robot.pose
                self.perception.states.post(self._state, robot.stamp_ns)
            self._robot = robot
            return robot
        letter = arm.take()
        if letter is not None:
            self.perception.states.post(letter.value, letter.stamp_ns)
            self._robot = robot_view(letter)
        elif arm.states.writer_gone and not arm.child.alive and self._robot is not None and not self._robot.fault:
            old = self._robot
            self._robot = RobotView(old.pose, old.stamp_ns, servo_on=False, fault=arm.fault_text())
        return self._robot

    def _read_condition(self) -> Observation | None:
        letter = self.perception.conditions.take()
        if letter is None:
            return None
        value = letter.value
        return Observation(
            value["condition"], value["observed_pose"].astype(np.float64), int(value["observed_ns"])
        )

    def _send(self, command: Command) -> None:
        target = self._target
        target["mode"] = command.mode
        target["due_ns"] = command.due_ns
        if command.pose is not None and command.twist is not None:
            target["pose"] = command.pose
            target["twist"] = command.twist
        if self.arm is not None:
            self.arm.post(target, self._clock.now_ns())
        if command.pose is not None and command.mode == TargetMode.STREAM:
            self._publish(command.pose)


def robot_view(letter: Letter) -> RobotView:
    """What the loop needs of the arm process's state."""
    value: Any = letter.value
    status = ArmStatus(int(value["status"]))
    fault = ""
    if status == ArmStatus.FAULT:
        fault = bytes(value["detail"]).rstrip(b"\0").decode("utf-8", "replace") or "the arm process gave up"
    return RobotView(
        pose=value["pose"].copy(),
        stamp_ns=letter.stamp_ns,
        servo_on=status not in RELEASED,
        speed_scaling=float(value["speed_scaling"]),
        fault=fault,
    )
