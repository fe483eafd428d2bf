"""The package as colcon, pip and rosdep see it: what a wheel holds, and that its descriptions agree."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import sdnpu_policy

ROOT = Path(__file__).resolve().parents[1]
NAME = "sdnpu_policy"
SOURCES = ("setup.py", "setup.cfg", "pyproject.toml", "package.xml", "README.md", "LICENSE")
DIRECTORIES = (NAME, "resource", "launch", "config", "models")
EXECUTABLES = {"policy_node", "cell_node", "ur_controller"}
# rosdep's names that are not the name of the module that is imported
MODULE_OF_KEY = {"python3-opencv": "cv2", "python3-yaml": "yaml"}


def setup_arguments() -> dict[str, object]:
    """The literal arguments of setup() in setup.py."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (call,) = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "setup")
    found = {}
    for keyword in call.keywords:
        try:
            found[keyword.arg or ""] = ast.literal_eval(keyword.value)
        except ValueError:
            continue
    return found


def imports_of(directory: Path) -> set[str]:
    """The top-level names that the modules below a directory import."""
    names = set()
    for path in directory.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names


@pytest.fixture(scope="module")
def package_xml() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "package.xml").getroot()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built without a network from a copy of the sources."""
    pytest.importorskip("setuptools", minversion="70.1")  # from there on it needs no `wheel` package
    source = tmp_path_factory.mktemp("source")
    target = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        shutil.copy2(ROOT / name, source / name)
    for name in DIRECTORIES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    built = subprocess.run(
        [sys.executable, "-c", f"import setuptools.build_meta as b; b.build_wheel({str(target)!r})"],
        cwd=source,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def data_of(wheel: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files that go below the prefix, by their path there."""
    start = f"{NAME}-{sdnpu_policy.__version__}.data/data/"
    return {i.filename.removeprefix(start): i for i in wheel.infolist() if i.filename.startswith(start)}


def test_the_wheel_holds_what_ros_2_looks_for(wheel: zipfile.ZipFile) -> None:
    data = data_of(wheel)
    assert f"share/ament_index/resource_index/packages/{NAME}" in data
    assert f"share/{NAME}/package.xml" in data
    for name in ("policy.launch.py", "cell.launch.py"):
        assert f"share/{NAME}/launch/{name}" in data


