"""What every session on every runtime looks like: named buffers bound once, ``run()``, and a proof of placement.

A session's buffers are handed to the runtime when it is opened and never move: write into ``inputs[name][...]``,
call ``run()``, read ``outputs[name]``. Nothing is allocated in a step. ``run()`` releases the GIL and does not
look at the values: NaN in gives finite, plausible numbers out of a quantized network, so callers check both ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.errors import SdnpuError

Buffers = dict[str, NDArray[Any]]

ELEMENT_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
}
"""ONNX's TensorProto.DataType numbers and what numpy calls them."""


class StepFailed(RuntimeError):
    """The runtime could not finish a step. The stepper carries it in its result; the control loop goes on."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a network really runs.

    provider: cpu, qnn or openvino. device: in words. simulated: the device is a functional simulator, whose
    timings mean nothing for a deadline. total_nodes: nodes of the graph. elsewhere: those not on the provider.
    """

    provider: str
    device: str
    simulated: bool
    total_nodes: int
    elsewhere: tuple[str, ...]


class Session(Protocol):
    """A network ready to run, with one thread at a time inside it."""

    @property
    def file(self) -> Path: ...

    @property
    def inputs(self) -> Buffers:
        """Input name to its bound buffer; writing into it feeds the next ``run()``."""
        ...

    @property
    def outputs(self) -> Buffers:
        """Output name to its bound buffer, overwritten by each ``run()``."""
        ...

    @property
    def placement(self) -> Placement: ...

    def run(self) -> None:
        """One step. Raises StepFailed."""
        ...

    def close(self) -> None:
        """Give the runtime's memory back. A second call does nothing."""
        ...


def allocate(shapes: Mapping[str, tuple[int, ...]], element_types: Mapping[str, int], file: Path) -> Buffers:
    """Zeroed buffers of these shapes. Raises SdnpuError for an element type numpy does not have."""
    buffers: Buffers = {}
    for name, shape in shapes.items():
        dtype = ELEMENT_TYPES.get(element_types[name])
        if dtype is None:
            known = ", ".join(str(d) for d in ELEMENT_TYPES.values())
            raise SdnpuError(f"{file}: '{name}' has ONNX element type {element_types[name]}; usable are {known}")
        buffers[name] = np.zeros(shape, dtype)
    return buffers


def input_shapes(session: Session) -> dict[str, tuple[int, ...]]:
    """Shape of each input."""
    return {name: buffer.shape for name, buffer in session.inputs.items()}


def describe(session: Session) -> str:
    """One line: the file, where it runs, what goes in and comes out."""
    placement = session.placement
    here = placement.total_nodes - len(placement.elsewhere)
    return (
        f"{session.file.name} on {placement.provider} ({placement.device}), {here} of {placement.total_nodes} "
        f"nodes: {_signature(session.inputs)} -> {_signature(session.outputs)}"
    )


def check_signature(
    session: Session, inputs: Mapping[str, tuple[int, ...]], outputs: Mapping[str, tuple[int, ...]]
) -> None:
    """Compare the names and shapes a bundle promises with what the model has.

    Raises SdnpuError that lists both sides: a wrong name or an image in HWC is found when the node is configured,
    not in the first step.
    """
    for kind, wanted, buffers in (("inputs", inputs, session.inputs), ("outputs", outputs, session.outputs)):
        found = {name: buffer.shape for name, buffer in buffers.items()}
        if found != {name: tuple(shape) for name, shape in wanted.items()}:
            promised = ", ".join(f"{name} {list(shape)}" for name, shape in wanted.items()) or "none"
            raise SdnpuError(f"{session.file}: {kind} are {_signature(buffers)}, but {promised} is asked for")


def warm_up(session: Session, runs: int) -> NDArray[np.float64]:
    """Run ``runs`` times on what the buffers hold; the first steps are slow on every device.

    Returns each run's milliseconds, float64 [runs], to be reported apart from the steps that count.
    Raises SdnpuError when a step fails.
    """
    durations_ms = np.zeros(runs)
    for i in range(runs):
        start_ns = time.monotonic_ns()
        try:
            session.run()
        except StepFailed as error:
            raise SdnpuError(f"{session.file}: warm-up step {i + 1} of {runs} failed: {error}") from error
        durations_ms[i] = (time.monotonic_ns() - start_ns) / 1e6
    return durations_ms


def one_line(error: BaseException, limit: int = 300) -> str:
    """A runtime's message without its line breaks, cut to ``limit`` characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _signature(buffers: Buffers) -> str:
    return ", ".join(f"{name} {list(buffer.shape)} {buffer.dtype}" for name, buffer in buffers.items())
