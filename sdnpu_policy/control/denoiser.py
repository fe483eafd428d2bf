"""Denoising in slices: as many steps of the running chunk as surely fit a tick, never two at once.

The core idea of the package. A step whose result is not there by the deadline leaves the sampler where it is; the
result is used when it lands, for a step on an NPU can't be aborted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import MS, SECOND, Clock
from sdnpu_policy.denoise.sampler import NonFiniteOutput, Sampler, steps_that_fit
from sdnpu_policy.motion.actions import ActionSpec, decode_actions
from sdnpu_policy.motion.plan import Chunk
from sdnpu_policy.npu.stepper import StepRunner

BLOCK_LIMIT_NS = 1 * SECOND
"""How long ``block`` waits for a step in a tick: the arm has braked by itself long before."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a chunk is made from."""

    condition: NDArray[np.float32]
    """(G,), or the shape the denoiser takes."""
    pose: NDArray[np.float64]
    """(7,) TCP when the image was taken, frame ``base``."""
    observed_ns: int
    """When the image was taken, steady clock."""


@dataclass(frozen=True, slots=True)
class Feeds:
    """The denoiser's buffers, bound once: what is written here is what the next step reads."""

    sample: NDArray[np.float32]
    timestep: NDArray[np.generic]
    condition: NDArray[np.float32]
    output: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SliceSettings:
    """How much is done in a tick."""

    steps_per_tick: int = 0
    """0: as many as fit the deadline at the recent p99, at least one."""
    warm_start_steps: int = 0
    """Last steps of the schedule to run when the running plan is the start; 0: always from noise."""
    max_age_ns: int = 400 * MS
    """A chunk whose image is older is dropped unfinished."""
    wait_for_late: bool = False
    """Wait for a late step instead of going on without it (``on_late: block``)."""


@dataclass(slots=True)
class Slice:
    """What a tick's denoising came to."""

    steps: int = 0
    step_ns: int = 0
    """Time the steps that ended in this tick took."""
    late: bool = False
    """A result was not there by the deadline."""
    newly_late: bool = False
    """That step is late for the first time."""
    begun: bool = False
    chunk: Chunk | None = None
    bad: str = ""
    """The network's output was not finite or the step failed: why."""


class SlicedDenoiser:
    """One chunk after another, a few steps a tick. Owned by the control thread."""

    def __init__(
        self,
        *,
        sampler: Sampler,
        stepper: StepRunner,
        feeds: Feeds,
        actions: ActionSpec,
        clock: Clock,
        settings: SliceSettings,
        on_step: Callable[[float], None],
    ) -> None:
        """``on_step`` is told each step's milliseconds."""
        self.settings = settings
        self._on_step = on_step
        self.late_steps = 0
        self.steps = 0
        self.chunks = 0
        self._sampler = sampler
        self._stepper = stepper
        self._feeds = feeds
        self._actions = actions
        self._clock = clock
        self._observation: Observation | None = None
        self._pending = False
        self._ignore_result = False
        self._late = False

    @property
    def busy(self) -> bool:
        """A chunk is under way."""
        return self._sampler.active

    def drop(self) -> None:
        """Forget the chunk under way; a step still running is waited for but its result is not used."""
        self._sampler.drop()
        self._observation = None
        self._ignore_result = self._pending

    def run(
        self,
        deadline_ns: int,
        offered: Observation | None,
        running_plan: Callable[[Observation], NDArray[np.float32] | None],
    ) -> Slice:
        """Do this tick's steps.

        Args:
            deadline_ns: steady time by which the tick must go on.
            offered: a new observation, taken when no chunk is under way.
            running_plan: the plan's normalised actions [T, D] for an observation, where a warm start is possible.
        """
        done = Slice()
        if self._pending and not self._collect(deadline_ns, done):
            return done
        while not done.bad:
            if not self._sampler.active:
                if offered is None or done.chunk is not None:
                    break
                self._begin(offered, running_plan)
                offered = None
                done.begun = True
            if not self._room_for_a_step(deadline_ns, done.steps):
                break
            np.copyto(self._feeds.sample, self._sampler.sample)
            np.copyto(self._feeds.timestep, self._sampler.timestep_input(self._sampler.index))
            self._stepper.submit()
            self._pending = True
            if not self._collect(deadline_ns, done):
                break
        return done

    def _room_for_a_step(self, deadline_ns: int, steps: int) -> bool:
        if steps == 0:
            return True
        left_ms = (deadline_ns - self._clock.now_ns()) / MS
        fitting = steps_that_fit(
            left_ms, self._stepper.durations.recent_p99_ns / MS, self._sampler.remaining, at_least=0
        )
        if self.settings.steps_per_tick:
            return steps < self.settings.steps_per_tick and fitting > 0
        return fitting > 0

    def _begin(
        self, observation: Observation, running_plan: Callable[[Observation], NDArray[np.float32] | None]
    ) -> None:
        np.copyto(self._feeds.condition, observation.condition.reshape(self._feeds.condition.shape))
        self._observation = observation
        initial = running_plan(observation) if self.settings.warm_start_steps else None
        total = self._sampler.total
        start = max(0, total - self.settings.warm_start_steps) if initial is not None else 0
        self._sampler.begin(start=start, initial=initial)
        self.chunks += 1

    def _collect(self, deadline_ns: int, done: Slice) -> bool:
        """Wait for the running step until the deadline and use its result; False when it is late."""
        limit_ns = self._clock.now_ns() + BLOCK_LIMIT_NS if self.settings.wait_for_late else deadline_ns
        if not self._stepper.wait_until(limit_ns):
            done.late = True
            done.newly_late = not self._late
            self.late_steps += done.newly_late
            self._late = True
            return False
        result = self._stepper.take()
        self._pending = False
        assert result is not None
        if self.settings.wait_for_late and self._clock.now_ns() > deadline_ns:
            done.late = done.newly_late = True
            self.late_steps += 1
        self._late = False
        self.steps += 1
        done.steps += 1
        done.step_ns += result.duration_ns
        self._on_step(result.duration_ns / MS)
        if self._ignore_result:
            self._ignore_result = False
            return True
        observation = self._observation
        if observation is None:
            return True
        if result.error is not None:
            done.bad = f"the step failed: {result.error}"
            self.drop()
            return True
        try:
            finished = self._sampler.advance(self._feeds.output)
        except NonFiniteOutput as error:
            done.bad = str(error)
            self.drop()
            return True
        if finished:
            try:
                done.chunk = decode_actions(
                    self._sampler.actions, self._actions, observation.pose, observation.observed_ns
                )
            except ValueError as error:
                done.bad = str(error)
            self._observation = None
        elif self._clock.now_ns() - observation.observed_ns > self.settings.max_age_ns:
            self.drop()
        return True
