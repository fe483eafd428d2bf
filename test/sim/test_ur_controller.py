"""The simulated controller as a process, with the real ur_rtde as its client.

The client runs in a child process each time: ur_rtde takes its process along when a connection breaks.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import pi
from pathlib import Path
from typing import Any

import pytest

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.sim.ur_control_client import ControlChannel
from sdnpu_policy.sim.ur_record import load_record, motion_extremes

SETTLE_S = 5.0

PRELUDE = """
import json, os, signal, sys, time
from dashboard_client import DashboardClient
from rtde_control import RTDEControlInterface
from rtde_receive import RTDEReceiveInterface

address = sys.argv[1]

def tell(**values):
    print(json.dumps(values), flush=True)

def connect():
    return RTDEReceiveInterface(address), RTDEControlInterface(address)

def stream(control, start, speed, seconds):
    # along y with a ramp of 2 m/s^2; the last target
    begin = time.monotonic()
    while (t := time.monotonic() - begin) < seconds:
        ramp = min(t, speed / 2.0)
        pose = [start[0], start[1] + ramp * ramp + speed * (t - ramp), *start[2:]]
        if not control.servoL(pose, 0.5, 0.5, 0.002, 0.1, 300):
            return None
        time.sleep(0.002)
    return pose
"""

pytestmark = pytest.mark.cell

needs_ur_rtde = pytest.mark.skipif(
    importlib.util.find_spec("rtde_control") is None, reason="ur_rtde is not installed"
)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sdnpu_policy.sim.ur_controller", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def controller(loopback: str, request: pytest.FixtureRequest) -> Iterator[ControlChannel]:
    """A running controller; its options from the test's parameter, where it has one."""
    process = start("--address", loopback, *getattr(request, "param", []))
    with ExitStack() as stack:
        stack.callback(process.communicate)
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == f"listening on {loopback}\n"
        yield stack.enter_context(ControlChannel(loopback))
        assert process.poll() is None, "the controller died"


def client(address: str, code: str) -> tuple[int, dict[str, Any]]:
    """Run a ur_rtde client; its exit status and all it told."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code, address], capture_output=True, text=True, timeout=30.0, check=False
    )
    told: dict[str, Any] = {"stderr": done.stderr}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            told |= json.loads(line)
    return done.returncode, told


def wait_for(controller: ControlChannel, happened: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end_s = time.monotonic() + SETTLE_S
    while not happened(state := controller.state()):
        assert time.monotonic() < end_s, state
        time.sleep(0.02)
    return state


def standing(state: dict[str, Any]) -> bool:
    return not any(state["qd"])


def events(controller: ControlChannel) -> str:
    return "\n".join(text for _, text in controller.state()["events"])


def first_stop_s(controller: ControlChannel) -> float:
    """Simulated time at which a program was first stopped."""
    return next(float(t_s) for t_s, text in controller.state()["events"] if "stopped" in text)


# --- the process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_status_zero_when_asked_to(loopback: str, number: signal.Signals) -> None:
    process = start("--address", loopback)
    assert process.stdout is not None
    assert process.stdout.readline() == f"listening on {loopback}\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=5.0)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_taken_port_is_named(loopback: str) -> None:
    with socket.create_server((loopback, 29999)):
        process = start("--address", loopback)
        out, err = process.communicate(timeout=10.0)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"error: --address {loopback}: port 29999 (dashboard) is taken")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--address", "192.0.2.1"], "is not a loopback address"),
        (["--address", "0.0.0.0"], "is not a loopback address"),
        (["--address", "robot"], "must be an IPv4 address"),
        (["--address", "192.0.2.1", "--allow-non-loopback"], "cannot listen on it"),
        (["--tool-speed-limit", "nan"], "--tool-speed-limit nan must be over 0"),
        (["--tcp-offset", "0", "0", "99", "0", "0", "0"], "--tcp-offset"),
    ],
)
def test_options_it_cannot_use_are_refused_in_a_line(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from sdnpu_policy.sim.ur_controller import main

    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert why in shown
    assert shown.count("\n") == 1


def test_without_a_controller_the_hand_says_so(loopback: str) -> None:
    with pytest.raises(SdnpuError, match=f"simulated controller at {loopback}:30099 is not there"):
        ControlChannel(loopback)


def test_the_hand_places_watches_and_reads_the_record(controller: ControlChannel, tmp_path: Path) -> None:
    controller.place(pose=[0.4, 0.1, 0.3, pi, 0.0, 0.0])
    for sample in controller.subscribe(hz=500.0):
        assert sample["pose"][:3] == pytest.approx([0.4, 0.1, 0.3])
        break
    with pytest.raises(SdnpuError, match="refuses: op 'place'"):
        controller.place(pose=[2.0, 0.1, 0.3, pi, 0.0, 0.0])
    controller.save_record(tmp_path / "record.npz")
    record = load_record(tmp_path / "record.npz")
    assert motion_extremes(record.t_s, record.poses, record.placed).max_step_m == 0.0
    assert controller.extremes()["placed"] == 2  # the start is one
    controller.slider(0.5)
    controller.remote(False)
    controller.power(False)
    controller.reset()
    assert controller.timing()["ticks"] > 0
    assert controller.record(0.0, 0.01)["t"] == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.010])


# --- with ur_rtde


@needs_ur_rtde
def test_ur_rtde_connects_asks_moves_and_streams(loopback: str, controller: ControlChannel) -> None:
    status, told = client(
        loopback,
        """
