"""The figures of a run, from its tick log and the record of what the arm did: the keys of summary.json."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import SECOND
from sdnpu_policy.control.watchdog import Cause, State


def quantiles(
    values: NDArray[np.floating[Any]], named: dict[str, float], digits: int = 3
) -> dict[str, float | None]:
    """Quantiles of the finite ``values``, by name; None where there is no value."""
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return dict.fromkeys(named)
    return {name: round(float(np.quantile(finite, q)), digits) for name, q in named.items()}


def step_figures(step_ms: NDArray[np.float32]) -> dict[str, float | None]:
    """p50, p99, p999 and max of the denoiser's steps."""
    return quantiles(step_ms, {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0})


def ladder_seconds(ticks: NDArray[np.void]) -> dict[str, float]:
    """Seconds spent in each state of the ladder; a gap in the log (an inactive node) counts for none."""
    seconds = {state.name: 0.0 for state in State}
    if len(ticks) > 1:
        spans = np.diff(ticks["start_ns"]) / SECOND
        spans[spans > 1.0] = 0.0
        for state in State:
            seconds[state.name] = round(float(spans[ticks["state"][:-1] == state].sum()), 3)
    return seconds


def stops(ticks: NDArray[np.void]) -> int:
    """How often the ladder went to STOPPED without being asked to."""
    stopped = (ticks["state"] == State.STOPPED) & (ticks["cause"] != Cause.STOP_ASKED)
    return int(np.count_nonzero(stopped[1:] & ~stopped[:-1]) + (len(stopped) > 0 and bool(stopped[0])))


def tick_figures(ticks: NDArray[np.void], deadline_ms: float) -> dict[str, Any]:
    """The part of the summary that the tick log tells."""
    return {
        "ticks": len(ticks),
        "deadline_ms": deadline_ms,
        "tick_overhead_us": quantiles(ticks["overhead_us"], {"p50": 0.5, "p99": 0.99}, digits=1),
        "wake_late_us": quantiles(ticks["wake_late_us"], {"p50": 0.5, "p99": 0.99, "max": 1.0}, digits=1),
        "late": int(ticks["newly_late"].sum()),
        "late_ticks": int(ticks["late"].sum()),
        "chunks": int(ticks["chunk"].sum()),
        "ladder": ladder_seconds(ticks),
        "stops": stops(ticks),
        "plan_age_ms": quantiles(ticks["plan_age_ms"], {"p50": 0.5, "p99": 0.99}, digits=1),
    }


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write JSON that any reader takes: numbers that are not finite become null."""
    path.write_text(json.dumps(_plain(summary), indent=2) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
