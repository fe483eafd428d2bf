"""DDIM (eta 0) and DDPM as tables: what diffusers computes in torch at each step, worked out beforehand.

Follows diffusers' `DDIMScheduler` and `DDPMScheduler`, whose settings the bundle's scheduler section carries; whole
trajectories agree to 1e-6. Both are one formula, linear but for the clipping:

    x0   = the clean sample, estimated from the model's output and the sample, clipped
    next = c x0 + a output + b sample (+ s noise in DDPM)

in at most eight operations on arrays that exist.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.bundle.schema import Scheduler
from sdnpu_policy.errors import SdnpuError

Float32 = NDArray[np.float32]
Scalars = tuple[Float32, ...]
"""A float32 array without axes for each step: what numpy multiplies a small array by in the least time."""
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


def betas(settings: Scheduler) -> Float32:
    """The noise added in each training step [N].

    linear: Ho et al. 2020; scaled_linear: Rombach et al. 2022; squaredcos_cap_v2: Nichol and Dhariwal 2021.
    """
    count = settings.num_train_timesteps
    if settings.trained_betas is not None:
        found = np.asarray(settings.trained_betas, np.float32)
    elif settings.beta_schedule == "linear":
        found = _linspace(settings.beta_start, settings.beta_end, count)
    elif settings.beta_schedule == "scaled_linear":
        roots = _linspace(settings.beta_start**0.5, settings.beta_end**0.5, count)
        found = roots * roots
    else:
        found = np.array([_cosine_beta(i, count) for i in range(count)], np.float32)
    return _rescaled_to_zero_snr(found) if settings.rescale_betas_zero_snr else found


def alphas_cumprod(settings: Scheduler) -> Float32:
    """Cumulated product of 1 - beta [N]."""
    return _cumprod(np.float32(1.0) - betas(settings))


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
    """The steps of one denoising. Made by `make_schedule`; a step works in place and allocates nothing of note."""

    timesteps: NDArray[np.int64]
    """(n,), noisiest first."""
    alpha_bars: Float32
    """(n,) cumulated alpha at each of them."""
    prediction_type: str
    clip: Scalars
    """Least and largest value of the estimate of the clean sample, or nothing."""
    signal: Scalars
    """sqrt(abar)."""
    noise: Scalars
    """sqrt(1 - abar)."""
    of_clean: Scalars
    """Weight of the clean sample in the next one."""
    of_output: Scalars
    """Weight of the model's output besides (DDIM; 0 in DDPM)."""
    of_sample: Scalars
    """Weight of the sample besides."""
    deviation: Scalars
    """Deviation of the fresh noise (DDPM; 0 in DDIM)."""
    stochastic: bool
    """A step adds noise (DDPM)."""

    def __len__(self) -> int:
        return len(self.timesteps)

    def step(
        self, i: int, model_output: Float32, sample: Float32, scratch: Float32, noise: Float32 | None = None
    ) -> None:
        """Turn ``sample`` from timestep i into that of the step after, in place.

        Args:
            i: number of the step, 0 the noisiest.
            model_output: what the denoiser said of ``sample``, float32; overwritten.
            sample: float32, any shape.
            scratch: as large, overwritten.
            noise: standard normal, as large; needed where the schedule is ``stochastic``.

        Raises:
            ValueError: noise is needed and missing.
        """
        if self.stochastic and noise is None:
            raise ValueError("a DDPM step needs noise")
        clean = self._estimate(i, model_output, sample, scratch)
        if self.clip:
            # np.clip takes twice as long on an array this small
            clean = np.maximum(clean, self.clip[0], out=scratch)
            np.minimum(clean, self.clip[1], out=scratch)
        np.multiply(clean, self.of_clean[i], out=scratch)
        sample *= self.of_sample[i]
        sample += scratch
        if not self.stochastic:
            model_output *= self.of_output[i]
            sample += model_output
        elif noise is not None and self.deviation[i]:
            np.multiply(noise, self.deviation[i], out=scratch)
            sample += scratch

    def noised(self, clean: Float32, noise: Float32, i: int, out: Float32) -> None:
        """The clean sample as it would look at step i: sqrt(abar) x0 + sqrt(1 - abar) noise, into ``out``."""
        np.multiply(noise, self.noise[i], out=out)
        out += self.signal[i] * clean

    def _estimate(self, i: int, output: Float32, sample: Float32, scratch: Float32) -> Float32:
        """The clean sample, in ``scratch`` unless it is the model's output itself."""
        if self.prediction_type == "sample":
            return output
        np.multiply(output, self.noise[i], out=scratch)
        if self.prediction_type == "epsilon":
            # not x/s - (n/s) e: at the noisiest step 1/s is in the thousands, and the digits would cancel
            np.subtract(sample, scratch, out=scratch)
            scratch /= self.signal[i]
        else:
            np.subtract(sample * self.signal[i], scratch, out=scratch)
        return scratch


