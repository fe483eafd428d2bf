"""Children are started apart, stopped in order, described in words, and never outlive their parent."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.process import Child, StopFlag, spawn

PATIENCE_S = 30.0
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def started() -> Iterator[list[Child]]:
    """Children to be killed at the end of a test, whatever became of it."""
    children: list[Child] = []
    yield children
    for child in children:
        child.stop(0.0)


def python(program: str, **options: object) -> Child:
    """A child that runs ``program`` and has said ``ready`` (the program's first line of output)."""
    child = spawn([sys.executable, "-uc", program], name="child", stdout=subprocess.PIPE, **options)  # type: ignore[arg-type]
    assert child.process.stdout is not None
    assert child.process.stdout.readline() == b"ready\n"
    return child


def open_descriptors() -> set[str]:
    return {link.name for link in Path("/proc/self/fd").iterdir()}


def ends(pid_fd: int, within_s: float = PATIENCE_S) -> bool:
    return bool(select.select([pid_fd], [], [], within_s)[0])


def test_a_child_that_ends_is_described_by_its_status(started: list[Child]) -> None:
    child = spawn([sys.executable, "-c", "raise SystemExit(3)"], name="three")
    started.append(child)
    assert child.wait(PATIENCE_S) == 3
    assert (child.poll(), child.alive, child.describe_exit()) == (3, False, "ended with status 3")


def test_a_child_that_is_killed_is_described_by_the_signals_name(started: list[Child]) -> None:
    child = spawn([sys.executable, "-c", SLEEP], name="sleeper")
    started.append(child)
    assert (child.poll(), child.alive, child.describe_exit()) == (None, True, "still running")
    os.kill(child.pid, signal.SIGKILL)
    child.wait(PATIENCE_S)
    assert child.describe_exit() == "killed by SIGKILL"


def test_a_signal_without_a_name_is_described_by_its_number(started: list[Child]) -> None:
    child = spawn([sys.executable, "-c", SLEEP], name="sleeper")
    started.append(child)
    os.kill(child.pid, signal.SIGRTMIN + 3)
    child.wait(PATIENCE_S)
    assert child.describe_exit() == f"killed by signal {signal.SIGRTMIN + 3}"


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    before = open_descriptors()
    with pytest.raises(SdnpuError, match=r"arm: cannot start .*/no_such_program: No such file"):
        spawn([str(tmp_path / "no_such_program")], name="arm")
    assert open_descriptors() == before


def test_a_child_is_out_of_reach_of_the_terminals_ctrl_c(started: list[Child]) -> None:
    child = spawn([sys.executable, "-c", SLEEP], name="sleeper")
    started.append(child)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_variables_are_added_to_this_process_s_own(started: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    program = "import os; print(os.environ['KEPT'], os.environ['ADDED'])"
    child = spawn([sys.executable, "-c", program], name="env", env={"ADDED": "added"}, stdout=subprocess.PIPE)
    started.append(child)
    assert child.process.stdout is not None
    assert child.process.stdout.read() == b"kept added\n"


def test_an_ended_child_leaves_no_descriptor_behind() -> None:
    before = open_descriptors()
    child = spawn([sys.executable, "-c", ""], name="short")
    child.wait(PATIENCE_S)
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("deaf_to", "ended_by"),
    [
        ([], "ended with status 0"),
        (["SIGINT"], "killed by SIGTERM"),
        (["SIGINT", "SIGTERM"], "killed by SIGKILL"),
    ],
)
def test_stop_asks_politely_first_and_then_less_so(
    started: list[Child], deaf_to: list[str], ended_by: str
) -> None:
    child = python(f"""
import signal, time
signal.signal(signal.SIGINT, lambda *_: exit(0))
for name in {deaf_to}:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
print("ready")
time.sleep(600)
""")
    started.append(child)
    # Long enough for the polite child, short for those that do not listen.
    child.stop(0.2 if deaf_to else PATIENCE_S)
    assert child.describe_exit() == ended_by


def test_stop_ends_a_child_that_is_suspended(started: list[Child]) -> None:
    child = python(f"print('ready'); {SLEEP}")
    started.append(child)
    os.kill(child.pid, signal.SIGSTOP)
    assert child.stop(0.05) in (-signal.SIGTERM, -signal.SIGKILL)


def test_stop_of_an_ended_child_only_says_how_it_ended(started: list[Child]) -> None:
    child = spawn([sys.executable, "-c", "raise SystemExit(4)"], name="four")
    started.append(child)
    child.wait(PATIENCE_S)
    assert child.stop(PATIENCE_S) == child.stop(PATIENCE_S) == 4


def test_killing_takes_along_what_the_child_started(started: list[Child]) -> None:
    child = python(f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready")
print(subprocess.Popen([sys.executable, "-c", {SLEEP!r}]).pid)
time.sleep(600)
""")
    started.append(child)
    assert child.process.stdout is not None
    pid_fd = os.pidfd_open(int(child.process.stdout.readline()))
    child.stop(0.0)
    assert ends(pid_fd)
    os.close(pid_fd)


PARENT = """
import signal, subprocess, sys, threading, time
from sdnpu_policy.process import spawn
def start():
    global child
    child = spawn([sys.executable, "-uc", {program!r}], name="child", stdout=subprocess.PIPE,
                  on_parent_death={on_parent_death})
thread = threading.Thread(target=start)
thread.start()
thread.join()
assert child.process.stdout.readline() == b"up\\n"
print("ready")
print(child.pid)
time.sleep(600)
"""


def orphan(started: list[Child], on_parent_death: str, program: str = f"print('up'); {SLEEP}") -> int:
    """A pidfd of a process spawned, in a thread that has ended since, by a process that is then killed."""
    parent = python(PARENT.format(on_parent_death=on_parent_death, program=program))
    started.append(parent)
    assert parent.process.stdout is not None
    pid_fd = os.pidfd_open(int(parent.process.stdout.readline()))
    assert not ends(pid_fd, within_s=0.0), "it ended with the thread that spawned it"
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(PATIENCE_S)
    return pid_fd


def test_a_child_dies_with_its_killed_parent_but_not_with_the_thread_that_spawned_it(started: list[Child]) -> None:
    pid_fd = orphan(started, "signal.SIGKILL")
    assert ends(pid_fd)
    os.close(pid_fd)


def test_a_child_that_chose_a_signal_can_clean_up_after_its_parents_death(
    started: list[Child], tmp_path: Path
) -> None:
    mark = tmp_path / "cleaned"
    program = f"""
import pathlib, signal, time
def clean(*_):
    pathlib.Path({str(mark)!r}).touch()
    raise SystemExit
signal.signal(signal.SIGTERM, clean)
print("up")
time.sleep(600)
"""
    pid_fd = orphan(started, "signal.SIGTERM", program)
    assert ends(pid_fd)
    assert mark.exists()
    os.close(pid_fd)


def test_a_child_with_something_left_to_do_outlives_its_parent(started: list[Child]) -> None:
    pid_fd = orphan(started, "None")
    assert not ends(pid_fd, within_s=0.3)
    signal.pidfd_send_signal(pid_fd, signal.SIGKILL)
    os.close(pid_fd)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_wakes_the_main_thread_and_a_second_one_disturbs_nothing(
    started: list[Child], number: signal.Signals
) -> None:
    child = python(
        """
import signal
from sdnpu_policy.process import install_stop_handlers
flag = install_stop_handlers()
assert not flag.is_set() and not flag.wait(0.0)
print("ready")
flag.wait()
print(flag.reason)
for _ in range(2):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
print(flag.is_set(), flag.wait(600), flag.reason)
""",
        stderr=subprocess.PIPE,
    )
    started.append(child)
    child.process.send_signal(number)
    out, err = child.process.communicate(timeout=PATIENCE_S)
    assert out.decode().split("\n") == [number.name, f"True True {number.name}", ""]
    assert err == b""
    assert child.poll() == 0


def test_an_ignored_hang_up_stays_ignored(started: list[Child]) -> None:
    child = python(
        """
import signal
from sdnpu_policy.process import install_stop_handlers
signal.signal(signal.SIGHUP, signal.SIG_IGN)
flag = install_stop_handlers()
signal.raise_signal(signal.SIGHUP)
print("ready")
print(flag.is_set())
"""
    )
    started.append(child)
    assert child.process.stdout is not None
    assert child.process.stdout.read() == b"False\n"


def test_a_request_wakes_every_waiting_thread_and_the_first_reason_stays() -> None:
    flag = StopFlag()
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(flag.wait(PATIENCE_S))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert not flag.is_set() and flag.reason is None
    flag.request("SIGTERM")
    flag.request("SIGINT")
    for thread in threads:
        thread.join(PATIENCE_S)
    assert woken == [True, True, True]
    assert flag.reason == "SIGTERM"
    assert select.select([flag], [], [], 0.0)[0] == [flag]
