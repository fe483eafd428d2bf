"""What the node has between configure and cleanup: the policy, the network, the processes, and the control thread.

No ROS in here: parameters come as a mapping, topics as resolved names, and targets go out through a function.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sdnpu_policy.bundle.golden import load_golden
from sdnpu_policy.bundle.interface import check_interface
from sdnpu_policy.bundle.manifest import Bundle, load_bundle
from sdnpu_policy.clock import MS, SECOND, SteadyClock
from sdnpu_policy.control.denoiser import SlicedDenoiser
from sdnpu_policy.control.loop import ControlLoop, RobotView
from sdnpu_policy.control.tick_log import TickLog
from sdnpu_policy.control.watchdog import Cause, Ladder, State
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.durations import StepStatistics
from sdnpu_policy.npu.latency import late_steps
from sdnpu_policy.npu.providers import Session, check_golden, describe, input_shapes, open_session, warm_up
from sdnpu_policy.npu.stepper import Stepper
from sdnpu_policy.realtime import last_cpu, request_realtime
from sdnpu_policy.ros.assembly import arm_settings, make_loop, perception_settings
from sdnpu_policy.ros.control_thread import ControlThread
from sdnpu_policy.ros.links import ArmLink, PerceptionLink
from sdnpu_policy.ros.parameters import parse_options
from sdnpu_policy.share import policy_path

PERCEPTION_READY_S = 60.0
"""Loading an encoder on an NPU may take its compilation."""
PERCEPTION_TRIES, FIRST_IMAGE_S = 3, 6.0
LAST_STEP_NS = 10 * SECOND
"""A simulated step takes seconds."""
RESET_TRIES = 50
"""The arm may still be braking, and a new arm process's first state is on its way."""
LOG_TICKS = 262_144
"""About 17 minutes at 4 ms."""


