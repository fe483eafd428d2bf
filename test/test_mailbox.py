"""The newest value arrives whole, the writer never waits, and each side hears of the other's death."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.letters import ROBOT_STATE, TARGET
from sdnpu_policy.mailbox import LARGEST_MESSAGE_BYTES, Reader, Writer, open_mailbox

PATIENCE_S = 30.0
SMALL = np.dtype([("number", np.int64), ("filler", np.int64, 24)])
LARGE = np.dtype((np.float32, (1, 77, 768)))  # the condition of Stable Diffusion's U-Net
LARGE_RECORD = np.dtype([("condition", np.float32, 77 * 768), ("observed_ns", np.int64)])
LARGEST_INLINE = np.dtype((np.uint8, LARGEST_MESSAGE_BYTES))
SMALLEST_SHARED = np.dtype((np.uint8, LARGEST_MESSAGE_BYTES + 1))
EVERY_SIZE = pytest.mark.parametrize(
    "dtype", [np.dtype(np.uint8), SMALL, LARGEST_INLINE, SMALLEST_SHARED, LARGE], ids=lambda d: f"{d.itemsize}B"
)

Mailbox = Callable[[np.dtype[Any]], tuple[Writer, Reader]]


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    """Opens mailboxes that are closed at the end of the test."""
    ends: list[Writer | Reader] = []

    def opened(dtype: np.dtype[Any]) -> tuple[Writer, Reader]:
        writer, reader = open_mailbox(dtype)
        ends.extend((writer, reader))
        return writer, reader

    yield opened
    for end in ends:
        end.close()


def filled(dtype: np.dtype[Any], number: int) -> np.ndarray[Any, Any]:
    """A value of which every byte, or every number, is ``number``."""
    value = np.empty(dtype.shape, dtype.base)
    if dtype.fields:
        for name in dtype.fields:
            value[name] = number
    else:
        value[...] = number
    return value


def open_descriptors() -> set[str]:
    return {link.name for link in Path("/proc/self/fd").iterdir()}


# --- one process


@EVERY_SIZE
def test_a_value_arrives_as_it_was_posted_with_its_number_and_stamp(
    mailbox: Mailbox, dtype: np.dtype[Any]
) -> None:
    writer, reader = mailbox(dtype)
    assert writer.post(filled(dtype, 5), stamp_ns=-123) == 1
    letter = reader.take()
    assert letter is not None
    assert (letter.seq, letter.stamp_ns, letter.missed) == (1, -123, 0)
    assert letter.value.dtype == dtype.base and letter.value.shape == dtype.shape
    assert letter.value.tobytes() == filled(dtype, 5).tobytes()


@pytest.mark.parametrize("dtype", [TARGET, ROBOT_STATE, LARGE_RECORD], ids=["target", "robot state", "condition"])
def test_a_record_keeps_its_fields(mailbox: Mailbox, dtype: np.dtype[Any]) -> None:
    writer, reader = mailbox(dtype)
    record = np.frombuffer(np.random.default_rng(1).bytes(dtype.itemsize), dtype)[0]
    writer.post(record, 0)
    letter = reader.take()
    assert letter is not None
    assert dtype.names is not None
    for name in dtype.names:
        assert letter.value[name].tobytes() == record[name].tobytes()


@EVERY_SIZE
def test_only_the_newest_value_is_taken_and_the_others_are_counted_as_missed(
    mailbox: Mailbox, dtype: np.dtype[Any]
) -> None:
    writer, reader = mailbox(dtype)
    for number in range(1, 101):
        writer.post(filled(dtype, number), number)
    letter = reader.take()
    assert letter is not None
    assert (letter.seq, letter.stamp_ns, letter.missed) == (100, 100, 99)
    assert letter.value.tobytes() == filled(dtype, 100).tobytes()
    assert reader.take() is None


@EVERY_SIZE
@settings(deadline=None)
@given(rounds=st.lists(st.integers(min_value=0, max_value=12), max_size=12))
def test_whatever_the_rhythm_each_take_is_the_newest_post(dtype: np.dtype[Any], rounds: list[int]) -> None:
    writer, reader = open_mailbox(dtype)
    with writer, reader:
        seq = last_taken = 0
        for posts in rounds:
            for _ in range(posts):
                seq = writer.post(filled(dtype, (seq + 1) % 256), seq + 1)
            letter = reader.take()
            if posts == 0:
                assert letter is None
                continue
            assert letter is not None
            assert (letter.seq, letter.missed) == (seq, seq - last_taken - 1)
            assert letter.value.tobytes() == filled(dtype, seq % 256).tobytes()
            last_taken = seq


@EVERY_SIZE
def test_a_taken_value_is_the_readers_own(mailbox: Mailbox, dtype: np.dtype[Any]) -> None:
    writer, reader = mailbox(dtype)
    posted = filled(dtype, 1)
    writer.post(posted, 0)
    posted[...] = filled(dtype, 2)
    letter = reader.take()
    assert letter is not None
    for number in range(3, 20):
        writer.post(filled(dtype, number), 0)
        reader.take()
    assert letter.value.tobytes() == filled(dtype, 1).tobytes()
    letter.value[...] = filled(dtype, 0)


class Interrupted:
    """Stands for one of the reader's parts and lets the writer post before each use of it."""

    def __init__(self, part: Any, interrupt: Callable[[], None]) -> None:
        self._part, self._interrupt = part, interrupt

    def __getattr__(self, name: str) -> Any:
        self._interrupt()
        return getattr(self._part, name)


