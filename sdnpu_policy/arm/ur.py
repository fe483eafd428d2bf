"""The arm process: streams setpoints to a UR robot through ur_rtde. Started by the policy node with two mailboxes.

A process of its own because ur_rtde takes its process along in some of the ways in which a robot can drop the
connection, and because nothing else may run beside a 2 ms cycle. It goes on without its parent: when the target
mailbox closes it brakes the arm, stops the robot's program and leaves.

Exit status: 0 after an orderly end, 2 for wrong settings, 3 when it gave up (the last state says why).
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from rtde_control import RTDEControlInterface
from rtde_receive import RTDEReceiveInterface

from sdnpu_policy.clock import SteadyClock
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.letters import ROBOT_STATE, TARGET, ArmFault
from sdnpu_policy.mailbox import Reader, Writer
from sdnpu_policy.motion.pose import Floats
from sdnpu_policy.process import StopFlag
from sdnpu_policy.realtime import request_realtime

from .probe import NotReadyError, probe
from .report import Reporter
from .session import Session
from .settings import ArmSettings, settings_from_json
from .verdict import Fault, Reading

ENDED, WRONG_SETTINGS, GAVE_UP = 0, 2, 3
"""Exit statuses."""

_FIELDS = [
    "timestamp",
    "actual_TCP_pose",
    "actual_TCP_speed",
    "robot_mode",
    "runtime_state",
    "safety_status_bits",
    "speed_scaling",
]
_LEAVE_S = 1.0
"""Stopping the program takes 5 ms; on a lost connection it can hang for minutes."""


class RtdeLink:
    """The robot through ur_rtde. Only one thread may use it.

    Raises:
        NotReadyError: ur_rtde can't connect. It may also never return from here, or crash.
    """

    def __init__(self, settings: ArmSettings) -> None:
        self._settings = settings
        try:
            self._receive = RTDEReceiveInterface(settings.robot_ip, settings.frequency_hz, _FIELDS)
            self._control = RTDEControlInterface(
                settings.robot_ip,
                settings.frequency_hz,
                RTDEControlInterface.FLAG_UPLOAD_SCRIPT | RTDEControlInterface.FLAG_NO_EXT_FT,
            )
            armed = self._control.setWatchdog(settings.watchdog_hz)
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise NotReadyError(ArmFault.CANNOT_CONNECT, f"robot_ip {settings.robot_ip}: {text}") from error
        if not armed:
            raise NotReadyError(
                ArmFault.CANNOT_CONNECT, f"robot_ip {settings.robot_ip}: the robot's watchdog could not be armed"
            )

    def read(self) -> Reading | None:
        receive = self._receive
        pose, speed = receive.getActualTCPPose(), receive.getActualTCPSpeed()
        if len(pose) != 6 or len(speed) != 6:  # after a lost connection
            return None
        return Reading(
            receive.getTimestamp(),
            pose,
            speed,
            receive.getSafetyStatusBits(),
            receive.getRobotMode(),
            receive.getRuntimeState(),
            receive.getSpeedScaling(),
            receive.isConnected() and self._control.isConnected(),
        )

    def servo(self, pose: Floats) -> bool:
        settings = self._settings
        try:
            return bool(
                # speed and acceleration are not used by it; t of 0.002 s is servoj's own default
                self._control.servoL(ur_vector(pose), 0.0, 0.0, 0.002, settings.lookahead_s, settings.gain)
            )
        except RuntimeError:
            return False

    def kick(self) -> None:
        self._control.kickWatchdog()

    def servo_stop(self) -> bool:
        try:
            return bool(self._control.servoStop(self._settings.servo_stop_m_s2))
        except RuntimeError:
            return False

    def stop_program(self) -> None:
        """Stop the robot's program. It may hang on a lost connection."""
        self._control.stopScript()


