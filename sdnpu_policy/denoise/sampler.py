"""The resumable sampler: where one denoising stands, one model call at a time.

Between two calls nothing is on a stack, so a denoising can be spread over control ticks, wait for a late step, or be
dropped.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.bundle.schema import Timestep
from sdnpu_policy.denoise.schedule import Float32, Schedule


class NonFiniteOutput(ArithmeticError):
    """The model's output holds NaN or infinity; the denoising was dropped."""


def timestep_rows(timestep: Timestep, timesteps: NDArray[np.int64]) -> NDArray[np.generic]:
    """What the denoiser is told of each timestep: int64 (n, 1), or float32 (n, 1, dim) sines then cosines.

    The frequencies are max_period ** (-i / (dim/2 - 1)), as in diffusion_policy's and LeRobot's SinusoidalPosEmb.
    """
    if timestep.encoding == "index" or timestep.dim is None:
        return timesteps.reshape(-1, 1)
    half = timestep.dim // 2
    frequencies = np.exp(np.arange(half) * (-math.log(timestep.max_period) / (half - 1)))
    angles = timesteps[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)[:, None, :]


def steps_that_fit(left_ms: float, p99_ms: float, remaining: int, at_least: int = 1) -> int:
    """How many of ``remaining`` steps end within ``left_ms`` when each takes its recent p99; ``at_least`` so many."""
    if left_ms <= 0.0:
        return at_least
    return max(at_least, remaining if p99_ms * remaining <= left_ms else int(left_ms / p99_ms))


class Sampler:
    """One denoising at a time over one schedule. Deterministic by the generator's seed; one thread."""

    def __init__(
        self,
        schedule: Schedule,
        shape: tuple[int, ...],
        rng: np.random.Generator,
        rows: NDArray[np.generic],
    ) -> None:
        """``shape`` is that of the sample without the batch; ``rows`` are those of `timestep_rows`."""
        self.schedule = schedule
        self.index = 0
        """Number of the step whose model call is next."""
        self._rows = rows
        self._rng = rng
        self._sample: Float32 = np.zeros((1, *shape), np.float32)
        self._noise: Float32 = np.zeros_like(self._sample)
        self._scratch: Float32 = np.zeros_like(self._sample)
        self._active = False

    @property
    def sample(self) -> Float32:
        """(1, *shape): the next model call's input; a view that the sampler goes on to change."""
        return self._sample

    @property
    def active(self) -> bool:
        """A denoising is under way."""
        return self._active

    @property
    def total(self) -> int:
        """Steps of a denoising from pure noise."""
        return len(self.schedule)

    @property
    def remaining(self) -> int:
        """Model calls until the denoising under way is finished."""
        return self.total - self.index if self._active else 0

    @property
    def actions(self) -> Float32:
        """(*shape): what the last finished denoising came to; a view, good until the next `begin`."""
        first: Float32 = self._sample[0]
        return first

    def begin(self, *, start: int = 0, initial: Float32 | None = None) -> None:
        """Begin a denoising, from pure noise or, with ``initial`` (*shape), from a first guess noised to step ``start``.

        Raises:
            ValueError: ``start`` is no step, or ``initial`` has another shape or is not finite.
        """
        if not 0 <= start < self.total:
            raise ValueError(f"start is {start}: a step from 0 to {self.total - 1} is needed")
        self._rng.standard_normal(dtype=np.float32, out=self._noise)
        if initial is None:
            np.copyto(self._sample, self._noise)
        else:
            if initial.shape != self._sample.shape[1:] or not np.isfinite(initial).all():
                raise ValueError(f"the first guess has shape {initial.shape}, or is not finite")
            self.schedule.noised(initial[None], self._noise, start, self._sample)
        self.index = start
        self._active = True

    def timestep_input(self, i: int) -> NDArray[np.generic]:
        """What the denoiser is told in step i: int64 (1,), or float32 (1, dim)."""
        row: NDArray[np.generic] = self._rows[i]
        return row

    def advance(self, model_output: Float32) -> bool:
        """Take the model's output for `sample`; True when the denoising is finished.

        ``model_output`` is overwritten.

        Raises:
            NonFiniteOutput: it holds NaN or infinity; the denoising was dropped.
            RuntimeError: no denoising is under way.
            ValueError: it has another shape than `sample`.
        """
        if not self._active:
            raise RuntimeError("no denoising is under way")
        if model_output.shape != self._sample.shape:
            raise ValueError(
                f"the network's output has shape {model_output.shape}: {self._sample.shape} is needed"
            )
        if not np.isfinite(model_output).all():
            self.drop()
            raise NonFiniteOutput("the network's output holds NaN or infinity")
        if self.schedule.stochastic:
            self._rng.standard_normal(dtype=np.float32, out=self._noise)
        self.schedule.step(self.index, model_output, self._sample, self._scratch, self._noise)
        self.index += 1
        if self.index == self.total:
            self._active = False
            return True
        return False

    def drop(self) -> None:
        """Forget the denoising under way."""
        self._active = False
