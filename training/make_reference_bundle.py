"""Makes models/reference out of the two trained networks: graph surgery, calibration, quantization, manifest.

    python training/make_reference_bundle.py path/to/exported/networks models/reference

The first directory holds enc_f1.onnx and unet_f1.onnx as exported from the training. The same inputs and library
versions give the same files, byte for byte.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
from evaluate import evaluate, summarise
from graph import prepare_encoder, prepare_unet
from numpy.typing import NDArray
from quantize import CALIBRATION_SEED, Inputs, quantize_network, record_inputs
from rollout import (
    CLIP,
    DELTA_GAIN,
    HORIZON,
    POSITION_MEAN,
    POSITION_REACH_M,
    POSITION_STD,
    ROTATION_REACH,
    TIMESTEP_DIM,
    TRAINED_STEPS,
    Networks,
    Timing,
    open_network,
)

from sdnpu_policy.bundle.manifest import Manifest, hash_files, load_bundle, write_manifest

CAMERA, STATE, ACTION = "observation.images.front", "observation.state", "action"
ENCODER, UNET = "encoder_a16w8.onnx", "unet_a8w8.onnx"
ENCODER_FP32, UNET_FP32 = "encoder_fp32.onnx", "unet_fp32.onnx"
STATISTICS, GOLDEN = "stats.json", "golden.npz"

CALIBRATION_SCENES, CALIBRATION_IMAGES, CALIBRATION_STEPS = 40, 600, 1600
GOLDEN_CASES = 8
DENOISING_STEPS = 4


def snr_db(reference: NDArray[np.float32], actual: NDArray[np.float32]) -> float:
    """Of all outputs together, in dB."""
    error = np.square(reference.astype(float) - actual).sum()
    return round(float(10 * np.log10(np.square(reference.astype(float)).sum() / error)), 1)


def outputs_of(file: Path, samples: Sequence[Inputs]) -> NDArray[np.float32]:
    """Outputs [N,1,...] of a network on the CPU provider."""
    session = open_network(file)
    return np.stack([session.run(None, inputs)[0] for inputs in samples])


def write_golden(directory: Path, encoder_inputs: Sequence[Inputs], unet_inputs: Sequence[Inputs]) -> None:
    """A few inputs, of episodes that calibration has not seen, with the quantized networks' outputs on the CPU."""
    arrays: dict[str, NDArray[np.float32]] = {}
    for role, file, output, samples in (
        ("encoder", ENCODER, "features", encoder_inputs),
        ("denoiser", UNET, "denoised", unet_inputs),
    ):
        chosen = [samples[i] for i in np.linspace(0, len(samples) - 1, GOLDEN_CASES).astype(int)]
        for name in chosen[0]:
            arrays[f"{role}/{name}"] = np.stack([inputs[name] for inputs in chosen])
        arrays[f"{role}/{output}"] = outputs_of(directory / file, chosen)
    np.savez_compressed(directory / GOLDEN, **arrays)


def statistics() -> dict[str, dict[str, list[object]]]:
    """The fixed scales of the training, written as means and deviations.

    An action row is a displacement and the first two columns of a relative rotation; row k reaches k times as far.
    """
    rotation_identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    action_std = [[reach] * 3 + [turn] * 6 for reach, turn in zip(POSITION_REACH_M, ROTATION_REACH, strict=True)]
    return {
        CAMERA: {"mean": [[[0.5]]] * 3, "std": [[[1.0]]] * 3},
        STATE: {
            "mean": [*POSITION_MEAN, *[0.0] * 15],
            "std": [*POSITION_STD, *[1.0] * 6, *(POSITION_STD / DELTA_GAIN), *[1 / DELTA_GAIN] * 6],
        },
        ACTION: {"mean": [[0.0] * 3 + rotation_identity] * HORIZON, "std": np.round(action_std, 6).tolist()},
    }


