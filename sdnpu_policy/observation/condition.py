"""Images and robot poses to the condition a denoising is made with: history, encoder, state, in the order trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.bundle.manifest import Bundle
from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.observation.history import PoseHistory
from sdnpu_policy.observation.image import Rgb
from sdnpu_policy.observation.preprocess import CameraTransform, state_vector
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

TOGETHER_NS = 100 * MS
"""Pictures of several cameras further apart than this do not show one moment."""
_FRAMES_A_STEP = 8
"""Spacings in an observation step: the kept picture nearest to a step is off by a sixteenth of it at most."""


class Encoder(Protocol):
    """A network with bound buffers, such as npu.session.Session."""

    @property
    def inputs(self) -> dict[str, NDArray[Any]]: ...

    @property
    def outputs(self) -> dict[str, NDArray[Any]]: ...

    def run(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A condition and the observation it was made from."""

    condition: NDArray[np.float32]
    """(G,); overwritten by the next."""
    observed_pose: NDArray[np.float64]
    """(7,) TCP when the picture was taken."""
    observed_ns: int


class _Frames:
    """The last transformed pictures of one camera."""

    def __init__(self, shape: tuple[int, ...], count: int, spacing_ns: int) -> None:
        self._spacing_ns = spacing_ns
        self.pictures = np.zeros((count, *shape), np.float32)
        self.stamps_ns = np.full(count, np.iinfo(np.int64).min)
        self.seen = 0

    @property
    def newest_ns(self) -> int:
        return int(self.stamps_ns[(self.seen - 1) % len(self.stamps_ns)])

    def next_slot(self, stamp_ns: int) -> int:
        """Where the next picture goes: over the newest, when that is nearer than the spacing to the one before it.

        So a fast camera does not push out the pictures of earlier observation steps.
        """
        count = len(self.stamps_ns)
        if self.seen >= 2 and stamp_ns - self.stamps_ns[(self.seen - 2) % count] < self._spacing_ns:
            return (self.seen - 1) % count
        return self.seen % count

    def keep(self, slot: int, stamp_ns: int) -> None:
        """The picture in ``slot`` is the newest now."""
        self.stamps_ns[slot] = stamp_ns
        self.seen += slot == self.seen % len(self.stamps_ns)

    def nearest(self, t_ns: int) -> NDArray[np.float32]:
        """The picture taken nearest to ``t_ns``; the oldest there is, at the start."""
        known = self.stamps_ns[: min(self.seen, len(self.stamps_ns))]
        return np.asarray(self.pictures[int(np.abs(known - t_ns).argmin())])


class ConditionMaker:
    """Fed with pictures, asked for conditions. One thread."""

    def __init__(self, bundle: Bundle, encoder: Encoder) -> None:
        manifest = bundle.manifest
        self.missing = ""
        """What the last `make` that gave None had not."""
        self._encoder = encoder
        self._manifest = manifest
        self._steps = manifest.observation.n_obs_steps
        self._period_ns = round(SECOND / manifest.action.rate_hz)
        self._state = manifest.observation.state
        self._state_normalizer = bundle.normalizers[self._state.feature] if self._state else None
        self._transforms = {
            feature: CameraTransform(camera, bundle.normalizers[feature])
            for feature, camera in manifest.observation.cameras.items()
        }
        spacing_ns = self._period_ns // _FRAMES_A_STEP
        # of three kept in a row the outer two are at least the spacing apart
        count = 1 if self._steps == 1 else (self._steps - 1) * 2 * _FRAMES_A_STEP + 2
        self._frames = {
            feature: _Frames((3, camera.height, camera.width), count, spacing_ns)
            for feature, camera in manifest.observation.cameras.items()
        }
        features = int(encoder.outputs[manifest.encoder.output].size)
        appended = self._steps * self._state.width if self._state and manifest.encoder.append_state else 0
        self._condition = np.zeros(features + appended, np.float32)

    @property
    def size(self) -> int:
        """Values of a condition."""
        return self._condition.size

    def see(self, feature: str, rgb: Rgb, observed_ns: int) -> None:
        """Take a camera's picture (H, W, 3), taken at ``observed_ns``.

        Raises:
            ImageRejected: it is too small for the policy's crop.
        """
        frames = self._frames[feature]
        slot = frames.next_slot(observed_ns)
        self._transforms[feature].into(rgb, frames.pictures[slot])
        frames.keep(slot, observed_ns)

    def make(self, poses: PoseHistory) -> Made | None:
        """The condition of the newest pictures; None, and `missing`, where a camera or the robot has told nothing yet.

        Raises:
            ImageRejected: the cameras' pictures are too far apart, or the state or the condition is not finite.
        """
        for feature, frames in self._frames.items():
            if not frames.seen:
                self.missing = f"no image of {feature} yet"
                return None
        newest = [frames.newest_ns for frames in self._frames.values()]
        if newest and max(newest) - min(newest) > TOGETHER_NS:
            raise ImageRejected(
                RejectReason.NOT_TOGETHER,
                f"the cameras' images are {(max(newest) - min(newest)) / MS:.0f} ms apart: "
                f"at most {TOGETHER_NS / MS:g} ms is allowed",
            )
        observed_ns = min(newest) if newest else poses.newest_ns
        pose = poses.at(observed_ns) if observed_ns is not None else None
        if observed_ns is None or pose is None:
            self.missing = "no pose of the robot at the time of the image"
            return None
        times_ns = [observed_ns - (self._steps - 1 - step) * self._period_ns for step in range(self._steps)]
        states = self._states(poses, times_ns)
        if states is None:
            self.missing = "the robot's poses do not reach back far enough yet"
            return None
        if not np.isfinite(states).all():  # a quantized encoder would make something plausible of it
            raise ImageRejected(RejectReason.NON_FINITE, "the robot's state at this image is not finite")
        self._encode(times_ns, states)
        if not np.isfinite(self._condition).all():
            raise ImageRejected(RejectReason.NON_FINITE, "the condition made from this image is not finite")
        return Made(self._condition, pose, observed_ns)

    def _states(self, poses: PoseHistory, times_ns: list[int]) -> NDArray[np.float32] | None:
        """(steps, width) normalised; empty without a state in the policy; None where the poses do not reach."""
        state, normalizer = self._state, self._state_normalizer
        if state is None or normalizer is None:
            return np.zeros((self._steps, 0), np.float32)
        rows = [state_vector(state, poses, t_ns) for t_ns in times_ns]
        known = [row for row in rows if row is not None]
        if not known or rows[-1] is None:
            return None
        # at the start the oldest step there is stands for those before it, as in training
        filled = [row if row is not None else known[0] for row in rows]
        return normalizer.normalize(np.stack(filled))

    def _encode(self, times_ns: list[int], states: NDArray[np.float32]) -> None:
        encoder, inputs = self._manifest.encoder, self._encoder.inputs
        for feature, name in encoder.inputs.cameras.items():
            pictures = np.stack([self._frames[feature].nearest(t_ns) for t_ns in times_ns])
            np.copyto(inputs[name], pictures.reshape(inputs[name].shape))
        if encoder.inputs.state:
            np.copyto(inputs[encoder.inputs.state], states.reshape(inputs[encoder.inputs.state].shape))
        self._encoder.run()
        features = self._encoder.outputs[encoder.output].reshape(-1)
        self._condition[: features.size] = features
        if self._condition.size > features.size:
            self._condition[features.size :] = states.reshape(-1)
