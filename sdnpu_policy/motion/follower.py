"""Where on the plan the arm is: real time while all is well, slower along the same path while it brakes.

Braking straight ahead leaves the path, and the path is what keeps the tool off the fixture. So to brake, time on
the plan slows down instead: the arm is told the poses it would have been told anyway, later and later, until it
stands.

What is kept is a ``rate`` (0 standing, 1 real time) and a ``debt``, how far time on the plan has fallen behind:

* running, at rate 1 and without debt, plan time is the present plus the lead, exactly;
* braking, the rate falls so that the speed along the path (rate times the plan's own) falls by the deceleration;
  when it reaches 0 the arm stands, and the debt grows second by second;
* running again, the rate rises to 1 with the same bound on acceleration. The debt stays: the rest of the plan is
  followed late, and none of it is skipped;
* a fresh chunk pays the debt (`resync`): stamped in real time, it is stitched with ``followed_ns`` set to where
  the arm is on the old plan, and the stitch's fade takes up the distance. The rate is kept, and as both the old
  plan and the new one are run through at that rate, the speed does not step either;
* after standing in HOLD, `restart` puts plan time to the present with rate 0: the first target is the pose the
  plan was started from, and the motion ramps in.

The order in a tick is `advance`, then `Plan.sample` at its answer; a chunk that is accepted is stitched first:
``plan.stitch(chunk, clock.due_ns(now_ns), followed_ns=clock.plan_ns(now_ns))``, then ``clock.resync(now_ns)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_STANDS = 1e-9
"""A speed (m/s or rad/s) below which the plan itself stands, and its rate bounds nothing."""


class PathClock:
    """Time on the plan.

    Args:
        lead_ns: how far ahead of the present the arm is told poses.
    """

    def __init__(self, lead_ns: int = 0) -> None:
        self.lead_ns = lead_ns
        self.rate = 0.0
        """Seconds of the plan a second, 0 to 1."""
        self.debt_ns = 0
        """How far plan time lies behind real time."""
        self._last_ns: int | None = None
        self._speed = 0.0
        self._angular_speed = 0.0

    @property
    def standing(self) -> bool:
        """Whether plan time stands still."""
        return self.rate == 0.0

    def due_ns(self, now_ns: int) -> int:
        """When a target given now is due: the present plus the lead."""
        return now_ns + self.lead_ns

    def plan_ns(self, now_ns: int) -> int:
        """Plan time at ``now_ns``, at the present rate and without changing anything."""
        return now_ns + self.lead_ns - self.debt_ns - self._slip_ns(now_ns)

    def restart(self, now_ns: int) -> None:
        """Plan time is the present (plus the lead) and stands: the motion ramps in from here."""
        self.rate = 0.0
        self.debt_ns = 0
        self._last_ns = now_ns
        self._speed = self._angular_speed = 0.0

    def resync(self, now_ns: int) -> None:
        """Plan time is the present (plus the lead) again, at the same rate: a fresh chunk has been stitched."""
        self.debt_ns = 0
        self._last_ns = now_ns

    def advance(
        self,
        now_ns: int,
        dt_s: float,
        *,
        braking: bool,
        path_speed_m_s: float,
        deceleration_m_s2: float,
        path_angular_speed_rad_s: float = 0.0,
        angular_deceleration_rad_s2: float = math.inf,
    ) -> int:
        """Let time pass to ``now_ns`` and return the plan time to sample.

        Args:
            now_ns: the present.
            dt_s: the period of the tick, over which the rate may change.
            braking: slow down to standing; else speed up to real time.
            path_speed_m_s: the plan's own speed where it was sampled last.
            deceleration_m_s2: bound on the change of speed along the path, either way.
            path_angular_speed_rad_s: the plan's own angular speed there.
            angular_deceleration_rad_s2: bound on the change of angular speed.
        """
        slope_m_s, slope_rad_s = deceleration_m_s2 * dt_s, angular_deceleration_rad_s2 * dt_s
        if braking:
            # Whichever of the two needs longer decides: neither may be braked harder than its bound.
            wanted = max(
                _share(self._speed - slope_m_s, path_speed_m_s),
                _share(self._angular_speed - slope_rad_s, path_angular_speed_rad_s),
                0.0,
            )
            rate = min(self.rate, wanted)
        else:
            wanted = min(
                _share(self._speed + slope_m_s, path_speed_m_s, still=1.0),
                _share(self._angular_speed + slope_rad_s, path_angular_speed_rad_s, still=1.0),
                1.0,
            )
            rate = max(self.rate, wanted)
        self.debt_ns += self._slip_ns(now_ns, rate)
        self._last_ns = now_ns
        self.rate = rate
        self._speed = rate * path_speed_m_s
        self._angular_speed = rate * path_angular_speed_rad_s
        return now_ns + self.lead_ns - self.debt_ns

    def _slip_ns(self, now_ns: int, rate: float | None = None) -> int:
        """What plan time loses from the last call to ``now_ns`` at ``rate``."""
        if self._last_ns is None:
            return 0
        return round((1.0 - (self.rate if rate is None else rate)) * (now_ns - self._last_ns))


def _share(speed: float, of: float, still: float = 0.0) -> float:
    """``speed`` as a part of the plan's own speed ``of``; ``still`` where the plan stands and any part will do."""
    return still if of < _STANDS else speed / of


def path_speeds(twist: Sequence[float]) -> tuple[float, float]:
    """Speed (m/s) and angular speed (rad/s) of a twist [6]."""
    vx, vy, vz, wx, wy, wz = twist
    return math.sqrt(vx * vx + vy * vy + vz * vz), math.sqrt(wx * wx + wy * wy + wz * wz)
