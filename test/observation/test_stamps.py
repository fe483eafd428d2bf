"""Stamps that can be true, and those that can't; ids are those of the faults seen in the field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason
from sdnpu_policy.observation.stamps import STEADY_AGAIN, StampLimits, StampWatch, check_stamp

LIMITS = StampLimits(max_age_ms=100.0, max_future_ms=20.0)
NOW = 1_700_000_000 * SECOND
FRAME = 33 * MS
HOUR = 3600 * SECOND


def split(stamp_ns: int) -> tuple[int, int]:
    return divmod(stamp_ns, SECOND)


def reason_at(stamp_ns: int, now_ns: int = NOW) -> RejectReason:
    with pytest.raises(ImageRejected) as caught:
        check_stamp(*split(stamp_ns), now_ns, LIMITS)
    assert "\n" not in str(caught.value)
    return caught.value.reason


def see(watch: StampWatch, stamp_ns: int, now_ns: int | None = None) -> RejectReason | None:
    """What the watch says of a stamp, 5 ms after it unless ``now_ns`` says otherwise."""
    try:
        watch.check(*split(stamp_ns), stamp_ns + 5 * MS if now_ns is None else now_ns)
    except ImageRejected as rejected:
        return rejected.reason
    return None


def test_the_age_is_the_time_since_the_stamp() -> None:
    assert check_stamp(*split(NOW - 7 * MS), NOW, LIMITS) == 7 * MS


@pytest.mark.parametrize("now_ns", [0, 1, NOW])
def test_a_stamp_of_zero_is_no_time_and_has_no_age(now_ns: int) -> None:
    """STAMP-01, T-STAMP"""
    assert check_stamp(0, 0, now_ns, LIMITS) is None
    assert StampWatch(LIMITS).check(0, 0, now_ns) is None


def test_stamps_of_zero_may_follow_each_other_and_change_nothing() -> None:
    """STAMP-01"""
    watch = StampWatch(LIMITS)
    assert [watch.check(0, 0, NOW) for _ in range(3)] == [None] * 3
    assert see(watch, NOW) is None
    assert watch.check(0, 0, NOW) is None
    assert see(watch, NOW + FRAME) is None


def test_times_near_zero_are_times_of_a_simulation() -> None:
    """STAMP-01"""
    assert check_stamp(0, 1 * MS, 4 * MS, LIMITS) == 3 * MS


def test_images_wait_for_the_start_of_a_simulations_clock() -> None:
    """STAMP-01"""
    assert reason_at(NOW, now_ns=0) is RejectReason.CLOCK


def test_skew_beyond_the_limits_is_refused_both_ways_and_told() -> None:
    """STAMP-02, T-STAMP"""
    assert reason_at(NOW + 5 * SECOND) is RejectReason.FUTURE
    assert reason_at(NOW - 5 * SECOND) is RejectReason.STALE
    watch = StampWatch(LIMITS)
    assert see(watch, NOW + 5 * SECOND, NOW) is RejectReason.FUTURE
    assert watch.skew_ms == -5000.0
    with pytest.raises(ImageRejected, match=r"5000 ms in the future: at most 20 ms"):
        watch.check(*split(NOW + 5 * SECOND), NOW)


def test_a_stamp_a_little_in_the_future_has_age_zero() -> None:
    """STAMP-02"""
    assert check_stamp(*split(NOW + 20 * MS), NOW, LIMITS) == 0
    assert reason_at(NOW + 20 * MS + 1) is RejectReason.FUTURE


@pytest.mark.parametrize(("sec", "nanosec"), [(5, SECOND), (5, -1), (-1, 0), (0, 2**32 - 1)])
def test_what_is_no_time_is_refused_and_no_skew(sec: int, nanosec: int) -> None:
    """STAMP-02, T-STAMP"""
    watch = StampWatch(LIMITS)
    assert see(watch, NOW) is None
    with pytest.raises(ImageRejected) as caught:
        watch.check(sec, nanosec, NOW)
    assert caught.value.reason is RejectReason.STAMP
    assert watch.skew_ms == 5.0
    assert see(watch, NOW + FRAME) is None


def test_one_stamp_that_goes_back_is_dropped_and_the_next_is_used() -> None:
    """STAMP-02, T-STAMP"""
    watch = StampWatch(LIMITS)
    times = [NOW, NOW + 33 * MS, NOW + 23 * MS, NOW + 56 * MS]
    assert [see(watch, t, NOW + 60 * MS) for t in times] == [None, None, RejectReason.BACKWARDS, None]


def test_a_repeated_stamp_is_dropped_however_often_it_comes() -> None:
    """STAMP-02, T-STAMP"""
    watch = StampWatch(LIMITS)
    assert see(watch, NOW) is None
    assert {see(watch, NOW) for _ in range(3 * STEADY_AGAIN)} == {RejectReason.BACKWARDS}


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_single_jump_of_an_hour_locks_nothing(jump: int) -> None:
    """STAMP-02, T-STAMP"""
    watch = StampWatch(LIMITS)
    assert see(watch, NOW) is None
    assert see(watch, NOW + FRAME + jump, NOW + FRAME) in (RejectReason.STALE, RejectReason.FUTURE)
    assert see(watch, NOW + 2 * FRAME) is None


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_source_an_hour_off_stays_refused_and_its_skew_is_told(jump: int) -> None:
    """STAMP-02"""
    watch = StampWatch(LIMITS)
    wrong = {see(watch, NOW + i * FRAME + jump, NOW + i * FRAME) for i in range(50)}
    assert wrong == {RejectReason.STALE if jump < 0 else RejectReason.FUTURE}
    assert watch.skew_ms == -jump / MS


@pytest.mark.parametrize("jump", [-HOUR, HOUR, -5 * SECOND])
def test_when_the_clock_is_set_for_both_the_stream_goes_on_at_once(jump: int) -> None:
    """STAMP-04"""
    watch = StampWatch(LIMITS)
    assert see(watch, NOW) is None
    assert [see(watch, NOW + jump + i * FRAME) for i in range(3)] == [None] * 3


def test_a_source_that_went_back_is_believed_after_a_while() -> None:
    """STAMP-02"""
    watch = StampWatch(LIMITS)
    back = 90 * MS
    assert see(watch, NOW) is None
    said = [see(watch, NOW + i * MS - back, NOW + i * MS) for i in range(1, STEADY_AGAIN + 3)]
    assert said == [RejectReason.BACKWARDS] * (STEADY_AGAIN - 1) + [None] * 3


def test_two_sources_on_one_topic_are_not_believed_in_turns() -> None:
    """STAMP-02"""
    watch = StampWatch(LIMITS)
    said = [see(watch, NOW + i * FRAME - delay, NOW + i * FRAME) for i in range(30) for delay in (0, 50 * MS)]
    assert said[2:] == [None, RejectReason.BACKWARDS] * 29


@given(
    jumps=st.lists(st.integers(-200, 200) | st.sampled_from([-3_600_000, 3_600_000, -5_000, 5_000]), max_size=30)
)
def test_whatever_came_before_a_steady_stream_is_used_in_the_end(jumps: list[int]) -> None:
    """STAMP-02"""
    watch = StampWatch(LIMITS)
    now_ns = NOW
    for jump in jumps:
        now_ns += FRAME
        see(watch, now_ns + jump * MS, now_ns)
    said = []
    for _ in range(STEADY_AGAIN + 3):
        now_ns += FRAME
        said.append(see(watch, now_ns - 5 * MS, now_ns))
    assert said[-3:] == [None] * 3


@given(
    steps=st.lists(st.integers(-150, 150), max_size=40),
)
def test_no_accepted_stamp_is_beyond_the_limits(steps: list[int]) -> None:
    """STAMP-02"""
    watch = StampWatch(LIMITS)
    now_ns = NOW
    for step in steps:
        now_ns += FRAME
        stamp_ns = now_ns + step * MS
        if see(watch, stamp_ns, now_ns) is None:
            assert -LIMITS.max_future_ms * MS <= now_ns - stamp_ns <= LIMITS.max_age_ms * MS


@given(
    sec=st.integers(-(2**31), 2**31 - 1),
    nanosec=st.integers(0, 2**32 - 1),
    now_ns=st.just(0) | st.integers(0, 2**62),
)
def test_whatever_the_stamp_it_has_an_age_within_the_limits_or_is_refused(
    sec: int, nanosec: int, now_ns: int
) -> None:
    """STAMP-01, STAMP-02"""
    watch = StampWatch(LIMITS)
    for _ in range(2):
        try:
            age_ns = watch.check(sec, nanosec, now_ns)
        except ImageRejected as rejected:
            assert isinstance(rejected.reason, RejectReason)
        else:
            assert age_ns is None if sec == nanosec == 0 else 0 <= age_ns <= LIMITS.max_age_ms * MS