def test_every_shipped_file_of_the_source_tree_is_in_the_wheel_unchanged(wheel: zipfile.ZipFile) -> None:
    data = data_of(wheel)
    shipped = [
        path
        for directory in ("launch", "config", "models/reference")
        for path in (ROOT / directory).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert shipped
    for path in shipped:
        relative = f"share/{NAME}/{path.relative_to(ROOT).as_posix()}"
        assert relative in data, f"{relative} is not installed: see data_files in setup.py"
        assert wheel.read(data[relative]) == path.read_bytes()


def test_launch_ros_finds_executables_that_are_executable(wheel: zipfile.ZipFile) -> None:
    data = data_of(wheel)
    directory = f"lib/{NAME}/"
    assert {name.removeprefix(directory) for name in data if name.startswith(directory)} == EXECUTABLES
    for name in EXECUTABLES:
        info = data[directory + name]
        mode = info.external_attr >> 16
        assert mode & stat.S_IXUSR and mode & stat.S_IXOTH
        assert wheel.read(info).startswith(b"#!/usr/bin/env python3\n")


def test_the_wheel_holds_every_module_and_says_it_is_typed(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert f"{NAME}/py.typed" in names
    assert {p.relative_to(ROOT).as_posix() for p in (ROOT / NAME).rglob("*.py")} <= names
    # a directory without __init__.py would be left out without a word
    assert not [name for name in names if name.startswith(("test/", "training/", "benchmarks/"))]


def test_every_console_script_names_a_module_with_that_function(wheel: zipfile.ZipFile) -> None:
    entries = configparser.ConfigParser(delimiters=("=",))
    entries.read_string(wheel.read(f"{NAME}-{sdnpu_policy.__version__}.dist-info/entry_points.txt").decode())
    scripts = dict(entries["console_scripts"])
    assert set(scripts) >= EXECUTABLES | {"sdnpu"}
    for script, target in scripts.items():
        module, _, function = target.partition(":")
        path = ROOT / (module.replace(".", "/") + ".py")
        assert path.is_file(), f"{script} names {module}, which is not there"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        assert function in defined, f"{script} names {target}, which is not defined"


def test_one_version_everywhere(wheel: zipfile.ZipFile, package_xml: ElementTree.Element) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", sdnpu_policy.__version__)
    assert package_xml.findtext("version") == sdnpu_policy.__version__
    assert setup_arguments()["version"] == sdnpu_policy.__version__
    assert f"-{sdnpu_policy.__version__}-" in Path(str(wheel.filename)).name


def test_the_package_manifest_is_format_3_of_an_ament_python_package(package_xml: ElementTree.Element) -> None:
    assert package_xml.tag == "package"
    assert package_xml.get("format") == "3"
    assert package_xml.findtext("name") == NAME
    assert package_xml.findtext("export/build_type") == "ament_python"
    assert package_xml.findtext("license") == setup_arguments()["license"] == "Apache-2.0"
    assert (ROOT / (package_xml.find("license").get("file") or "")).is_file()
    for element in ("description", "maintainer"):
        assert (package_xml.findtext(element) or "").strip()


def test_the_changelog_is_one_that_catkin_tools_can_read() -> None:
    lines = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8").splitlines()
    title = f"Changelog for package {NAME}"
    assert title in lines
    under = lines[lines.index(title) + 1]
    assert set(under) == {"^"}
    assert len(under) >= len(title)
    heads = [a for a, b in pairwise(lines) if b and set(b) == {"-"} and len(b) >= len(a)]
    assert heads
    for head in heads:
        assert re.fullmatch(r"Forthcoming|\d+\.\d+\.\d+ \(\d{4}-\d{2}-\d{2}\)", head)


def test_rosdep_is_told_each_ros_package_that_is_imported_and_no_other(package_xml: ElementTree.Element) -> None:
    keys = {element.text or "" for element in package_xml.iter("exec_depend")}
    assert all(re.fullmatch(r"[a-z][a-z0-9_-]*", key) for key in keys)
    of_ros = re.compile(r"rclpy|rcl_interfaces|launch\w*|\w+_(msgs|srvs|interfaces)")
    imported = imports_of(ROOT / NAME) | imports_of(ROOT / "launch")
    needed = {name for name in imported if of_ros.fullmatch(name)}
    told = {key for key in keys if of_ros.fullmatch(key)}
    assert needed <= told
    assert told - needed <= {"ros2launch", "launch"}


def test_rosdep_is_told_each_library_it_knows_and_the_comment_names_those_it_does_not(
    package_xml: ElementTree.Element,
) -> None:
    keys = {element.text or "" for element in package_xml.iter("exec_depend")}
    imported = imports_of(ROOT / NAME)
    for key in (key for key in keys if key.startswith("python3-")):
        module = MODULE_OF_KEY.get(key, key.removeprefix("python3-"))
        assert module in imported, f"package.xml depends on {key}, which nothing imports"
    comment = (ROOT / "package.xml").read_text(encoding="utf-8")
    for requirement in setup_arguments()["install_requires"]:
        name = re.split(r"[<>=!;\[ ]", requirement)[0].removesuffix("-python-headless")
        known = {key.removeprefix("python3-") for key in keys} | {"opencv", "pyyaml"}
        assert name in known or name in comment, f"package.xml says nothing of {requirement}"


def test_every_dependency_has_a_lower_bound_or_comes_with_the_ros_distribution() -> None:
    arguments = setup_arguments()
    requirements = [*arguments["install_requires"]]
    for extra in arguments["extras_require"].values():
        requirements += extra
    for requirement in requirements:
        name = re.split(r"[<>=!;\[ ]", requirement)[0]
        assert ">=" in requirement or name.startswith(("ros-jazzy-", "types-")), requirement


def test_ros_wheels_stay_in_an_extra() -> None:
    # on an arm64 robot, and wherever ROS 2 is installed, they would fail or be mixed with it
    assert not [r for r in setup_arguments()["install_requires"] if r.startswith("ros")]


def test_colcon_puts_scripts_where_ros2_run_looks() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert settings["develop"]["script_dir"] == settings["install"]["install_scripts"] == f"$base/lib/{NAME}"
    assert "pytest" in " ".join(setup_arguments()["extras_require"]["test"])
