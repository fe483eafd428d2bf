"""Builds the package with colcon (ament_python) on a ROS 2 machine and with pip on a bare one."""

from pathlib import Path

from setuptools import find_packages, setup

NAME = "sdnpu_policy"
HERE = Path(__file__).parent
SHARE = f"share/{NAME}"


def files_of(*patterns: str) -> list[str]:
    """Files of the source tree that match, relative to it."""
    return sorted(str(p.relative_to(HERE)) for pattern in patterns for p in HERE.glob(pattern) if p.is_file())


setup(
    name=NAME,
    version="0.1.0",
    description="A quantized diffusion policy on an edge NPU, one denoising step a tick, for a UR5e",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    maintainer="sdnpu_policy maintainers",
    maintainer_email="maintainers@sdnpu-policy.example",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (SHARE, ["package.xml"]),
        (f"{SHARE}/launch", files_of("launch/*.launch.py")),
        (f"{SHARE}/config", files_of("config/*.yaml", "config/*.xml")),
        (f"{SHARE}/models/reference", files_of("models/reference/*")),
        # `ros2 run` and launch_ros look for executables here; colcon puts its own console scripts in the same
        # place, pip puts them into bin/ alone, so these small wrappers serve both.
        (f"lib/{NAME}", files_of("resource/executables/*")),
    ],
    zip_safe=False,
    python_requires=">=3.11",
    install_requires=[
        "numpy>=1.26",  # 1.26 is Ubuntu 24.04's
        "onnxruntime>=1.23",  # the CPU provider, and the host of the QNN plug-in
        "opencv-python-headless>=4.8",  # headless: the other build needs libGL
        "pydantic>=2.5",  # the bundle's schema
        "pyyaml>=6.0",
        "ur-rtde>=1.6.0",
        "ruckig>=0.12",  # jerk-limited stream
        "typer>=0.12",
        "rich>=13",
    ],
    extras_require={
        # On an arm64 robot ROS 2 comes from apt instead; these wheels are x86-64 only.
        "ros": [
            "ros-jazzy-rclpy[fastrtps]>=7.1.6",
            "ros-jazzy-sensor-msgs",
            "ros-jazzy-geometry-msgs",
            "ros-jazzy-nav-msgs",
            "ros-jazzy-diagnostic-msgs",
            "ros-jazzy-std-msgs",
            "ros-jazzy-std-srvs",
        ],
        "qnn": ["onnxruntime-qnn>=2.3"],
        "openvino": ["openvino>=2025.0"],
        "sim": ["matplotlib>=3.8"],  # pictures of the demo's report
        "test": [
            "pytest>=8",
            "setuptools>=70.1",  # the tests build the package; from there on without `wheel`
            "pytest-xdist>=3.5",
            "hypothesis>=6.100",
            "ruff>=0.9",
            "mypy>=1.11",
            "transforms3d>=0.4.1",  # a second opinion on the pose algebra
            "onnx>=1.16",  # small networks made by the tests
            "psutil>=5.9",  # who lives, who died
            "ur-analytic-ik>=0.1; platform_machine == 'x86_64'",  # a second opinion on the kinematics
        ],
    },
    entry_points={
        "console_scripts": [
            "sdnpu = sdnpu_policy.tools.cli:main",
            "policy_node = sdnpu_policy.ros.policy_node:main",
            "perception_node = sdnpu_policy.ros.perception_node:main",
            "arm_process = sdnpu_policy.arm.ur:main",
            "cell_node = sdnpu_policy.sim.cell_node:main",
            "ur_controller = sdnpu_policy.sim.ur_controller:main",
        ]
    },
)
