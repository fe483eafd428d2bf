"""A simulated cell, running: the processes of cell.launch.py started without ros2 launch, and a hand on them.

Everything stays on loopback. The processes end with this one, whatever ends it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.motion.pose import pose_to_ur, ur_to_pose
from sdnpu_policy.process import Child, spawn
from sdnpu_policy.ros.remote import Remote
from sdnpu_policy.share import share_path
from sdnpu_policy.sim.cell import Scene
from sdnpu_policy.sim.ur_control_client import ControlChannel
from sdnpu_policy.tools.cell_processes import CAMERA_NODE, ProcessSpec, mock_hardware, policy_process

RTDE_PORT = 30004
START_S = 20.0


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What kind of cell."""

    seed: int = 0
    address: str = ""
    """Loopback address of the simulated controller; empty: the first that is free."""
    log_directory: Path | None = None
    """Where each process's output goes; None: to this process's own."""
    parameters: dict[str, Any] | None = None
    """Of the policy node, over the shipped parameter files."""
    params_file: str = ""


def free_loopback_address() -> str:
    """A loopback address with no controller on it: 127.0.0.1, else one of 127.0.0.2 to 127.0.0.250."""
    for last in range(1, 251):
        address = f"127.0.0.{last}"
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, RTDE_PORT))
            except OSError:
                continue
            return address
    raise SdnpuError(f"no loopback address has port {RTDE_PORT} free: end the controllers that hold it")


class DemoCell:
    """The running cell. Use as a context manager."""

    def __init__(self, options: CellOptions) -> None:
        self.options = options
        self.address = options.address or free_loopback_address()
        self.children: dict[str, Child] = {}
        self._stack = ExitStack()
        self.remote: Remote
        self.controller: ControlChannel

    def __enter__(self) -> DemoCell:
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        # images of 900 kB need a larger shared-memory segment than Fast DDS makes by default
        os.environ.setdefault("FASTRTPS_DEFAULT_PROFILES_FILE", str(share_path("config/fastdds_shm.xml")))
        try:
            controller, camera = mock_hardware(robot_ip=self.address, seed=self.options.seed)
            self._start(controller)
            self.controller = self._stack.enter_context(self._connect())
            self._start(camera)
            self.start_policy()
            self.remote = self._stack.enter_context(Remote(client_name="sdnpu_demo"))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        # the policy node first: it stops the arm while the controller is still there
        for name in ("policy_node", "cell_node", "ur_controller"):
            if name == "ur_controller":
                self._stack.close()
            child = self.children.pop(name, None)
            if child is not None:
                child.stop(timeout_s=12.0 if name == "policy_node" else 5.0)

    def start_policy(self) -> None:
        """Start the policy node, also again after it died."""
        parameters: dict[str, Any] = {**(self.options.parameters or {}), "robot_ip": self.address}
        self._start(policy_process(parameters=parameters, params_file=self.options.params_file))

    def bring_up(self) -> None:
        """Configure and activate the policy node, paused: the arm is released until `resume`."""
        self._require("policy_node")
        try:
            self.remote.lifecycle_state()
        except SdnpuError:
            self._require("policy_node")
            raise
        self.remote.transition("configure")
        self.remote.transition("activate")
        self.pause()

    def pause(self) -> None:
        """Have the arm stand and be released."""
        done, message = self.remote.pause(True)
        if not done:
            raise SdnpuError(f"the policy node could not pause: {message}")

    def resume(self) -> None:
        """Give the arm back to the policy."""
        self.remote.pause(False)

    def set_up(self, scene: Scene) -> None:
        """Lay out a scene and put the released arm at its start pose, as a person would between episodes."""
        self.remote.set_parameters(CAMERA_NODE, {"seed": scene.seed, "scene": scene.index})
        self.controller.place(pose=pose_to_ur(scene.start_pose).tolist())
        self.remote.spin(0.25)  # images of the new scene replace those of the old one

    def watch(self, see: Callable[[float, NDArray[np.float64]], bool], timeout_s: float) -> None:
        """Show ``see`` the executed poses (controller's time, pose (7,)) at 125 Hz until it returns False.

        Raises:
            SdnpuError: a process of the cell ended.
        """
        end_s = time.monotonic() + timeout_s
        with ControlChannel(self.address) as channel:
            for number, sample in enumerate(channel.subscribe(hz=125.0, timeout_s=1.0)):
                if not see(float(sample["t"]), ur_to_pose(np.asarray(sample["pose"], np.float64))):
                    return
                if time.monotonic() > end_s:
                    return
                if number % 12 == 0:
                    for name in self.children:
                        self._require(name)
                    self.remote.spin(0.0)

    def _require(self, name: str) -> None:
        child = self.children[name]
        if not child.alive:
            raise SdnpuError(f"the process {name} {child.describe_exit()}: {self._log_of(name)} says why")

    def _start(self, spec: ProcessSpec) -> None:
        directory = self.options.log_directory
        if directory is None:
            self.children[spec.executable] = spawn(spec.command(), name=spec.executable)
            return
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / f"{spec.executable}.log", "ab") as log:
            self.children[spec.executable] = spawn(spec.command(), name=spec.executable, stdout=log, stderr=log)

    def _log_of(self, name: str) -> str:
        directory = self.options.log_directory
        return str(directory / f"{name}.log") if directory is not None else "its output"

    def _connect(self) -> ControlChannel:
        end_s = time.monotonic() + START_S
        while True:
            self._require("ur_controller")
            try:
                return ControlChannel(self.address)
            except (OSError, SdnpuError):
                if time.monotonic() > end_s:
                    raise SdnpuError(
                        f"the simulated controller did not listen on {self.address} within {START_S:g} s"
                    ) from None
                time.sleep(0.05)


def say(text: str) -> None:
    """A line for the person at the terminal."""
    print(text, file=sys.stderr, flush=True)
