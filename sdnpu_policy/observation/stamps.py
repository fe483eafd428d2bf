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


class StampWatch:
    """The stamps of one source, in the order they arrive."""

    def __init__(self, limits: StampLimits) -> None:
        self.limits = limits
        self.skew_ms = 0.0
        """Now minus the newest stamp: transport, and the difference between the two clocks."""
        self._accepted_ns = 0
        self._refused_ns = 0
        self._forward = 0

    def check(self, sec: int, nanosec: int, ros_now_ns: int) -> int | None:
        """Age of an image in ns, 0 for a stamp a little in the future; None for a stamp of zero.

        Raises:
            ImageRejected: too old, too far in the future, not later than the one before, or no valid time.
        """
        if nanosec < 0 or nanosec >= SECOND:
            raise ImageRejected(RejectReason.STAMP, f"image stamp has nanosec {nanosec}: 0 to 999999999 is valid")
        stamp_ns = sec * SECOND + nanosec
        if stamp_ns == 0:
            return None
        age_ns = ros_now_ns - stamp_ns
        self.skew_ms = age_ns / MS
        if age_ns > self.limits.max_age_ms * MS:
            raise ImageRejected(
                RejectReason.STALE,
                f"image stamp is {age_ns / MS:.0f} ms old: at most {self.limits.max_age_ms:g} ms is allowed; "
                "is the camera's clock synchronised?",
            )
        if -age_ns > self.limits.max_future_ms * MS:
            raise ImageRejected(
                RejectReason.FUTURE,
                f"image stamp is {-age_ns / MS:.0f} ms in the future: at most {self.limits.max_future_ms:g} ms is "
                "allowed; is the camera's clock synchronised?",
            )
        if stamp_ns <= self._accepted_ns and not self._runs_forward_again(stamp_ns):
            raise ImageRejected(
                RejectReason.BACKWARDS,
                f"image stamp is {(self._accepted_ns - stamp_ns) / MS:.0f} ms before the last image's: stamps must rise",
            )
        self._accepted_ns = stamp_ns
        self._forward = 0
        return max(age_ns, 0)

    def _runs_forward_again(self, stamp_ns: int) -> bool:
        self._forward = self._forward + 1 if stamp_ns > self._refused_ns else 0
        self._refused_ns = stamp_ns
        return self._forward >= STEADY_AGAIN
