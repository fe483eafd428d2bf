"""Real-time priority for a thread, where the system allows it, and a bound that keeps it from taking the machine.

SCHED_FIFO lets the tick, the step and the servo stream run before everything that is not in a hurry. It needs
CAP_SYS_NICE or an entry in /etc/security/limits.conf (`rtprio`); without it all works as before, with a longer tail.
"""

from __future__ import annotations

import os
import resource

RUNAWAY_US = 2_000_000
"""A real-time thread that computes for so long without ever sleeping is ended by the kernel (RLIMIT_RTTIME)."""


def last_cpu() -> int | None:
    """The CPU that time-critical threads share, away from most interrupts; None on a machine that has only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-1] if len(allowed) > 1 else None


def request_realtime(priority: int, thread_id: int = 0, *, cpus: set[int] | None = None) -> str:
    """Ask for SCHED_FIFO at ``priority`` (1 to 99; 0: ask for nothing).

    Args:
        thread_id: the kernel's id of the thread; 0 for the calling one.
        cpus: run on these alone. A real-time thread that wanders finds cold caches wherever it comes.

    Returns:
        What came of it, in words for diagnostics.
    """
    if priority <= 0:
        return "off"
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        if soft == resource.RLIM_INFINITY or soft > RUNAWAY_US:
            resource.setrlimit(resource.RLIMIT_RTTIME, (RUNAWAY_US, hard))
        os.sched_setscheduler(thread_id, os.SCHED_FIFO, os.sched_param(priority))
        if cpus:
            os.sched_setaffinity(thread_id, cpus)
    except (OSError, ValueError) as error:
        return f"not allowed ({error.strerror if isinstance(error, OSError) else error})"
    return f"SCHED_FIFO {priority}" + (f" on CPU {', '.join(map(str, sorted(cpus)))}" if cpus else "")
