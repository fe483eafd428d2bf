"""Golden vectors: inputs and outputs that travel with a bundle, compared when a session is made.

Compilers get networks wrong without a word (16-bit activations at three of QNN's four optimisation modes), and a
damaged compiled context loads and answers nonsense. One known answer catches both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.session import Buffers, Session, StepFailed


def snr_db(reference: NDArray[Any], actual: NDArray[Any]) -> float:
    """Signal-to-noise ratio 10 log10(sum r^2 / sum (r - a)^2) in dB.

    inf for equal arrays, -inf where either is not finite or there is noise on a silent reference.
    Raises ValueError for different shapes.
    """
    if reference.shape != actual.shape:
        raise ValueError(f"shapes differ: {reference.shape} and {actual.shape}")
    wanted = reference.astype(np.float64)
    found = actual.astype(np.float64)
    if not (np.isfinite(wanted).all() and np.isfinite(found).all()):
        return -math.inf
    noise = float(np.square(wanted - found).sum())
    signal = float(np.square(wanted).sum())
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf


def check_golden(
    session: Session, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]], min_snr_db: float
) -> float:
    """Run the golden inputs and compare.

    Each array has its buffer's shape, or [N, *shape] for N cases. Returns the lowest SNR over the outputs, in dB,
    each taken over all cases. The session's buffers hold the last case afterwards.
    Raises SdnpuError where names or shapes differ, a step fails, or the SNR is below ``min_snr_db``.
    """
    cases = _cases(session, {**inputs, **outputs}, inputs, outputs)
    found = {
        name: np.zeros((cases, *session.outputs[name].shape), session.outputs[name].dtype) for name in outputs
    }
    for case in range(cases):
        for name, buffer in session.inputs.items():
            buffer[...] = _stacked(inputs[name], buffer)[case]
        try:
            session.run()
        except StepFailed as error:
            raise SdnpuError(f"{session.file}: golden step {case + 1} of {cases} failed: {error}") from error
        for name in outputs:
            found[name][case] = session.outputs[name]
    snr = {name: snr_db(_stacked(outputs[name], session.outputs[name]), found[name]) for name in outputs}
    worst = min(snr, key=lambda name: snr[name])
    if not snr[worst] >= min_snr_db:
        raise SdnpuError(
            f"{session.file}: output '{worst}' on {session.placement.device} is {snr[worst]:.1f} dB from the "
            f"golden vector, at least {min_snr_db:g} is needed; the network is compiled or copied wrongly"
        )
    return snr[worst]


def _cases(
    session: Session,
    arrays: Mapping[str, NDArray[Any]],
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
) -> int:
    """The number of cases, after checking names and shapes."""
    if set(inputs) != set(session.inputs) or not outputs or not set(outputs) <= set(session.outputs):
        raise SdnpuError(
            f"{session.file}: golden vectors are for {sorted(inputs)} -> {sorted(outputs)}, "
            f"the model has {sorted(session.inputs)} -> {sorted(session.outputs)}"
        )
    buffers: Buffers = {**session.inputs, **session.outputs}
    counts = set()
    for name, array in arrays.items():
        stacked = _stacked(array, buffers[name])
        if stacked.shape[1:] != buffers[name].shape or not len(stacked):
            raise SdnpuError(
                f"{session.file}: golden vector '{name}' has shape {list(array.shape)}, "
                f"the model {list(buffers[name].shape)}"
            )
        counts.add(len(stacked))
    if len(counts) != 1:
        raise SdnpuError(f"{session.file}: golden vectors have different numbers of cases: {sorted(counts)}")
    return int(counts.pop())


def _stacked(array: NDArray[Any], buffer: NDArray[Any]) -> NDArray[Any]:
    return array if array.ndim == buffer.ndim + 1 else array[np.newaxis]
