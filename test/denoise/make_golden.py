"""Write golden_schedules.npz: whole trajectories of diffusers' schedulers, for machines without diffusers.

python test/denoise/make_golden.py        (needs torch and diffusers; the product does not)
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHAPE = (1, 4, 3)
FILE = Path(__file__).with_name("golden_schedules.npz")


def cases() -> list[dict[str, Any]]:
    """Settings in diffusers' names, with ``num_inference_steps``."""
    found: list[dict[str, Any]] = []
    for name, predicts, spacing in itertools.product(
        ("DDIMScheduler", "DDPMScheduler"),
        ("epsilon", "sample", "v_prediction"),
        ("leading", "trailing", "linspace"),
    ):
        found.append(
            {
                "class_name": name,
                "num_train_timesteps": 100,
                "beta_schedule": "squaredcos_cap_v2",
                "prediction_type": predicts,
                "timestep_spacing": spacing,
                "clip_sample": True,
                "clip_sample_range": 1.3 if predicts == "sample" else 1.0,
                "num_inference_steps": 8 if spacing != "linspace" else 10,
            }
        )
    stable_diffusion = {
        "class_name": "DDIMScheduler",
        "num_train_timesteps": 1000,
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "prediction_type": "epsilon",
        "clip_sample": False,
        "set_alpha_to_one": False,
        "steps_offset": 1,
        "num_inference_steps": 20,
    }
    zero_snr = {
        **stable_diffusion,
        "prediction_type": "v_prediction",
        "rescale_betas_zero_snr": True,
        "timestep_spacing": "trailing",
    }
    linear = {
        "class_name": "DDPMScheduler",
        "num_train_timesteps": 50,
        "beta_schedule": "linear",
        "prediction_type": "epsilon",
        "num_inference_steps": 50,
        "variance_type": "fixed_large",
    }
    small_log = {**linear, "variance_type": "fixed_small_log", "beta_schedule": "squaredcos_cap_v2"}
    one_step = {**found[1], "num_inference_steps": 1}
    return [*found, stable_diffusion, zero_snr, linear, small_log, one_step]


def inputs(case: int, steps: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The noise to begin with, and what a model says in each step [steps, *SHAPE]."""
    rng = np.random.default_rng(case)
    first = rng.standard_normal(SHAPE, dtype=np.float32)
    return first, rng.standard_normal((steps, *SHAPE), dtype=np.float32) * np.float32(0.7)


def diffusers_trajectory(case: int, settings: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Timesteps, the sample after each step, and the noise of DDPM's steps, as diffusers has them."""
    import diffusers
    import torch

    settings = dict(settings)
    steps = settings.pop("num_inference_steps")
    scheduler = getattr(diffusers, settings.pop("class_name")).from_config(settings)
    scheduler.set_timesteps(steps)
    first, outputs = inputs(case, steps)
    sample = torch.from_numpy(first)
    given, repeated = torch.Generator().manual_seed(case), torch.Generator().manual_seed(case)
    samples, noises = [], []
    stochastic = type(scheduler).__name__ == "DDPMScheduler"
    for i, t in enumerate(scheduler.timesteps):
        noise = torch.randn(SHAPE, generator=repeated) if stochastic and t > 0 else torch.zeros(SHAPE)
        extra = {"generator": given} if stochastic else {}
        sample = scheduler.step(torch.from_numpy(outputs[i]), t, sample, **extra).prev_sample
        samples.append(sample.numpy().copy())
        noises.append(noise.numpy())
    return {
        "timesteps": scheduler.timesteps.numpy().astype(np.int64),
        "alphas_cumprod": scheduler.alphas_cumprod.numpy(),
        "samples": np.stack(samples),
        "noises": np.stack(noises),
    }


def main() -> None:
    arrays: dict[str, Any] = {}
    for number, settings in enumerate(cases()):
        arrays[f"{number}/settings"] = np.array(json.dumps(settings))
        for name, value in diffusers_trajectory(number, settings).items():
            arrays[f"{number}/{name}"] = value
    np.savez_compressed(FILE, **arrays)
    print(f"{FILE}: {len(cases())} trajectories, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
