"""The launch files start what `cell_processes` describes, and the demo's command lines say the same.

ROS 2's launch is not to be had on a bare machine; there the files are read. Where it is installed they are run, with
programs in the executables' places that write down how they were called.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.tools.cell_processes import ProcessSpec, mock_hardware, parameter_files, policy_process

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = ROOT / "launch"
FILES = sorted(LAUNCH.glob("*.launch.py"))
POLICY_ARGUMENTS = {
    "namespace",
    "use_sim_time",
    "params_file",
    "autostart",
    "log_level",
    "robot_ip",
    "tf_prefix",
    "policy",
    "output",
}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def constant(tree: ast.Module, name: str) -> Any:
    """The value of a module-level constant that is a literal."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == [name]:
            return ast.literal_eval(node.value)
    raise AssertionError(f"{name} is not a literal at the top of the file")


def calls(tree: ast.Module, *names: str) -> list[ast.Call]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) in names]


# Read, without ROS 2


@pytest.mark.parametrize("name", ["policy.launch.py", "cell.launch.py"])
def test_a_launch_file_declares_its_arguments_with_a_default_and_a_text(name: str) -> None:
    tree = tree_of(LAUNCH / name)
    arguments = constant(tree, "ARGUMENTS")
    for default, text in arguments.values():
        assert isinstance(default, str)
        assert text
    (declare,) = calls(tree, "DeclareLaunchArgument")
    assert {k.arg for k in declare.keywords} == {"default_value", "description", "choices"}
    for argument, choices in constant_choices(tree).items():
        assert arguments[argument][0] in choices