def manifest(directory: Path, quality: dict[str, object]) -> Manifest:
    """What policy.yaml says."""
    files = [UNET, ENCODER, UNET_FP32, ENCODER_FP32, STATISTICS, GOLDEN]
    return Manifest.model_validate(
        {
            "format": "sdnpu-policy/1",
            "name": "reference",
            "description": "Align the tool over the weld spot of a plate, past a fixture post, and come down.",
            "denoiser": {
                "file": UNET,
                "precision": "a8w8",
                "prediction_type": "sample",
                "inputs": {"sample": "sample", "timestep": "timestep_embedding", "condition": "global_cond"},
                "output": "denoised",
                "timestep": {"encoding": "sinusoidal", "dim": TIMESTEP_DIM, "max_period": 10000.0},
            },
            "scheduler": {
                "class_name": "DDIMScheduler",
                "num_train_timesteps": TRAINED_STEPS,
                "beta_start": 0.0001,
                "beta_end": 0.02,
                "beta_schedule": "squaredcos_cap_v2",
                "clip_sample": True,
                "clip_sample_range": CLIP,
                "prediction_type": "sample",
                "set_alpha_to_one": True,
                "steps_offset": 0,
                "timestep_spacing": "trailing",
                "num_inference_steps": DENOISING_STEPS,
            },
            "encoder": {
                "file": ENCODER,
                "precision": "a16w8",
                "inputs": {"cameras": {CAMERA: "image"}, "state": None},
                "output": "features",
                "append_state": True,
            },
            "decoder": None,
            "observation": {
                "n_obs_steps": 1,
                "cameras": {
                    CAMERA: {
                        "width": 96,
                        "height": 96,
                        "color_order": "rgb",
                        "crop": "center_square",
                        "interpolation": "area",
                        "normalization": "MEAN_STD",
                    }
                },
                "state": {
                    "feature": STATE,
                    "layout": ["position", "rotation_6d", "position_delta", "rotation_6d_delta"],
                    "delta_s": 0.064,
                    "rotation_6d_layout": "columns",
                    "normalization": "MEAN_STD",
                },
            },
            "action": {
                "feature": ACTION,
                "horizon": HORIZON,
                "execute": HORIZON,
                "rate_hz": 15.625,
                "first_offset_steps": 1,
                "position": "relative",
                "rotation": "rotation_6d",
                "rotation_6d_layout": "columns",
                "relative_axes": "base",
                "gripper": "none",
                "frame": "base",
                "normalization": "MEAN_STD",
            },
            "statistics": STATISTICS,
            "golden": {"file": GOLDEN, "min_snr_db": 20.0},
            "sha256": hash_files(directory, files),
            "quality": quality,
        }
    )


def measure_quality(
    directory: Path, held_out: tuple[list[Inputs], list[Inputs]], scenes: int
) -> dict[str, object]:
    """SNR against the float networks on episodes not seen in calibration, and success in the closed loop."""
    quality: dict[str, object] = {
        "method": "static QDQ, min-max, unsigned 8-bit weights; encoder per channel, U-Net per tensor",
        "calibration": f"{CALIBRATION_IMAGES} images, {CALIBRATION_STEPS} U-Net inputs out of closed-loop episodes"
        f" in {CALIBRATION_SCENES} scenes, with 4 and 8 denoising steps",
        "onnxruntime": onnxruntime.__version__,
        "snr_db": {
            network: snr_db(outputs_of(directory / reference, samples), outputs_of(directory / quantized, samples))
            for network, reference, quantized, samples in (
                ("encoder", ENCODER_FP32, ENCODER, held_out[0]),
                ("denoiser", UNET_FP32, UNET, held_out[1]),
            )
        },
        "target": None,
    }
    if scenes:
        before = Networks(open_network(directory / ENCODER_FP32), open_network(directory / UNET_FP32))
        after = Networks(open_network(directory / ENCODER), open_network(directory / UNET))
        success: dict[str, float] = {}
        for name, networks in (("fp32", before), ("quantized", after)):
            for steps in (4, 8):
                summary = summarise(evaluate(networks, Timing(denoising_steps=steps), scenes))
                print(name, steps, summary, flush=True)
                success[f"{name}_{steps}_steps"] = summary["success_rate"]
        quality["success"] = {"scenes": scenes, "tolerance": "5 mm, 5 degrees", **success}
    return quality


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exported", type=Path, help="directory with enc_f1.onnx and unet_f1.onnx")
    parser.add_argument("bundle", type=Path, help="directory to write; files in it are replaced")
    parser.add_argument("--scenes", type=int, default=100, help="closed-loop episodes per evaluation; 0: none")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    directory: Path = arguments.bundle
    directory.mkdir(parents=True, exist_ok=True)

    prepare: dict[str, tuple[Callable[[Path], onnx.ModelProto], str]] = {
        ENCODER_FP32: (prepare_encoder, "enc_f1.onnx"),
        UNET_FP32: (prepare_unet, "unet_f1.onnx"),
    }
    for name, (surgery, source) in prepare.items():
        onnx.save(surgery(arguments.exported / source), directory / name)
    networks = Networks(open_network(directory / ENCODER_FP32), open_network(directory / UNET_FP32))
    encoder_inputs, unet_inputs = record_inputs(
        networks, CALIBRATION_SEED, CALIBRATION_SCENES, CALIBRATION_IMAGES, CALIBRATION_STEPS
    )
    quantize_network(directory / ENCODER_FP32, directory / ENCODER, encoder_inputs, "a16w8", per_channel=True)
    # One scale for each weight tensor: with one for each channel a step takes 1.7 times as long on the CPU
    # provider, for 0.3 dB.
    quantize_network(directory / UNET_FP32, directory / UNET, unet_inputs, "a8w8", per_channel=False)

    held_out = record_inputs(networks, CALIBRATION_SEED + 1, 8, 160, 320)
    write_golden(directory, *held_out)
    (directory / STATISTICS).write_text(json.dumps(statistics(), indent=1) + "\n", encoding="utf-8")
    quality = measure_quality(directory, held_out, arguments.scenes)
    write_manifest(directory, manifest(directory, quality))
    load_bundle(directory)
    print(f"{directory}: {sum(file.stat().st_size for file in directory.iterdir())} bytes")


if __name__ == "__main__":
    main()
