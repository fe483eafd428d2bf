"""Child processes that are watched, stopped in order, and never outlive their parent, and the request to stop.

A child gets a session of its own. Ctrl-C on a terminal goes to every process of the foreground group; the
children must not hear it, because the parent stops them in order (targets first, then the arm). A process group
of its own would do for that, but as a background group of the same terminal the kernel could stop a child for
writing to it (``stty tostop``) or hang it up with the terminal; without a terminal neither can happen.

A child dies with its parent, even after ``kill -9``: it inherits the reading end of a pipe whose writing end
only the parent has, and the kernel is asked to send a signal to the child when that pipe breaks (O_ASYNC with
F_SETSIG). PR_SET_PDEATHSIG would be simpler to ask for, but is sent when the *thread* that spawned the child
ends, so a child started from an executor's worker thread would die in the middle of the work. The pipe belongs
to the process, needs nothing of the child's program, and is asked for by the parent alone, without code between
fork and exec.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO

from .errors import SdnpuError

_KILLED_WITHIN_S = 1.0


class Child:
    """A running or ended child process. Made by `spawn`."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], lifeline: int | None) -> None:
        self.name = name
        self.process = process
        self._lifeline = lifeline  # a bare number, so that losing this object does not kill the child

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended yet."""
        return self.poll() is None

    def poll(self) -> int | None:
        """The exit status, minus the signal's number when a signal ended it; None while it runs."""
        return self._noted(self.process.poll())

    def wait(self, timeout_s: float) -> int | None:
        """What `poll` says, as soon as the child has ended, at the latest after ``timeout_s``."""
        try:
            return self._noted(self.process.wait(max(0.0, timeout_s)))
        except subprocess.TimeoutExpired:
            return None

    def describe_exit(self) -> str:
        """How it ended, in words: ``ended with status 3``, ``killed by SIGKILL``, ``still running``."""
        status = self.poll()
        if status is None:
            return "still running"
        if status >= 0:
            return f"ended with status {status}"
        return f"killed by {_signal_name(-status)}"

    def stop(self, timeout_s: float) -> int | None:
        """Ask the child to end (SIGINT, after half of ``timeout_s`` SIGTERM), and kill it at the end of that time.

        Returns its exit status, or None in the rare case that not even SIGKILL ended it within a second (it hangs
        in the kernel).
        """
        deadline_s = time.monotonic() + timeout_s
        for number, until_s in ((signal.SIGINT, deadline_s - timeout_s / 2), (signal.SIGTERM, deadline_s)):
            if not self.alive:
                return self.poll()
            self.process.send_signal(number)
            self.wait(until_s - time.monotonic())
        if self.alive:
            # The group, for what the child may have started itself. The number can't be another's: the child has
            # not been waited for yet.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        return self.wait(_KILLED_WITHIN_S)

    def _noted(self, status: int | None) -> int | None:
        if status is not None and self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        return status


def spawn(
    argv: Sequence[str],
    *,
    name: str,
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    on_parent_death: signal.Signals | None = signal.SIGKILL,
) -> Child:
    """Start ``argv`` as a child in a session of its own, with nothing on its standard input.

    Args:
        argv: program and arguments.
        name: what messages call it.
        pass_fds: file descriptors it inherits, under the same numbers.
        env: variables added to those of this process.
        stdout: as for subprocess.Popen; this process's own by default.
        stderr: as for subprocess.Popen; this process's own by default.
        on_parent_death: the signal it gets when this process has ended in whatever way. None for a process that
            has something to do then: the arm process sees its mailbox close, brakes and leaves by itself.

    Raises:
        SdnpuError: the program can't be started.
    """
    reading, lifeline = os.pipe() if on_parent_death is not None else (None, None)  # the child gets `reading`
    try:
        process = subprocess.Popen(
            argv,
            pass_fds=pass_fds if reading is None else (*pass_fds, reading),
            env=None if env is None else {**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        if reading is not None and on_parent_death is not None:
            # These belong to the pipe's end, not to the number it has here, so they hold for the child's copy.
            fcntl.fcntl(reading, fcntl.F_SETOWN, process.pid)
            fcntl.fcntl(reading, fcntl.F_SETSIG, on_parent_death)
            fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError as error:
        if lifeline is not None:
            os.close(lifeline)
        raise SdnpuError(f"{name}: cannot start {argv[0]}: {error.strerror}") from error
    finally:
        if reading is not None:
            os.close(reading)
    return Child(name, process, lifeline)


class StopFlag:
    """Whether this process has been asked to stop, and by what. Safe to raise in a signal handler."""

    def __init__(self) -> None:
        # Not a threading.Event: a handler that sets it while the main thread is inside its wait can deadlock.
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """What asked first: a signal's name, or what `request` was given; None before."""
        return self._reason

    def request(self, reason: str) -> None:
        """Ask for a stop; only the first request counts."""
        if self._reason is None:
            self._reason = reason
            os.eventfd_write(self._bell, 1)

    def is_set(self) -> bool:
        """Whether a stop has been asked for."""
        return self._reason is not None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until a stop is asked for, at the longest ``timeout_s``; whether it was."""
        if self._reason is None:
            select.select((self._bell,), (), (), timeout_s)
        return self.is_set()

    def fileno(self) -> int:
        """Readable once a stop has been asked for, to wait for it together with a mailbox."""
        return self._bell


def install_stop_handlers() -> StopFlag:
    """From now on SIGINT, SIGTERM and SIGHUP (a terminal that closes) only raise the flag returned.

    A second one changes nothing: the stop that is under way is not interrupted. An ignored SIGHUP (nohup) stays
    ignored. To be called in the main thread, and with rclpy after its ``init`` without handlers of its own
    (``SignalHandlerOptions.NO``).
    """
    flag = StopFlag()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        signal.signal(number, lambda received, _frame: flag.request(_signal_name(received)))
    return flag


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals but two have no names
        return f"signal {number}"
