"""The parts of /diagnostics, each a row of name, level, message and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnostic_msgs.msg import DiagnosticStatus

from sdnpu_policy.letters import ArmStatus
from sdnpu_policy.motion.envelope import Reason
from sdnpu_policy.npu.providers import describe
from sdnpu_policy.ros.diagnostics import LEVELS
from sdnpu_policy.ros.links import text_of

if TYPE_CHECKING:
    from sdnpu_policy.ros.runtime import Runtime

Part = tuple[str, bytes, str, dict[str, Any]]
OK, WARN, ERROR, STALE = (
    DiagnosticStatus.OK,
    DiagnosticStatus.WARN,
    DiagnosticStatus.ERROR,
    DiagnosticStatus.STALE,
)


def parts(runtime: Runtime, active: bool) -> list[Part]:
    """All parts, of a configured node."""
    return [_ladder(runtime, active), _steps(runtime), _images(runtime, active), _robot(runtime, active)]


def _ladder(runtime: Runtime, active: bool) -> Part:
    if not active:
        return "ladder", STALE, "configured, not active", {}
    loop = runtime.loop
    values: dict[str, Any] = dict(runtime.state_values())
    values |= {
        "plan_age_ms": loop.plan.age_ms(runtime.now_ns()),
        "refused_chunks": loop.refused_chunks,
        "last_refused_chunk": loop.last_stitch,
        "skipped_ticks": runtime.skipped_ticks,
        "realtime": runtime.realtime,
    }
    values |= {f"envelope.{reason.name.lower()}": int(loop.envelope.counts[reason]) for reason in Reason}
    return "ladder", LEVELS[loop.ladder.state], runtime.state_text(), values


def _steps(runtime: Runtime) -> Part:
    statistics = runtime.step_statistics()
    placement = runtime.session.placement
    late = runtime.denoiser.late_steps
    values = {
        "provider": placement.provider,
        "device": placement.device,
        "simulated": placement.simulated,
        "nodes": placement.total_nodes,
        "nodes_elsewhere": len(placement.elsewhere),
        "precision": runtime.bundle.manifest.denoiser.precision,
        "golden_snr_db": runtime.golden_snr_db if runtime.golden_snr_db is not None else "not checked",
        "deadline_ms": runtime.values["step_deadline_ms"],
        "steps": runtime.denoiser.steps,
        "late_steps": late,
        "p50_ms": statistics.p50_ms,
        "p99_ms": statistics.p99_ms,
        "max_ms": statistics.max_ms,
        "temperature": "not available",
        "clock": "not available",
    }
    over = statistics.count > 0 and statistics.p99_ms > runtime.values["step_deadline_ms"]
    message = f"p99 {statistics.p99_ms:.2f} ms is over the deadline" if over else describe(runtime.session)
    return "denoiser", WARN if over or late else OK, message, values


def _images(runtime: Runtime, active: bool) -> Part:
    status = runtime.perception_status
    if not runtime.perception_alive:
        return "images", ERROR, "the perception process is not running: call ~/reset", {}
    if status is None:
        return "images", STALE, "no word from perception yet", {}
    values = {name: status[name].item() for name in status.dtype.names if name not in ("detail", "ready", "fatal")}
    detail = text_of(status["detail"])
    if active and not status["image_age_ms"] <= runtime.values["condition_max_age_ms"]:
        topics = ", ".join(runtime.values["image_topics"])
        return "images", ERROR, detail or f"no fresh image on {topics}", values
    if status["rejected"] or status["frozen"]:
        return "images", WARN, detail or "images were rejected", values
    return "images", OK, f"{status['image_rate_hz']:.1f} Hz", values


def _robot(runtime: Runtime, active: bool) -> Part:
    arm = runtime.arm
    if runtime.values["output"] != "rtde":
        robot = runtime.external_robot
        text = "poses come from ~/robot_pose" if robot is not None else "no pose on ~/robot_pose yet"
        return "robot", OK if robot is not None else STALE, text, {}
    last = arm.last if arm is not None else None
    if arm is None or last is None:
        return "robot", STALE, "not connected" if not active else "no word from the arm process yet", {}
    state = last.value
    status = ArmStatus(int(state["status"]))
    values = {
        "status": status.name,
        "robot_ip": runtime.values["robot_ip"],
        "controller_time_s": float(state["controller_time_s"]),
        "safety_bits": int(state["safety_bits"]),
        "robot_mode": int(state["robot_mode"]),
        "runtime_state": int(state["runtime_state"]),
        "speed_scaling": float(state["speed_scaling"]),
        "cycles": int(state["cycles"]),
        "late_cycles": int(state["late_cycles"]),
        "refused_targets": int(state["refused_targets"]),
    }
    if not arm.child.alive or status == ArmStatus.FAULT:
        return "robot", ERROR, arm.fault_text(), values
    return "robot", OK, f"connected to {runtime.values['robot_ip']}, {status.name}", values
