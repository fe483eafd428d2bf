"""Header stamps: how old an image is, and stamps that can't be true.

Only differences to the ROS clock of this process are looked at. A stamp of zero means "no time" and is never reckoned
with. A source whose clock was set is believed again once its stamps have run forward for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

from sdnpu_policy.clock import MS, SECOND
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

STEADY_AGAIN = 10
"""Stamps that must run forward before a source that went back is believed again."""


@dataclass(frozen=True, slots=True)
class StampLimits:
    """How far a stamp may be from now."""

    max_age_ms: float
    max_future_ms: float


def check_stamp(sec: int, nanosec: int, now_ros_ns: int, limits: StampLimits) -> int | None:
    """Age of an image in ns, 0 for a stamp a little in the future; None for a stamp of zero.

    Args:
        sec: seconds of builtin_interfaces/Time.
        nanosec: its nanoseconds, 0 to 999999999.
        now_ros_ns: the ROS clock of this process.
        limits: how far the stamp may be from it.

    Raises:
        ImageRejected: too old, too far in the future, no valid time, or the ROS clock has not started.
    """
    if not _is_time(sec, nanosec):
        raise ImageRejected(
            RejectReason.STAMP, f"image stamp has sec {sec}, nanosec {nanosec}: 0 to 999999999 ns is valid"
        )
    stamp_ns = sec * SECOND + nanosec
    if stamp_ns == 0:
        return None
    if now_ros_ns == 0:
        raise ImageRejected(
            RejectReason.CLOCK, "the ROS clock is at 0: with use_sim_time, nothing is published on /clock yet"
        )
    age_ns = now_ros_ns - stamp_ns
    if age_ns > limits.max_age_ms * MS:
        raise ImageRejected(
            RejectReason.STALE,
            f"image stamp is {age_ns / MS:.0f} ms old: at most {limits.max_age_ms:g} ms is allowed; "
            "is the camera's clock synchronised?",
        )
    if -age_ns > limits.max_future_ms * MS:
        raise ImageRejected(
            RejectReason.FUTURE,
            f"image stamp is {-age_ns / MS:.0f} ms in the future: at most {limits.max_future_ms:g} ms is "
            "allowed; is the camera's clock synchronised?",
        )
    return max(age_ns, 0)


def _is_time(sec: int, nanosec: int) -> bool:
    return sec >= 0 and 0 <= nanosec < SECOND


class StampWatch:
    """The stamps of one source, in the order they arrive.

    A stamp that is refused for its distance from now is forgotten, so a jump ahead locks nothing. When the clock of
    this process was set back with the source's, the last accepted stamp lies in the future and stops counting.
    """

    def __init__(self, limits: StampLimits) -> None:
        self.limits = limits
        self.skew_ms = 0.0
        """Now minus the newest stamp: transport, and the difference between the two clocks."""
        self._accepted_ns = 0
        self._refused_ns = 0
        self._forward = 0

    def check(self, sec: int, nanosec: int, ros_now_ns: int) -> int | None:
        """The age as `check_stamp` has it, for a stamp later than the one before.

        Raises:
            ImageRejected: as `check_stamp`; or the stamp repeats or goes back.
        """
        stamp_ns = sec * SECOND + nanosec
        if stamp_ns > 0 and ros_now_ns and _is_time(sec, nanosec):
            self.skew_ms = (ros_now_ns - stamp_ns) / MS
        age_ns = check_stamp(sec, nanosec, ros_now_ns, self.limits)
        if age_ns is None:
            return None
        if self._accepted_ns - ros_now_ns > self.limits.max_future_ms * MS:
            self._accepted_ns = 0
        if stamp_ns <= self._accepted_ns and not self._runs_forward_again(stamp_ns):
            raise ImageRejected(
                RejectReason.BACKWARDS,
                f"image stamp is {(self._accepted_ns - stamp_ns) / MS:.0f} ms before the last image's: stamps must rise",
            )
        self._accepted_ns = stamp_ns
        self._refused_ns = 0
        self._forward = 0
        return age_ns

    def _runs_forward_again(self, stamp_ns: int) -> bool:
        self._forward = self._forward + 1 if stamp_ns > self._refused_ns else 0
        self._refused_ns = stamp_ns
        return self._forward >= STEADY_AGAIN
