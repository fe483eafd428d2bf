"""``sdnpu check``: can this bundle be used on this device? Opens it as the node does and shows what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdnpu_policy.bundle.golden import load_golden
from sdnpu_policy.bundle.interface import Role, check_condition, check_interface, roles
from sdnpu_policy.bundle.manifest import Bundle, load_bundle
from sdnpu_policy.errors import SdnpuError

if TYPE_CHECKING:
    from rich.text import Text

    from sdnpu_policy.npu.providers import Placement, Session


class Provider(StrEnum):
    """Where the networks are to run."""

    CPU = "cpu"
    QNN = "qnn"
    OPENVINO = "openvino"


@dataclass(frozen=True, slots=True)
class NetworkReport:
    """What was found of one network."""

    role: Role
    file: str
    precision: str
    bytes: int
    inputs: dict[str, tuple[int, ...]]
    outputs: dict[str, tuple[int, ...]]
    placement: Placement
    golden_snr_db: float | None
    """None: not run."""


def check(
    bundle: Annotated[
        Path,
        typer.Argument(metavar="BUNDLE", show_default=False, help="Directory of the bundle, with policy.yaml."),
    ],
    provider: Annotated[Provider, typer.Option(help="Where the networks are to run.")] = Provider.CPU,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="NAME=VALUE", help="An option of the provider; may come repeatedly."
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="Run the golden vectors, or open the networks only.")
    ] = True,
) -> None:
    """Check a policy bundle: its files, its networks, its golden vectors.

    Opens the networks on the provider, compares their names and shapes with policy.yaml, runs the golden vectors.

    Exit status 0: the bundle can be used here; 2: it can't, and one line says why.
    """
    options = parse_options(option or [])
    policy = load_bundle(bundle)
    _show(policy, check_networks(policy, provider.value, options, run=run))


def check_networks(
    bundle: Bundle, provider: str, options: Mapping[str, str | int | float], *, run: bool
) -> list[NetworkReport]:
    """Open every network of a bundle on a provider, compare it with the manifest and run its golden vectors.

    Raises:
        SdnpuError: one of them can't be used there; one line says why.
    """
    # Imported here: the runtimes take a second to load, and a bundle with a fault should be told at once.
    from sdnpu_policy.npu.providers import check_golden, open_session

    manifest = bundle.manifest
    reports: list[NetworkReport] = []
    sessions: dict[Role, Session] = {}
    with ExitStack() as stack:
        for role, name in roles(manifest).items():
            path = bundle.file(name)
            session = open_session(path, provider, options)
            stack.callback(session.close)
            sessions[role] = session
            inputs = {key: array.shape for key, array in session.inputs.items()}
            outputs = {key: array.shape for key, array in session.outputs.items()}
            check_interface(manifest, role, inputs, outputs)
            golden = load_golden(bundle, role) if run else None
            snr_db = None
            if golden is not None:
                snr_db = check_golden(session, golden.inputs, golden.outputs, golden.min_snr_db)
            precision = getattr(manifest, role).precision
            size = path.stat().st_size
            reports.append(NetworkReport(role, name, precision, size, inputs, outputs, session.placement, snr_db))
        condition = sessions["denoiser"].inputs[manifest.denoiser.inputs.condition]
        encoded = {name: array.shape for name, array in sessions["encoder"].outputs.items()}
        check_condition(manifest, encoded, condition.shape)
    return reports


def parse_options(given: list[str]) -> dict[str, str | int | float]:
    """``["htp_arch=73"]`` to ``{"htp_arch": 73}``; numbers become numbers.

    Raises:
        SdnpuError: one of them is not NAME=VALUE.
    """
    options: dict[str, str | int | float] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise SdnpuError(f"--option {text!r}: should be NAME=VALUE, such as htp_performance_mode=burst")
        options[name] = _number(value)
    return options


def _number(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _show(bundle: Bundle, networks: list[NetworkReport]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = _text(f"{bundle.path}: policy {bundle.manifest.name!r}")
    about = Table(title=title, show_header=False, title_justify="left")
    about.add_column(style="bold", no_wrap=True)
    about.add_column(overflow="fold")
    for label, text in _about(bundle):
        about.add_row(label, _text(text))
    console.print(about)
    table = Table(title="networks", title_justify="left", show_lines=True)
    for heading in ("network", "inputs", "outputs", "runs on", "golden SNR"):
        table.add_column(heading, overflow="fold")
    for network in networks:
        table.add_row(
            _text(f"{network.role}\n{network.file}\n{network.precision}, {network.bytes / 1e6:.2f} MB"),
            _text(_shapes(network.inputs)),
            _text(_shapes(network.outputs)),
            _text(_placed(network.placement)),
            _snr(bundle, network.golden_snr_db),
        )
    console.print(table)
    provider = networks[0].placement.provider
    console.print(f"This bundle can be used on {provider}.", style="green", highlight=False)


def _text(text: str) -> Text:
    """A bundle's words as they are: no markup of rich's, no control sequences of the terminal's."""
    from rich.text import Text

    return Text("".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text))


def _about(bundle: Bundle) -> list[tuple[str, str]]:
    manifest = bundle.manifest
    scheduler, action, observation = manifest.scheduler, manifest.action, manifest.observation
    cameras = (
        ", ".join(f"{name} {item.width}x{item.height}" for name, item in observation.cameras.items()) or "none"
    )
    state = f"{'+'.join(observation.state.layout)} ({observation.state.width})" if observation.state else "none"
    statistics = ", ".join(
        f"{name} {item.mode}" + (f" ({item.constant.sum()} constant)" if item.constant.any() else "")
        for name, item in bundle.normalizers.items()
    )
    rows = [
        ("files", f"{len(manifest.sha256)}, each with the sha256 that policy.yaml has"),
        (
            "scheduler",
            f"{scheduler.class_name}, {scheduler.num_inference_steps} of {scheduler.num_train_timesteps} steps,"
            f" {scheduler.beta_schedule}, {scheduler.timestep_spacing}, predicts {scheduler.prediction_type}",
        ),
        ("observation", f"{observation.n_obs_steps} step(s), cameras: {cameras}, state: {state}"),
        (
            "action",
            f"{action.horizon} x {action.width} at {action.rate_hz} Hz, {action.execute} used, position"
            f" {action.position}, {action.rotation}, frame {action.frame}",
        ),
        ("statistics", statistics),
    ]
    if manifest.description:
        rows.insert(0, ("about", " ".join(manifest.description.split())))
    if manifest.quality:
        rows.append(("quality", ", ".join(f"{key}: {value}" for key, value in manifest.quality.items())))
    return rows


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return "\n".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())


def _placed(placement: Placement) -> str:
    text = f"{placement.provider}, {placement.device}" + (" (simulated)" if placement.simulated else "")
    elsewhere = len(placement.elsewhere)
    return f"{text}, {elsewhere} of {placement.total_nodes} nodes elsewhere" if elsewhere else text


def _snr(bundle: Bundle, snr_db: float | None) -> str:
    if snr_db is None:
        return "no golden file" if bundle.manifest.golden is None else "not run"
    minimum = bundle.manifest.golden.min_snr_db if bundle.manifest.golden else 0.0
    found = "exact" if math.isinf(snr_db) else f"{snr_db:.1f} dB"
    return f"{found} (at least {minimum:g} dB)"
