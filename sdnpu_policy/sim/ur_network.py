"""The controller's sockets: non-blocking, one select for all, and the ways a network can fail on purpose.

Nothing here waits for a client: what a client does not read is dropped with the client. All faults but the control
channel's own silence touch the robot's services only, so that a test can always end what it began.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Protocol

from sdnpu_policy.errors import SdnpuError

_RECEIVE_BYTES = 1 << 16
_LARGEST_INBOX = 1 << 20
_LARGEST_OUTBOX = 1 << 18
_WAITING_CLIENTS = 16
_MOST_CLIENTS = 200  # select() takes no descriptor over 1023


class ProtocolError(Exception):
    """A client sent what the service can't understand; its connection is closed."""


class Service(Protocol):
    """What listens on a port. The network calls it; it answers through `Connection.send`."""

    name: str
    port: int
    can_fail: bool
    """Whether injected faults of the network reach it."""

    def opened(self, connection: Connection) -> None:
        """A client connected."""

    def received(self, connection: Connection) -> None:
        """More bytes are in the inbox; take what is complete. Raises ProtocolError."""

    def closed(self, connection: Connection) -> None:
        """The client has gone, or was sent away."""


class Connection:
    """One client of one service."""

    def __init__(self, sock: socket.socket, service: Service) -> None:
        self.socket = sock
        self.service = service
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.silent = False
        """Never answered and never listened to."""
        self.open = True

    def send(self, data: bytes) -> None:
        """Queue bytes; they leave at the next `Network.poll` or now."""
        if self.open and not self.silent:
            self.outbox += data


class Network:
    """All listening sockets and connections of one address."""

    def __init__(self, address: str, note: Callable[[str], None]) -> None:
        self.address = address
        self.connections: list[Connection] = []
        self.silent = False
        """Whether new clients are accepted and then ignored."""
        self._note = note
        self._services: list[Service] = []
        self._listeners: dict[socket.socket, Service] = {}
        self._watched: dict[int, Callable[[], None]] = {}
        self._stalled_until_ns = 0

    def listen(self, service: Service) -> None:
        """Offer a service.

        Raises:
            SdnpuError: its port is taken, or the address is not this machine's.
        """
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        try:
            sock.bind((self.address, service.port))
            sock.listen(_WAITING_CLIENTS)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                raise SdnpuError(
                    f"--address {self.address}: port {service.port} ({service.name}) is taken; end the controller "
                    "that holds it or take another address, like 127.0.0.2"
                ) from error
            raise SdnpuError(f"--address {self.address}: cannot listen on it: {error.strerror}") from error
        self._listeners[sock] = service
        if service not in self._services:
            self._services.append(service)

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None:
        """Call ``readable`` when a file descriptor is; until `unwatch`."""
        self._watched[descriptor] = readable

    def unwatch(self, descriptor: int) -> None:
        """End `watch`."""
        del self._watched[descriptor]

    def of(self, service: Service) -> list[Connection]:
        """The open connections of a service."""
        return [connection for connection in self.connections if connection.service is service]

    # --- faults

    def stall(self, duration_s: float) -> None:
        """Neither read nor send nor accept for a while, on the robot's services."""
        self._stalled_until_ns = time.monotonic_ns() + int(duration_s * 1e9)

    @property
    def stalled(self) -> bool:
        """Whether a stall is under way."""
        return self._stalled_until_ns > 0 and time.monotonic_ns() < self._stalled_until_ns

    def refuse(self, on: bool) -> None:
        """Stop listening on the robot's ports, or listen again."""
        for sock, service in list(self._listeners.items()):
            if on and service.can_fail:
                del self._listeners[sock]
                sock.close()
        for service in self._services:
            if not on and service not in self._listeners.values():
                self.listen(service)

    def drop(self, *, reset: bool) -> int:
        """Close every connection of the robot's services, by RST where ``reset``; how many there were."""
        dropped = [connection for connection in self.connections if connection.service.can_fail]
        for connection in dropped:
            if reset:
                linger_0_s = struct.pack("ii", 1, 0)
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_0_s)
            self.close(connection)
        return len(dropped)

    # --- work

    def poll(self, timeout_s: float) -> None:
        """Wait for clients for at most ``timeout_s``, and do once what they want."""
        stalled = self.stalled
        listeners = [sock for sock, service in self._listeners.items() if not (stalled and service.can_fail)]
        active = {c.socket: c for c in self.connections if not (stalled and c.service.can_fail)}
        writing = [sock for sock, connection in active.items() if connection.outbox]
        waiting: list[int | socket.socket] = [*self._watched, *listeners, *active]
        readable, writable, _ = select.select(waiting, writing, (), timeout_s)
        for ready in readable:
            if isinstance(ready, int):
                self._watched[ready]()
            elif ready in active:
                self._receive(active[ready])
            else:
                self._accept(ready)
        for sock in writable:
            if active[sock].open:
                self.flush(active[sock])

    def flush(self, connection: Connection) -> None:
        """Send what is queued as far as the client takes it."""
        if not connection.outbox or (connection.service.can_fail and self.stalled):
            return
        try:
            sent = connection.socket.send(connection.outbox)
            del connection.outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.close(connection)
            return
        if len(connection.outbox) > _LARGEST_OUTBOX:
            self._note(f"{connection.service.name}: a client that does not read was dropped")
            self.close(connection)

    def close(self, connection: Connection) -> None:
        """Send a client away."""
        if not connection.open:
            return
        connection.open = False
        self.connections.remove(connection)
        connection.socket.close()
        connection.service.closed(connection)

    def shut_down(self) -> None:
        """Close everything."""
        for connection in list(self.connections):
            self.close(connection)
        for sock in self._listeners:
            sock.close()
        self._listeners.clear()

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return  # gone again, or no descriptor left
        if len(self.connections) >= _MOST_CLIENTS:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        service = self._listeners[listener]
        connection = Connection(sock, service)
        connection.silent = self.silent and service.can_fail
        self.connections.append(connection)
        service.opened(connection)
        self.flush(connection)

    def _receive(self, connection: Connection) -> None:
        if not connection.open:
            return
        data = b""
        try:
            data = connection.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            pass  # reset: as good as closed
        if not data:
            self.close(connection)
            return
        if connection.silent:
            return
        connection.inbox += data
        try:
            connection.service.received(connection)
            if len(connection.inbox) > _LARGEST_INBOX:
                raise ProtocolError(f"more than {_LARGEST_INBOX} bytes without an end")
        except ProtocolError as error:
            self._note(f"{connection.service.name}: {error}; connection closed")
            with contextlib.suppress(OSError):
                connection.socket.send(connection.outbox)
            self.close(connection)
        else:
            self.flush(connection)
