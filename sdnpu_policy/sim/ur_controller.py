"""A simulated UR5e controller: a process that ur_rtde connects to as to a robot, for demo and tests.

It speaks RTDE (port 30004), the dashboard (29999) and the program port (30003) on a loopback address, and has a
control channel (30099) to look into it, to put faults into it, and to read what the arm really did. Simulated time
is 2 ms a tick, ticks are due on the steady clock; a late process catches up a few and gives up the rest.
"""

from __future__ import annotations

import argparse
import gc
import ipaddress
import os
import sys
import time
from collections.abc import Sequence

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.process import install_stop_handlers
from sdnpu_policy.realtime import last_cpu, request_realtime

from .ur_control_channel import ControlChannel, Timing
from .ur_dashboard import Dashboard, ScriptPort
from .ur_modes import RuntimeState, SafetyMode
from .ur_network import Network
from .ur_record import PLACED, PLAYING, SAFETY_STOP, SERVO, Ring
from .ur_robot import DT_S, Robot, RobotSettings
from .ur_rtde_server import RtdeServer

TICK_NS = round(DT_S * 1e9)
CATCH_UP_TICKS = 10
VERSION = (5, 21, 2, 0)


class Controller:
    """The arm and its services on one address."""

    def __init__(
        self, address: str, settings: RobotSettings | None = None, version: tuple[int, int, int, int] = VERSION
    ) -> None:
        self.robot = Robot(settings)
        self.ring = Ring()
        self.timing = Timing()
        self.network = Network(address, self.robot.note)
        self.rtde = RtdeServer(self.robot, self.network, version)
        self.control = ControlChannel(self.robot, self.rtde, self.network, self.ring, self.timing)
        dashboard = Dashboard(self.robot, self.network, version)
        try:
            # the control channel last: whoever finds it finds everything
            for service in (self.rtde, dashboard, ScriptPort(self.robot), self.control):
                self.network.listen(service)
        except SdnpuError:
            self.network.shut_down()
            raise

    def tick(self, now_ns: int) -> None:
        """One tick: move, record, tell the clients."""
        robot = self.robot
        robot.tick(now_ns)
        flags = PLACED if robot.placed else 0
        if robot.runtime_state is RuntimeState.PLAYING:
            flags |= PLAYING
        if robot.commanded is not None:
            flags |= SERVO
        if robot.safety_mode is not SafetyMode.NORMAL:
            flags |= SAFETY_STOP
        pose = (*robot.tool[1], *robot.tool_quaternion)
        self.ring.append(robot.t_s, now_ns, robot.q, pose, robot.commanded, flags)
        self.rtde.send_packages()
        self.control.push()

    def shut_down(self) -> None:
        """Close all ports and connections."""
        self.control.shut_down()
        self.network.shut_down()


def serve(controller: Controller) -> None:
    """Tick on time until a signal asks to stop."""
    flag = install_stop_handlers()
    controller.network.watch(flag.fileno(), lambda: None)
    print(f"listening on {controller.network.address}", flush=True)
    gc.freeze()
    due_ns = time.monotonic_ns()
    while not flag.is_set():
        controller.network.poll(max(0, due_ns - time.monotonic_ns()) / 1e9)
        now_ns = time.monotonic_ns()
        late_ns = now_ns - due_ns
        if late_ns < 0:
            continue
        if late_ns > CATCH_UP_TICKS * TICK_NS:
            missed = late_ns // TICK_NS
            controller.timing.slipped += missed
            due_ns += missed * TICK_NS
        controller.timing.note(late_ns)
        controller.tick(now_ns)
        due_ns += TICK_NS


REALTIME_PRIORITY = 60
"""Above all that the package asks for, where the system allows it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulated controller until SIGINT or SIGTERM; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        controller = Controller(_checked(options), _settings(options), tuple(options.version))
    except SdnpuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    controller.robot.remote_control = not options.local
    # A robot's controller is a computer of its own: whatever else this machine does must not make the arm late.
    others = {cpu for cpu in os.sched_getaffinity(0) if cpu != last_cpu()}
    request_realtime(REALTIME_PRIORITY, cpus=others)
    try:
        serve(controller)
    finally:
        controller.shut_down()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ur_controller", description="A simulated UR5e controller for ur_rtde.")
    standard = RobotSettings()
    parser.add_argument("--address", default="127.0.0.1", help="loopback address to listen on (%(default)s)")
    parser.add_argument(
        "--allow-non-loopback", action="store_true", help="accept another address; it may be taken for a robot"
    )
    parser.add_argument(
        "--tcp-offset",
        nargs=6,
        type=float,
        default=list(standard.tcp_offset),
        metavar=("X", "Y", "Z", "RX", "RY", "RZ"),
        help="tool centre point from the flange, m and rad (%(default)s)",
    )
    parser.add_argument(
        "--tool-speed-limit",
        type=float,
        default=standard.max_tool_speed_m_s,
        help="protective stop beyond this tool speed, m/s (%(default)s)",
    )
    parser.add_argument(
        "--target-jump-limit",
        type=float,
        default=standard.max_target_jump_rad,
        help="protective stop beyond this step of a servo target, rad in any joint (%(default)s)",
    )
    parser.add_argument(
        "--unlock-after",
        type=float,
        default=standard.unlock_after_s,
        help="seconds before a protective stop can be unlocked (%(default)s)",
    )
    parser.add_argument("--local", action="store_true", help="start in local control: programs are refused")
    parser.add_argument(
        "--version", nargs=4, type=int, default=list(VERSION), metavar="N", help="PolyScope version (5 21 2 0)"
    )
    return parser


def _checked(options: argparse.Namespace) -> str:
    address: str = options.address
    try:
        loopback = ipaddress.IPv4Address(address).is_loopback
    except ValueError as error:
        raise SdnpuError(f"--address {address!r} must be an IPv4 address, like 127.0.0.1") from error
    if not loopback and not options.allow_non_loopback:
        raise SdnpuError(
            f"--address {address} is not a loopback address (127.x.x.x): on a network the simulation could be taken "
            "for a robot; say --allow-non-loopback if you mean it"
        )
    return address


def _settings(options: argparse.Namespace) -> RobotSettings:
    for name in ("tool_speed_limit", "target_jump_limit"):
        if not 0.0 < getattr(options, name) < 100.0:
            raise SdnpuError(f"--{name.replace('_', '-')} {getattr(options, name):g} must be over 0 and below 100")
    if not options.unlock_after >= 0.0:
        raise SdnpuError(f"--unlock-after {options.unlock_after:g} must not be negative")
    if not all(abs(value) < 10.0 for value in options.tcp_offset):
        raise SdnpuError(f"--tcp-offset {options.tcp_offset} must be six numbers, m and rad")
    return RobotSettings(
        tcp_offset=tuple(options.tcp_offset),
        max_tool_speed_m_s=options.tool_speed_limit,
        max_target_jump_rad=options.target_jump_limit,
        unlock_after_s=options.unlock_after,
    )


if __name__ == "__main__":
    sys.exit(main())
