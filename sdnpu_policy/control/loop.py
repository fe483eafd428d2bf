"""The tick: denoise in the time there is, step the ladder, sample the plan, pass the envelope.

Pure of ROS, sockets and files: it takes a clock, a stepper and plain arrays, so that replay and the property tests run
the very same code in virtual time. One thread owns a loop; other threads ask for things with `request_pause`,
`request_stop` and `request_reset`, which are plain assignments.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.clock import MS, SECOND, Clock
from sdnpu_policy.control.denoiser import Observation, Slice, SlicedDenoiser
from sdnpu_policy.control.tick_log import TickLog
from sdnpu_policy.control.watchdog import Ladder, LadderSettings, Seen, State, advance, reset_refusal
from sdnpu_policy.letters import TargetMode
from sdnpu_policy.motion.actions import ActionSpec, encode_actions, waypoint_times
from sdnpu_policy.motion.envelope import Envelope, Limited
from sdnpu_policy.motion.follower import PathClock, path_speeds
from sdnpu_policy.motion.plan import Chunk, Plan


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Time and braking of the tick."""

    tick_ns: int = 4 * MS
    step_deadline_ns: int = 3 * MS
    brake_deceleration_m_s2: float = 1.5
    brake_angular_deceleration_rad_s2: float = 10.0
    execute: int = 1_000_000
    """The first so many actions of a chunk are used."""


@dataclass(frozen=True, slots=True)
class RobotView:
    """What is known of the robot."""

    pose: NDArray[np.float64]
    """(7,) measured TCP, frame ``base``."""
    stamp_ns: int
    """When it was measured, steady clock."""
    servo_on: bool = True
    """Targets move the arm; False while it is released, when it may be moved by another."""
    speed_scaling: float = 1.0
    """The speed slider, 0 to 1."""
    fault: str = ""
    """Why the robot can't be moved; empty when it can."""


@dataclass(frozen=True, slots=True)
class Command:
    """What a tick came to."""

    mode: TargetMode
    pose: NDArray[np.float64] | None
    """(7,) target; None while no pose of the robot is known."""
    twist: NDArray[np.float64] | None
    due_ns: int


