"""Work too long for a tick, done in a forked copy of the process, which sees all memory as it was at that moment.

A thread would take the interpreter from the tick for milliseconds at a time; the copy costs the tick about one.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

from .ur_network import Network

_MOST_JOBS = 8
_CHUNK = 1 << 16
_FIRST_DESCRIPTOR = 3


class Background:
    """Starts the jobs and hands back what they return."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._jobs: dict[int, tuple[int, bytearray, Callable[[dict[str, Any]], None]]] = {}

    def start(self, work: Callable[[], dict[str, Any]], done: Callable[[dict[str, Any]], None]) -> None:
        """Run ``work`` in the copy and ``done`` here with what it returned, or with {"error": why}.

        Raises:
            ValueError: too many are running.
        """
        if len(self._jobs) >= _MOST_JOBS:
            raise ValueError(f"{_MOST_JOBS} jobs on the record are running: wait for one to end")
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _run_and_exit(work, writing)
        os.close(writing)
        self._jobs[reading] = (pid, bytearray(), done)
        self._network.watch(reading, lambda: self._read(reading))

    def shut_down(self) -> None:
        """End the jobs that still run."""
        for reading, (pid, _, _) in list(self._jobs.items()):
            os.kill(pid, signal.SIGKILL)
            self._end(reading)

    def _read(self, reading: int) -> None:
        chunk = os.read(reading, _CHUNK)
        if chunk:
            self._jobs[reading][1].extend(chunk)
            return
        result, done = self._end(reading)
        try:
            done(json.loads(result))
        except ValueError:
            done({"error": "the job on the record ended without a result"})

    def _end(self, reading: int) -> tuple[bytes, Callable[[dict[str, Any]], None]]:
        pid, received, done = self._jobs.pop(reading)
        self._network.unwatch(reading)
        os.close(reading)
        os.waitpid(pid, 0)
        return bytes(received), done


def _run_and_exit(work: Callable[[], dict[str, Any]], writing: int) -> None:
    """In the copy: no socket of the original may stay open here, or its clients would not see it close."""
    status = 1
    try:
        os.closerange(_FIRST_DESCRIPTOR, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        try:
            result = work()
        except (OSError, ValueError) as error:
            result = {"error": str(error)}
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(result).encode())
        status = 0
    finally:
        os._exit(status)
