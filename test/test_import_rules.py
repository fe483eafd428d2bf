"""Who may import what: the package's layers, kept by reading every import statement of every module.

Imports inside functions and under TYPE_CHECKING count as well, and so do `importlib.import_module("name")` and
`__import__("name")`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "sdnpu_policy"
LONGEST_MODULE_LINES = 400

GROUND = {"errors", "clock", "letters", "mailbox", "process", "realtime", "share"}
CORE = {"bundle", "motion", "npu", "observation", "denoise", "control", "arm"}

# A part is a module or directory directly in the package; each may import itself and what stands here.
MAY_IMPORT = {
    "__init__": set[str](),
    "__main__": {"tools"},
    **dict.fromkeys(GROUND, GROUND),
    "bundle": GROUND,
    "motion": GROUND,
    "npu": GROUND,
    "observation": GROUND | {"bundle"},
    "denoise": GROUND | {"bundle"},
    "control": GROUND | {"denoise", "motion", "npu"},
    "arm": GROUND | {"motion"},
    # On top; only the commands import ros and sim, to drive them from outside.
    "ros": GROUND | CORE,
    "sim": GROUND | CORE,
    "tools": GROUND | CORE | {"ros", "sim"},
}

# Foreign packages that only some places may import; all others are free.
ONLY_IN = {
    # ROS 2 and its messages
    "rclpy": ("ros/*", "sim/cell_node.py"),
    "*_msgs": ("ros/*", "sim/cell_node.py"),
    "*_srvs": ("ros/*", "sim/cell_node.py"),
    "*_interfaces": ("ros/*", "sim/cell_node.py"),
    "launch*": (),
    # ur_rtde, which takes its process along when the robot drops the connection
    "rtde_*": ("arm/ur.py",),
    "dashboard_client": ("arm/ur.py",),
    # runtimes
    "onnxruntime*": ("npu/*",),
    "openvino": ("npu/*",),
    # training only
    "torch*": (),
    "diffusers": (),
    "lerobot": (),
}


class Import(NamedTuple):
    """One imported module name in one place."""

    file: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}"


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(package: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    return {module_name(path, package): path for path in sorted(package.rglob("*.py"))}


def imports(path: Path, package: Path) -> Iterator[Import]:
    """Every import of the module at ``path``, as absolute names; ``from a import b`` gives ``a.b``."""
    own = module_name(path, package).split(".")
    if path.name == "__init__.py":
        own.append("__init__")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = own[: len(own) - node.level] if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                yield Import(path, node.lineno, ".".join([*base, alias.name]))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
                yield Import(path, node.lineno, str(node.args[0].value))


def part_of(dotted: str) -> str:
    """The part of the package a dotted name of it belongs to."""
    return [*dotted.split("."), "__init__"][1]


def internal_offences(package: Path) -> list[str]:
    """Imports of one part by another that `MAY_IMPORT` does not allow."""
    found = []
    for name, path in modules(package).items():
        part = part_of(name)
        if part not in MAY_IMPORT:
            found.append(f"{path}:1 belongs to the unknown part {part!r}: give it a row in MAY_IMPORT")
            continue
        for each in imports(path, package):
            if each.name.split(".")[0] != package.name:
                continue
            imported = part_of(each.name)
            if imported in MAY_IMPORT and imported not in MAY_IMPORT[part] | {part, "__init__"}:
                allowed = ", ".join(sorted(MAY_IMPORT[part])) or "nothing"
                found.append(f"{each}, but {part} may import only: {allowed}")
    return found


def foreign_offences(package: Path) -> list[str]:
    """Imports of foreign packages outside the places `ONLY_IN` names."""
    found = []
    for path in modules(package).values():
        place = path.relative_to(package).as_posix()
        for each in imports(path, package):
            top = each.name.split(".")[0]
            for pattern, places in ONLY_IN.items():
                if fnmatchcase(top, pattern) and not any(fnmatchcase(place, allowed) for allowed in places):
                    found.append(f"{each}, which is for {' and '.join(places) or 'no module of the package'} only")
    return found


def cycles(package: Path) -> list[str]:
    """Circles of modules that import each other, each told once with the lines that close it."""
    known = modules(package)
    edges: dict[str, dict[str, Import]] = {name: {} for name in known}
    for name, path in known.items():
        for each in imports(path, package):
            # `from a import b`: the module a.b where there is one, else something inside a
            target = each.name if each.name in known else each.name.rpartition(".")[0]
            if target in known and target != name:
                edges[name].setdefault(target, each)
    found: list[str] = []
    finished: set[str] = set()

    def walk(name: str, trail: list[str]) -> None:
        if name in trail:
            circle = [*trail[trail.index(name) :], name]
            found.append("; ".join(str(edges[a][b]) for a, b in pairwise(circle)))
        elif name not in finished:
            for target in edges[name]:
                walk(target, [*trail, name])
            finished.add(name)

    for name in edges:
        walk(name, [])
    return found


def shape_offences(package: Path) -> list[str]:
    """Modules without a docstring or with too many lines."""
    found = []
    for path in modules(package).values():
        text = path.read_text(encoding="utf-8")
        if not ast.get_docstring(ast.parse(text)):
            found.append(f"{path}:1 has no docstring that says what the module is for")
        lines = text.count("\n")
        if lines > LONGEST_MODULE_LINES:
            found.append(f"{path}:{lines} is longer than {LONGEST_MODULE_LINES} lines: split it")
    return found


# --- the package


def test_each_part_imports_only_the_parts_below_it() -> None:
    assert not (found := internal_offences(PACKAGE)), "\n" + "\n".join(found)


def test_ros_rtde_and_runtimes_stay_in_their_places() -> None:
    assert not (found := foreign_offences(PACKAGE)), "\n" + "\n".join(found)


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not (found := cycles(PACKAGE)), "\n" + "\n".join(found)


def test_each_module_says_what_it_is_for_and_is_short() -> None:
    assert not (found := shape_offences(PACKAGE)), "\n" + "\n".join(found)


def test_every_part_named_in_the_rules_exists() -> None:
    parts = {part_of(name) for name in modules(PACKAGE)}
    assert set(MAY_IMPORT) - {"__main__"} <= parts


# --- the checker itself, on made-up trees


def tree(directory: Path, files: dict[str, str]) -> Path:
    package = directory / "sdnpu_policy"
    for place, text in {"__init__.py": "", **files}.items():
        path = package / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    ("place", "text", "line"),
    [
        ("clock.py", "from sdnpu_policy import motion", 1),
        ("clock.py", "from . import motion", 1),
        ("errors.py", "\nfrom .motion.pose import slerp", 2),
        ("motion/pose.py", "from ..npu import stepper", 1),
        ("motion/__init__.py", "from ..npu import stepper", 1),
        ("motion/pose.py", "import sdnpu_policy.npu.stepper as s", 1),
        ("motion/pose.py", "def f():\n    import sdnpu_policy.bundle", 2),
        (
            "arm/ur.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..control.loop import Loop",
            3,
        ),
        ("control/loop.py", "import importlib\nimportlib.import_module('sdnpu_policy.ros.policy_node')", 2),
        ("sim/cell_node.py", "from ..ros import messages", 1),
        ("ros/policy_node.py", "from sdnpu_policy.sim.cell import Cell", 1),
    ],
)
def test_an_import_against_the_layers_is_found_with_its_line(
    tmp_path: Path, place: str, text: str, line: int
) -> None:
    package = tree(tmp_path, {place: text})
    (offence,) = internal_offences(package)
    assert offence.startswith(f"{package / place}:{line} imports sdnpu_policy.")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("control/loop.py", "import rclpy"),
        ("tools/replay.py", "from sensor_msgs.msg import Image"),
        ("sim/cell.py", "from rclpy.node import Node"),
        ("observation/image.py", "def f():\n    from std_srvs.srv import Trigger"),
        ("arm/streamer.py", "import rtde_control"),
        ("sim/ur_controller.py", "from dashboard_client import DashboardClient"),
        ("tools/quantize.py", "from onnxruntime.quantization import quantize_static"),
        ("denoise/sampler.py", "__import__('torch')"),
        ("tools/importer.py", "import torchvision.models"),
    ],
)
def test_a_foreign_package_out_of_place_is_found(tmp_path: Path, place: str, text: str) -> None:
    package = tree(tmp_path, {place: text})
    (offence,) = foreign_offences(package)
    assert offence.startswith(f"{package / place}:{text.count(chr(10)) + 1} imports ")


def test_what_the_rules_allow_is_not_reported(tmp_path: Path) -> None:
    package = tree(
        tmp_path,
        {
            "__main__.py": '"""Entry."""\nfrom sdnpu_policy.tools.cli import main\n',
            "motion/plan.py": '"""Plan."""\nfrom ..clock import MS\nfrom .pose import slerp\n',
            "motion/pose.py": '"""Pose."""\nimport numpy as np\n',
            "npu/providers.py": '"""Providers."""\nimport onnxruntime_qnn, openvino\n',
            "sim/cell_node.py": '"""Camera."""\nimport rclpy\nfrom sensor_msgs.msg import Image\n',
            "arm/ur.py": '"""Robot."""\nimport rtde_control\nfrom sdnpu_policy import __version__\n',
            "ros/policy_node.py": '"""Node."""\nfrom ..control import loop\nfrom ..arm import ur\n',
            "__init__.py": '"""Package."""\n__version__ = "0"\n',
        },
    )
    assert internal_offences(package) == foreign_offences(package) == cycles(package) == []
    assert shape_offences(package) == []


def test_a_part_without_a_rule_is_reported(tmp_path: Path) -> None:
    (offence,) = internal_offences(tree(tmp_path, {"utils.py": ""}))
    assert "utils.py:1 belongs to the unknown part 'utils'" in offence


def test_a_circle_is_reported_with_every_line_of_it(tmp_path: Path) -> None:
    package = tree(
        tmp_path,
        {
            "motion/pose.py": "\nfrom .plan import Plan",
            "motion/plan.py": "def f():\n    from . import envelope",
            "motion/envelope.py": "import sdnpu_policy.motion.pose",
        },
    )
    (circle,) = cycles(package)
    for line in ("pose.py:2 imports", "plan.py:2 imports", "envelope.py:1 imports"):
        assert line in circle


def test_a_module_without_docstring_or_too_long_is_reported(tmp_path: Path) -> None:
    package = tree(
        tmp_path, {"__init__.py": '"""Said."""', "clock.py": "x = 1", "errors.py": '"""Said."""' + "\n" * 401}
    )
    assert [offence.split(" ", 1)[1][:10] for offence in shape_offences(package)] == ["has no doc", "is longer "]