class ControlLoop:
    """The state of the control thread between ticks."""

    def __init__(
        self,
        *,
        clock: Clock,
        denoiser: SlicedDenoiser,
        plan: Plan,
        envelope: Envelope,
        path_clock: PathClock,
        actions: ActionSpec,
        settings: LoopSettings,
        ladder_settings: LadderSettings,
        log: TickLog,
        now_ns: int,
    ) -> None:
        self.plan = plan
        self.envelope = envelope
        self.denoiser = denoiser
        self.log = log
        self.settings = settings
        self.ladder_settings = ladder_settings
        self.ladder = Ladder.start(now_ns)
        self.refused_chunks = 0
        self.last_stitch = ""
        self.reset_refusal = ""
        self.changes: deque[Ladder] = deque(maxlen=256)
        """The ladder after each change of state, for whoever logs and publishes them; they take from the left."""
        self._clock = clock
        self._path = path_clock
        self._actions = actions
        self._offset_ns = waypoint_times(actions, 0)
        self._robot: RobotView | None = None
        self._following = False  # the envelope continues from its own last target, not from the measured pose
        self._late_in_a_row = 0
        self._bad_in_a_row = 0
        self._offer: Observation | None = None
        self._newest_image_ns: int | None = None
        self._path_twist = [0.0] * 6
        self._paused = False
        self._stop_reason = ""
        self._process_gone = ""
        self._reset = False

    def request_pause(self, paused: bool) -> None:
        """Give the arm away, or take it back; from the next tick on."""
        self._paused = paused

    def request_stop(self, reason: str) -> None:
        """Stop in the next tick; needs a reset."""
        self._stop_reason = reason

    def process_gone(self, text: str) -> None:
        """A process that is needed has ended: stop in the next tick; needs a reset."""
        self._process_gone = text

    def request_reset(self) -> None:
        """Leave STOPPED in the next tick; `reset_refusal` says why not, where it can't."""
        self._reset = True

    @property
    def paused(self) -> bool:
        """A pause is asked for."""
        return self._paused

    @property
    def at_rest(self) -> bool:
        """Nothing is commanded and the servo is off."""
        robot = self._robot
        return not self._following and (robot is None or not robot.servo_on)

    def set_live(self, *, on_late: str, steps_per_tick: int, plan_lead_ms: float) -> None:
        """Take over the parameters that may change while the arm moves."""
        self.ladder_settings = replace(self.ladder_settings, coast_on_late=on_late != "hold")
        self.denoiser.settings = replace(
            self.denoiser.settings, steps_per_tick=steps_per_tick, wait_for_late=on_late == "block"
        )
        self._path.lead_ns = int(plan_lead_ms * MS)

    def tick(self, start_ns: int, offered: Observation | None, robot: RobotView | None, *, due_ns: int) -> Command:
        """One tick.

        Args:
            start_ns: now, at the start of the tick.
            offered: the newest condition, when it has not been used yet.
            robot: the newest state of the robot; None when there never was one.
            due_ns: when the tick was to start.
        """
        self._robot = robot
        if offered is not None:
            self._offer = offered
            self._newest_image_ns = offered.observed_ns
        sliced = self._denoise(start_ns)
        jump_m = self._stitch(sliced.chunk, due_ns) if sliced.chunk is not None else math.nan
        self._step_ladder(sliced, jump_m)
        limited = self._move(due_ns)
        command = self._command(limited, due_ns)
        self._write_log(start_ns, due_ns, sliced, jump_m, limited)
        return command

    # The parts of a tick, in their order

    def _denoise(self, start_ns: int) -> Slice:
        offer = self._offer
        if self.ladder.state == State.STOPPED or self._paused or self._robot is None:
            self.denoiser.drop()
            offer = None
        elif offer is not None and start_ns - offer.observed_ns > self.ladder_settings.condition_max_age_ms * MS:
            offer = None
        sliced = self.denoiser.run(start_ns + self.settings.step_deadline_ns, offer, self._running_plan)
        if sliced.begun or offer is None:
            self._offer = None
        self._late_in_a_row = self._late_in_a_row + 1 if sliced.late else 0
        if sliced.bad:
            self._bad_in_a_row += 1
        elif sliced.chunk is not None:
            self._bad_in_a_row = 0
        return sliced

    def _running_plan(self, observation: Observation) -> NDArray[np.float32] | None:
        poses = self.plan.sample_many(observation.observed_ns + self._offset_ns)
        return None if poses is None else encode_actions(poses, self._actions, observation.pose)

    def _stitch(self, chunk: Chunk, now_ns: int) -> float:
        """Put a finished chunk into the plan; the distance it lay from the old one in metres, NaN when refused."""
        count = self.settings.execute
        if count < len(chunk.times_ns):
            chunk = Chunk(chunk.times_ns[:count], chunk.poses[:count], chunk.observed_ns, chunk.observed_pose)
        if not self._following or (self.ladder.state == State.HOLD and self.envelope.standing):
            robot = self._robot
            if robot is None or not self._is_fresh(robot, now_ns):
                self.refused_chunks += 1
                self.last_stitch = "there is no fresh robot state to start from"
                return math.nan
            self._start_from(robot.pose, now_ns)
        due_ns = self._path.due_ns(now_ns)
        stitch = self.plan.stitch(chunk, due_ns, followed_ns=self._path.plan_ns(now_ns))
        if not stitch.accepted:
            self.refused_chunks += 1
            self.last_stitch = stitch.reason
            return math.nan
        self._path.resync(now_ns)
        return stitch.jump_m

    def _is_fresh(self, robot: RobotView, now_ns: int) -> bool:
        return (now_ns - robot.stamp_ns) / MS <= self.ladder_settings.robot_max_age_ms

    def _start_from(self, measured_pose: NDArray[np.float64], now_ns: int) -> None:
        # Standing or released, the arm may be elsewhere than it was told: moved by another, or behind a slider at 0.
        self.envelope.reset(measured_pose)
        self._following = True
        self.plan.start_from(measured_pose, self._path.due_ns(now_ns))
        self._path.restart(now_ns)
        self._path_twist = [0.0] * 6

    def _step_ladder(self, sliced: Slice, jump_m: float) -> None:
        now_ns = self._clock.now_ns()
        robot = self._robot
        plan_ns = self._path.plan_ns(now_ns)
        # Taken in one go each, so that a request of another thread is in this tick or in the next.
        stop_reason, self._stop_reason = self._stop_reason, ""
        gone, self._process_gone = self._process_gone, ""
        reset, self._reset = self._reset, False
        image_ns = self._newest_image_ns
        seen = Seen(
            now_ns=now_ns,
            late=sliced.late,
            late_in_a_row=self._late_in_a_row,
            chunk=not math.isnan(jump_m),
            plan_future_ms=self.plan.future_ms(plan_ns),
            plan_age_ms=self.plan.age_ms(now_ns),
            condition_age_ms=math.inf if image_ns is None else (now_ns - image_ns) / MS,
            robot_age_ms=math.inf if robot is None else (now_ns - robot.stamp_ns) / MS,
            robot_fault=robot.fault if robot is not None else "",
            speed_scaling=robot.speed_scaling if robot is not None else 1.0,
            bad_output=sliced.bad,
            bad_in_a_row=self._bad_in_a_row,
            standing=not self._following or self.envelope.standing,
            paused=self._paused,
            stop=stop_reason,
            process_gone=gone,
            reset=reset,
        )
        if reset:
            self.reset_refusal = reset_refusal(self.ladder, seen)
        before = self.ladder.state
        self.ladder = advance(self.ladder, seen, self.ladder_settings)
        if self.ladder.state == before:
            return
        self.changes.append(self.ladder)
        if before == State.STOPPED:
            self._bad_in_a_row = 0
        if self.ladder.state in (State.HOLD, State.STOPPED):
            self.denoiser.drop()
            self.plan.clear()

    def _move(self, now_ns: int) -> Limited | None:
        """The target of this tick. ``now_ns`` is when the tick was due: how long the steps took must not show in the
        motion."""
        robot = self._robot
        if robot is None:
            return None
        dt_s = self.settings.tick_ns / SECOND
        state = self.ladder.state
        if not self._following:
            if state == State.STOPPED or self._paused or not self._is_fresh(robot, now_ns):
                return None
            self.envelope.reset(robot.pose)
            self._following = True
        braking = state not in (State.NOMINAL, State.COAST)
        if state not in (State.NOMINAL, State.COAST, State.BRAKE) or not self.plan:
            return self.envelope.brake(dt_s, self.settings.brake_deceleration_m_s2)
        speed, angular_speed = path_speeds(self._path_twist)
        plan_ns = self._path.advance(
            now_ns,
            dt_s,
            braking=braking,
            path_speed_m_s=speed,
            deceleration_m_s2=self.settings.brake_deceleration_m_s2,
            path_angular_speed_rad_s=angular_speed,
            angular_deceleration_rad_s2=self.settings.brake_angular_deceleration_rad_s2,
        )
        sample = self.plan.sample(plan_ns)
        if sample is None:
            return self.envelope.brake(dt_s, self.settings.brake_deceleration_m_s2)
        self._path_twist = sample.twist.tolist()
        return self.envelope.limit(sample.pose, sample.twist * self._path.rate, dt_s)

    def _command(self, limited: Limited | None, tick_due_ns: int) -> Command:
        due_ns = tick_due_ns + self.settings.tick_ns
        stopped = self.ladder.state == State.STOPPED or self._paused
        if stopped and (limited is None or self.envelope.standing):
            self._following = False
            return Command(TargetMode.RELEASE, None, None, due_ns)
        if limited is None:
            return Command(TargetMode.RELEASE, None, None, due_ns)
        return Command(TargetMode.STREAM, limited.pose, limited.twist, due_ns)

    def _write_log(
        self, start_ns: int, due_ns: int, sliced: Slice, jump_m: float, limited: Limited | None
    ) -> None:
        end_ns = self._clock.now_ns()
        row = self.log.next_row()
        row["start_ns"] = start_ns
        row["wake_late_us"] = (start_ns - due_ns) / 1e3
        row["tick_us"] = (end_ns - start_ns) / 1e3
        row["overhead_us"] = math.nan if sliced.late else (end_ns - start_ns - sliced.step_ns) / 1e3
        row["steps"] = sliced.steps
        row["step_ms"] = sliced.step_ns / MS
        row["late"] = sliced.late
        row["newly_late"] = sliced.newly_late
        row["chunk"] = not math.isnan(jump_m)
        row["state"] = self.ladder.state
        row["cause"] = self.ladder.cause
        row["plan_age_ms"] = self.plan.age_ms(end_ns)
        row["jump_mm"] = jump_m * 1e3
        row["reasons"] = limited.reasons if limited is not None else 0
        if limited is not None:
            row["pose"] = limited.pose
