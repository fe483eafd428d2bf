"""Real-time priority is asked for, and never insisted on."""

from __future__ import annotations

import os
import threading

from sdnpu_policy.realtime import request_realtime


def in_a_thread(priority: int) -> tuple[str, int]:
    seen: list[tuple[str, int]] = []
    thread = threading.Thread(target=lambda: seen.append((request_realtime(priority), os.sched_getscheduler(0))))
    thread.start()
    thread.join()
    return seen[0]


def test_nothing_is_asked_for_at_priority_zero() -> None:
    assert in_a_thread(0) == ("off", os.SCHED_OTHER)


def test_the_answer_says_what_the_system_allowed() -> None:
    said, policy = in_a_thread(1)
    assert (said, policy) == ("SCHED_FIFO 1", os.SCHED_FIFO) or (said.startswith("not allowed"), policy) == (
        True,
        os.SCHED_OTHER,
    )


def test_a_priority_that_no_system_has_is_reported() -> None:
    said, policy = in_a_thread(1000)
    assert said.startswith("not allowed") and policy == os.SCHED_OTHER
