"""DDIM (eta 0) and DDPM as tables: what diffusers computes in torch at each step, worked out beforehand.

Follows diffusers' `DDIMScheduler` and `DDPMScheduler`, whose settings the bundle's scheduler section carries. A step is
affine in the sample, the model's output and the (clipped) estimate of the clean sample, so six numbers remain of it:

    x0   = a x + b m           clipped where the settings say so
    prev = c x0 + d x + e m    + s noise, in DDPM
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.bundle.schema import Scheduler

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


def betas(settings: Scheduler) -> Float32:
    """The noise added in each training step [N].

    linear: Ho et al. 2020; scaled_linear: Rombach et al. 2022; squaredcos_cap_v2: Nichol and Dhariwal 2021.
    """
    count = settings.num_train_timesteps
    if settings.trained_betas is not None:
        found = np.asarray(settings.trained_betas, np.float32)
    elif settings.beta_schedule == "linear":
        found = np.linspace(settings.beta_start, settings.beta_end, count).astype(np.float32)
    elif settings.beta_schedule == "scaled_linear":
        roots = np.linspace(settings.beta_start**0.5, settings.beta_end**0.5, count).astype(np.float32)
        found = roots * roots
    else:
        found = np.array([_cosine_beta(i, count) for i in range(count)], np.float32)
    return _rescaled_to_zero_snr(found) if settings.rescale_betas_zero_snr else found


def alphas_cumprod(settings: Scheduler) -> Float32:
    """Cumulated product of 1 - beta [N], in float32 as diffusers has it."""
    return np.cumprod(np.float32(1.0) - betas(settings), dtype=np.float32)


def inference_timesteps(settings: Scheduler, steps: int) -> NDArray[np.int64]:
    """The timesteps of ``steps`` denoising steps, noisiest first [steps]."""
    count = settings.num_train_timesteps
    if settings.timestep_spacing == "linspace":
        return np.linspace(0, count - 1, steps).round()[::-1].astype(np.int64)
    if settings.timestep_spacing == "leading":
        spaced = (np.arange(steps) * (count // steps)).round()[::-1].astype(np.int64)
        return np.asarray(spaced + settings.steps_offset)
    return np.round(np.arange(count, 0, -count / steps)).astype(np.int64)[:steps] - 1


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The steps of one denoising. Made by `make_schedule`; a step works in place and allocates nothing."""

    timesteps: NDArray[np.int64]
    """(n,), noisiest first."""
    alpha_bars: Float64
    """(n,) cumulated alpha at each of them."""
    coefficients: Float32
    """(n, 6): a, b, c, d, e, s of the module's docstring."""
    clip: float | None
    """Bound on the estimate of the clean sample."""

    def __len__(self) -> int:
        return len(self.timesteps)

    @property
    def stochastic(self) -> bool:
        """A step adds noise (DDPM)."""
        return bool(self.coefficients[:, 5].any())

    def step(
        self, i: int, model_output: Float32, sample: Float32, scratch: Float32, noise: Float32 | None = None
    ) -> None:
        """Turn ``sample`` from timestep i into that of the step after, in place.

        Args:
            i: number of the step, 0 the noisiest.
            model_output: what the denoiser said of ``sample``; overwritten.
            sample: float32, any shape.
            scratch: as large, overwritten.
            noise: standard normal, as large; needed where the schedule is `stochastic`.

        Raises:
            ValueError: noise is needed and missing.
        """
        a, b, c, d, e, s = self.coefficients[i]
        if s and noise is None:
            raise ValueError("a DDPM step needs noise")
        np.multiply(sample, a, out=scratch)
        if b:
            scratch += b * model_output
        if self.clip is not None:
            np.clip(scratch, -self.clip, self.clip, out=scratch)
        scratch *= c
        sample *= d
        sample += scratch
        if e:
            model_output *= e
            sample += model_output
        if s and noise is not None:
            sample += s * noise

    def noised(self, clean: Float32, noise: Float32, i: int, out: Float32) -> None:
        """The clean sample as it would look at step i: sqrt(abar) x0 + sqrt(1 - abar) noise, into ``out``."""
        alpha_bar = float(self.alpha_bars[i])
        np.multiply(noise, np.float32(math.sqrt(1.0 - alpha_bar)), out=out)
        out += np.float32(math.sqrt(alpha_bar)) * clean