receive, control = connect()
start = receive.getActualTCPPose()
tell(offset=control.getTCPOffset(), start=start, forward=control.getForwardKinematics(), steady=control.isSteady())
tell(inverse=control.getInverseKinematics(start), q=receive.getActualQ())
tell(payload=control.setPayload(1.0, [0.0, 0.0, 0.05]), within=control.isPoseWithinSafetyLimits(start))
target = stream(control, start, 0.2, 0.8)
tell(target=target, behind=receive.getActualTCPPose(), stopped=control.servoStop(10.0))
tell(moved=control.moveL(start, 0.25, 1.2), back=receive.getActualTCPPose(), joints=control.moveJ(receive.getActualQ()))
receive_mode = receive.getSafetyMode(), receive.getRobotMode(), receive.getRuntimeState()
tell(modes=receive_mode, ended=control.stopScript())
control.disconnect()
""",
    )
    assert status == 0, told
    assert told["offset"] == pytest.approx([0.0, 0.0, 0.16, 0.0, 0.0, 0.0])
    assert told["forward"] == pytest.approx(told["start"])
    assert told["inverse"] == pytest.approx(told["q"])
    assert all(told[name] for name in ("steady", "payload", "within", "stopped", "moved", "joints"))
    assert 0.0 < told["target"][1] - told["behind"][1] < 0.2 * 0.2  # 0.083 s in theory; the machine may be busy
    assert told["back"] == pytest.approx(told["start"], abs=1e-6)
    assert told["modes"] == [1, 7, 2]
    assert "program rtde_control stopped" in events(controller)


@needs_ur_rtde
def test_the_watchdog_stops_the_arm_within_its_bounds_after_the_client_was_killed(
    loopback: str, controller: ControlChannel
) -> None:
    status, told = client(
        loopback,
        """
receive, control = connect()
tell(set=control.setWatchdog(10.0))
stream(control, receive.getActualTCPPose(), 0.25, 0.8)
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert (status, told["set"]) == (-signal.SIGKILL, True)
    state = wait_for(controller, lambda state: state["program"] is None and standing(state))
    assert "RTDE watchdog expired" in events(controller)
    assert state["pose"][1] > -0.15  # it had gone 0.16 m
    extremes = controller.extremes(first_stop_s(controller))
    assert extremes["max_acceleration_m_s2"] < 3.0
    assert extremes["stands_since_t_s"] is not None


