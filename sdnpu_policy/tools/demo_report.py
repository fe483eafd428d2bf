"""What a demo came to: summary.json and report.html, from the node's tick log and the controller's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.ros.parameters import PARAMETERS
from sdnpu_policy.ros.remote import StateChange
from sdnpu_policy.sim.cell import Outcome, Scene, Verdict, project, render
from sdnpu_policy.sim.ur_record import Record, load_record, motion_extremes
from sdnpu_policy.tools.pictures import ladder_over_time, path_over_scene, speed_over_time, step_times, strip
from sdnpu_policy.tools.report import Picture, write_report
from sdnpu_policy.tools.summary import quantiles, step_figures, tick_figures, write_summary

FRAMES = 6
_READY = "the arm was released and put at the start of each episode; that is left out of speeds and accelerations"


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode and what came of it."""

    scene: Scene
    verdict: Verdict
    start_t_s: float
    end_t_s: float
    """Controller's time, for the record."""


def conclude(
    out: Path,
    episodes: Sequence[Episode],
    *,
    placement: Mapping[str, str],
    changes: Sequence[StateChange],
    settings: Mapping[str, Any],
    wall_s: float,
) -> dict[str, Any]:
    """Write summary.json and report.html into ``out`` and return the summary.

    Raises:
        SdnpuError: the node left no tick log, so there is nothing to report.
    """
    log = out / "ticks.npz"
    if not log.is_file():
        raise SdnpuError(f"{log} was not written: the policy node ended before it could; its log says why")
    with np.load(log) as file:
        ticks, step_ms = file["ticks"], file["step_ms"]
    record = load_record(out / "record.npz")
    deadline_ms = float(settings.get("step_deadline_ms", PARAMETERS["step_deadline_ms"].default))
    summary = _summary(episodes, ticks, step_ms, record, placement, settings, deadline_ms)
    summary["wall_s"] = round(wall_s, 1)
    write_summary(out / "summary.json", summary)
    pictures = _pictures(episodes, ticks, step_ms, record, deadline_ms, summary)
    for name, picture in pictures.items():
        (out / f"{name}.png").write_bytes(picture.png)
    write_report(
        out / "report.html",
        title="Closed loop on a simulated cell",
        verdict=summary["verdict"],
        good=summary["stops"] == 0 and not summary["placement_simulated"],
        figures={name: value for name, value in summary.items() if name != "verdict"},
        pictures=list(pictures.values()),
        rows=[_row(number, episode) for number, episode in enumerate(episodes)],
        rows_title="Episodes",
        notes=[
            _READY,
            *_notes(summary),
            *(f"{change.state}: {change.message}" for change in _worth_telling(changes)),
        ],
    )
    return summary


def _summary(
    episodes: Sequence[Episode],
    ticks: NDArray[np.void],
    step_ms: NDArray[np.float32],
    record: Record,
    placement: Mapping[str, str],
    settings: Mapping[str, Any],
    deadline_ms: float,
) -> dict[str, Any]:
    verdicts = [episode.verdict for episode in episodes]
    good = sum(verdict.success for verdict in verdicts)
    extremes = motion_extremes(record.t_s, record.poses, record.placed)
    placed = np.array([verdict.xy_mm for verdict in verdicts if verdict.outcome is Outcome.PLACED])
    limits = {
        "speed_m_s": float(settings.get("arm_max_speed_m_s", PARAMETERS["arm_max_speed_m_s"].default)),
        "accel_m_s2": float(
            settings.get("arm_max_acceleration_m_s2", PARAMETERS["arm_max_acceleration_m_s2"].default)
        ),
    }
    figures = tick_figures(ticks, deadline_ms)
    simulated = placement.get("simulated") == "true"
    nodes, elsewhere = placement.get("nodes", "?"), placement.get("nodes_elsewhere", "?")
    return {
        "verdict": _verdict(good, len(verdicts), figures["stops"], simulated),
        "episodes": len(verdicts),
        "success_rate": round(good / len(verdicts), 4) if verdicts else None,
        "final_error_mm": quantiles(placed, {"p50": 0.5, "p90": 0.9}, digits=2),
        "outcomes": {str(outcome): sum(v.outcome is outcome for v in verdicts) for outcome in Outcome},
        "duration_s": quantiles(np.array([v.duration_s for v in verdicts]), {"p50": 0.5, "max": 1.0}, digits=2),
        "provider": placement.get("provider", str(settings.get("provider", ""))),
        "placement": f"{placement.get('device', '?')}, {nodes} nodes, {elsewhere} elsewhere",
        "placement_simulated": simulated,
        "precision": placement.get("precision", "?"),
        "golden_snr_db": placement.get("golden_snr_db", "?"),
        "steps": len(step_ms),
        "step_ms": step_figures(step_ms),
        **figures,
        "max_speed_m_s": round(extremes.max_speed_m_s, 4),
        "max_accel_m_s2": round(extremes.max_acceleration_m_s2, 3),
        "limits": limits,
        "late_injected": {
            "probability": float(settings.get("late_probability", 0.0)),
            "ms": float(settings.get("late_ms", 0.0)),
        },
        "on_late": settings.get("on_late", "coast"),
        "seed": settings.get("seed", 0),
    }


