"""Latest-value mailboxes between two processes: the writer never waits, the reader takes the newest whole value.

A mailbox is two SOCK_SEQPACKET pairs. On the first, values go from writer to reader, each as one message, so a
value is whole or not there. Its send buffer holds a handful of messages; when it is full the writer, which has a
duplicate of the reading end, takes the oldest message out itself and sends again. So the newest value is always
in the queue, whatever the reader does, and a reader that wakes up late still finds it. That duplicate keeps the
reading end open when the reader dies, so the second pair tells the writer: of that one each side has only its
own end.

A value too large for a message lies in one of a few slots of anonymous shared memory (a sealed memfd), and the
message is the token of its slot. A token is with the writer, in the queue, or with the reader, who copies the
slot out and returns the token by the second pair; only who has the token touches the slot. All order comes from
the kernel's socket calls, none from the processor, so the same holds on x86 and on arm64.

Nothing here has a name in the file system: after ``kill -9`` of either side nothing is left behind.

Each end belongs to one thread of one process at a time. To give an end to a child process: pass ``end.fds``
through ``exec`` (``pass_fds``), rebuild it there with ``from_fds``, and ``close`` it in the parent, or neither
side will be told of the other's death.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .errors import SdnpuError

LARGEST_MESSAGE_BYTES = 32 * 1024
"""Larger values go by shared memory: two copies through a socket would cost more than one page-cached copy."""

_HEADER = struct.Struct("=Qq")  # sequence number, stamp
_TOKEN = struct.Struct("=QqI")  # sequence number, stamp, slot
_RETURNED = struct.Struct("=I")  # slot

# A reader has at most two tokens (one in hand while it asks for a newer one). Two more let the writer fill one
# slot while the value before it waits in the queue.
_SLOT_COUNT = 4
_SLOT_ALIGNMENT = 64

# More than a queue ever holds; without an end, a reader could drain for ever behind a writer at full speed.
_MOST_DRAINED = 32

_NOW = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_NOW_TRUE_SIZE = int(socket.MSG_DONTWAIT | socket.MSG_TRUNC)


class Letter(NamedTuple):
    """A value taken from a mailbox."""

    seq: int
    """1 for the first value posted, then counting up."""
    stamp_ns: int
    """Steady-clock time given by the writer."""
    value: NDArray[Any]
    """The reader's own copy: a 0-d array of a structured dtype, or an array of a sub-array dtype's shape."""
    missed: int
    """How many values were posted since the last letter and replaced before they were taken."""


class _End:
    """What both ends share: the sockets, the slots if any, and closing."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        memory_fd: int | None,
        dtype: np.dtype[Any],
        *,
        hang_up_of: socket.socket,  # only the other side holds its peer
    ) -> None:
        self._base, self._shape = dtype.base, dtype.shape
        self._sockets = tuple(sockets)
        self._memory_fd = memory_fd
        self._map: mmap.mmap | None = None
        self._slots: list[NDArray[Any]] = []
        if memory_fd is not None:
            self._map = mmap.mmap(memory_fd, _memory_size(dtype), mmap.MAP_SHARED | mmap.MAP_POPULATE)
            stride = _memory_size(dtype) // _SLOT_COUNT
            self._slots = [
                np.ndarray(dtype.shape, dtype.base, self._map, slot * stride) for slot in range(_SLOT_COUNT)
            ]
        self._other_gone = False
        self._hang_up = select.poll()
        self._hang_up.register(hang_up_of, 0)  # POLLHUP is always reported

    @property
    def fds(self) -> tuple[int, ...]:
        """The file descriptors to pass to a child that rebuilds this end with ``from_fds``."""
        memory = () if self._memory_fd is None else (self._memory_fd,)
        return (*(s.fileno() for s in self._sockets), *memory)

    def _is_other_gone(self) -> bool:
        self._other_gone = self._other_gone or bool(self._hang_up.poll(0))
        return self._other_gone

    def close(self) -> None:
        """Give up this end in this process; the other side is told once no process has it. May be repeated."""
        self._hang_up = select.poll()  # the descriptors' numbers may soon mean something else
        for each in self._sockets:
            each.close()
        self._slots = []  # views into the map, which can't be closed before them
        if self._map is not None:
            self._map.close()
        if self._memory_fd is not None:
            os.close(self._memory_fd)
            self._memory_fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class Writer(_End):
    """The posting end."""

    def __init__(self, sockets: Sequence[socket.socket], memory_fd: int | None, dtype: np.dtype[Any]) -> None:
        self._out, self._queue, self._returns = sockets
        super().__init__(sockets, memory_fd, dtype, hang_up_of=self._returns)
        self._seq = 0
        self._free = list(range(len(self._slots)))
        self._scratch = bytearray(_TOKEN.size)

    @classmethod
    def from_fds(cls, fds: Sequence[int], dtype: np.dtype[Any]) -> Self:
        """Rebuild the end in a process that inherited ``Writer.fds``.

        Raises:
            SdnpuError: the descriptors are not those of a writer of values of this size.
        """
        return cls(*_adopt(fds, dtype, sockets=3), dtype)

    @property
    def reader_gone(self) -> bool:
        """Whether the reader has closed its end or died. Posting goes on without effect."""
        return self._is_other_gone()

    def post(self, value: NDArray[Any] | np.void, stamp_ns: int) -> int:
        """Make ``value`` the newest and return its sequence number; never waits for the reader.

        Raises:
            ValueError: the value has not the mailbox's dtype (or, for a sub-array dtype, its shape).
        """
        if value.dtype != self._base or value.shape != self._shape:
            raise ValueError(
                f"a {value.dtype} of shape {value.shape} was posted to a mailbox for a {self._base} of shape "
                f"{self._shape}"
            )
        seq = self._seq + 1
        if self._memory_fd is None:
            # Through bytes: assigning a structured array goes field by field and takes thirty times as long.
            message = _HEADER.pack(seq, stamp_ns) + value.tobytes()
        else:
            slot = self._free_slot()
            self._slots[slot][...] = value
            message = _TOKEN.pack(seq, stamp_ns, slot)
        # The send buffer holds more than one message, and a reader in the midst of receiving has one, so at the
        # latest this ends when the queue is empty.
        while True:
            try:
                self._out.send(message, _NOW)
                break
            except BlockingIOError:
                self._take_back_oldest()
        self._seq = seq
        return seq

    def _free_slot(self) -> int:
        """A slot whose token is here; the oldest in the queue is taken back when there is no other."""
        # A reader has two of the tokens at most, so a second round always finds one: tokens that were in neither
        # place in the first have come back in the meantime.
        while True:
            while True:
                try:
                    returned = self._returns.recv(_RETURNED.size, _NOW)
                except (BlockingIOError, ConnectionResetError):
                    break
                if not returned:
                    break
                self._free.append(_RETURNED.unpack(returned)[0])
            if not self._free:
                self._take_back_oldest()
            if self._free:
                return self._free.pop()

    def _take_back_oldest(self) -> None:
        try:
            self._queue.recv_into(self._scratch, 0, _NOW)
        except BlockingIOError:
            return  # the reader was faster
        if self._memory_fd is not None:
            self._free.append(_TOKEN.unpack(self._scratch)[2])