@pytest.mark.parametrize("dtype", [SMALL, LARGE], ids=["SMALL", "LARGE"])
@settings(deadline=None)
@given(
    while_receiving=st.lists(st.sampled_from([0, 0, 1, 3]), min_size=1, max_size=20),
    while_copying=st.lists(st.integers(min_value=0, max_value=9)),
    while_returning=st.lists(st.integers(min_value=0, max_value=9)),
)
def test_posts_in_the_midst_of_a_take_leave_its_value_whole(
    dtype: np.dtype[Any], while_receiving: list[int], while_copying: list[int], while_returning: list[int]
) -> None:
    writer, reader = open_mailbox(dtype)
    posted = last_taken = 0

    def posting(bursts: list[int]) -> Callable[[], None]:
        remaining = iter(bursts)

        def post_the_next_burst() -> None:
            nonlocal posted
            for _ in range(next(remaining, 0)):
                posted += 1
                writer.post(filled(dtype, posted), posted)

        return post_the_next_burst

    with writer, reader:
        reader._in = Interrupted(reader._in, posting(while_receiving))
        reader._returns = Interrupted(reader._returns, posting(while_returning))
        interrupt_copy = posting(while_copying)
        reader._slots = [Interrupted(slot, interrupt_copy) for slot in reader._slots]
        while (letter := reader.take()) or last_taken < posted:
            if letter is not None:
                assert letter.value.tobytes() == filled(dtype, letter.seq).tobytes()
                last_taken = letter.seq


def test_a_value_of_another_dtype_or_shape_is_refused_before_it_travels(mailbox: Mailbox) -> None:
    writer, reader = mailbox(LARGE)
    with pytest.raises(ValueError, match=r"float64 of shape \(1, 77, 768\) .* float32 of shape \(1, 77, 768\)"):
        writer.post(np.zeros((1, 77, 768)), 0)
    with pytest.raises(ValueError, match=r"float32 of shape \(77, 768\)"):
        writer.post(np.zeros((77, 768), np.float32), 0)
    assert reader.take() is None


@pytest.mark.parametrize("dtype", [np.dtype(object), np.dtype([("a", object)]), np.dtype((np.void, 0))])
def test_what_cannot_travel_opens_no_mailbox(dtype: np.dtype[Any]) -> None:
    with pytest.raises(ValueError, match="can't travel between processes"):
        open_mailbox(dtype)


def test_wait_is_over_at_once_when_there_is_something_and_false_when_there_is_not(mailbox: Mailbox) -> None:
    writer, reader = mailbox(SMALL)
    assert not reader.wait(0.0)
    assert not reader.wait(0.0005)
    assert not reader.wait(-1.0)
    writer.post(filled(SMALL, 1), 0)
    assert reader.wait(PATIENCE_S)
    assert select.select([reader], [], [], 0.0)[0] == [reader]
    reader.take()
    assert not reader.wait(0.0)


@EVERY_SIZE
def test_the_last_value_of_a_writer_that_left_can_still_be_taken(mailbox: Mailbox, dtype: np.dtype[Any]) -> None:
    writer, reader = mailbox(dtype)
    writer.post(filled(dtype, 7), 0)
    assert not reader.writer_gone
    writer.close()
    assert reader.writer_gone
    assert reader.wait(PATIENCE_S)
    letter = reader.take()
    assert letter is not None
    assert letter.value.tobytes() == filled(dtype, 7).tobytes()
    assert reader.take() is None
    assert reader.wait(PATIENCE_S) and reader.writer_gone


