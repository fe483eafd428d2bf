"""Closed-loop episodes of the reference policy in the work cell, in virtual time and without ROS.

The arm is a first-order follower at 125 Hz. Denoising is spread over time as on the robot: a chunk that begins
with the picture at time t is ready `(1 + denoising steps) * step_ms` later; until then the one before goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
from numpy.typing import NDArray

from sdnpu_policy.sim.cell import Judge, Outcome, Scene, Verdict, render, tool_down_pose
from sdnpu_policy.sim.cell_scene import wrap_angle

Array = NDArray[np.float32]
Floats = NDArray[np.float64]

TICK_S = 0.008
WAYPOINT_TICKS = 8  # 64 ms
HISTORY_TICKS = 8  # the state also holds the change over the last 64 ms
HORIZON, ACTION_DIM, TIMESTEP_DIM, TRAINED_STEPS = 16, 9, 64, 100
CLIP = 1.3

# The scales of the policy's numbers. They are also what stats.json says, see make_reference_bundle.py.
POSITION_MEAN, POSITION_STD = np.array([0.5, 0.0, 0.12]), np.array([0.2, 0.32, 0.12])
DELTA_GAIN = 8.0
REACH = np.arange(1, HORIZON + 1)
POSITION_REACH_M, ROTATION_REACH = 0.0165 * REACH, 0.10 * REACH


@dataclass(frozen=True, slots=True)
class Timing:
    """How denoising is spread over time, in milliseconds."""

    denoising_steps: int = 4
    step_ms: float = 4.0
    replan_ms: float = 32.0
    blend_ms: float = 64.0

    @property
    def delay_ticks(self) -> int:
        """From the picture to the chunk."""
        return math.ceil((1 + self.denoising_steps) * self.step_ms * 1e-3 / TICK_S - 1e-9)


@dataclass(frozen=True, slots=True)
class Networks:
    """The two networks of the policy; `record_*` see what goes into them."""

    encoder: onnxruntime.InferenceSession
    unet: onnxruntime.InferenceSession
    record_encoder: Callable[[dict[str, Array]], None] = lambda inputs: None
    record_unet: Callable[[dict[str, Array]], None] = lambda inputs: None

    def encode(self, image: Array) -> Array:
        inputs = {"image": image}
        self.record_encoder(inputs)
        return self.encoder.run(None, inputs)[0]

    def denoise(self, sample: Array, condition: Array, timestep: int) -> Array:
        inputs = {
            "sample": sample,
            "timestep_embedding": TIMESTEP_EMBEDDINGS[timestep : timestep + 1],
            "global_cond": condition,
        }
        self.record_unet(inputs)
        return self.unet.run(None, inputs)[0]


def open_network(file: Path) -> onnxruntime.InferenceSession:
    """One thread on the CPU provider."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def timestep_embeddings() -> Array:
    """Sinusoidal embedding of each training timestep, [100,64]: sines, then cosines, periods up to 10000."""
    half = TIMESTEP_DIM // 2
    frequencies = np.exp(-math.log(10_000.0) * np.arange(half) / (half - 1))
    phases = np.arange(TRAINED_STEPS)[:, None] * frequencies[None]
    return np.concatenate([np.sin(phases), np.cos(phases)], axis=1).astype(np.float32)