class Runtime:
    """Made by `configure`. Its methods are called from the node's main thread."""

    def __init__(
        self,
        values: dict[str, Any],
        bundle: Bundle,
        session: Session,
        perception: PerceptionLink,
        start_perception: Callable[[], PerceptionLink],
        say: Callable[[str], None],
    ) -> None:
        self.values = values
        self.bundle = bundle
        self.session = session
        self.external_robot: RobotView | None = None
        self.golden_snr_db: float | None = None
        self._say = say
        self._clock = SteadyClock()
        self._perception = perception
        self._start_perception = start_perception
        self._arm: ArmLink | None = None
        run = session.run
        if values["late_probability"] > 0.0 and values["late_ms"] > 0.0:
            run = late_steps(run, values["late_probability"], values["late_ms"], values["seed"])
        self._stepper = Stepper(run, self._clock)
        last = last_cpu()
        self._cpus = {last} if values["pin_to_last_cpu"] and last is not None else None
        # a simulator computes for seconds on end, which no real-time thread may
        if not session.placement.simulated:
            request_realtime(values["realtime_priority"] - 10, self._stepper.native_id, cpus=self._cpus)
        self.log = TickLog(LOG_TICKS)
        self.denoiser: SlicedDenoiser
        self.loop: ControlLoop
        self.denoiser, self.loop = make_loop(values, bundle, session, self._stepper, self._clock, self.log)
        self._thread: ControlThread | None = None
        self._perception_status: Any = None

    @classmethod
    def configure(
        cls, values: dict[str, Any], topics: list[str], ros_arguments: list[str], say: Callable[[str], None]
    ) -> Runtime:
        """Load and prove everything that does not need the robot.

        Raises:
            SdnpuError: the bundle, the provider, an option or the cameras are wrong.
        """
        bundle = load_bundle(policy_path(values["policy"]))
        cameras = bundle.manifest.observation.cameras
        if len(topics) != len(cameras):
            raise SdnpuError(
                f"parameter 'image_topics' has {len(topics)} topics: the policy '{bundle.manifest.name}' has "
                f"{len(cameras)} cameras ({', '.join(cameras)})"
            )
        options = parse_options("provider_options", values["provider_options"])
        session = open_session(bundle.file(bundle.manifest.denoiser.file), values["provider"], options)
        outputs = {name: array.shape for name, array in session.outputs.items()}
        check_interface(bundle.manifest, "denoiser", input_shapes(session), outputs)
        warm_up(session, values["warm_up_steps"] if not session.placement.simulated else 1)
        condition = session.inputs[bundle.manifest.denoiser.inputs.condition]
        settings = perception_settings(values, bundle, topics)

        def start_perception() -> PerceptionLink:
            return PerceptionLink.start(settings, int(condition.size), ros_arguments)

        perception = start_perception()
        try:
            perception.wait_ready(PERCEPTION_READY_S)
        except SdnpuError:
            perception.close()
            session.close()
            raise
        return cls(values, bundle, session, perception, start_perception, say)

    def activate(self, publish: Callable[[Any], None]) -> None:
        """Check the golden vectors, connect the robot, begin to tick.

        Raises:
            SdnpuError: the network computes wrongly, or the robot can't be had.
        """
        if not self._stepper.wait_until(self._clock.now_ns() + LAST_STEP_NS):
            raise SdnpuError(
                "a denoiser step of the last activation has not come back: clean up and configure again"
            )
        self._stepper.take()
        golden = load_golden(self.bundle, "denoiser")
        if golden is not None:
            self.golden_snr_db = check_golden(self.session, golden.inputs, golden.outputs, golden.min_snr_db)
        self._revive_perception()
        self.denoiser, self.loop = make_loop(
            self.values, self.bundle, self.session, self._stepper, self._clock, self.log
        )
        self._arm = self._start_arm()  # the last that can fail: it holds the robot
        self._thread = ControlThread(
            loop=self.loop,
            clock=self._clock,
            tick_ns=int(self.values["tick_ms"] * MS),
            perception=self._perception,
            arm=self._arm,
            external_robot=lambda: self.external_robot,
            publish=publish,
            realtime_priority=self.values["realtime_priority"],
            cpus=self._cpus,
        )
        self._thread.start()

    def deactivate(self) -> None:
        """Brake, stand, publish the last target, leave the robot."""
        thread = self._thread
        if thread is not None and thread.alive:
            self.loop.request_stop("the node is being deactivated")
            end_ns = time.monotonic_ns() + 2 * SECOND
            while time.monotonic_ns() < end_ns and not self.loop.at_rest and thread.alive:
                time.sleep(0.005)
            thread.stop(timeout_s=2.0)
        self._thread = None
        if self._arm is not None:
            self._arm.shut_down()
            self._arm = None
        if self.values["tick_log"] and self.log.ticks:
            try:
                self.log.save(Path(self.values["tick_log"]))
            except OSError as error:
                self._say(f"parameter 'tick_log': {self.values['tick_log']} can't be written: {error.strerror}")

    def close(self) -> None:
        """End the perception process and give the network back. The node is deactivated before."""
        self._perception.close()
        if self._stepper.close(timeout_s=1.0):
            self.session.close()
        else:
            self._say("a denoiser step has not come back: its session is left to the end of the process")

    # Services

    def reset(self) -> str:
        """Start dead processes anew and leave STOPPED.

        Raises:
            SdnpuError: the robot can't be had, and why.
        """
        assert self._thread is not None
        if self._thread.crash:
            raise SdnpuError(f"the control thread ended ({self._thread.crash}): deactivate and activate the node")
        self._revive_perception()
        if self._arm is not None and not self._arm.child.alive:
            dead = self._arm
            self._arm = self._thread.arm = self._start_arm()
            time.sleep(2 * self.values["tick_ms"] / 1e3)  # the tick under way may still use the old mailboxes
            dead.shut_down(timeout_s=0.0)
        for _ in range(RESET_TRIES):
            if self.loop.ladder.state != State.STOPPED:
                return f"{self.state_text()}; the node goes on once image and robot state are fresh"
            self.loop.request_reset()
            time.sleep(3 * self.values["tick_ms"] / 1e3)
        raise SdnpuError(f"not reset: {self.loop.reset_refusal or 'the control thread does not answer'}")

    def stop(self, reason: str) -> str:
        """Brake and stop; needs a reset."""
        self.loop.request_stop(reason)
        return "stopping; call ~/reset to go on"

    def pause(self, paused: bool) -> str:
        """Stand and release the arm, or take it back; returns when the arm is released."""
        self.loop.request_pause(paused)
        if not paused:
            return "resumed: the node goes on from the measured pose"
        end_ns = time.monotonic_ns() + 3 * SECOND
        while time.monotonic_ns() < end_ns and not self.loop.at_rest:
            time.sleep(0.005)
        if not self.loop.at_rest:
            raise SdnpuError(f"the arm did not come to rest within 3 s ({self.state_text()})")
        return "paused: the arm is released"

    def set_live(self, name: str, value: Any) -> None:
        """A live parameter changed."""
        self.values[name] = value
        self.loop.set_live(
            on_late=self.values["on_late"],
            steps_per_tick=self.values["steps_per_tick"],
            plan_lead_ms=self.values["plan_lead_ms"],
        )

    # Children

    def watch_children(self) -> None:
        """Stop when a process died; ~/reset starts it again."""
        thread = self._thread
        if thread is not None and thread.crash and self.loop.ladder.state != State.STOPPED:
            text = f"the control thread: {thread.crash}"
            self._say(text)
            ladder = self.loop.ladder
            self.loop.ladder = replace(
                ladder, previous=ladder.state, state=State.STOPPED, cause=Cause.PROCESS_GONE, detail=text
            )
            if self._arm is not None:
                self._arm.shut_down()
        if self._perception.child.alive or not self._perception.statuses.writer_gone:
            return
        text = f"the perception process {self._perception.child.describe_exit()}"
        if self.loop.ladder.state != State.STOPPED:
            self._say(text)
            self.loop.process_gone(text)

    def _start_arm(self) -> ArmLink | None:
        if self.values["output"] != "rtde":
            return None
        arm = ArmLink.start(arm_settings(self.values))
        try:
            arm.wait_ready(self.values["connect_timeout_s"] + 2.0)
        except SdnpuError:
            arm.shut_down(timeout_s=0.5)
            raise
        return arm

    def _revive_perception(self) -> None:
        if self._perception.child.alive:
            return
        for _ in range(PERCEPTION_TRIES):
            dead, self._perception = self._perception, self._start_perception()
            if self._thread is not None:
                self._thread.perception = self._perception
                time.sleep(2 * self.values["tick_ms"] / 1e3)  # the tick under way may still use the old mailboxes
            dead.close()
            self._perception.wait_ready(PERCEPTION_READY_S)
            if self._perception.wait_for_image(FIRST_IMAGE_S):
                return
            # A killed process can leave DDS's shared memory such that its successor is sent nothing; the next one is.
            self._say("perception was started again and received no image")

    # What the node tells

    def describe(self) -> str:
        """One line: the policy, where its network runs."""
        manifest = self.bundle.manifest
        return f"policy '{manifest.name}', {manifest.denoiser.precision}: {describe(self.session)}"

    def new_changes(self) -> list[Ladder]:
        """The ladder after each change of state since the last call."""
        changes = self.loop.changes
        return [changes.popleft() for _ in range(len(changes))]

    def state_text(self) -> str:
        """The ladder's state and why, in one line."""
        return self.loop.ladder.describe()

    def state_values(self) -> dict[str, Any]:
        """The numbers of `~/state`."""
        ladder = self.loop.ladder
        return {
            "state": ladder.state.name,
            "cause": ladder.cause.name,
            "paused": self.loop.paused,
            "late_steps": self.denoiser.late_steps,
            "steps": self.denoiser.steps,
            "chunks": self.denoiser.chunks,
        }

    def now_ns(self) -> int:
        """The steady clock of the loop."""
        return self._clock.now_ns()

    def step_statistics(self) -> StepStatistics:
        """Times of the recent steps."""
        return self._stepper.durations.statistics()

    @property
    def perception_status(self) -> Any:
        """The newest status of perception, or None."""
        letter = self._perception.statuses.take()
        if letter is not None:
            self._perception_status = letter.value
        return self._perception_status

    @property
    def perception_alive(self) -> bool:
        """The perception process runs."""
        return self._perception.child.alive

    @property
    def arm(self) -> ArmLink | None:
        return self._arm

    @property
    def realtime(self) -> str:
        """What the system allowed the control thread."""
        return self._thread.realtime if self._thread is not None else "off"

    @property
    def skipped_ticks(self) -> int:
        return self._thread.skipped_ticks if self._thread is not None else 0
