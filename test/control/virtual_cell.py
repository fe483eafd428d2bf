"""A loop in virtual time, with a network that always plans a straight line and a robot that is where it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.bundle.schema import Scheduler, Timestep
from sdnpu_policy.clock import MS, SECOND, VirtualClock
from sdnpu_policy.control.denoiser import Feeds, Observation, SlicedDenoiser, SliceSettings
from sdnpu_policy.control.loop import Command, ControlLoop, LoopSettings, RobotView
from sdnpu_policy.control.tick_log import TickLog
from sdnpu_policy.control.watchdog import LadderSettings, State
from sdnpu_policy.denoise.sampler import Sampler, timestep_rows
from sdnpu_policy.denoise.schedule import make_schedule
from sdnpu_policy.letters import TargetMode
from sdnpu_policy.motion.actions import ActionSpec, encode_actions, waypoint_times
from sdnpu_policy.motion.envelope import Envelope, EnvelopeSettings
from sdnpu_policy.motion.follower import PathClock
from sdnpu_policy.motion.plan import Plan, PlanSettings
from sdnpu_policy.npu.virtual import VirtualStepper

TICK_NS = 4 * MS
IMAGE_NS = 32 * MS
START = np.array([0.5, -0.2, 0.2, 1.0, 0.0, 0.0, 0.0])
LIMITS = EnvelopeSettings(
    workspace_min_m=(0.3, -0.4, 0.0),
    workspace_max_m=(0.75, 0.4, 0.5),
    max_reach_m=0.85,
    max_speed_m_s=0.25,
    max_acceleration_m_s2=2.5,
    max_angular_speed_rad_s=1.5,
    max_angular_acceleration_rad_s2=15.0,
    max_step_m=0.1,
)
SPEC = ActionSpec(
    horizon=16,
    dim=7,
    rate_hz=15.625,
    first_offset_steps=1,
    position="absolute",
    rotation="quaternion",
    rotation_6d_layout="columns",
    relative_axes="base",
    scale=np.ones(7),
    offset=np.zeros(7),
)


@dataclass
class VirtualCell:
    """Fields may be changed between ticks to make things go wrong."""

    step_ms: float = 0.8
    """What each step takes from now on."""
    velocity_m_s: tuple[float, float, float] = (0.1, 0.0, 0.0)
    images: bool = True
    robot_states: bool = True
    bad_output: float | None = None
    """Instead of its output the network says this."""
    fault: str = ""
    servo_follows: bool = True
    on_late: str = "coast"
    warm_start_steps: int = 0
    steps_per_tick: int = 0
    commands: list[Command] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(10 * SECOND)
        self.pose = START.copy()
        self.servo_on = False
        self.observed: Observation | None = None
        self._output = np.zeros((1, 16, 7), np.float32)
        self._condition = np.zeros((1, 1), np.float32)
        settings = Scheduler(
            class_name="DDIMScheduler",
            num_train_timesteps=100,
            beta_schedule="squaredcos_cap_v2",
            prediction_type="sample",
            timestep_spacing="trailing",
            clip_sample=False,
            num_inference_steps=4,
        )
        schedule = make_schedule(settings, 4)
        index = Timestep(encoding="index")
        sampler = Sampler(schedule, (16, 7), np.random.default_rng(0), timestep_rows(index, schedule.timesteps))
        self.stepper = VirtualStepper(self._network, lambda: int(self.step_ms * MS), self.clock)
        log = TickLog(4096)
        denoiser = SlicedDenoiser(
            sampler=sampler,
            stepper=self.stepper,
            feeds=Feeds(np.zeros((1, 16, 7), np.float32), np.zeros(1, np.int64), self._condition, self._output),
            actions=SPEC,
            clock=self.clock,
            settings=SliceSettings(
                steps_per_tick=self.steps_per_tick,
                warm_start_steps=self.warm_start_steps,
                wait_for_late=self.on_late == "block",
            ),
            on_step=log.add_step,
        )
        self.loop = ControlLoop(
            clock=self.clock,
            denoiser=denoiser,
            plan=Plan(PlanSettings(blend_ms=100.0, max_age_ms=400.0)),
            envelope=Envelope(LIMITS),
            path_clock=PathClock(),
            actions=SPEC,
            settings=LoopSettings(tick_ns=TICK_NS),
            ladder_settings=LadderSettings(coast_on_late=self.on_late != "hold", max_hold_s=2.0),
            log=log,
            now_ns=self.clock.now_ns(),
        )
        self._next_image_ns = self.clock.now_ns()
        self._robot: RobotView | None = None

    def _network(self) -> None:
        assert self.observed is not None
        times_s = (waypoint_times(SPEC, 0) / SECOND)[:, None]
        poses = np.repeat(self.observed.pose[None], 16, axis=0)
        poses[:, :3] += times_s * np.asarray(self.velocity_m_s)
        self._output[0] = encode_actions(poses, SPEC, self.observed.pose)
        if self.bad_output is not None:
            self._output[0, 3, 2] = self.bad_output

    def tick(self, count: int = 1) -> None:
        """Let so many control periods pass."""
        for _ in range(count):
            due_ns = (self.clock.now_ns() // TICK_NS + 1) * TICK_NS
            self.clock.sleep_until_ns(due_ns)
            offered = None
            if self.images and due_ns >= self._next_image_ns:
                self._next_image_ns = due_ns + IMAGE_NS
                offered = Observation(np.zeros((1, 1), np.float32), self.pose.copy(), due_ns)
                self.observed = offered
            if self.robot_states or self._robot is None:
                self._robot = RobotView(self.pose.copy(), due_ns - MS, self.servo_on, fault=self.fault)
            command = self.loop.tick(due_ns, offered, self._robot, due_ns=due_ns)
            self.servo_on = command.mode == TargetMode.STREAM
            if self.servo_on and command.pose is not None and self.servo_follows:
                self.pose = command.pose
            self.commands.append(command)
            self.states.append(self.loop.ladder.state)

    def run_until(self, state: State, limit: int = 1000) -> int:
        """Tick until the ladder is there; how many ticks that took."""
        for number in range(limit):
            if self.loop.ladder.state == state:
                return number
            self.tick()
        raise AssertionError(f"{state.name} was not reached in {limit} ticks: {self.loop.ladder.describe()}")


def path(commands: list[Command]) -> NDArray[np.float64]:
    """The poses [N, 7] of commands that stream."""
    return np.array([c.pose for c in commands if c.pose is not None])
