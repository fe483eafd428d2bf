"""The ladder: what the arm does when something is late, stale or broken, as a pure state machine.

NOMINAL  follows the plan; steps are in time.
COAST    a step is late; the plan still has a future, and is followed.
BRAKE    slows down along the path: there is nothing safe left to follow, or no reason to trust it.
HOLD     stands; targets are still published.
STOPPED  brakes if it still moves, then lets go of the arm. Only a reset leads out, to HOLD.

`advance` takes the ladder and what one tick saw, and returns the ladder after it. The ways are:

* NOMINAL and COAST change into each other as steps are late or in time again (a number of ticks without a late
  step, or a new chunk), and into BRAKE for each reason of `brake_reason`;
* BRAKE ends in HOLD when the arm stands, or earlier in NOMINAL or COAST when no reason to brake is left and a
  chunk was stitched since it began (a fresh plan from a fresh condition);
* HOLD ends in NOMINAL only in a tick that stitched a chunk, when the image behind it, the newest image and the
  robot's state are all newer than the start of HOLD; and in STOPPED when it lasts too long;
* any state ends in STOPPED for each reason of `stop_reason`.

A pause is no state of its own: it brakes into a HOLD that does not time out, and when it is over HOLD begins anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

from sdnpu_policy.clock import MS, SECOND

SLIDER_AT_ZERO = 0.01
"""A speed slider at or below this does not move the arm."""


class State(IntEnum):
    """A rung of the ladder."""

    NOMINAL = 0
    COAST = 1
    BRAKE = 2
    HOLD = 3
    STOPPED = 4


class Cause(IntEnum):
    """Why the ladder is where it is."""

    WAITING = 0
    LATE_STEP = 1
    IN_TIME = 2
    PLAN_USED_UP = 3
    PLAN_TOO_OLD = 4
    CONDITION_STALE = 5
    LATE_IN_A_ROW = 6
    LATE_TOO_OFTEN = 7
    BAD_OUTPUT = 8
    ROBOT_STATE_STALE = 9
    SPEED_SLIDER_ZERO = 10
    PAUSED = 11
    RESUMED = 12
    RECOVERED = 13
    FRESH_START = 14
    HELD_TOO_LONG = 15
    BAD_OUTPUTS = 16
    ROBOT_FAULT = 17
    LINK_LOST = 18
    PROCESS_GONE = 19
    STOP_ASKED = 20
    RESET = 21


TEXTS: dict[Cause, str] = {
    Cause.WAITING: "waiting for a first image and robot state",
    Cause.LATE_STEP: "a step is late",
    Cause.IN_TIME: "steps are in time again",
    Cause.PLAN_USED_UP: "the plan is used up",
    Cause.PLAN_TOO_OLD: "the image behind the plan is too old",
    Cause.CONDITION_STALE: "no fresh image",
    Cause.LATE_IN_A_ROW: "too many ticks in a row without the step's result",
    Cause.LATE_TOO_OFTEN: "steps are late too often",
    Cause.BAD_OUTPUT: "the network's output cannot be used",
    Cause.ROBOT_STATE_STALE: "no fresh robot state",
    Cause.SPEED_SLIDER_ZERO: "the robot's speed slider is at zero",
    Cause.PAUSED: "paused",
    Cause.RESUMED: "resumed, waiting for a fresh image and robot state",
    Cause.RECOVERED: "a fresh plan is there",
    Cause.FRESH_START: "a plan from a fresh image and robot state is there",
    Cause.HELD_TOO_LONG: "held too long",
    Cause.BAD_OUTPUTS: "the network's outputs cannot be used again and again",
    Cause.ROBOT_FAULT: "the robot cannot be moved",
    Cause.LINK_LOST: "the link to the robot is lost",
    Cause.PROCESS_GONE: "a process has ended",
    Cause.STOP_ASKED: "a stop was asked for",
    Cause.RESET: "reset, waiting for a fresh image and robot state",
}


@dataclass(frozen=True, slots=True)
class LadderSettings:
    """Limits of the ladder."""

    coast_on_late: bool = True
    """Follow the plan while a step is late; False: brake at the first late step."""
    plan_min_future_ms: float = 100.0
    """Brake when less of the plan is left. Slowing down along it from v at a takes v / 2a of it: 83 ms for
    0.25 m/s at 1.5 m/s2."""
    plan_max_age_ms: float = 400.0
    """Brake when the image behind the plan is older."""
    condition_max_age_ms: float = 250.0
    """Brake when the newest image is older."""
    robot_max_age_ms: float = 100.0
    """Brake when the newest robot state is older."""
    max_late_in_a_row: int = 40
    """Brake when a result is missing for more ticks than this."""
    late_window_ms: float = 2000.0
    max_late_in_window: int = 150
    """Brake when more steps than this became late within the window."""
    in_time_to_recover: int = 5
    """Ticks without a late step that end COAST; a new chunk ends it at once."""
    max_bad_outputs: int = 3
    """So many unusable outputs in a row stop the node."""
    max_hold_s: float = 30.0
    """HOLD ends in STOPPED after this."""
    max_waiting_s: float = math.inf
    """The same before the first motion, when cameras and robot may take their time."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if math.isnan(value) or value < 0:
                raise ValueError(f"{name} {value} must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one tick saw, after its denoising and stitching. Ages are infinite where there is nothing."""

    now_ns: int
    late: bool
    """A step's result was not there by the deadline."""
    late_in_a_row: int
    """Ticks up to this one, one after the other, in which that was so."""
    chunk: bool
    """A chunk was stitched in this tick."""
    plan_future_ms: float
    """What is left of the plan."""
    plan_age_ms: float
    """Age of the image behind the plan; after a stitch, that behind the chunk."""
    condition_age_ms: float
    """Age of the newest image."""
    robot_age_ms: float
    """Age of the newest robot state."""
    speed_scaling: float
    """The robot's speed slider, 0 to 1."""
    standing: bool
    """The commanded velocity is zero, or nothing is commanded."""
    bad_output: str
    """Why this tick's network output cannot be used; empty where it can."""
    bad_in_a_row: int
    """Such outputs up to this tick with no good one between."""
    paused: bool
    stop: str
    """Why a stop is asked for; empty where it is not."""
    reset: bool
    """A reset is asked for."""
    robot_fault: str = ""
    """Why the robot cannot be moved; empty where it can."""
    link_lost: str = ""
    """How the link to the robot was lost; empty while it stands."""
    process_gone: str = ""
    """Which process ended and how; empty while all run."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Where the ladder is and what it remembers."""

    state: State
    since_ns: int
    """When this state was entered."""
    cause: Cause
    detail: str
    """The numbers behind the cause."""
    previous: State | None = None
    """The state before this one."""
    held_since_ns: int = 0
    """In HOLD: what is to be fresh must be newer than this, and the time limit counts from here."""
    fresh_chunk: bool = False
    """In BRAKE: a chunk was stitched since it began."""
    in_time: int = 0
    """Ticks since the last late step, counted up to the number that ends COAST."""
    late_steps_ns: tuple[int, ...] = ()
    """When the newest steps became late, as many as the window's limit needs."""

    @classmethod
    def start(cls, now_ns: int) -> Ladder:
        """HOLD, waiting for the first image and robot state."""
        return cls(State.HOLD, now_ns, Cause.WAITING, "", held_since_ns=now_ns)

    def describe(self) -> str:
        """One line: from which state to which, why, with the numbers."""
        way = self.state.name if self.previous is None else f"{self.previous.name} -> {self.state.name}"
        return f"{way}: {TEXTS[self.cause]}" + (f" ({self.detail})" if self.detail else "")


class Durations:
    """Seconds spent in each state."""

    def __init__(self) -> None:
        self._ns = dict.fromkeys(State, 0)

    def add(self, state: State, elapsed_ns: int) -> None:
        """Count ``elapsed_ns`` to ``state``."""
        self._ns[state] += elapsed_ns

    def seconds(self) -> dict[str, float]:
        """By the states' names."""
        return {state.name: ns / SECOND for state, ns in self._ns.items()}


Reason = tuple[Cause, str]
"""A cause and its numbers."""


def advance(ladder: Ladder, seen: Seen, settings: LadderSettings) -> Ladder:
    """The ladder after a tick that saw ``seen``; the very same object where nothing changed."""
    ladder = _count(ladder, seen, settings)
    if ladder.state == State.STOPPED:
        return _stopped(ladder, seen)
    stop = stop_reason(seen, settings)
    if stop:
        return _go(ladder, State.STOPPED, seen, stop)
    if ladder.state == State.HOLD:
        return _hold(ladder, seen, settings)
    brake = brake_reason(ladder, seen, settings)
    if ladder.state == State.BRAKE:
        return _brake(ladder, seen, brake)
    if brake:
        return _go(ladder, State.BRAKE, seen, brake)
    if seen.late:
        return ladder if ladder.state == State.COAST else _go(ladder, State.COAST, seen, _late(seen))
    if ladder.state == State.COAST and (seen.chunk or ladder.in_time >= settings.in_time_to_recover):
        return _go(ladder, State.NOMINAL, seen, (Cause.IN_TIME, _held_for(ladder, seen)))
    return ladder


def stop_reason(seen: Seen, settings: LadderSettings) -> Reason | None:
    """Why the ladder must go to STOPPED, from any state."""
    if seen.bad_output and seen.bad_in_a_row >= settings.max_bad_outputs:
        return Cause.BAD_OUTPUTS, f"{seen.bad_output}; {seen.bad_in_a_row} in a row"
    return _outer_stop_reason(seen)


def brake_reason(ladder: Ladder, seen: Seen, settings: LadderSettings) -> Reason | None:
    """Why the arm must not go on along the plan."""
    if seen.paused:
        return Cause.PAUSED, ""
    if seen.bad_output:
        return Cause.BAD_OUTPUT, seen.bad_output
    if not seen.robot_age_ms <= settings.robot_max_age_ms:
        return Cause.ROBOT_STATE_STALE, _beyond(seen.robot_age_ms, settings.robot_max_age_ms)
    if not seen.speed_scaling > SLIDER_AT_ZERO:
        return Cause.SPEED_SLIDER_ZERO, f"{seen.speed_scaling:.2f}"
    if not seen.condition_age_ms <= settings.condition_max_age_ms:
        return Cause.CONDITION_STALE, _beyond(seen.condition_age_ms, settings.condition_max_age_ms)
    if not seen.plan_future_ms > settings.plan_min_future_ms:
        return Cause.PLAN_USED_UP, f"{seen.plan_future_ms:.0f} ms left, {settings.plan_min_future_ms:g} ms needed"
    if not seen.plan_age_ms <= settings.plan_max_age_ms:
        return Cause.PLAN_TOO_OLD, _beyond(seen.plan_age_ms, settings.plan_max_age_ms)
    if seen.late and not settings.coast_on_late:
        return _late(seen)
    if seen.late_in_a_row > settings.max_late_in_a_row:
        return Cause.LATE_IN_A_ROW, f"{seen.late_in_a_row}, limit {settings.max_late_in_a_row}"
    window = ladder.late_steps_ns
    if len(window) > settings.max_late_in_window:
        span_ms = (seen.now_ns - window[0]) / MS
        if span_ms <= settings.late_window_ms:
            return Cause.LATE_TOO_OFTEN, f"{len(window)} in {span_ms:.0f} ms, limit {settings.max_late_in_window}"
    return None


def reset_refusal(ladder: Ladder, seen: Seen) -> str:
    """Why a reset would not lead out of STOPPED now; empty where it would."""
    if ladder.state != State.STOPPED:
        return f"nothing to reset: the state is {ladder.state.name}"
    if not seen.standing:
        return "the arm still moves"
    reason = _outer_stop_reason(seen)
    return f"{TEXTS[reason[0]]} ({reason[1]})" if reason else ""


def _outer_stop_reason(seen: Seen) -> Reason | None:
    if seen.stop:
        return Cause.STOP_ASKED, seen.stop
    if seen.process_gone:
        return Cause.PROCESS_GONE, seen.process_gone
    if seen.link_lost:
        return Cause.LINK_LOST, seen.link_lost
    if seen.robot_fault:
        return Cause.ROBOT_FAULT, seen.robot_fault
    return None


def _stopped(ladder: Ladder, seen: Seen) -> Ladder:
    if not seen.reset or reset_refusal(ladder, seen):
        return ladder
    return replace(_go(ladder, State.HOLD, seen, (Cause.RESET, "")), late_steps_ns=())


def _hold(ladder: Ladder, seen: Seen, settings: LadderSettings) -> Ladder:
    if seen.paused:
        return ladder if ladder.cause == Cause.PAUSED else replace(ladder, cause=Cause.PAUSED, detail="")
    if ladder.cause == Cause.PAUSED:
        # What was fresh before may show the arm where another has moved it away from since.
        return replace(ladder, cause=Cause.RESUMED, detail="", held_since_ns=seen.now_ns)
    held_ms = (seen.now_ns - ladder.held_since_ns) / MS
    fresh = seen.plan_age_ms < held_ms and seen.condition_age_ms < held_ms and seen.robot_age_ms < held_ms
    if seen.chunk and fresh and not brake_reason(ladder, seen, settings):
        ages = f"image {seen.plan_age_ms:.0f} ms, robot state {seen.robot_age_ms:.0f} ms old"
        return _go(ladder, State.NOMINAL, seen, (Cause.FRESH_START, f"{ages}; held {held_ms / 1e3:.2f} s"))
    limit_s = settings.max_waiting_s if ladder.cause == Cause.WAITING else settings.max_hold_s
    if held_ms > limit_s * 1e3:
        why = f"{held_ms / 1e3:.1f} s, limit {limit_s:g} s, because: {TEXTS[ladder.cause]}"
        return _go(ladder, State.STOPPED, seen, (Cause.HELD_TOO_LONG, why))
    return ladder


def _brake(ladder: Ladder, seen: Seen, brake: Reason | None) -> Ladder:
    if seen.standing:
        return _go(ladder, State.HOLD, seen, (ladder.cause, ladder.detail))
    if seen.paused and ladder.cause != Cause.PAUSED:
        return replace(ladder, cause=Cause.PAUSED, detail="")
    if ladder.cause == Cause.PAUSED:
        return ladder
    if seen.chunk and not ladder.fresh_chunk:
        ladder = replace(ladder, fresh_chunk=True)
    if brake or not ladder.fresh_chunk:
        return ladder
    return _go(
        ladder, State.COAST if seen.late else State.NOMINAL, seen, (Cause.RECOVERED, _held_for(ladder, seen))
    )


def _count(ladder: Ladder, seen: Seen, settings: LadderSettings) -> Ladder:
    if not seen.late:
        if ladder.in_time < settings.in_time_to_recover:
            return replace(ladder, in_time=ladder.in_time + 1)
        return ladder
    if seen.late_in_a_row > 1:
        return replace(ladder, in_time=0) if ladder.in_time else ladder
    newest = (*ladder.late_steps_ns, seen.now_ns)[-settings.max_late_in_window - 1 :]
    return replace(ladder, in_time=0, late_steps_ns=newest)


def _go(ladder: Ladder, state: State, seen: Seen, reason: Reason) -> Ladder:
    cause, detail = reason
    return replace(
        ladder,
        state=state,
        since_ns=seen.now_ns,
        cause=cause,
        detail=detail,
        previous=ladder.state,
        held_since_ns=seen.now_ns if state == State.HOLD else 0,
        fresh_chunk=False,
    )


def _late(seen: Seen) -> Reason:
    return Cause.LATE_STEP, f"{seen.late_in_a_row} ticks; {seen.plan_future_ms:.0f} ms of the plan left"


def _held_for(ladder: Ladder, seen: Seen) -> str:
    return f"after {(seen.now_ns - ladder.since_ns) / MS:.0f} ms"


def _beyond(age_ms: float, limit_ms: float) -> str:
    return (
        f"there was none, limit {limit_ms:g} ms"
        if math.isinf(age_ms)
        else f"{age_ms:.0f} ms, limit {limit_ms:g} ms"
    )