@needs_ur_rtde
def test_without_a_watchdog_a_killed_clients_arm_goes_on_for_ever(
    loopback: str, controller: ControlChannel
) -> None:
    status, _ = client(
        loopback,
        """
receive, control = connect()
control.speedL([0.0, 0.0, 0.01, 0.0, 0.0, 0.0], 0.5, 0.0)
time.sleep(0.1)
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert status == -signal.SIGKILL
    assert controller.state()["moving"]
    controller.stop_program()
    wait_for(controller, standing)


@needs_ur_rtde
@pytest.mark.parametrize("controller", [["--unlock-after", "0.2"]], indirect=True)
def test_a_jump_is_a_protective_stop_that_can_be_unlocked(loopback: str, controller: ControlChannel) -> None:
    status, told = client(
        loopback,
        """
receive, control = connect()
start = receive.getActualTCPPose()
control.servoL(start, 0.5, 0.5, 0.002, 0.1, 300)
time.sleep(0.05)
control.servoL([start[0] - 0.25, *start[1:]], 0.5, 0.5, 0.002, 0.1, 300)
time.sleep(0.3)
tell(stopped=receive.isProtectiveStopped(), mode=receive.getSafetyMode(), state=receive.getRuntimeState())
tell(answer=control.servoL(start, 0.5, 0.5, 0.002, 0.1, 300), running=control.isProgramRunning())
dashboard = DashboardClient(address)
dashboard.connect()
dashboard.unlockProtectiveStop()
time.sleep(0.1)
tell(unlocked=receive.getSafetyMode(), uploaded=control.reuploadScript())
time.sleep(0.3)
tell(again=control.servoL(receive.getActualTCPPose(), 0.5, 0.5, 0.002, 0.1, 300))
control.servoStop()
control.disconnect()
""",
    )
    assert status == 0, told
    assert (told["stopped"], told["mode"], told["state"]) == (True, 3, 4)
    assert (told["answer"], told["running"]) == (False, False)
    assert (told["unlocked"], told["uploaded"], told["again"]) == (1, True, True)
    assert "the target jumped" in events(controller)


@needs_ur_rtde
def test_a_pose_out_of_reach_kills_the_script_and_the_next_call_fails(
    loopback: str, controller: ControlChannel
) -> None:
    status, told = client(
        loopback,
        """
receive, control = connect()
start = receive.getActualTCPPose()
tell(first=control.servoL([1.5, *start[1:]], 0.5, 0.5, 0.002, 0.1, 300))
time.sleep(0.1)
tell(running=control.isProgramRunning(), second=control.servoL(start, 0.5, 0.5, 0.002, 0.1, 300))
os._exit(0)
""",
    )
    assert status == 0, told
    assert (told["first"], told["running"], told["second"]) == (True, False, False)
    assert "unable to find an inverse kinematics solution" in events(controller)


@needs_ur_rtde
@pytest.mark.parametrize("controller", [["--local"]], indirect=True)
def test_in_local_control_ur_rtde_says_what_to_do(loopback: str, controller: ControlChannel) -> None:
    _, told = client(loopback, "RTDEControlInterface(address)")
    assert "Please enable remote control on the robot!" in told["stderr"]
    assert controller.state()["remote"] is False


@needs_ur_rtde
def test_a_second_control_client_is_refused_and_the_first_goes_on(
    loopback: str, controller: ControlChannel
) -> None:
    status, told = client(
        loopback,
        """
receive, control = connect()
try:
    RTDEControlInterface(address)
except RuntimeError as error:
    tell(why=str(error))
tell(first=control.servoL(receive.getActualTCPPose(), 0.5, 0.5, 0.002, 0.1, 300), running=control.isProgramRunning())
os._exit(0)
""",
    )
    assert status == 0, told
    assert "One of the RTDE input registers are already in use!" in told["why"]
    assert told["first"]
    assert told["running"]


@needs_ur_rtde
@pytest.mark.parametrize(
    "fault",
    [{"op": "stall", "seconds": 0.5}, {"op": "drop"}, {"op": "drop", "reset": True}, {"op": "malformed"}],
    ids=["stall", "drop", "reset", "malformed"],
)
def test_whatever_the_link_does_the_arm_stops_within_its_bounds(
    loopback: str, controller: ControlChannel, fault: dict[str, Any]
) -> None:
    client(
        loopback,
        f"""
import socket

receive, control = connect()
control.setWatchdog(10.0)
start = receive.getActualTCPPose()
stream(control, start, 0.2, 0.4)
with socket.create_connection((address, 30099)) as hand:
    hand.sendall({json.dumps(fault)!r}.encode() + b"\\n")
    hand.recv(1000)
time.sleep(0.4)
os._exit(0)
""",
    )
    # on a closed connection ur_rtde itself ends the program and starts it anew, when it survives
    wait_for(controller, lambda state: not state["moving"] and standing(state))
    assert controller.extremes(first_stop_s(controller))["max_acceleration_m_s2"] < 3.0


@needs_ur_rtde
def test_a_frozen_clock_shows_only_in_the_time_stamp(loopback: str, controller: ControlChannel) -> None:
    controller.freeze_clock()
    status, told = client(
        loopback,
        """
receive = RTDEReceiveInterface(address)
first = receive.getTimestamp()
time.sleep(0.1)
tell(same=receive.getTimestamp() == first, connected=receive.isConnected())
receive.disconnect()
""",
    )
    assert (status, told["same"], told["connected"]) == (0, True, True)
