"""The whole cell, for real: DDS, sockets, ur_rtde, the simulated controller, whose record judges the arm.

Each test has its own ROS domain and loopback address. How fast things go is the benchmarks' matter; here it counts
that they happen, and that the arm keeps its limits meanwhile.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("rtde_control")

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.ros.parameters import PARAMETERS
from sdnpu_policy.sim.cell import make_scene
from sdnpu_policy.tools.demo_cell import CellOptions, DemoCell

pytestmark = pytest.mark.cell

SPEED = float(str(PARAMETERS["arm_max_speed_m_s"].default))
ACCELERATION = float(str(PARAMETERS["arm_max_acceleration_m_s2"].default))
WAIT_S = 20.0


@pytest.fixture
def start(ros_domain_id: int, loopback: str, tmp_path: Path) -> Iterator[Callable[..., DemoCell]]:
    """Starts a cell with parameters of the policy node; ends it after the test."""
    cells: list[DemoCell] = []

    def make(**parameters: Any) -> DemoCell:
        # no real-time priority: beside other tests it would starve what stands for the rest of the world
        parameters = {"realtime_priority": 0, **parameters}
        options = CellOptions(address=loopback, log_directory=tmp_path / "log", parameters=parameters)
        cells.append(DemoCell(options).__enter__())
        return cells[-1]

    yield make
    for cell in cells:
        cell.__exit__(None, None, None)


def until(cell: DemoCell, what: Callable[[], bool], timeout_s: float = WAIT_S) -> bool:
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if what():
            return True
        cell.remote.spin(0.02)
    return False


def speed_of(cell: DemoCell) -> float:
    return math.hypot(*cell.controller.state()["speed"][:3])


def bring_to_motion(cell: DemoCell, index: int = 0) -> None:
    cell.bring_up()
    cell.set_up(make_scene(0, index))
    cell.resume()
    assert until(cell, lambda: speed_of(cell) > 0.05), cell.remote.status


def child_of(cell: DemoCell, module: str) -> psutil.Process:
    node = psutil.Process(cell.children["policy_node"].pid)
    return next(child for child in node.children() if module in " ".join(child.cmdline()))


def assert_the_arm_stands_within_its_limits(cell: DemoCell) -> None:
    assert until(cell, lambda: speed_of(cell) < 1e-3)
    extremes = cell.controller.extremes()
    assert extremes["max_speed_m_s"] <= SPEED
    assert extremes["max_acceleration_m_s2"] <= ACCELERATION


def log_of(cell: DemoCell) -> str:
    assert cell.options.log_directory is not None
    return (cell.options.log_directory / "policy_node.log").read_text()


def test_the_arm_moves_along_the_policy_and_a_sigint_stops_it_and_all_processes(start: Any) -> None:
    cell = start()
    bring_to_motion(cell)
    node = psutil.Process(cell.children["policy_node"].pid)
    family = [node, *node.children(recursive=True)]
    os.kill(node.pid, signal.SIGINT)
    time.sleep(0.02)
    os.kill(node.pid, signal.SIGINT)
    assert cell.children["policy_node"].wait(WAIT_S) == 0
    assert_the_arm_stands_within_its_limits(cell)
    assert not [process for process in family if process.is_running()]
    assert "Traceback" not in log_of(cell)


@pytest.mark.parametrize("module", ["sdnpu_policy.ros.perception_node", "sdnpu_policy.arm.ur"])
def test_when_a_process_of_the_node_is_killed_the_arm_stands_and_a_reset_goes_on(start: Any, module: str) -> None:
    cell = start()
    bring_to_motion(cell)
    child_of(cell, module).send_signal(signal.SIGKILL)
    assert cell.remote.wait_for("STOPPED", WAIT_S)
    assert "SIGKILL" in str(cell.remote.status.message)
    assert_the_arm_stands_within_its_limits(cell)
    done, message = cell.remote.trigger("reset")
    assert done, message
    assert until(cell, lambda: speed_of(cell) > 0.01 or cell.remote.state == "NOMINAL")


def test_when_the_node_itself_is_killed_the_arm_stands_and_a_new_node_goes_on(start: Any) -> None:
    cell = start()
    bring_to_motion(cell)
    node = psutil.Process(cell.children["policy_node"].pid)
    children = node.children(recursive=True)
    node.send_signal(signal.SIGKILL)
    assert_the_arm_stands_within_its_limits(cell)
    assert until(cell, lambda: not any(child.is_running() for child in children))
    cell.start_policy()
    cell.bring_up()
    cell.resume()
    assert cell.remote.wait_for("NOMINAL", WAIT_S)


def test_a_protective_stop_is_named_and_a_reset_is_refused_until_it_is_cleared(start: Any) -> None:
    cell = start()
    bring_to_motion(cell)
    cell.controller.protective_stop()
    assert cell.remote.wait_for("STOPPED", WAIT_S)
    assert "protective stop" in str(cell.remote.status.message).lower()
    done, message = cell.remote.trigger("reset")
    assert not done and "protective stop" in message.lower()
    cell.controller.unlock(at_once=True)
    assert until(cell, lambda: cell.remote.trigger("reset")[0])
    assert cell.remote.wait_for("NOMINAL", WAIT_S)


def test_a_camera_that_stops_brakes_the_arm_and_a_fresh_image_goes_on(start: Any) -> None:
    cell = start()
    bring_to_motion(cell)
    cell.remote.set_parameters("cell_camera", {"fault": "stopped"})
    assert cell.remote.wait_for("HOLD", WAIT_S)
    assert_the_arm_stands_within_its_limits(cell)
    cell.remote.set_parameters("cell_camera", {"fault": "none"})
    assert cell.remote.wait_for("NOMINAL", WAIT_S)


def test_a_pause_releases_the_arm_to_another(start: Any) -> None:
    cell = start()
    bring_to_motion(cell)
    cell.pause()
    scene = make_scene(0, 3)
    cell.set_up(scene)  # the controller refuses to place an arm that a servo motion holds
    assert cell.controller.extremes()["placed"] >= 1
    cell.resume()
    assert cell.remote.wait_for("NOMINAL", WAIT_S)


def test_an_invalid_transition_is_refused_and_the_node_lives(start: Any) -> None:
    cell = start()
    with pytest.raises(SdnpuError, match="activate"):
        cell.remote.transition("activate")
    cell.remote.transition("configure")
    assert cell.remote.lifecycle_state() == "inactive"
    cell.remote.transition("cleanup")
    assert cell.remote.lifecycle_state() == "unconfigured"


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"policy": "/nowhere"}, "/nowhere"),
        ({"image_topics": ["a", "b"]}, "image_topics"),
        ({"provider_options": ["no_such_option=1"]}, "no_such_option"),
        ({"step_deadline_ms": 10.0, "tick_ms": 4.0}, "step_deadline_ms"),
    ],
)
def test_a_node_with_a_wrong_parameter_refuses_to_configure_and_says_which(
    start: Any, parameters: dict[str, Any], named: str
) -> None:
    cell = start(**parameters)
    with pytest.raises(SdnpuError, match=named):
        cell.remote.transition("configure")
    assert cell.remote.lifecycle_state() == "unconfigured"


def test_a_parameter_outside_its_range_ends_the_node_with_one_line(start: Any) -> None:
    cell = start(tick_ms=0.01)
    assert cell.children["policy_node"].wait(WAIT_S) == 2
    assert "tick_ms" in log_of(cell) and "Traceback" not in log_of(cell)


def test_a_robot_that_is_not_there_is_an_error_of_activate(start: Any) -> None:
    cell = start()
    cell.remote.transition("configure")
    cell.controller.refuse()
    with pytest.raises(SdnpuError, match=cell.address.replace(".", r"\.")):
        cell.remote.transition("activate")
    cell.controller.refuse(False)
    cell.remote.transition("activate")


def test_only_live_parameters_change_while_configured(start: Any) -> None:
    cell = start()
    cell.remote.transition("configure")
    with pytest.raises(SdnpuError, match="clean it up first"):
        cell.remote.set_parameters("sdnpu_policy", {"tick_ms": 8.0})
    with pytest.raises(SdnpuError, match="one of coast, hold, block"):
        cell.remote.set_parameters("sdnpu_policy", {"on_late": "panic"})
    cell.remote.set_parameters("sdnpu_policy", {"on_late": "hold"})


def test_a_parameter_that_does_not_exist_ends_the_node_with_the_name_that_is_meant(start: Any) -> None:
    cell = start(max_speed_ms=0.1)
    assert cell.children["policy_node"].wait(WAIT_S) == 2
    assert "max_speed_ms" in log_of(cell) and "max_speed_m_s" in log_of(cell) and "Traceback" not in log_of(cell)


def test_a_deactivated_node_can_be_activated_again(start: Any) -> None:
    cell = start(late_probability=1.0, late_ms=300.0)
    cell.bring_up()
    cell.remote.transition("deactivate")
    cell.remote.transition("activate")
    assert cell.remote.lifecycle_state() == "active"