def make_schedule(settings: Scheduler, steps: int) -> Schedule:
    """The table of ``steps`` denoising steps.

    DDIM: Song et al. 2021, equation 12 with eta 0; the noise is not worked out again after clipping, as in diffusers.
    DDPM: Ho et al. 2020, equations 6 and 7.

    Raises:
        ValueError: more steps than the scheduler was trained with, or fewer than one.
        SdnpuError: its settings can't go with that many steps.
    """
    count = settings.num_train_timesteps
    if not 1 <= steps <= count:
        raise ValueError(f"{steps} denoising steps: 1 to {count} (num_train_timesteps) are possible")
    bars = alphas_cumprod(settings)
    timesteps = inference_timesteps(settings, steps)
    _check_timesteps(settings, steps, timesteps)
    ddpm = settings.class_name == "DDPMScheduler"
    # diffusers' DDPM steps to the next timestep of the list, its DDIM by an even stride that may miss it
    following = np.append(timesteps[1:], -1) if ddpm else timesteps - count // steps
    final = _ONE if ddpm or settings.set_alpha_to_one else bars[0]
    bar = bars[timesteps]
    after = np.where(following >= 0, bars[np.maximum(following, 0)], final).astype(np.float32)
    signal, noise = np.sqrt(bar), np.sqrt(_ONE - bar)
    zeros = np.zeros(steps, np.float32)
    if ddpm:
        beta = _ONE - bar / after
        of_clean, of_output = np.sqrt(after) * beta / (_ONE - bar), zeros
        of_sample = np.sqrt(bar / after) * (_ONE - after) / (_ONE - bar)
        variance = np.maximum((_ONE - after) / (_ONE - bar) * beta, np.float32(1e-20))
        if settings.variance_type.startswith("fixed_large"):
            # diffusers hands over the logarithm itself for fixed_large_log, which is no deviation: its exponent is meant
            variance = beta
        deviation = np.where(timesteps > 0, np.sqrt(variance), _ZERO)
    else:
        # sqrt(1 - abar') times the estimated noise, in terms of the output and the sample
        of_clean, of_noise = np.sqrt(after), np.sqrt(_ONE - after)
        of_output, of_sample = {
            "epsilon": (of_noise, zeros),
            "sample": (-of_noise * signal / noise, of_noise / noise),
            "v_prediction": (of_noise * signal, of_noise * noise),
        }[settings.prediction_type]
        deviation = zeros
    return Schedule(
        timesteps=timesteps,
        alpha_bars=bar,
        prediction_type=settings.prediction_type,
        clip=_scalars(np.array([-1.0, 1.0], np.float32) * np.float32(settings.clip_sample_range))
        if settings.clip_sample
        else (),
        signal=_scalars(signal),
        noise=_scalars(noise),
        of_clean=_scalars(of_clean),
        of_output=_scalars(of_output),
        of_sample=_scalars(of_sample),
        deviation=_scalars(deviation),
        stochastic=ddpm,
    )


def _scalars(values: Float32) -> Scalars:
    return tuple(np.asarray(value, np.float32) for value in values)


def _check_timesteps(settings: Scheduler, steps: int, timesteps: NDArray[np.int64]) -> None:
    count = settings.num_train_timesteps
    if timesteps.max() >= count:
        raise SdnpuError(
            f"scheduler: steps_offset is {settings.steps_offset}, which makes timestep {timesteps.max()} of {steps} "
            f"denoising steps: at most {count - 1} is possible; fewer steps or a smaller offset are needed"
        )
    if steps == 1 and settings.timestep_spacing == "leading" and count > 1:
        raise SdnpuError(
            "scheduler: one denoising step with timestep_spacing leading takes pure noise for an almost clean sample: "
            "two steps or more, or timestep_spacing trailing, are needed"
        )


def _linspace(start: float, end: float, count: int) -> Float32:
    """torch's linspace in float32: counted from both ends, with a step that is rounded to float32."""
    first, last = np.float32(start), np.float32(end)
    step = float((last - first) / np.float32(max(count - 1, 1)))
    i = np.arange(count)
    return np.where(i < count // 2, float(first) + step * i, float(last) - step * (count - 1 - i)).astype(
        np.float32
    )


def _cumprod(factors: Float32) -> Float32:
    """torch's cumprod on a CPU: float32 factors, multiplied up in float64."""
    return np.cumprod(factors, dtype=np.float64).astype(np.float32)


def _cosine_beta(i: int, count: int) -> float:
    def kept(part: float) -> float:
        return math.cos((part + 0.008) / 1.008 * math.pi / 2) ** 2

    return min(1.0 - kept((i + 1) / count) / kept(i / count), 0.999)


def _rescaled_to_zero_snr(found: Float32) -> Float32:
    """Lin et al. 2023, algorithm 1."""
    roots = np.sqrt(_cumprod(np.float32(1.0) - found))
    first, last = roots[0].copy(), roots[-1].copy()
    roots = (roots - last) * (first / (first - last))
    bars = roots**2
    kept = np.concatenate([bars[:1], bars[1:] / bars[:-1]])
    return np.asarray(np.float32(1.0) - kept, np.float32)