@EVERY_SIZE
def test_posting_goes_on_after_the_reader_left(mailbox: Mailbox, dtype: np.dtype[Any]) -> None:
    writer, reader = mailbox(dtype)
    writer.post(filled(dtype, 1), 0)
    reader.take()
    writer.post(filled(dtype, 2), 0)
    assert not writer.reader_gone
    reader.close()
    assert writer.reader_gone
    assert [writer.post(filled(dtype, 3), 0) for _ in range(20)] == list(range(3, 23))


@EVERY_SIZE
def test_closing_gives_back_every_descriptor_and_may_be_repeated(dtype: np.dtype[Any]) -> None:
    before = open_descriptors()
    writer, reader = open_mailbox(dtype)
    writer.post(filled(dtype, 1), 0)
    reader.take()
    for _ in range(2):
        writer.close()
        reader.close()
    assert open_descriptors() == before


def test_a_message_of_another_size_is_refused_naming_both(mailbox: Mailbox) -> None:
    writer, reader = mailbox(SMALL)
    with Reader.from_fds([os.dup(fd) for fd in reader.fds], np.dtype(np.int64)) as mistaken:
        writer.post(filled(SMALL, 1), 0)
        with pytest.raises(SdnpuError, match="a message of 216 bytes came where 24 were expected"):
            mistaken.take()


