"""Calibration and static quantization of the reference policy's networks."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model
from rollout import Networks, Timing, run_episode

from sdnpu_policy.sim.cell import make_scene

Inputs = dict[str, NDArray[np.float32]]

CALIBRATION_SEED = 777  # no evaluation uses it
ACTIVATIONS = {"a8w8": QuantType.QUInt8, "a16w8": QuantType.QUInt16}


class _Reader(CalibrationDataReader):
    def __init__(self, samples: Sequence[Inputs]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> Inputs | None:
        return next(self._samples, None)


def record_inputs(
    networks: Networks, seed: int, scenes: int, images: int, steps: int
) -> tuple[list[Inputs], list[Inputs]]:
    """Encoder inputs and U-Net inputs out of closed-loop episodes with the float networks.

    They are spread evenly over `scenes` scenes, with 4 and 8 denoising steps by turns, so the U-Net's inputs carry
    the noise levels that it meets at run time.
    """
    chooser = np.random.default_rng(seed)
    encoder_inputs: list[Inputs] = []
    unet_inputs: list[Inputs] = []
    for index in range(scenes):
        seen: tuple[list[Inputs], list[Inputs]] = ([], [])
        recorded = Networks(networks.encoder, networks.unet, seen[0].append, seen[1].append)
        timing = Timing(denoising_steps=(4, 8)[index % 2])
        rng = np.random.default_rng([seed, index, 1])
        run_episode(recorded, make_scene(seed, index), timing, rng)
        for inputs, kept, total in zip(seen, (encoder_inputs, unet_inputs), (images, steps), strict=True):
            share = min(len(inputs), -(-total // scenes))
            kept.extend(inputs[i] for i in np.sort(chooser.choice(len(inputs), share, replace=False)))
    return encoder_inputs, unet_inputs


def quantize_network(
    source: Path,
    target: Path,
    samples: Sequence[Inputs],
    precision: str,
    *,
    per_channel: bool,
    method: CalibrationMethod = CalibrationMethod.MinMax,
) -> None:
    """Write `source` with quantize and dequantize nodes around every operator.

    Weights are unsigned 8-bit: with signed ones the CPU provider's kernels saturate on processors that have AVX2
    and no VNNI, and the result is noise.
    """
    with tempfile.TemporaryDirectory() as directory:
        prepared = Path(directory) / "prepared.onnx"
        if not qnn_preprocess_model(str(source), str(prepared)):
            prepared = source
        config = get_qnn_qdq_config(
            str(prepared),
            _Reader(samples),
            calibrate_method=method,
            activation_type=ACTIVATIONS[precision],
            weight_type=QuantType.QUInt8,
            weight_symmetric=True,
            per_channel=per_channel,
        )
        quantize(str(prepared), str(target), config)
    model = onnx.load(target)
    model.producer_name, model.producer_version = "sdnpu_policy", ""
    del model.metadata_props[:]
    onnx.save(model, target)
