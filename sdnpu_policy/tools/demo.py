"""``sdnpu demo``: the closed loop on a simulated cell, episode after episode, with figures and a report.

It starts what cell.launch.py starts: the same executables with the same parameter files, talking over real DDS and
real sockets. Nothing here moves the arm but the policy node.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import yaml
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.latency import parse_late
from sdnpu_policy.sim.cell import Judge, Outcome, Scene, make_scene
from sdnpu_policy.tools.demo_cell import CellOptions, DemoCell
from sdnpu_policy.tools.demo_report import Episode, conclude

PROVIDERS = ("cpu", "qnn", "openvino")
ON_LATE = ("coast", "hold", "block")
EPISODE_WALL_S = 20.0
OWN_PARAMETERS = ("robot_ip", "output", "tick_log")
"""A demo never reaches a real robot."""


def demo(
    episodes: Annotated[int, typer.Option(min=1, max=10000, help="How many scenes to try.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Which scenes, and the noise of the policy.")] = 0,
    provider: Annotated[str, typer.Option(help="Where the U-Net runs: cpu, qnn or openvino.")] = "cpu",
    policy: Annotated[str, typer.Option(help="A policy bundle; 'reference' is the shipped one.")] = "reference",
    late: Annotated[str, typer.Option(help="P:MS makes a step late by MS with probability P.")] = "",
    on_late: Annotated[str, typer.Option(help="What a late step leads to: coast, hold or block.")] = "coast",
    steps_per_tick: Annotated[int, typer.Option(min=0, max=100, help="0: as many as fit the deadline.")] = 0,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="NAME=VALUE of the policy node; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where summary.json, report.html and the pictures go.")] = Path(
        "out/demo"
    ),
    view: Annotated[bool, typer.Option("--view", help="Serve a live page on loopback while it runs.")] = False,
) -> None:
    """Run the reference policy on a simulated robot cell, and print what came of it."""
    parameters = _parameters(provider, policy, late, on_late, steps_per_tick, seed, param or [])
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SdnpuError(f"--out {out} can't be a directory: {error.strerror}") from None
    parameters["tick_log"] = str((out / "ticks.npz").resolve())
    for old in ("ticks.npz", "record.npz", "summary.json", "report.html"):
        (out / old).unlink(missing_ok=True)
    console = Console(stderr=True)
    started_s = time.monotonic()
    options = CellOptions(seed=seed, log_directory=out / "log", parameters=parameters)
    with DemoCell(options) as cell:
        cell.bring_up()
        results = _run(cell, [make_scene(seed, index) for index in range(episodes)], console, view)
        placement = cell.remote.diagnostics.get("sdnpu_policy: denoiser")
        changes = list(cell.remote.changes)
        cell.remote.transition("deactivate")
        cell.controller.save_record(out / "record.npz")
    summary = conclude(
        out,
        results,
        placement={pair.key: pair.value for pair in placement.values} if placement is not None else {},
        changes=changes,
        settings=parameters,
        wall_s=time.monotonic() - started_s,
    )
    Console().print(_table(summary, out))


def _parameters(
    provider: str, policy: str, late: str, on_late: str, steps_per_tick: int, seed: int, given: list[str]
) -> dict[str, Any]:
    for name, value, choices in (("provider", provider, PROVIDERS), ("on-late", on_late, ON_LATE)):
        if value not in choices:
            raise SdnpuError(f"--{name} is '{value}': one of {', '.join(choices)} is needed")
    parameters: dict[str, Any] = {
        "provider": provider,
        "policy": policy if policy == "reference" else str(Path(policy).resolve()),
        "on_late": on_late,
        "steps_per_tick": steps_per_tick,
        "seed": seed,
    }
    if late:
        parameters["late_probability"], parameters["late_ms"] = parse_late(late)
    for item in given:
        name, equals, value = item.partition("=")
        if name in OWN_PARAMETERS:
            raise SdnpuError(f"--param {name}: the demo sets it itself, for the simulated robot")
        if not equals:
            raise SdnpuError(f"--param is '{item}': NAME=VALUE is needed")
        try:
            parameters[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SdnpuError(f"--param is '{item}': VALUE is needed as in a parameter file") from None
    return parameters


def _run(cell: DemoCell, scenes: list[Scene], console: Console, view: bool) -> list[Episode]:
    results: list[Episode] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    page = _live_page(console) if view else None
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("episodes", total=len(scenes), note="")
            for scene in scenes:
                results.append(_episode(cell, scene, page))
                good = sum(result.verdict.success for result in results)
                progress.update(task, advance=1, note=f"{good} of {len(results)} placed within 5 mm")
    finally:
        if page is not None:
            page.close()
    return results


def _episode(cell: DemoCell, scene: Scene, page: Any) -> Episode:
    cell.set_up(scene)
    judge = Judge(scene)
    times: list[float] = []

    def see(t_s: float, pose: NDArray[np.float64]) -> bool:
        times.append(t_s)
        if page is not None:
            page.show(scene, pose, cell.remote.status)
        return judge.feed(t_s, pose).outcome is Outcome.RUNNING

    if cell.remote.state == "STOPPED":
        done, message = cell.remote.trigger("reset")
        if not done:
            raise SdnpuError(f"the policy node could not be reset: {message}")
    cell.resume()
    cell.watch(see, EPISODE_WALL_S)
    cell.pause()
    if judge.verdict is None:
        raise SdnpuError("the simulated controller told no pose: its log says why")
    return Episode(scene, judge.verdict, times[0], times[-1])


def _live_page(console: Console) -> Any:
    from sdnpu_policy.tools.live_page import LivePage  # only when asked for

    page = LivePage()
    console.print(f"live page: {page.url}")
    return page


def _table(summary: dict[str, Any], out: Path) -> Table:
    table = Table(title=summary["verdict"], show_header=False, title_justify="left")
    rows = {
        "success": f"{summary['success_rate']:.0%} of {summary['episodes']} episodes within 5 mm and 5 degrees",
        "final error": f"{summary['final_error_mm']['p50']} mm p50, {summary['final_error_mm']['p90']} mm p90",
        "network": f"{summary['precision']} on {summary['provider']}: {summary['placement']}",
        "step": "{p50} ms p50, {p99} ms p99, {max} ms max".format(**summary["step_ms"])
        + f", deadline {summary['deadline_ms']:g} ms",
        "late": f"{summary['late']} of {summary['steps']} steps",
        "tick overhead": "{p50} us p50, {p99} us p99".format(**summary["tick_overhead_us"]),
        "image to target": "{p50} ms p50, {p99} ms p99".format(**summary["plan_age_ms"])
        + " (age of the plan's image)",
        "ladder": ", ".join(f"{state} {seconds:.1f} s" for state, seconds in summary["ladder"].items() if seconds),
        "stops": str(summary["stops"]),
        "arm": f"at most {summary['max_speed_m_s']} m/s, {summary['max_accel_m_s2']} m/s^2 "
        f"(limits {summary['limits']['speed_m_s']:g}, {summary['limits']['accel_m_s2']:g})",
        "report": str(out / "report.html"),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table
