"""How long the arm takes to stand when a process is killed while it moves, by the simulated controller's record.

python benchmarks/kill.py [REPEATS]
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from sdnpu_policy.ros.parameters import PARAMETERS
from sdnpu_policy.sim.cell import make_scene
from sdnpu_policy.sim.ur_record import load_record, motion_extremes
from sdnpu_policy.tools.demo_cell import CellOptions, DemoCell

LIMITS_S = {"perception": 0.6, "control": 0.2, "arm": 0.3}
MODULES = {"perception": "sdnpu_policy.ros.perception_node", "arm": "sdnpu_policy.arm.ur"}
STANDS_M_S = 0.002


def kill_once(victim: str, scene: int) -> tuple[float, float, float]:
    """Seconds from the kill to standing; largest speed (m/s) and acceleration (m/s^2) of the whole run."""
    with tempfile.TemporaryDirectory() as directory:
        with DemoCell(CellOptions(log_directory=Path(directory))) as cell:
            cell.bring_up()
            cell.set_up(make_scene(0, scene))
            cell.resume()
            while np.linalg.norm(cell.controller.state()["speed"][:3]) < 0.15:
                cell.remote.spin(0.01)
            node = psutil.Process(cell.children["policy_node"].pid)
            target = node
            if victim != "control":
                target = next(c for c in node.children() if MODULES[victim] in " ".join(c.cmdline()))
            killed_ns = time.monotonic_ns()
            os.kill(target.pid, signal.SIGKILL)
            cell.remote.spin(1.5)
            cell.controller.save_record(Path(directory) / "record.npz")
            record = load_record(Path(directory) / "record.npz")
        t_s, speed = record.speed()
        after = record.steady_ns[-len(t_s) :] >= killed_ns
        moving = np.flatnonzero(after & (speed > STANDS_M_S))
        standing_s = (record.steady_ns[-len(t_s) :][moving[-1]] - killed_ns) / 1e9 if len(moving) else 0.0
        extremes = motion_extremes(record.t_s, record.poses, record.placed)
        return standing_s, extremes.max_speed_m_s, extremes.max_acceleration_m_s2


def main() -> int:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    holds = True
    speed_limit = float(str(PARAMETERS["arm_max_speed_m_s"].default))
    acceleration_limit = float(str(PARAMETERS["arm_max_acceleration_m_s2"].default))
    for victim, limit_s in LIMITS_S.items():
        runs = np.array([kill_once(victim, scene) for scene in range(repeats)])
        worst = runs.max(axis=0)
        good = worst[0] <= limit_s and worst[1] <= speed_limit and worst[2] <= acceleration_limit
        holds &= bool(good)
        print(f"{victim}: stands after {np.round(runs[:, 0], 3).tolist()} s, limit {limit_s} s;", end=" ")
        print(f"at most {worst[1]:.3f} m/s and {worst[2]:.2f} m/s^2,", end=" ")
        print(f"limits {speed_limit:g} and {acceleration_limit:g}: {'holds' if good else 'BROKEN'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