def cumulative_alphas() -> Floats:
    """Of the squared-cosine schedule (Nichol and Dhariwal 2021), [100]."""

    def level(fraction: float) -> float:
        return math.cos((fraction + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [
        min(1 - level((i + 1) / TRAINED_STEPS) / level(i / TRAINED_STEPS), 0.999) for i in range(TRAINED_STEPS)
    ]
    return np.cumprod(1 - np.array(betas))


TIMESTEP_EMBEDDINGS = timestep_embeddings()
CUMULATIVE_ALPHAS = cumulative_alphas()


def denoise(networks: Networks, condition: Array, steps: int, rng: np.random.Generator) -> Array:
    """DDIM with a network that predicts the sample, trailing timesteps, eta 0; normalised actions [16,9]."""
    sample = rng.standard_normal((1, HORIZON, ACTION_DIM), np.float32)
    timesteps = np.round(np.arange(TRAINED_STEPS, 0, -TRAINED_STEPS / steps)).astype(int) - 1
    for timestep in timesteps:
        before = timestep - TRAINED_STEPS // steps
        alpha = CUMULATIVE_ALPHAS[timestep]
        alpha_before = CUMULATIVE_ALPHAS[before] if before >= 0 else 1.0
        predicted = networks.denoise(sample, condition, int(timestep))
        noise = (sample - math.sqrt(alpha) * predicted) / math.sqrt(1 - alpha)
        clean = np.clip(predicted, -CLIP, CLIP)
        sample = (math.sqrt(alpha_before) * clean + math.sqrt(1 - alpha_before) * noise).astype(np.float32)
    return sample[0]


def image_input(image: NDArray[np.uint8]) -> Array:
    """The camera's picture [480,640,3] as the encoder takes it, [1,3,96,96] within -0.5..0.5."""
    square = cv2.resize(image[:, 80:560], (96, 96), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(square.transpose(2, 0, 1)[None], dtype=np.float32) / 255 - np.float32(0.5)


def state_input(now: tuple[Floats, float], before: tuple[Floats, float]) -> Array:
    """Normalised pose and its change over the last 64 ms, [1,18]."""

    def normalised(position: Floats, yaw: float) -> Floats:
        c, s = math.cos(yaw), math.sin(yaw)
        return np.concatenate([(position - POSITION_MEAN) / POSITION_STD, [c, s, 0, s, -c, 0]])

    pose = normalised(*now)
    return np.concatenate([pose, DELTA_GAIN * (pose - normalised(*before))])[None].astype(np.float32)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Waypoints 64 ms apart, positions [17,3] and yaws [17]; the first is the observed pose."""

    positions: Floats
    yaws: Floats
    observed_tick: int

    def at(self, tick: float) -> tuple[Floats, float]:
        """Interpolated; the last waypoint afterwards."""
        where = min(max((tick - self.observed_tick) / WAYPOINT_TICKS, 0.0), HORIZON)
        k = min(int(where), HORIZON - 1)
        part = where - k
        position = self.positions[k] * (1 - part) + self.positions[k + 1] * part
        return position, float(self.yaws[k] * (1 - part) + self.yaws[k + 1] * part)


def decode(actions: Array, position: Floats, yaw: float, observed_tick: int) -> Chunk:
    """Displacements and rotations relative to the observed pose, as a chunk."""
    cosine = 1 + 0.5 * (actions[:, 3] + actions[:, 7]) * ROTATION_REACH
    sine = 0.5 * (actions[:, 4] - actions[:, 6]) * ROTATION_REACH
    positions = position + actions[:, :3] * POSITION_REACH_M[:, None]
    return Chunk(np.vstack([position, positions]), np.append(yaw, yaw + np.arctan2(sine, cosine)), observed_tick)


class FirstOrderArm:
    """A tool that follows its target with bounded speed and acceleration."""

    TIME_CONSTANT_S = 0.04
    MAX_SPEED_M_S, MAX_ACCELERATION_M_S2 = 0.25, 3.0
    MAX_TURN_RAD_S, MAX_TURN_ACCELERATION_RAD_S2 = 1.5, 20.0

    def __init__(self, scene: Scene) -> None:
        self.position, self.yaw = np.array(scene.start_m), scene.start_yaw_rad
        self._velocity, self._turn_rate = np.zeros(3), 0.0

    def tick(self, target: Floats, target_yaw: float) -> None:
        """Let 8 ms pass."""
        wanted = _at_most((target - self.position) / self.TIME_CONSTANT_S, self.MAX_SPEED_M_S)
        self._velocity = self._velocity + _at_most(wanted - self._velocity, self.MAX_ACCELERATION_M_S2 * TICK_S)
        turn = np.clip(
            wrap_angle(target_yaw - self.yaw) / self.TIME_CONSTANT_S, -self.MAX_TURN_RAD_S, self.MAX_TURN_RAD_S
        )
        change = self.MAX_TURN_ACCELERATION_RAD_S2 * TICK_S
        self._turn_rate += float(np.clip(turn - self._turn_rate, -change, change))
        self.position = self.position + TICK_S * self._velocity
        self.yaw += TICK_S * self._turn_rate


def _at_most(vector: Floats, norm: float) -> Floats:
    return vector * min(1.0, norm / max(float(np.linalg.norm(vector)), 1e-9))


def run_episode(networks: Networks, scene: Scene, timing: Timing, rng: np.random.Generator) -> Verdict:
    """One episode from the scene's start pose to its verdict."""
    arm, judge = FirstOrderArm(scene), Judge(scene)
    past = [(arm.position, arm.yaw)] * (HISTORY_TICKS + 1)
    running = Chunk(np.repeat(arm.position[None], HORIZON + 1, 0), np.full(HORIZON + 1, arm.yaw), 0)
    previous, pending, switched_tick = running, None, 0
    replan_ticks = max(round(timing.replan_ms * 1e-3 / TICK_S), timing.delay_ticks)
    blend_ticks = max(timing.blend_ms * 1e-3 / TICK_S, 1e-9)
    tick = 0
    while judge.feed(tick * TICK_S, tool_down_pose(arm.position, arm.yaw)).outcome is Outcome.RUNNING:
        if pending is not None and tick - pending.observed_tick >= timing.delay_ticks:
            previous, running, pending, switched_tick = running, pending, None, tick
        if tick % replan_ticks == 0:
            image = render(scene, tool_down_pose(arm.position, arm.yaw), rng)
            state = state_input(past[-1], past[0])
            condition = np.concatenate([networks.encode(image_input(image)), state], axis=1)
            actions = denoise(networks, condition, timing.denoising_steps, rng)
            pending = decode(actions, arm.position, arm.yaw, tick)
        weight = min((tick + 1 - switched_tick) / blend_ticks, 1.0)
        weight = weight * weight * (3 - 2 * weight)
        (old, old_yaw), (new, new_yaw) = previous.at(tick + 1), running.at(tick + 1)
        arm.tick(old + weight * (new - old), old_yaw + weight * (new_yaw - old_yaw))
        past = [*past[1:], (arm.position, arm.yaw)]
        tick += 1
    assert judge.verdict is not None
    return judge.verdict
