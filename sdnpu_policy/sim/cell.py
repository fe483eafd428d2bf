"""The work cell of the demo: align the tool over the weld spot of a plate, past a fixture post.

Scene, picture, expert and judge in one import; each has a module of its own.
"""

from __future__ import annotations

from sdnpu_policy.sim.cell_expert import choose_side, expert_chunk
from sdnpu_policy.sim.cell_judge import Judge, Outcome, Verdict
from sdnpu_policy.sim.cell_render import FOCAL_PX, PRINCIPAL_POINT_PX, project, render
from sdnpu_policy.sim.cell_scene import Scene, make_scene, tool_down_pose, tool_yaw

__all__ = [
    "FOCAL_PX",
    "PRINCIPAL_POINT_PX",
    "Judge",
    "Outcome",
    "Scene",
    "Verdict",
    "choose_side",
    "expert_chunk",
    "make_scene",
    "project",
    "render",
    "tool_down_pose",
    "tool_yaw",
]