def ur_vector(pose: Floats) -> list[float]:
    """UR's vector (6,) of a pose [7]: `motion.pose.pose_to_ur` in a tenth of its time, for every cycle."""
    x, y, z, qx, qy, qz, qw = pose.tolist()
    sine = math.sqrt(qx * qx + qy * qy + qz * qz)
    if sine < 1e-12:
        return [x, y, z, 0.0, 0.0, 0.0]
    scale = 2.0 * math.atan2(math.copysign(sine, qw), abs(qw)) / sine
    return [x, y, z, scale * qx, scale * qy, scale * qz]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the arm process; ends it."""
    parser = argparse.ArgumentParser(prog="arm_process", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--settings", required=True, metavar="JSON", help="fields of ArmSettings")
    parser.add_argument("--targets", required=True, metavar="FDS", help="reading end of a mailbox of TARGET")
    parser.add_argument("--states", required=True, metavar="FDS", help="writing end of a mailbox of ROBOT_STATE")
    options = parser.parse_args(arguments)
    _run(options.settings, options.targets, options.states)


def _run(settings_json: str, target_fds: str, state_fds: str) -> NoReturn:
    stopping = _install_signals()
    try:
        reporter = Reporter(Writer.from_fds(_numbers(state_fds), ROBOT_STATE))
        targets = Reader.from_fds(_numbers(target_fds), TARGET)
    except SdnpuError as error:
        _give_up(str(error), WRONG_SETTINGS)
    try:
        settings = settings_from_json(settings_json)
    except SdnpuError as error:
        reporter.fault(Fault(ArmFault.INTERNAL, str(error)), None)
        _give_up(str(error), WRONG_SETTINGS)
    # Before the robot's watchdog is armed, which leaves no time for it; the cycle leaves no circular garbage.
    gc.collect()
    gc.freeze()
    gc.disable()
    request_realtime(settings.realtime_priority)  # before ur_rtde makes its threads, which take it over
    try:
        link = _connect(settings, reporter)
    except NotReadyError as error:
        reporter.fault(error.fault, None)
        _give_up(str(error), GAVE_UP)
    fault = Session(settings, link, targets, reporter, SteadyClock(), stopping.is_set).run()
    status = ENDED if fault is None else GAVE_UP
    if fault is None or fault.code == ArmFault.INTERNAL:
        # A thread can end the process meanwhile, as ur_rtde's methods, unlike its constructors, let others run.
        limit = threading.Timer(_LEAVE_S, os._exit, (status,))
        limit.daemon = True
        limit.start()
        link.stop_program()
    if fault is not None:
        _give_up(fault.text, status)
    _exit(status)


def _connect(settings: ArmSettings, reporter: Reporter) -> RtdeLink:
    """The connected robot, its program running and its watchdog armed.

    Raises:
        NotReadyError: it can't be had.
    """
    begin_s = time.monotonic()
    probe(settings.robot_ip, settings.connect_timeout_s)
    reporter.starting(
        Fault(
            ArmFault.CANNOT_CONNECT,
            f"robot_ip {settings.robot_ip}: the controller answers, but ur_rtde did not get through to it in "
            f"{settings.connect_timeout_s:g} s: restart the controller, and see that no other client holds it",
        )
    )
    left_s = settings.connect_timeout_s - (time.monotonic() - begin_s)
    # Nothing in this process could interrupt the constructors: they hold the interpreter. So the kernel ends it.
    signal.setitimer(signal.ITIMER_REAL, max(0.1, left_s))
    link = RtdeLink(settings)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    return link


def _install_signals() -> StopFlag:
    """SIGTERM asks for the orderly end; SIGINT is the parent's business, which closes the mailbox when it ends."""
    flag = StopFlag()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: flag.request("SIGTERM"))
    return flag


def _numbers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError as error:
        raise SdnpuError(f"{text!r} must be file descriptors, like 5,6") from error


def _exit(status: int) -> NoReturn:
    """End the process here and now, while a link still exists.

    The kernel disconnects at once. ur_rtde's own disconnect and its destructors take half a second each, and hang or
    crash where the robot has gone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _give_up(text: str, status: int) -> NoReturn:
    print(f"arm: error: {text}", file=sys.stderr)
    _exit(status)


if __name__ == "__main__":
    main()