def _verdict(good: int, total: int, stops: int, simulated: bool) -> str:
    stopped = "it never stopped" if not stops else f"it stopped {stops} times"
    if simulated:
        return (
            f"{good} of {total} episodes placed. The U-Net ran on the NPU's functional simulator, whose steps take "
            "seconds: every step is late and the arm is held still. Its times say nothing about a device."
        )
    return f"{good} of {total} episodes placed within 5 mm and 5 degrees; {stopped}."


def _notes(summary: Mapping[str, Any]) -> list[str]:
    notes = []
    if summary["late_injected"]["probability"]:
        notes.append(
            f"Steps were made late on purpose: {summary['late_injected']['ms']:g} ms with probability "
            f"{summary['late_injected']['probability']:g}; on a late step: {summary['on_late']}."
        )
    return notes


def _worth_telling(changes: Sequence[StateChange]) -> list[StateChange]:
    stops = [change for change in changes if change.state == "STOPPED"]
    return stops[:10]


def _row(number: int, episode: Episode) -> dict[str, Any]:
    verdict = episode.verdict
    return {
        "episode": number,
        "outcome": str(verdict.outcome),
        "within 5 mm": verdict.success,
        "xy (mm)": round(verdict.xy_mm, 2),
        "z (mm)": round(verdict.z_mm, 2),
        "yaw (deg)": round(verdict.yaw_deg, 2),
        "duration (s)": round(verdict.duration_s, 2),
    }


def _pictures(
    episodes: Sequence[Episode],
    ticks: NDArray[np.void],
    step_ms: NDArray[np.float32],
    record: Record,
    deadline_ms: float,
    summary: Mapping[str, Any],
) -> dict[str, Picture]:
    pictures: dict[str, Picture] = {}
    if episodes:
        shown = max(episodes, key=lambda episode: episode.verdict.success)
        poses = _poses_of(shown, record)
        pictures["frames"] = _frames(shown.scene, poses, shown)
        pictures["path"] = Picture(
            "Tool path over the scene",
            path_over_scene(_frame(shown.scene, poses[-1]), [project(poses[:, :3])], ["tool, as executed"]),
            "Where the tool went, as the simulated controller recorded it, over the last camera image.",
            "Camera image of the cell with the executed tool path drawn from the start pose to the weld spot.",
        )
    if len(step_ms):
        step = summary["step_ms"]
        pictures["steps"] = Picture(
            "Step times",
            step_times(step_ms, deadline_ms),
            f"Each denoising step against the deadline of {deadline_ms:g} ms.",
            f"Step times: median {step['p50']} ms, 99th percentile {step['p99']} ms, largest {step['max']} ms.",
        )
    if len(ticks):
        seconds = ", ".join(f"{state} {value:.1f} s" for state, value in summary["ladder"].items())
        pictures["ladder"] = Picture(
            "Ladder over time",
            ladder_over_time(ticks),
            "The ladder's state in every tick, and how old the image behind the plan was. "
            "HOLD is where the arm waits between episodes.",
            f"Time in each state: {seconds}.",
        )
    t_s, speed_m_s = record.speed()
    if len(t_s):
        pictures["speed"] = Picture(
            "Tool speed, as executed",
            speed_over_time(t_s, speed_m_s, summary["limits"]["speed_m_s"]),
            "From the simulated controller's record.",
            f"The largest tool speed was {summary['max_speed_m_s']} m/s, the largest acceleration "
            f"{summary['max_accel_m_s2']} m/s^2.",
        )
    return pictures


def _poses_of(episode: Episode, record: Record) -> NDArray[np.float64]:
    inside = (record.t_s >= episode.start_t_s) & (record.t_s <= episode.end_t_s)
    return record.poses[inside] if inside.any() else episode.scene.start_pose[None]


def _frame(scene: Scene, pose: NDArray[np.float64]) -> NDArray[np.uint8]:
    return render(scene, pose, np.random.default_rng(0))


def _frames(scene: Scene, poses: NDArray[np.float64], episode: Episode) -> Picture:
    picks = np.linspace(0, len(poses) - 1, FRAMES).astype(int)
    seconds = picks / max(len(poses) - 1, 1) * episode.verdict.duration_s
    png = strip([_frame(scene, poses[i]) for i in picks], [f"{s:.1f} s" for s in seconds])
    return Picture(
        "One episode",
        png,
        f"What the camera saw: {episode.verdict.outcome}, {episode.verdict.xy_mm:.1f} mm from the weld spot.",
        f"{FRAMES} camera images of one episode, from the start pose to the end.",
    )
