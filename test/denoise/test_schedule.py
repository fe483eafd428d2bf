"""The tables equal diffusers' schedulers over whole trajectories, in every kind of prediction and spacing."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sdnpu_policy.bundle.schema import Scheduler
from sdnpu_policy.denoise.schedule import alphas_cumprod, inference_timesteps, make_schedule
from sdnpu_policy.errors import SdnpuError

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("make_golden", HERE / "make_golden.py")
assert _spec is not None and _spec.loader is not None
golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)

CASES = golden.cases()
NAMES = [
    f"{c['class_name'][:4]}-{c['prediction_type']}-{c.get('timestep_spacing', 'leading')}-{i}"
    for i, c in enumerate(CASES)
]
COSINE = Scheduler(
    class_name="DDIMScheduler",
    num_train_timesteps=100,
    beta_schedule="squaredcos_cap_v2",
    prediction_type="epsilon",
    num_inference_steps=10,
)


def stored(number: int) -> dict[str, NDArray[Any]]:
    with np.load(HERE / "golden_schedules.npz") as file:
        assert json.loads(str(file[f"{number}/settings"])) == CASES[number], "run make_golden.py again"
        return {key: file[f"{number}/{key}"] for key in ("timesteps", "alphas_cumprod", "samples", "noises")}


def compare(number: int, wanted: dict[str, NDArray[Any]]) -> None:
    case = CASES[number]
    settings = Scheduler(**{**case, "num_inference_steps": max(2, case["num_inference_steps"])})
    steps = case["num_inference_steps"]
    schedule = make_schedule(settings, steps)
    assert schedule.timesteps.tolist() == wanted["timesteps"].tolist()
    np.testing.assert_allclose(alphas_cumprod(settings), wanted["alphas_cumprod"], atol=1e-6, rtol=1e-5)
    sample, outputs = golden.inputs(number, steps)
    scratch = np.zeros_like(sample)
    for i in range(steps):
        schedule.step(i, outputs[i], sample, scratch, wanted["noises"][i])
        # relative to the size of what is compared: unclipped estimates at the noisiest step are in the hundreds
        size = max(1.0, float(np.abs(wanted["samples"][i]).max()))
        np.testing.assert_allclose(sample / size, wanted["samples"][i] / size, atol=1e-6, err_msg=f"step {i}")


@pytest.mark.parametrize("number", range(len(CASES)), ids=NAMES)
def test_a_whole_trajectory_equals_the_stored_one_of_diffusers(number: int) -> None:
    compare(number, stored(number))


@pytest.mark.parametrize("number", range(len(CASES)), ids=NAMES)
def test_a_whole_trajectory_equals_that_of_the_diffusers_installed_here(number: int) -> None:
    pytest.importorskip("diffusers")
    compare(number, golden.diffusers_trajectory(number, CASES[number]))


def test_the_published_numbers_of_the_cosine_schedule_come_out() -> None:
    bars = alphas_cumprod(COSINE)
    np.testing.assert_allclose(bars[[0, 50, 90, 99]], [0.99936873, 0.47826442, 0.01954437, 2.4285e-7], rtol=2e-5)
    assert inference_timesteps(COSINE, 16).tolist()[:3] == [90, 84, 78]
    assert inference_timesteps(COSINE, 2).tolist() == [50, 0]


def test_stable_diffusion_takes_twenty_steps_from_951_to_1() -> None:
    settings = COSINE.model_copy(
        update={
            "num_train_timesteps": 1000,
            "beta_schedule": "scaled_linear",
            "beta_start": 0.00085,
            "beta_end": 0.012,
            "steps_offset": 1,
        }
    )
    assert inference_timesteps(settings, 20).tolist()[::19] == [951, 1]
    np.testing.assert_allclose(alphas_cumprod(settings)[[0, 999]], [0.99915, 0.0046601], rtol=1e-5)


@pytest.mark.parametrize("steps", [0, 101])
def test_a_number_of_steps_that_the_scheduler_has_not_is_refused(steps: int) -> None:
    with pytest.raises(ValueError, match="1 to 100"):
        make_schedule(COSINE, steps)


@pytest.mark.parametrize("class_name", ["DDIMScheduler", "DDPMScheduler"])
def test_an_offset_that_makes_timesteps_beyond_the_training_is_refused(class_name: str) -> None:
    settings = COSINE.model_copy(update={"class_name": class_name, "steps_offset": 12})
    with pytest.raises(SdnpuError, match=r"steps_offset is 12.*timestep 102 .*at most 99"):
        make_schedule(settings, 10)


def test_one_step_with_leading_spacing_is_refused_and_with_trailing_it_begins_at_pure_noise() -> None:
    with pytest.raises(SdnpuError, match="leading takes pure noise"):
        make_schedule(COSINE, 1)
    trailing = COSINE.model_copy(update={"timestep_spacing": "trailing"})
    assert make_schedule(trailing, 1).timesteps.tolist() == [99]


@pytest.mark.parametrize("class_name", ["DDIMScheduler", "DDPMScheduler"])
@pytest.mark.parametrize("predicts", ["epsilon", "sample", "v_prediction"])
def test_the_clean_sample_is_clipped_at_the_end_whatever_the_model_says(predicts: str, class_name: str) -> None:
    settings = COSINE.model_copy(update={"class_name": class_name, "prediction_type": predicts})
    schedule = make_schedule(settings, 4)
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((1, 16, 9), dtype=np.float32)
    for i in range(4):
        output = rng.standard_normal(sample.shape, dtype=np.float32) * np.float32(1e3)
        schedule.step(i, output, sample, np.zeros_like(sample), np.zeros_like(sample))
        assert np.isfinite(sample).all()
    assert np.abs(sample).max() <= 1.0 + 1e-6


def test_a_stochastic_step_without_noise_is_refused() -> None:
    schedule = make_schedule(COSINE.model_copy(update={"class_name": "DDPMScheduler"}), 10)
    zeros = np.zeros((1, 2), np.float32)
    assert schedule.stochastic
    with pytest.raises(ValueError, match="noise"):
        schedule.step(0, zeros, zeros.copy(), zeros.copy())


@given(steps=st.integers(1, 100), spacing=st.sampled_from(["leading", "trailing", "linspace"]))
def test_timesteps_fall_and_stay_in_range(steps: int, spacing: str) -> None:
    times = inference_timesteps(COSINE.model_copy(update={"timestep_spacing": spacing}), steps)
    assert len(times) == steps
    assert (np.diff(times) < 0).all()
    assert times.min() >= 0 and times.max() <= 99


@given(seed=st.integers(0, 1000), steps=st.sampled_from([2, 4, 5, 10, 20, 25, 50]))
def test_a_model_that_knows_the_clean_sample_ends_at_it(seed: int, steps: int) -> None:
    settings = COSINE.model_copy(update={"prediction_type": "sample", "timestep_spacing": "trailing"})
    schedule = make_schedule(settings, steps)
    rng = np.random.default_rng(seed)
    clean = rng.uniform(-0.9, 0.9, (1, 3, 2)).astype(np.float32)
    sample = rng.standard_normal(clean.shape, dtype=np.float32)
    for i in range(steps):
        schedule.step(i, clean.copy(), sample, np.zeros_like(sample))
    np.testing.assert_allclose(sample, clean, atol=1e-5)


def test_a_sample_is_noised_by_the_square_roots() -> None:
    schedule = make_schedule(COSINE, 10)
    clean, noise, out = (np.full((1, 1), v, np.float32) for v in (1.0, 2.0, 0.0))
    schedule.noised(clean, noise, 3, out)
    bar = float(alphas_cumprod(COSINE)[schedule.timesteps[3]])
    assert out[0, 0] == pytest.approx(bar**0.5 + 2.0 * (1.0 - bar) ** 0.5, rel=1e-6)