@pytest.mark.parametrize(("opened", "rebuilt"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_descriptors_of_the_wrong_kind_of_mailbox_are_refused(
    mailbox: Mailbox, opened: np.dtype[Any], rebuilt: np.dtype[Any]
) -> None:
    writer, reader = mailbox(opened)
    with pytest.raises(SdnpuError, match=rf"got {len(writer.fds)} file descriptors .* {rebuilt.itemsize} bytes"):
        Writer.from_fds(writer.fds, rebuilt)
    with pytest.raises(SdnpuError, match=rf"got {len(reader.fds)} file descriptors"):
        Reader.from_fds(reader.fds, rebuilt)


def test_shared_memory_of_another_size_is_refused_naming_both(mailbox: Mailbox) -> None:
    _, reader = mailbox(LARGE)
    with pytest.raises(SdnpuError, match="shared memory has 946176 bytes where 131328 were expected"):
        Reader.from_fds(reader.fds, SMALLEST_SHARED)


def test_descriptors_that_were_not_inherited_are_named() -> None:
    with pytest.raises(SdnpuError, match="file descriptor 987654 is not open"):
        Reader.from_fds((987654, 987655), SMALL)


# --- two processes

PRELUDE = """
import os, signal, sys, time
import numpy as np
from sdnpu_policy.mailbox import Reader, Writer
SMALL = np.dtype([("number", np.int64), ("filler", np.int64, 24)])
LARGE = np.dtype((np.float32, (1, 77, 768)))
FDS = [int(fd) for fd in sys.argv[2].split(",")]
DTYPE = {"SMALL": SMALL, "LARGE": LARGE}[sys.argv[1]]
def number_of(value):
    numbers = value["filler"] if DTYPE is SMALL else value
    assert (numbers == numbers.flat[0]).all(), "torn"
    return int(numbers.flat[0])
"""
WRITE_FOR_EVER = """
writer = Writer.from_fds(FDS, DTYPE)
value = np.zeros(DTYPE.shape, DTYPE.base)
number = 0
while not writer.reader_gone:
    number += 1
    value[...] = number
    writer.post(value, number)
print("reader gone")
"""
READ_TO_THE_END = """
reader = Reader.from_fds(FDS, DTYPE)
print("ready", flush=True)
taken, last = 0, 0
while True:
    reader.wait(600)
    letter = reader.take()
    if letter is None:
        if reader.writer_gone:
            break
        continue
    assert number_of(letter.value) == letter.seq == letter.stamp_ns == last + 1 + letter.missed, "not the value"
    taken, last = taken + 1, letter.seq
print(last)
"""
BOTH_SIZES = pytest.mark.parametrize("name", ["SMALL", "LARGE"])
DTYPES = {"SMALL": SMALL, "LARGE": LARGE}


@pytest.fixture
def child() -> Iterator[Callable[[str, str, Writer | Reader], subprocess.Popen[bytes]]]:
    """Starts programs in other processes that own one end; the end is closed here."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(program: str, name: str, end: Writer | Reader) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-uc", PRELUDE + program, name, ",".join(map(str, end.fds))]
        process = subprocess.Popen(argv, pass_fds=end.fds, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        processes.append(process)
        end.close()
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


Start = Callable[[str, str, Writer | Reader], subprocess.Popen[bytes]]


def line_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def suspended(process: subprocess.Popen[bytes]) -> None:
    """Stop the process by SIGSTOP and return when it has stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


@BOTH_SIZES
def test_no_value_is_torn_under_a_writer_at_full_speed(mailbox: Mailbox, child: Start, name: str) -> None:
    posts = 3000
    dtype = DTYPES[name]
    writer, reader = mailbox(dtype)
    process = child(READ_TO_THE_END, name, reader)
    assert line_of(process) == "ready"
    value = filled(dtype, 0)
    for number in range(1, posts + 1):
        value[...] = filled(dtype, number) if dtype.fields else number
        writer.post(value, number)
    writer.close()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert err == b""
    assert out.decode().strip() == str(posts), "the newest value has to arrive even if no other follows"


@BOTH_SIZES
def test_a_suspended_reader_neither_stops_the_writer_nor_misses_the_newest_value(
    mailbox: Mailbox, child: Start, name: str
) -> None:
    posts = 500
    dtype = DTYPES[name]
    writer, reader = mailbox(dtype)
    process = child(READ_TO_THE_END, name, reader)
    assert line_of(process) == "ready"
    suspended(process)
    for number in range(1, posts + 1):
        assert writer.post(filled(dtype, number), number) == number
    assert not writer.reader_gone
    process.send_signal(signal.SIGCONT)
    writer.close()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert err == b""
    assert out.decode().strip() == str(posts)


@BOTH_SIZES
def test_a_reader_suspended_at_any_moment_leaves_the_writer_free(
    mailbox: Mailbox, child: Start, name: str
) -> None:
    dtype = DTYPES[name]
    writer, reader = mailbox(dtype)
    process = child(READ_TO_THE_END, name, reader)
    assert line_of(process) == "ready"
    number = 0
    for _ in range(30):  # each time in another place of `take`, perhaps with a slot in hand
        for _ in range(10):
            number += 1
            writer.post(filled(dtype, number), number)
        suspended(process)
        for _ in range(10):
            number += 1
            writer.post(filled(dtype, number), number)
        process.send_signal(signal.SIGCONT)
    writer.close()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert err == b""
    assert out.decode().strip() == str(number)


@BOTH_SIZES
def test_a_killed_writer_is_noticed_and_leaves_nothing_behind(mailbox: Mailbox, child: Start, name: str) -> None:
    shm, descriptors = set(Path("/dev/shm").iterdir()), open_descriptors()
    writer, reader = mailbox(DTYPES[name])
    process = child(WRITE_FOR_EVER, name, writer)
    assert reader.wait(PATIENCE_S) and not reader.writer_gone
    process.kill()
    process.wait(PATIENCE_S)
    assert reader.writer_gone and reader.wait(PATIENCE_S)
    while reader.take() is not None:
        pass
    assert reader.writer_gone
    process.communicate()
    reader.close()
    assert open_descriptors() == descriptors
    assert not [new for new in set(Path("/dev/shm").iterdir()) - shm if "sdnpu" in new.name]


@BOTH_SIZES
def test_a_killed_reader_is_noticed_and_leaves_nothing_behind(mailbox: Mailbox, child: Start, name: str) -> None:
    shm, descriptors = set(Path("/dev/shm").iterdir()), open_descriptors()
    writer, reader = mailbox(DTYPES[name])
    process = child(READ_TO_THE_END, name, reader)
    assert line_of(process) == "ready"
    writer.post(filled(DTYPES[name], 1), 1)
    assert not writer.reader_gone
    process.kill()
    process.wait(PATIENCE_S)
    assert writer.reader_gone
    assert writer.post(filled(DTYPES[name], 2), 2) == 2
    process.communicate()
    writer.close()
    assert open_descriptors() == descriptors
    assert not [new for new in set(Path("/dev/shm").iterdir()) - shm if "sdnpu" in new.name]


@BOTH_SIZES
def test_two_children_hear_of_each_other_when_the_parent_has_closed_its_ends(
    mailbox: Mailbox, child: Start, name: str
) -> None:
    writer, reader = mailbox(DTYPES[name])
    reading = child(READ_TO_THE_END, name, reader)
    writing = child(WRITE_FOR_EVER, name, writer)
    assert line_of(reading) == "ready"
    reading.kill()
    assert line_of(writing) == "reader gone"


def test_a_rebuilt_end_is_not_inherited_by_a_further_child(mailbox: Mailbox, child: Start) -> None:
    writer, _ = mailbox(SMALL)
    process = child(
        """
writer = Writer.from_fds(FDS, DTYPE)
print([os.get_inheritable(fd) for fd in writer.fds])
""",
        "SMALL",
        writer,
    )
    assert line_of(process) == "[False, False, False]"