class Reader(_End):
    """The taking end."""

    def __init__(self, sockets: Sequence[socket.socket], memory_fd: int | None, dtype: np.dtype[Any]) -> None:
        self._in, self._returns = sockets
        super().__init__(sockets, memory_fd, dtype, hang_up_of=self._in)
        self._message = bytearray(_HEADER.size + dtype.itemsize if memory_fd is None else _TOKEN.size)
        self._last_seq = 0

    @classmethod
    def from_fds(cls, fds: Sequence[int], dtype: np.dtype[Any]) -> Self:
        """Rebuild the end in a process that inherited ``Reader.fds``.

        Raises:
            SdnpuError: the descriptors are not those of a reader of values of this size.
        """
        return cls(*_adopt(fds, dtype, sockets=2), dtype)

    @property
    def writer_gone(self) -> bool:
        """Whether the writer has closed its end or died. What it posted last can still be taken."""
        return self._is_other_gone()

    def fileno(self) -> int:
        """Readable when there is something to take and when the writer is gone."""
        return self._in.fileno()

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is something to take or the writer is gone; False when neither came in time.

        ``take`` may yet find nothing, when the writer has just taken a value back to replace it by a newer one.
        """
        # select, because Python's poll and epoll round the timeout up to whole milliseconds.
        return bool(select.select((self._in,), (), (), max(0.0, timeout_s))[0])

    def take(self) -> Letter | None:
        """The newest value that was not taken yet, or None.

        Raises:
            SdnpuError: the other end was built with a dtype of another size.
        """
        seq, stamp_ns, slot = 0, 0, -1
        for _ in range(_MOST_DRAINED):
            try:
                size = self._in.recv_into(self._message, 0, _NOW_TRUE_SIZE)
            except BlockingIOError:
                break
            if size == 0:  # the writer is gone
                break
            if size != len(self._message):
                raise SdnpuError(
                    f"mailbox: a message of {size} bytes came where {len(self._message)} were expected; "
                    "writer and reader must be built with the same dtype"
                )
            if self._memory_fd is None:
                seq, stamp_ns = _HEADER.unpack_from(self._message)
            else:
                if slot >= 0:
                    self._give_back(slot)
                seq, stamp_ns, slot = _TOKEN.unpack(self._message)
        if seq == 0:
            return None
        if self._memory_fd is None:
            value = np.ndarray(self._shape, self._base, self._message[_HEADER.size :])  # a slice is a copy
        else:
            value = self._slots[slot].copy()
            self._give_back(slot)
        missed = seq - self._last_seq - 1
        self._last_seq = seq
        return Letter(seq, stamp_ns, value, missed)

    def _give_back(self, slot: int) -> None:
        try:
            self._returns.send(_RETURNED.pack(slot), _NOW)
        except (BrokenPipeError, ConnectionResetError):
            return  # the writer is gone and wants no slot any more


def open_mailbox(dtype: np.dtype[Any]) -> tuple[Writer, Reader]:
    """A new mailbox for values of ``dtype``: structured, or a sub-array dtype such as ``(float32, (1, 77, 768))``.

    Raises:
        ValueError: the dtype is empty or holds Python objects.
    """
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"values of dtype {dtype} can't travel between processes")
    data_in, data_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader_end, writer_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    memory_fd = None
    if dtype.itemsize > LARGEST_MESSAGE_BYTES:
        memory_fd = os.memfd_create("sdnpu_mailbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(memory_fd, _memory_size(dtype))
        # Neither side can take the memory from under the other.
        fcntl.fcntl(memory_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    else:
        # The kernel doubles this, and accounts a message with up to twice its size: two messages or more.
        data_out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * (_HEADER.size + dtype.itemsize) + 1024)
    writer = Writer((data_out, data_in.dup(), writer_end), memory_fd, dtype)
    reader = Reader((data_in, reader_end), None if memory_fd is None else os.dup(memory_fd), dtype)
    return writer, reader


def _memory_size(dtype: np.dtype[Any]) -> int:
    """Bytes of all slots, each begun on a cache line."""
    return _SLOT_COUNT * -(-dtype.itemsize // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT


def _adopt(fds: Sequence[int], dtype: np.dtype[Any], *, sockets: int) -> tuple[list[socket.socket], int | None]:
    """The sockets and the memory behind inherited descriptors, no longer inheritable by a further child."""
    expected = sockets + (dtype.itemsize > LARGEST_MESSAGE_BYTES)
    if len(fds) != expected:
        raise SdnpuError(
            f"mailbox: got {len(fds)} file descriptors ({', '.join(map(str, fds))}), but this end of a mailbox "
            f"for values of {dtype.itemsize} bytes has {expected}"
        )
    memory_fd = fds[sockets] if len(fds) > sockets else None
    for fd in fds:
        try:
            size = os.fstat(fd).st_size
            os.set_inheritable(fd, False)
        except OSError as error:
            raise SdnpuError(f"mailbox: file descriptor {fd} is not open; was it inherited (pass_fds)?") from error
        if fd == memory_fd and size != _memory_size(dtype):
            raise SdnpuError(
                f"mailbox: the shared memory has {size} bytes where {_memory_size(dtype)} were expected; "
                "writer and reader must be built with the same dtype"
            )
    return [socket.socket(fileno=fd) for fd in fds[:sockets]], memory_fd
