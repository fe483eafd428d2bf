"""The arm process's cycle, from the connected robot to the end: read, judge, step, servo, post.

One thread, one cycle a period, at absolute times. Of missed cycles two at most are made up for, by a longer step in
the next; a longer gap in time does not become a jump in space, the setpoint is then behind and catches up.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable

from sdnpu_policy.clock import MS, SECOND, Clock
from sdnpu_policy.letters import ArmFault, ArmStatus, TargetMode
from sdnpu_policy.mailbox import Letter, Reader
from sdnpu_policy.motion.pose import Floats

from .report import Reporter
from .settings import ArmSettings
from .streamer import Setpoint, Streamer
from .verdict import Fault, Heartbeat, Reading, RobotLink, state_fault

_POST_EVERY = 2
"""Cycles from one posted state to the next: a tick of the control process takes two, and posting is a fifth of a
cycle's cost."""
_HUNG_S = 1.0
"""A cycle that takes longer never ends; the kernel then ends the process, and the robot's watchdog stops the arm."""
_TELL_NS = 20 * MS
"""How long a refused servo call may wait for the controller to say why."""
_REST_M_S, _REST_RAD_S = 0.003, 0.02
"""A tool slower than this is at rest."""
_REST_WITHIN_NS = 500 * MS
"""An arm that is not at rest so long after its setpoint is let go all the same."""