def make_schedule(settings: Scheduler, steps: int) -> Schedule:
    """The table of ``steps`` denoising steps.

    Raises:
        ValueError: more steps than the scheduler was trained with, or fewer than one.
    """
    count = settings.num_train_timesteps
    if not 1 <= steps <= count:
        raise ValueError(f"{steps} denoising steps: 1 to {count} (num_train_timesteps) are possible")
    bars = alphas_cumprod(settings).astype(np.float64)
    timesteps = inference_timesteps(settings, steps)
    ddpm = settings.class_name == "DDPMScheduler"
    final = 1.0 if ddpm or settings.set_alpha_to_one else float(bars[0])
    rows = []
    for t in timesteps.tolist():
        previous = t - count // steps
        before = float(bars[previous]) if previous >= 0 else final
        row = _ddpm if ddpm else _ddim
        rows.append(row(settings, float(bars[t]), before, t))
    clip = settings.clip_sample_range if settings.clip_sample else None
    return Schedule(timesteps, bars[timesteps], np.array(rows, np.float32), clip)


def _estimate(settings: Scheduler, alpha_bar: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """(x, m) coefficients of the clean sample and of the noise, from the model's output."""
    signal, noise = math.sqrt(alpha_bar), math.sqrt(1.0 - alpha_bar)
    if settings.prediction_type == "epsilon":
        return (1.0 / signal, -noise / signal), (0.0, 1.0)
    if settings.prediction_type == "sample":
        return (0.0, 1.0), (1.0 / noise, -signal / noise)
    return (signal, -noise), (noise, signal)


def _ddim(settings: Scheduler, alpha_bar: float, before: float, _: int) -> tuple[float, ...]:
    """Song et al. 2021, equation 12 with eta 0; the noise is not worked out again after clipping, as in diffusers."""
    (a, b), (noise_x, noise_m) = _estimate(settings, alpha_bar)
    direction = math.sqrt(1.0 - before)
    return a, b, math.sqrt(before), direction * noise_x, direction * noise_m, 0.0


def _ddpm(settings: Scheduler, alpha_bar: float, before: float, t: int) -> tuple[float, ...]:
    """Ho et al. 2020, equations 6 and 7."""
    (a, b), _ = _estimate(settings, alpha_bar)
    alpha = alpha_bar / before
    beta = 1.0 - alpha
    clean = math.sqrt(before) * beta / (1.0 - alpha_bar)
    present = math.sqrt(alpha) * (1.0 - before) / (1.0 - alpha_bar)
    variance = max((1.0 - before) / (1.0 - alpha_bar) * beta, 1e-20)
    if settings.variance_type.startswith("fixed_large"):
        variance = beta
    # diffusers' fixed_large_log hands over the logarithm itself, which is not a deviation; its exponent is meant
    deviation = math.sqrt(variance) if t > 0 else 0.0
    return a, b, clean, present, 0.0, deviation


def _cosine_beta(i: int, count: int) -> float:
    def kept(part: float) -> float:
        return math.cos((part + 0.008) / 1.008 * math.pi / 2) ** 2

    return min(1.0 - kept((i + 1) / count) / kept(i / count), 0.999)


def _rescaled_to_zero_snr(found: Float32) -> Float32:
    """Lin et al. 2023, algorithm 1."""
    roots = np.sqrt(np.cumprod(np.float32(1.0) - found, dtype=np.float32))
    first, last = roots[0].copy(), roots[-1].copy()
    roots = (roots - last) * (first / (first - last))
    bars = roots**2
    kept = np.concatenate([bars[:1], bars[1:] / bars[:-1]])
    return np.asarray(np.float32(1.0) - kept, np.float32)
