"""The policy node's two other processes: started, talked to and ended here.

Perception receives and encodes images, the arm process streams to the robot. Each is a child with its own mailboxes;
a dead child is told from its mailbox and its exit status, and a fresh one gets fresh mailboxes.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.letters import (
    PERCEPTION_STATUS,
    ROBOT_STATE,
    TARGET,
    ArmFault,
    ArmStatus,
    TargetMode,
    condition_dtype,
)
from sdnpu_policy.mailbox import Letter, Reader, Writer, open_mailbox
from sdnpu_policy.process import Child, spawn


def text_of(field: Any) -> str:
    """The text of a record's bytes field."""
    return bytes(field).rstrip(b"\0").decode("utf-8", "replace")


def fds_argument(end: Reader | Writer) -> str:
    """File descriptors of a mailbox's end, as an argument for the child that inherits them."""
    return ",".join(str(fd) for fd in end.fds)


@dataclass(slots=True)
class PerceptionLink:
    """The perception process and its mailboxes."""

    child: Child
    conditions: Reader
    statuses: Reader
    states: Writer

    @classmethod
    def start(cls, settings: dict[str, Any], condition_size: int, ros_arguments: list[str]) -> PerceptionLink:
        """Start the process; it is ready when its status says so."""
        condition_writer, conditions = open_mailbox(condition_dtype(condition_size))
        status_writer, statuses = open_mailbox(PERCEPTION_STATUS)
        states, state_reader = open_mailbox(ROBOT_STATE)
        theirs = (condition_writer, status_writer, state_reader)
        argv = [sys.executable, "-m", "sdnpu_policy.ros.perception_node", "--settings", json.dumps(settings)]
        argv += ["--conditions", fds_argument(condition_writer), "--statuses", fds_argument(status_writer)]
        argv += ["--states", fds_argument(state_reader), *ros_arguments]
        child = spawn(argv, name="perception", pass_fds=tuple(fd for end in theirs for fd in end.fds))
        for end in theirs:
            end.close()
        return cls(child, conditions, statuses, states)

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until images can be encoded.

        Raises:
            SdnpuError: the process ended or said what is wrong, or took too long.
        """
        end_ns = time.monotonic_ns() + int(timeout_s * SECOND)
        while time.monotonic_ns() < end_ns:
            letter = self.statuses.take()
            if letter is not None and letter.value["fatal"]:
                raise SdnpuError(text_of(letter.value["detail"]))
            if letter is not None and letter.value["ready"]:
                return
            if self.statuses.writer_gone:
                self.child.wait(1.0)
                raise SdnpuError(f"the perception process {self.child.describe_exit()}: its log says why")
            self.statuses.wait(0.1)
        raise SdnpuError(f"the perception process was not ready after {timeout_s:g} s")

    def wait_for_image(self, timeout_s: float) -> bool:
        """Whether an image was received within this time."""
        end_ns = time.monotonic_ns() + int(timeout_s * SECOND)
        while time.monotonic_ns() < end_ns and not self.statuses.writer_gone:
            letter = self.statuses.take()
            if letter is not None and letter.value["images"]:
                return True
            self.statuses.wait(0.1)
        return False

    def close(self) -> None:
        """End the process and forget its mailboxes."""
        for end in (self.conditions, self.statuses, self.states):
            end.close()
        self.child.stop(timeout_s=2.0)


@dataclass(slots=True)
class ArmLink:
    """The arm process and its mailboxes. The newest state is kept, for the last words of a process that died."""

    child: Child
    states: Reader
    targets: Writer
    last: Letter | None = None

    @classmethod
    def start(cls, settings: dict[str, Any]) -> ArmLink:
        """Start the process; it connects to the robot and says so in its state."""
        state_writer, states = open_mailbox(ROBOT_STATE)
        targets, target_reader = open_mailbox(TARGET)
        argv = [sys.executable, "-m", "sdnpu_policy.arm.ur", "--settings", json.dumps(settings)]
        argv += ["--targets", fds_argument(target_reader), "--states", fds_argument(state_writer)]
        # The arm process outlives a killed parent for as long as it takes to stop the arm: it reads its mailbox's end.
        fds = (*target_reader.fds, *state_writer.fds)
        child = spawn(argv, name="arm", pass_fds=fds, on_parent_death=None)
        state_writer.close()
        target_reader.close()
        return cls(child, states, targets)

    def take(self) -> Letter | None:
        """The newest state not yet taken."""
        letter = self.states.take()
        if letter is not None:
            self.last = letter
        return letter

    def fault_text(self) -> str:
        """Why the arm process is not there any more, as one line."""
        last = self.last
        if last is not None and last.value["fault"] != ArmFault.NONE:
            return text_of(last.value["detail"]) or ArmFault(int(last.value["fault"])).name
        return f"the arm process {self.child.describe_exit()}"

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the robot is connected.

        Raises:
            SdnpuError: it can't be, and why.
        """
        end_ns = time.monotonic_ns() + int(timeout_s * SECOND)
        while time.monotonic_ns() < end_ns:
            self.take()
            if self.last is not None and self.last.value["status"] in (
                ArmStatus.READY,
                ArmStatus.STREAMING,
                ArmStatus.STANDING,
            ):
                return
            if self.states.writer_gone:
                self.child.wait(2.0)
                raise SdnpuError(self.fault_text())
            self.states.wait(0.1)
        raise SdnpuError(f"the robot was not connected after {timeout_s:g} s (parameter 'connect_timeout_s')")

    def post(self, target: np.ndarray[Any, Any], now_ns: int) -> None:
        """Send a target record."""
        self.targets.post(target, now_ns)

    def shut_down(self, timeout_s: float = 3.0) -> None:
        """Ask it to brake, stop its script and leave; end it when it does not."""
        target = np.zeros((), TARGET)
        target["mode"] = TargetMode.SHUT_DOWN
        self.targets.post(target, time.monotonic_ns())
        end_ns = time.monotonic_ns() + int(timeout_s * SECOND)
        while self.child.poll() is None and time.monotonic_ns() < end_ns:
            self.take()
            time.sleep(20 * MS / SECOND)
        self.states.close()
        self.targets.close()
        self.child.stop(timeout_s=2.0)
