"""The ladder, rule by rule, and the laws that hold over any sequence of ticks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.control.watchdog import (
    TEXTS,
    Cause,
    Durations,
    Ladder,
    LadderSettings,
    Seen,
    State,
    advance,
    brake_reason,
    reset_refusal,
    stop_reason,
)

TICK = 4 * MS
NOW = 1_000 * SECOND
SETTINGS = LadderSettings()


def seen(now_ns: int = NOW, **what: Any) -> Seen:
    """A tick in which all is well and no chunk was finished, but for ``what``."""
    fine: dict[str, Any] = {
        "late": False,
        "late_in_a_row": 1 if what.get("late") else 0,
        "chunk": False,
        "plan_future_ms": 600.0,
        "plan_age_ms": 30.0,
        "condition_age_ms": 20.0,
        "robot_age_ms": 2.0,
        "speed_scaling": 1.0,
        "standing": False,
        "bad_output": "",
        "bad_in_a_row": 1 if what.get("bad_output") else 0,
        "paused": False,
        "stop": "",
        "reset": False,
    }
    return Seen(now_ns=now_ns, **{**fine, **what})


def at(state: State, cause: Cause = Cause.IN_TIME, since_ns: int = NOW - SECOND, **more: Any) -> Ladder:
    held = since_ns if state == State.HOLD else 0
    return Ladder(state, since_ns, cause, "", State.NOMINAL, **{"held_since_ns": held, **more})


def after(ladder: Ladder, **what: Any) -> Ladder:
    return advance(ladder, seen(**what), SETTINGS)


# NOMINAL and COAST


def test_a_tick_in_which_all_is_well_changes_nothing() -> None:
    ladder = at(State.NOMINAL, in_time=SETTINGS.in_time_to_recover)
    assert after(ladder) is ladder


def test_a_late_step_coasts_while_the_plan_has_future() -> None:
    ladder = after(at(State.NOMINAL), late=True, plan_future_ms=410.0)
    assert (ladder.state, ladder.cause) == (State.COAST, Cause.LATE_STEP)
    assert ladder.describe() == "NOMINAL -> COAST: a step is late (1 ticks; 410 ms of the plan left)"


def test_a_late_step_brakes_when_the_plan_has_no_future() -> None:
    ladder = after(at(State.NOMINAL), late=True, plan_future_ms=50.0)
    assert (ladder.state, ladder.cause) == (State.BRAKE, Cause.PLAN_USED_UP)


def test_a_late_step_brakes_at_once_where_coasting_is_switched_off() -> None:
    ladder = advance(at(State.NOMINAL), seen(late=True), LadderSettings(coast_on_late=False))
    assert (ladder.state, ladder.cause) == (State.BRAKE, Cause.LATE_STEP)


def test_coasting_ends_after_enough_ticks_in_time() -> None:
    ladder = after(at(State.NOMINAL), late=True)
    for _ in range(SETTINGS.in_time_to_recover - 1):
        ladder = after(ladder)
        assert ladder.state == State.COAST
    ladder = after(ladder)
    assert (ladder.state, ladder.cause) == (State.NOMINAL, Cause.IN_TIME)


def test_a_late_step_in_between_starts_the_count_again() -> None:
    ladder = after(at(State.NOMINAL), late=True)
    for late in (False, False, False, True, False, False, False):
        ladder = after(ladder, late=late)
    assert ladder.state == State.COAST


def test_coasting_ends_with_a_new_chunk() -> None:
    assert after(at(State.COAST), chunk=True).state == State.NOMINAL


def test_coasting_goes_on_when_a_chunk_comes_and_the_next_step_is_late_already() -> None:
    assert after(at(State.COAST), chunk=True, late=True).state == State.COAST


# BRAKE


@pytest.mark.parametrize("state", [State.NOMINAL, State.COAST])
@pytest.mark.parametrize(
    ("what", "cause", "numbers"),
    [
        ({"plan_future_ms": 100.0}, Cause.PLAN_USED_UP, "100 ms left, 100 ms needed"),
        ({"plan_age_ms": 401.0}, Cause.PLAN_TOO_OLD, "401 ms, limit 400 ms"),
        ({"condition_age_ms": 251.0}, Cause.CONDITION_STALE, "251 ms, limit 250 ms"),
        ({"condition_age_ms": math.inf}, Cause.CONDITION_STALE, "there was none, limit 250 ms"),
        ({"condition_age_ms": math.nan}, Cause.CONDITION_STALE, "nan ms, limit 250 ms"),
        ({"robot_age_ms": 101.0}, Cause.ROBOT_STATE_STALE, "101 ms, limit 100 ms"),
        ({"speed_scaling": 0.0}, Cause.SPEED_SLIDER_ZERO, "0.00"),
        ({"bad_output": "3 of 144 numbers are NaN"}, Cause.BAD_OUTPUT, "3 of 144 numbers are NaN"),
        ({"late": True, "late_in_a_row": 41}, Cause.LATE_IN_A_ROW, "41, limit 40"),
        ({"paused": True}, Cause.PAUSED, ""),
    ],
)
def test_each_reason_to_brake_brakes_and_tells_its_numbers(
    state: State, what: dict[str, Any], cause: Cause, numbers: str
) -> None:
    ladder = after(at(state), **what)
    assert (ladder.state, ladder.cause, ladder.detail) == (State.BRAKE, cause, numbers)


def test_steps_that_are_late_too_often_brake_and_old_ones_do_not_count() -> None:
    limits = LadderSettings(max_late_in_window=10, late_window_ms=400)

    def run(every: int) -> State:
        ladder = at(State.NOMINAL)
        for k in range(400):
            ladder = advance(ladder, seen(NOW + k * TICK, late=k % every == 0), limits)
            if ladder.state == State.BRAKE:
                assert ladder.cause == Cause.LATE_TOO_OFTEN
                return ladder.state
        return ladder.state

    assert run(every=5) == State.BRAKE
    assert run(every=20) == State.NOMINAL


def test_one_long_late_step_counts_once_in_the_window() -> None:
    ladder = at(State.NOMINAL)
    for k in range(30):
        ladder = after(ladder, now_ns=NOW + k * TICK, late=True, late_in_a_row=k + 1)
    assert len(ladder.late_steps_ns) == 1


def test_the_brake_ends_in_hold_when_the_arm_stands() -> None:
    ladder = after(at(State.BRAKE, Cause.CONDITION_STALE), standing=True, condition_age_ms=900.0)
    assert (ladder.state, ladder.cause, ladder.held_since_ns) == (State.HOLD, Cause.CONDITION_STALE, NOW)


def test_the_brake_is_taken_off_when_the_cause_is_gone_and_a_fresh_plan_is_there() -> None:
    braking = at(State.BRAKE, Cause.CONDITION_STALE)
    assert after(braking).state == State.BRAKE
    assert after(braking, chunk=True).state == State.NOMINAL
    assert after(braking, chunk=True, late=True).state == State.COAST


def test_a_fresh_plan_does_not_take_the_brake_off_while_the_cause_is_there() -> None:
    ladder = after(at(State.BRAKE, Cause.ROBOT_STATE_STALE), chunk=True, robot_age_ms=300.0)
    assert ladder.state == State.BRAKE
    ladder = after(ladder)
    assert (ladder.state, ladder.cause) == (State.NOMINAL, Cause.RECOVERED)


def test_a_chunk_from_before_the_brake_is_no_fresh_plan() -> None:
    ladder = after(at(State.NOMINAL), chunk=True, robot_age_ms=300.0)
    assert after(ladder).state == State.BRAKE


# HOLD


def resuming(**what: Any) -> Ladder:
    """One second into a HOLD, a tick that would resume but for ``what``."""
    return after(at(State.HOLD, Cause.CONDITION_STALE), **{"standing": True, "chunk": True, **what})


def test_hold_resumes_with_a_chunk_from_a_fresh_image_and_a_fresh_robot_state() -> None:
    ladder = resuming()
    assert (ladder.state, ladder.cause) == (State.NOMINAL, Cause.FRESH_START)
    assert ladder.detail == "image 30 ms, robot state 2 ms old; held 1.00 s"


@pytest.mark.parametrize(
    "missing",
    [
        {"chunk": False},
        {"plan_age_ms": 1000.0},
        {"condition_age_ms": 1000.0},
        {"robot_age_ms": 1000.0},
        {"speed_scaling": 0.0},
        {"bad_output": "NaN"},
        {"plan_future_ms": 20.0},
    ],
)
def test_hold_does_not_resume_without(missing: dict[str, Any]) -> None:
    patient = replace(SETTINGS, plan_max_age_ms=1e4, condition_max_age_ms=1e4, robot_max_age_ms=1e4)
    ladder = advance(at(State.HOLD), seen(**{"standing": True, "chunk": True, **missing}), patient)
    assert ladder.state == State.HOLD


def test_an_image_from_before_the_hold_does_not_resume_it() -> None:
    held = at(State.HOLD, since_ns=NOW - 10 * MS)
    assert after(held, standing=True, chunk=True, plan_age_ms=11.0, condition_age_ms=1.0).state == State.HOLD
    assert after(held, standing=True, chunk=True, plan_age_ms=9.0, condition_age_ms=1.0).state == State.NOMINAL


def test_hold_ends_in_stopped_when_it_lasts_too_long() -> None:
    held = at(State.HOLD, Cause.CONDITION_STALE, since_ns=NOW - 31 * SECOND)
    ladder = after(held, standing=True)
    assert (ladder.state, ladder.cause) == (State.STOPPED, Cause.HELD_TOO_LONG)
    assert ladder.describe() == ("HOLD -> STOPPED: held too long (31.0 s, limit 30 s, because: no fresh image)")


def test_the_first_image_may_take_longer_than_a_hold() -> None:
    waiting = Ladder.start(NOW - 3600 * SECOND)
    assert waiting.describe() == "HOLD: waiting for a first image and robot state"
    assert after(waiting, standing=True, plan_future_ms=0.0, condition_age_ms=math.inf).state == State.HOLD
    limited = advance(waiting, seen(standing=True), LadderSettings(max_waiting_s=60))
    assert limited.state == State.STOPPED


def test_the_first_motion_begins_like_every_other() -> None:
    assert after(Ladder.start(NOW - SECOND), standing=True).state == State.HOLD
    assert after(Ladder.start(NOW - SECOND), standing=True, chunk=True).state == State.NOMINAL


# A pause


def test_a_pause_brakes_into_a_hold_that_does_not_time_out() -> None:
    ladder = after(at(State.NOMINAL), paused=True)
    assert (ladder.state, ladder.cause) == (State.BRAKE, Cause.PAUSED)
    ladder = after(ladder, paused=True, standing=True)
    assert (ladder.state, ladder.cause) == (State.HOLD, Cause.PAUSED)
    later = advance(ladder, seen(NOW + 3600 * SECOND, paused=True, standing=True), SETTINGS)
    assert (later.state, later.cause) == (State.HOLD, Cause.PAUSED)


def test_a_fresh_chunk_does_not_end_a_pause() -> None:
    assert resuming(paused=True).state == State.HOLD


def test_after_a_pause_only_what_is_newer_than_its_end_resumes() -> None:
    ladder = after(at(State.HOLD, Cause.PAUSED), standing=True, chunk=True)
    assert (ladder.state, ladder.cause, ladder.held_since_ns) == (State.HOLD, Cause.RESUMED, NOW)
    late = seen(NOW + 25 * MS, standing=True, chunk=True, plan_age_ms=30.0, condition_age_ms=5.0)
    assert advance(ladder, late, SETTINGS).state == State.HOLD
    assert advance(ladder, replace(late, plan_age_ms=20.0), SETTINGS).state == State.NOMINAL


def test_a_pause_that_ends_while_braking_goes_through_hold_all_the_same() -> None:
    braking = after(at(State.BRAKE, Cause.CONDITION_STALE), paused=True)
    assert braking.cause == Cause.PAUSED
    ladder = after(braking, chunk=True)
    assert ladder.state == State.BRAKE
    ladder = after(ladder, standing=True)
    assert ladder.state == State.HOLD
    assert after(ladder, standing=True, chunk=True).cause == Cause.RESUMED


# STOPPED


@pytest.mark.parametrize("state", [State.NOMINAL, State.COAST, State.BRAKE, State.HOLD])
@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ({"stop": "~/stop was called"}, Cause.STOP_ASKED),
        ({"robot_fault": "protective stop"}, Cause.ROBOT_FAULT),
        ({"link_lost": "the controller's clock stood for 200 ms"}, Cause.LINK_LOST),
        ({"process_gone": "the perception process was killed by SIGKILL"}, Cause.PROCESS_GONE),
        ({"bad_output": "NaN", "bad_in_a_row": 3}, Cause.BAD_OUTPUTS),
    ],
)
def test_each_reason_to_stop_stops_from_any_state(state: State, what: dict[str, Any], cause: Cause) -> None:
    ladder = after(at(state), **what)
    assert (ladder.state, ladder.cause, ladder.previous) == (State.STOPPED, cause, state)
    assert next(iter(what.values())) in ladder.describe()


def test_one_bad_output_brakes_but_does_not_stop() -> None:
    assert after(at(State.NOMINAL), bad_output="NaN", bad_in_a_row=2).state == State.BRAKE


def test_stopped_is_left_by_a_reset_alone_and_only_to_hold() -> None:
    stopped = at(State.STOPPED, Cause.STOP_ASKED)
    assert after(stopped, standing=True, chunk=True) is not None
    assert after(stopped, standing=True, chunk=True).state == State.STOPPED
    ladder = after(stopped, standing=True, chunk=True, reset=True)
    assert (ladder.state, ladder.cause, ladder.held_since_ns) == (State.HOLD, Cause.RESET, NOW)


@pytest.mark.parametrize(
    ("what", "refusal"),
    [
        ({"standing": False}, "the arm still moves"),
        ({"robot_fault": "protective stop"}, "the robot cannot be moved (protective stop)"),
        ({"stop": "again"}, "a stop was asked for (again)"),
    ],
)
def test_a_reset_is_refused_while_its_reason_is_there(what: dict[str, Any], refusal: str) -> None:
    stopped = at(State.STOPPED, Cause.ROBOT_FAULT)
    tick = seen(**{"standing": True, "reset": True, **what})
    assert advance(stopped, tick, SETTINGS).state == State.STOPPED
    assert reset_refusal(stopped, tick) == refusal


def test_a_reset_elsewhere_has_nothing_to_do() -> None:
    ladder = at(State.NOMINAL, in_time=SETTINGS.in_time_to_recover)
    assert after(ladder, reset=True) is ladder
    assert reset_refusal(ladder, seen()) == "nothing to reset: the state is NOMINAL"


def test_bad_outputs_from_before_a_reset_do_not_stop_it_again() -> None:
    ladder = after(at(State.STOPPED, Cause.BAD_OUTPUTS), standing=True, reset=True, bad_in_a_row=3)
    assert after(ladder, standing=True, bad_in_a_row=3).state == State.HOLD


# Texts and times


def test_every_cause_has_a_text() -> None:
    assert set(TEXTS) == set(Cause)


def test_settings_that_make_no_sense_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="max_hold_s -1"):
        LadderSettings(max_hold_s=-1)
    with pytest.raises(ValueError, match="plan_max_age_ms nan"):
        LadderSettings(plan_max_age_ms=math.nan)


def test_durations_add_up_by_state() -> None:
    durations = Durations()
    durations.add(State.COAST, 40 * MS)
    durations.add(State.COAST, 10 * MS)
    durations.add(State.NOMINAL, SECOND)
    assert durations.seconds() == {"NOMINAL": 1.0, "COAST": 0.05, "BRAKE": 0.0, "HOLD": 0.0, "STOPPED": 0.0}


# Laws over any sequence of ticks

WAYS = {
    State.NOMINAL: {State.COAST, State.BRAKE, State.STOPPED},
    State.COAST: {State.NOMINAL, State.BRAKE, State.STOPPED},
    State.BRAKE: {State.NOMINAL, State.COAST, State.HOLD, State.STOPPED},
    State.HOLD: {State.NOMINAL, State.STOPPED},
    State.STOPPED: {State.HOLD},
}


def random_tick(rng: np.random.Generator, now_ns: int, mood: np.ndarray) -> Seen:
    """A tick whose troubles come and go in spells: ``mood`` is how likely each kind is at present."""

    def trouble(kind: int) -> bool:
        return bool(rng.random() < mood[kind])

    late, bad = trouble(0), trouble(1)
    return seen(
        now_ns,
        late=late,
        late_in_a_row=int(rng.integers(1, 60)) if late else 0,
        chunk=bool(rng.random() < 0.25),
        plan_future_ms=float(rng.uniform(0, 120)) if trouble(2) else float(rng.uniform(101, 900)),
        plan_age_ms=float(rng.choice([rng.uniform(0, 900), math.inf]))
        if trouble(3)
        else float(rng.uniform(5, 60)),
        condition_age_ms=float(rng.choice([rng.uniform(0, 900), math.inf]))
        if trouble(4)
        else float(rng.uniform(5, 40)),
        robot_age_ms=float(rng.choice([rng.uniform(0, 300), math.inf]))
        if trouble(5)
        else float(rng.uniform(0, 10)),
        speed_scaling=0.0 if trouble(6) else 1.0,
        standing=bool(rng.random() < 0.5),
        bad_output="NaN" if bad else "",
        bad_in_a_row=int(rng.integers(1, 4)) if bad else 0,
        paused=trouble(7),
        stop="asked" if trouble(8) else "",
        robot_fault="protective stop" if trouble(9) else "",
        reset=bool(rng.random() < 0.1),
    )


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_laws_of_the_ladder_hold_over_any_three_thousand_ticks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    limits = LadderSettings(max_hold_s=2.0)
    ladder, mood = Ladder.start(NOW), np.zeros(10)
    visited = set()
    for k in range(3000):
        if k % 50 == 0:
            mood = np.where(rng.random(10) < 0.25, rng.uniform(0, 0.6, 10), 0.0)
        tick = random_tick(rng, NOW + k * TICK, mood)
        before, ladder = ladder, advance(ladder, tick, limits)
        visited.add(ladder.state)
        if ladder.state != before.state:
            assert ladder.state in WAYS[before.state]
            assert (ladder.previous, ladder.since_ns) == (before.state, tick.now_ns)
            assert ladder.describe().startswith(
                f"{before.state.name} -> {ladder.state.name}: {TEXTS[ladder.cause]}"
            )
        if before.state == State.HOLD and ladder.state == State.NOMINAL:
            held_ms = (tick.now_ns - before.held_since_ns) / MS
            assert tick.chunk and not tick.paused
            assert max(tick.plan_age_ms, tick.condition_age_ms, tick.robot_age_ms) < held_ms
        if before.state == State.STOPPED and ladder.state != State.STOPPED:
            assert tick.reset and tick.standing and not tick.robot_fault and not tick.stop
        if ladder.state in (State.NOMINAL, State.COAST):
            assert brake_reason(ladder, tick, limits) is None
        if ladder.state != State.STOPPED:
            assert before.state == State.STOPPED or stop_reason(tick, limits) is None
        if ladder.state == State.HOLD and before.state != State.HOLD:
            assert tick.standing
        if ladder.state == State.HOLD and ladder.cause != Cause.PAUSED and ladder.cause != Cause.WAITING:
            assert tick.now_ns - ladder.held_since_ns <= 2.0 * SECOND
        assert len(ladder.late_steps_ns) <= limits.max_late_in_window + 1
    assert len(visited) >= 3