def constant_choices(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """CHOICES, which may name BOOLEAN."""
    names = {"BOOLEAN": constant(tree, "BOOLEAN")} if "BOOLEAN" in ast.unparse(tree) else {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHOICES":
            assert isinstance(node.value, ast.Dict)
            return {
                ast.literal_eval(key): names[value.id] if isinstance(value, ast.Name) else ast.literal_eval(value)
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key is not None
            }
    return {}


def test_the_policy_launch_file_takes_every_argument_of_the_policy_node() -> None:
    assert set(constant(tree_of(LAUNCH / "policy.launch.py"), "ARGUMENTS")) == POLICY_ARGUMENTS


def test_the_cell_launch_file_takes_those_of_the_policy_launch_file_and_use_mock_hardware() -> None:
    tree = tree_of(LAUNCH / "cell.launch.py")
    assert set(constant(tree, "ARGUMENTS")) == {"use_mock_hardware", "robot_ip"}
    (include,) = calls(tree, "IncludeLaunchDescription")
    assert "policy.launch.py" in ast.unparse(include)
    # without a list of its own the included file sees every argument
    assert not include.keywords


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_what_a_launch_file_starts_comes_from_the_one_description_of_the_cell(path: Path) -> None:
    tree = tree_of(path)
    imported = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    ours = {module for module in imported if module.startswith("sdnpu_policy")}
    assert "sdnpu_policy.tools.cell_processes" in ours
    assert ours <= {"sdnpu_policy.tools.cell_processes", "sdnpu_policy.share"}
    starters = calls(tree, "Node", "LifecycleNode", "ExecutableInPackage")
    assert starters
    for call in starters:
        words = {k.arg: ast.unparse(k.value) for k in call.keywords}
        spec = words["executable"].removesuffix(".executable")
        assert spec.isidentifier()
        if ast.unparse(call.func) == "ExecutableInPackage":
            continue
        assert words["name"] == f"{spec}.ros_name"
        assert words["namespace"] == f"{spec}.namespace"
        assert f"{spec}.parameters" in words["parameters"]
        assert f"{spec}.remappings" in words["remappings"]
        assert f"{spec}.log_level" in words["ros_arguments"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_executable_a_launch_file_starts_is_installed(path: Path) -> None:
    compile(path.read_text(encoding="utf-8"), str(path), "exec")
    for spec in (policy_process(), *mock_hardware(robot_ip="127.0.0.1")):
        wrapper = ROOT / "resource" / "executables" / spec.executable
        assert f"from {spec.module} import main" in wrapper.read_text(encoding="utf-8")
        assert os.access(wrapper, os.X_OK)


# The demo's command lines


@dataclass
class Started:
    """What a command line tells a node."""

    plain: list[str] = field(default_factory=list)
    name: str = ""
    namespace: str = "/"
    files: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    remappings: dict[str, str] = field(default_factory=dict)
    log_level: str = ""


def read_command(words: list[str], *, own_file: str = "") -> Started:
    """Read a program's arguments; parameters in the file whose name begins with ``own_file`` count as given here."""
    started = Started()
    rest = iter(words)
    for word in rest:
        if word == "--ros-args":
            continue
        if word == "-r":
            source, _, target = next(rest).partition(":=")
            if source == "__node":
                started.name = target
            elif source == "__ns":
                started.namespace = target
            else:
                started.remappings[source] = target
        elif word == "--params-file":
            path = next(rest)
            if own_file and path.startswith(own_file):
                ((node, values),) = yaml.safe_load(Path(path).read_text(encoding="utf-8")).items()
                assert node in ("/**", f"{started.namespace.rstrip('/')}/{started.name}")
                started.parameters |= values["ros__parameters"]
            else:
                started.files.append(path)
        elif word == "-p":
            key, _, value = next(rest).partition(":=")
            started.parameters[key] = yaml.safe_load(value)
        elif word == "--log-level":
            started.log_level = next(rest)
        else:
            started.plain.append(word)
    return started


def read_spec(spec: ProcessSpec) -> Started:
    interpreter, dash_m, module, *words = spec.command()
    assert (interpreter, dash_m, module) == (sys.executable, "-m", spec.module)
    return read_command(words)


def test_a_command_line_without_ros_has_no_ros_arguments() -> None:
    controller, _ = mock_hardware(robot_ip="127.0.5.1")
    assert controller.command() == [sys.executable, "-m", controller.module, "--address", "127.0.5.1"]


def test_a_users_parameter_file_comes_last_so_that_it_wins(tmp_path: Path) -> None:
    mine = tmp_path / "my_cell.yaml"
    mine.write_text("/**:\n  ros__parameters: {}\n")
    files = parameter_files(str(mine))
    assert [path.name for path in files] == ["policy.yaml", "ur5e.yaml", "my_cell.yaml"]
    started = read_spec(policy_process(params_file=str(mine)))
    assert started.files == [str(path) for path in files]


def test_a_parameter_file_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(SdnpuError, match=r"my_cel\.yaml"):
        parameter_files("my_cel.yaml")


def test_camera_topics_lie_under_camera_where_the_shipped_parameters_expect_them() -> None:
    _, camera = mock_hardware(robot_ip="127.0.0.1")
    shipped = yaml.safe_load((ROOT / "config" / "policy.yaml").read_text(encoding="utf-8"))
    assert shipped["/**"]["ros__parameters"]["image_topics"] == [dict(camera.remappings)["image_raw"]]


def test_a_namespace_is_absolute_on_the_command_line() -> None:
    assert read_spec(policy_process(namespace="left")).namespace == "/left"
    assert read_spec(policy_process(namespace="/left/")).namespace == "/left"
    assert read_spec(policy_process()).namespace == "/"


def test_rcl_reads_each_parameter_with_its_type_and_the_nodes_name(ros_domain_id: int) -> None:
    rclpy = pytest.importorskip("rclpy")
    values = {
        "policy": "1234",
        "robot_ip": "127.0.0.1",
        "tf_prefix": "yes",
        "rate_hz": 30.0,
        "seed": 7,
        "on": True,
    }
    words = {"quoted": 'a "b" \\ ü: {c}', "lines": "a\nb"}
    spec = policy_process(namespace="left", log_level="warn", parameters={**values, **words})
    context = rclpy.Context()
    rclpy.init(args=spec.command(), context=context, domain_id=ros_domain_id)
    try:
        node = rclpy.create_node(
            "other",
            context=context,
            automatically_declare_parameters_from_overrides=True,
            start_parameter_services=False,
        )
        try:
            assert node.get_fully_qualified_name() == f"/left/{spec.ros_name}"
            for name, value in (values | words).items():
                found = node.get_parameter(name).value
                assert (type(found), found) == (type(value), value)
            assert node.get_parameter("image_topics").value == ["camera/image_raw"]
        finally:
            node.destroy_node()
    finally:
        rclpy.shutdown(context=context)


# Run, where ROS 2's launch is installed

PROGRAM = """#!/usr/bin/env python3
import json, os, sys, time
from pathlib import Path

here = Path(__file__)
partial = here.parents[2] / (here.name + ".partial")
partial.write_text(json.dumps(sys.argv[1:]))
partial.rename(partial.with_suffix(".json"))
# the policy node's end is the cell's end: all others must have been called by then
end_s = time.monotonic() + 20.0
while not all((here.parents[2] / name).exists() for name in os.environ["ALL_CALLED"].split()):
    if time.monotonic() > end_s:
        sys.exit("the others were not started")
    time.sleep(0.02)
"""
RUNNER = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

path, *arguments = sys.argv[1:]
source = PythonLaunchDescriptionSource(path)
include = IncludeLaunchDescription(source, launch_arguments=[a.split(":=", 1) for a in arguments])
service = LaunchService()
service.include_launch_description(LaunchDescription([include]))
sys.exit(service.run())
"""


def run_launch_file(
    name: str, arguments: dict[str, str], called: set[str], tmp_path: Path
) -> dict[str, list[str]]:
    """How the programs were called, when the launch file is run with stand-ins for them."""
    pytest.importorskip("launch_ros")
    prefix = tmp_path / "prefix"
    marker = prefix / "share" / "ament_index" / "resource_index" / "packages" / "sdnpu_policy"
    marker.parent.mkdir(parents=True)
    marker.touch()
    programs = prefix / "lib" / "sdnpu_policy"
    programs.mkdir(parents=True)
    for executable in ("policy_node", "cell_node", "ur_controller"):
        (programs / executable).write_text(PROGRAM, encoding="utf-8")
        (programs / executable).chmod(0o755)
    prefixes = [str(prefix), os.environ.get("AMENT_PREFIX_PATH", sys.prefix)]
    python_path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    subprocess.run(
        [sys.executable, "-c", RUNNER, str(LAUNCH / name), *(f"{k}:={v}" for k, v in arguments.items())],
        env={
            **os.environ,
            "AMENT_PREFIX_PATH": os.pathsep.join(prefixes),
            "PYTHONPATH": os.pathsep.join(python_path),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "ROS_LOG_DIR": str(tmp_path / "log"),
            "TMPDIR": str(tmp_path),
            "ALL_CALLED": " ".join(f"{executable}.json" for executable in called),
        },
        check=True,
        timeout=60,
    )
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in prefix.glob("*.json")}


def test_the_policy_launch_file_starts_the_policy_node_as_described(tmp_path: Path, ros_domain_id: int) -> None:
    arguments = {
        "namespace": "left",
        "use_sim_time": "true",
        "params_file": str(ROOT / "config" / "ur5e.yaml"),
        "autostart": "false",
        "log_level": "debug",
        "robot_ip": "192.168.1.20",
        "tf_prefix": "left_",
        "policy": "1234",
        "output": "pose_topic",
    }
    called = run_launch_file("policy.launch.py", arguments, {"policy_node"}, tmp_path)
    spec = policy_process(
        namespace="left",
        params_file=arguments["params_file"],
        log_level="debug",
        parameters={
            "use_sim_time": True,
            "robot_ip": "192.168.1.20",
            "tf_prefix": "left_",
            "policy": "1234",
            "output": "pose_topic",
        },
    )
    assert set(called) == {"policy_node"}
    assert read_command(called["policy_node"], own_file=str(tmp_path)) == read_spec(spec)


def test_the_cell_launch_file_starts_the_mock_hardware_as_the_demo_does(
    tmp_path: Path, ros_domain_id: int
) -> None:
    called = run_launch_file(
        "cell.launch.py",
        {"use_mock_hardware": "true", "autostart": "false", "namespace": "left"},
        {"policy_node", "cell_node", "ur_controller"},
        tmp_path,
    )
    robot_ip = "127.0.0.1"
    specs = (
        policy_process(
            namespace="left", log_level="info", parameters={"use_sim_time": False, "robot_ip": robot_ip}
        ),
        *mock_hardware(robot_ip=robot_ip, namespace="left", log_level="info"),
    )
    assert set(called) == {spec.executable for spec in specs}
    for spec in specs:
        assert read_command(called[spec.executable], own_file=str(tmp_path)) == read_spec(spec)


def test_without_mock_hardware_the_robots_address_is_left_to_the_parameter_files(
    tmp_path: Path, ros_domain_id: int
) -> None:
    called = run_launch_file("cell.launch.py", {"autostart": "false"}, {"policy_node"}, tmp_path)
    assert set(called) == {"policy_node"}
    assert "robot_ip" not in read_command(called["policy_node"], own_file=str(tmp_path)).parameters