class Session:
    """Streams to a connected robot until it is told to leave, or has to.

    Args:
        settings: of the process.
        link: the robot.
        targets: mailbox of the control process.
        reporter: posts the states.
        clock: steady time.
        asked_to_stop: whether a signal asked for the end.
    """

    def __init__(
        self,
        settings: ArmSettings,
        link: RobotLink,
        targets: Reader,
        reporter: Reporter,
        clock: Clock,
        asked_to_stop: Callable[[], bool],
    ) -> None:
        self._robot = f"the robot at {settings.robot_ip}"
        self._period_ns = round(settings.period_s * SECOND)
        self._link, self._targets, self._reporter = link, targets, reporter
        self._clock, self._asked_to_stop = clock, asked_to_stop
        self._streamer = Streamer(
            settings.limits,
            settings.period_s,
            target_timeout_ms=settings.target_timeout_ms,
            max_step_m=settings.max_step_m,
            max_step_rad=settings.max_step_rad,
        )
        self._heartbeat = Heartbeat(self._robot, settings.link_timeout_ms)
        self._status = ArmStatus.READY
        self._posted_status = ArmStatus.STARTING
        self._target: Floats | None = None
        self._leaving = False
        self._stands_since_ns = 0
        self._watchdog_ns = round(SECOND / settings.watchdog_hz)
        self._began_ns = 0
        self._longest_gap_ns = 0

    @property
    def _servo_on(self) -> bool:
        return self._status != ArmStatus.READY

    def run(self) -> Fault | None:
        """Cycle until the end. None when it was asked for: the arm stands, the servo motion has been ended.

        After a fault the robot has stopped by itself, or does not hear; only after an INTERNAL one the servo
        motion has been ended here.
        """
        due_ns = self._began_ns = self._clock.now_ns()
        reading: Reading | None = None
        fault: Fault | None = None
        try:
            while fault is None:
                due_ns = self._next_cycle(due_ns)
                reading, fault = self._read(due_ns)
                if reading is not None and fault is None:
                    fault = self._move(due_ns, reading, self._receive())
                if reading is not None and fault is None:
                    self._post(reading)
                    if self._leaving and not self._servo_on:
                        self._reporter.gone()
                        return None
        except Exception as error:
            fault = Fault(ArmFault.INTERNAL, f"the arm process failed: {type(error).__name__}: {error}")
            self._reporter.fault(fault, reading)
            # What computes setpoints may be what failed, so the robot has to do the braking.
            signal.setitimer(signal.ITIMER_REAL, _HUNG_S)
            self._link.servo_stop()
            return fault
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._reporter.fault(fault, reading)
        return fault

    def _read(self, now_ns: int) -> tuple[Reading | None, Fault | None]:
        reading = self._link.read()
        fault = state_fault(reading, self._robot)
        if reading is not None and fault is None:
            fault = self._heartbeat.beat(reading.controller_time_s, now_ns)
        return reading, self._explained(fault)

    def _explained(self, fault: Fault | None) -> Fault | None:
        """The fault, with the likely cause where it is here."""
        if fault is None or fault.code != ArmFault.PROGRAM_STOPPED or self._longest_gap_ns < self._watchdog_ns:
            return fault
        return Fault(
            fault.code,
            f"{self._robot}: its watchdog stopped its program, as the arm process was not run for "
            f"{self._longest_gap_ns / MS:.0f} ms: is this machine overloaded? Real-time priority prevents that",
        )

    def _next_cycle(self, due_ns: int) -> int:
        """Sleep until the next cycle is due, and when that was."""
        reporter, period_ns = self._reporter, self._period_ns
        due_ns += period_ns
        self._clock.sleep_until_ns(due_ns)
        now_ns = self._clock.now_ns()
        self._longest_gap_ns = max(self._longest_gap_ns, now_ns - self._began_ns)
        self._began_ns = now_ns
        late_ns = now_ns - due_ns
        reporter.cycles += 1
        if late_ns > period_ns // 2:
            reporter.late_cycles += 1
            # Those after it are shifted: two setpoints in one of the robot's cycles would be twice the speed. What is
            # lost by that is caught up within the limits.
            due_ns += late_ns
        signal.setitimer(signal.ITIMER_REAL, _HUNG_S)
        return due_ns

    def _receive(self) -> Letter | None:
        """The newest target letter; none any more once it is known that this process is to leave."""
        if self._leaving:
            return None
        letter = self._targets.take()
        told = letter is not None and int(letter.value["mode"]) == TargetMode.SHUT_DOWN
        if told or self._asked_to_stop() or self._targets.writer_gone:
            self._leaving = True
            self._streamer.stop(TargetMode.SHUT_DOWN)
            return None
        return letter

    def _move(self, due_ns: int, reading: Reading, letter: Letter | None) -> Fault | None:
        """This cycle's setpoint, or a sign of life where there is none."""
        streamer = self._streamer
        if self._heartbeat.doubtful:
            # Nobody may be listening: what is still heard is to be a stop.
            if streamer.mode == TargetMode.STREAM:
                streamer.stop(TargetMode.STAND)
            letter = None
        if not self._servo_on:
            if letter is None or int(letter.value["mode"]) not in (TargetMode.STREAM, TargetMode.STAND):
                self._link.kick()
                return None
            streamer.start(reading.pose)
            setpoint = streamer.step(due_ns, letter)
            if setpoint.status != ArmStatus.STREAMING and letter.value["mode"] == TargetMode.STREAM:
                self._link.kick()  # the target was refused
                return None
        else:
            # After missed cycles too, one period's way and no more: the robot must not be asked to make them up.
            setpoint = streamer.step(due_ns, letter)
        if not self._link.servo(setpoint.pose):
            return self._why_refused(setpoint)
        self._target, self._status = setpoint.pose, setpoint.status
        if setpoint.status != ArmStatus.STANDING:
            self._stands_since_ns = 0
        elif self._may_let_go(due_ns, reading):
            # When this process is to leave, a program that has ended already is as good.
            if not self._link.servo_stop() and not self._leaving:
                return self._why_refused(setpoint)
            self._status = ArmStatus.READY
            self._stands_since_ns = 0
        return None

    def _may_let_go(self, now_ns: int, reading: Reading) -> bool:
        """The servo motion is to end, and may end now.

        To be released the arm is let come to rest first, behind the setpoint by the servo's lag: servoStop would
        slow it down for what is left, but takes its time without a write to the robot, whose watchdog might expire.
        When this process is to leave that does not matter, and servoStop is faster.
        """
        mode = self._streamer.mode
        if mode == TargetMode.SHUT_DOWN:
            return True
        if mode != TargetMode.RELEASE:
            self._stands_since_ns = 0
            return False
        self._stands_since_ns = self._stands_since_ns or now_ns
        vx, vy, vz, wx, wy, wz = reading.twist
        at_rest = math.hypot(vx, vy, vz) < _REST_M_S and math.hypot(wx, wy, wz) < _REST_RAD_S
        return at_rest or now_ns - self._stands_since_ns > _REST_WITHIN_NS

    def _why_refused(self, setpoint: Setpoint) -> Fault:
        """The robot's program does not take targets any more: what the controller says of that."""
        end_ns = self._clock.now_ns() + _TELL_NS
        while self._clock.now_ns() < end_ns:
            fault = self._explained(state_fault(self._link.read(), self._robot))
            if fault is not None:
                return fault
            self._clock.sleep_until_ns(self._clock.now_ns() + self._period_ns)
        place = ", ".join(f"{value:.4f}" for value in setpoint.pose[:3].tolist())
        return Fault(
            ArmFault.TARGET_REFUSED,
            f"{self._robot} does not take targets any more, and does not say why; the last was at {place} m",
        )

    def _post(self, reading: Reading) -> None:
        status = self._status
        if self._reporter.cycles % _POST_EVERY and status == self._posted_status:
            return
        self._posted_status = status
        streamer = self._streamer
        target = reading.pose if self._target is None else self._target
        self._reporter.cycle(status, reading, target, streamer.refused, streamer.refusal)
