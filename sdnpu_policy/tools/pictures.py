"""The pictures of a run's report: step times, the ladder over time, what the arm did. matplotlib, no display."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import SECOND
from sdnpu_policy.control.watchdog import State

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

STATE_COLOURS = {
    State.NOMINAL: "#2a9d8f",
    State.COAST: "#e9c46a",
    State.BRAKE: "#f4a261",
    State.HOLD: "#8d99ae",
    State.STOPPED: "#d62828",
}
_INK, _LINE = "#1f2933", "#3a6ea5"


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, facecolor="white")
    plt.close(figure)
    return buffer.getvalue()


def step_times(step_ms: NDArray[np.float32], deadline_ms: float) -> bytes:
    """Every step's time in order, and how they are distributed, against the deadline. PNG."""
    figure, (line, histogram) = plt.subplots(1, 2, figsize=(10, 3.2), width_ratios=(2, 1), layout="constrained")
    line.plot(np.arange(len(step_ms)), step_ms, ".", ms=2, color=_LINE)
    line.set(xlabel="step", ylabel="time (ms)", yscale="log")
    top = max(float(step_ms.max(initial=0.0)), deadline_ms) * 1.3
    low = max(min(float(step_ms.min(initial=deadline_ms)), deadline_ms) * 0.7, 1e-2)
    line.set_ylim(low, top)
    histogram.hist(step_ms, bins=np.geomspace(low, top, 60).tolist(), color=_LINE)
    histogram.set(xlabel="time (ms)", ylabel="steps", xscale="log", yscale="log")
    line.axhline(deadline_ms, color=STATE_COLOURS[State.STOPPED], lw=1.2, label=f"deadline {deadline_ms:g} ms")
    histogram.axvline(deadline_ms, color=STATE_COLOURS[State.STOPPED], lw=1.2)
    line.legend(loc="upper right")
    return _png(figure)


def ladder_over_time(ticks: NDArray[np.void]) -> bytes:
    """The ladder's state in every tick and the age of the image behind the plan. PNG."""
    figure, (band, age) = plt.subplots(
        2, 1, figsize=(10, 3.6), sharex=True, height_ratios=(1, 1.3), layout="constrained"
    )
    t_s = (ticks["start_ns"] - ticks["start_ns"][0]) / SECOND
    # one column a pixel or so, each with its worst state: a single tick of STOPPED must be seen
    columns = min(2000, len(t_s))
    worst = np.zeros(columns, np.uint8)
    np.maximum.at(worst, np.minimum((t_s / max(t_s[-1], 1e-9) * columns).astype(int), columns - 1), ticks["state"])
    colours = ListedColormap([STATE_COLOURS[state] for state in State])
    extent = (0.0, float(t_s[-1]), 0.0, 1.0)
    band.imshow(worst[None], cmap=colours, vmin=-0.5, vmax=len(State) - 0.5, aspect="auto", extent=extent)
    band.set(yticks=[], ylabel="ladder")
    handles = [Patch(color=STATE_COLOURS[state], label=state.name) for state in State]
    band.legend(handles=handles, loc="upper center", ncols=len(State), bbox_to_anchor=(0.5, 1.35), frameon=False)
    age.plot(t_s, ticks["plan_age_ms"], lw=0.8, color=_LINE)
    age.set(xlabel="time (s)", ylabel="plan's age (ms)")
    return _png(figure)


def speed_over_time(t_s: NDArray[np.float64], speed_m_s: NDArray[np.float64], limit_m_s: float) -> bytes:
    """The executed tool speed against its limit. PNG."""
    figure, axes = plt.subplots(figsize=(10, 2.4), layout="constrained")
    axes.plot(t_s, speed_m_s, lw=0.7, color=_LINE)
    axes.axhline(limit_m_s, color=STATE_COLOURS[State.STOPPED], lw=1.2, label=f"limit {limit_m_s:g} m/s")
    axes.set(xlabel="time of the controller (s)", ylabel="tool speed (m/s)", ylim=(0, None))
    axes.legend(loc="upper right")
    return _png(figure)


def strip(frames: Sequence[NDArray[np.uint8]], captions: Sequence[str]) -> bytes:
    """Camera frames [H, W, 3] RGB side by side, each with its caption. PNG."""
    count = max(len(frames), 1)
    figure, axes = plt.subplots(1, count, figsize=(2.4 * count, 2.2), squeeze=False, layout="constrained")
    for axis, frame, caption in zip(axes[0], frames, captions, strict=True):
        axis.imshow(frame)
        axis.set_title(caption, fontsize=9, color=_INK)
    for axis in axes[0]:
        axis.axis("off")
    return _png(figure)


def path_over_scene(
    frame: NDArray[np.uint8], paths_px: Sequence[NDArray[np.float64]], labels: Sequence[str]
) -> bytes:
    """Tool paths, as pixels [N, 2], over a camera frame. PNG."""
    figure, axes = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    axes.imshow(frame)
    for path, label, colour in zip(paths_px, labels, ("#ffd166", "#06d6a0", "#ef476f"), strict=False):
        axes.plot(path[:, 0], path[:, 1], lw=1.8, color=colour, label=label)
        axes.plot(path[-1, 0], path[-1, 1], "o", ms=5, color=colour)
    axes.set(xlim=(0, frame.shape[1]), ylim=(frame.shape[0], 0))
    axes.legend(loc="lower right")
    axes.axis("off")
    return _png(figure)
