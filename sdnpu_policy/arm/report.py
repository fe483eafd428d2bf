"""The arm process's own words: the record it posts of the robot and of itself."""

from __future__ import annotations

import time

import numpy as np

from sdnpu_policy.letters import ROBOT_STATE, ArmFault, ArmStatus
from sdnpu_policy.mailbox import Writer
from sdnpu_policy.motion.pose import IDENTITY_POSE, Floats

from .verdict import Fault, Reading

_DETAIL_BYTES = ROBOT_STATE["detail"].itemsize
_LAST_WORDS = 3


class Reporter:
    """Posts ROBOT_STATE letters. Keeps the counters that go with them."""

    def __init__(self, states: Writer) -> None:
        self.cycles = 0
        self.late_cycles = 0
        """Cycles that began more than half a period late."""
        self._states = states
        self._state = np.zeros((), ROBOT_STATE)
        self._state["pose"] = self._state["target_pose"] = IDENTITY_POSE

    def starting(self, words: Fault) -> None:
        """Say what it will have died of, if this is the last that is heard: what comes next may not return."""
        self._state["fault"] = words.code
        self._tell(words.text)
        self._post(ArmStatus.STARTING)
        self._state["fault"] = ArmFault.NONE
        self._tell("")

    def cycle(self, status: ArmStatus, reading: Reading, target: Floats, refused: int, detail: str) -> None:
        """The state after a cycle.

        Args:
            status: what this process is doing.
            reading: what the controller said last.
            target: the setpoint [7] it was given last.
            refused: targets refused so far.
            detail: why the last of them was.
        """
        state = self._state
        self._note(reading)
        state["target_pose"] = target
        state["refused_targets"] = refused
        self._tell(detail)
        self._post(status)

    def fault(self, fault: Fault, reading: Reading | None) -> None:
        """The last words."""
        if reading is not None:
            self._note(reading)
        self._state["fault"] = fault.code
        self._tell(fault.text)
        for _ in range(_LAST_WORDS):
            self._post(ArmStatus.FAULT)

    def gone(self) -> None:
        """The end of an orderly run."""
        self._tell("")
        self._post(ArmStatus.GONE)

    def _note(self, reading: Reading) -> None:
        state = self._state
        state["pose"], state["twist"] = reading.pose, reading.twist
        state["controller_time_s"] = reading.controller_time_s
        state["safety_bits"], state["robot_mode"] = reading.safety_bits, reading.robot_mode
        state["runtime_state"], state["speed_scaling"] = reading.runtime_state, reading.speed_scaling

    def _tell(self, detail: str) -> None:
        self._state["detail"] = detail.encode("ascii", "replace")[:_DETAIL_BYTES]

    def _post(self, status: ArmStatus) -> None:
        self._state["status"] = status
        self._state["cycles"], self._state["late_cycles"] = self.cycles, self.late_cycles
        self._states.post(self._state, time.monotonic_ns())
