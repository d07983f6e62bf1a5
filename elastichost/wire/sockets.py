"""ZeroMQ sockets of both conversations, with the traps of ZeroMQ closed.

A ROUTER drops messages to unknown peers silently unless ROUTER_MANDATORY is set; a reused identity black-holes
a peer, so every incarnation has its own; LINGER 0 lets a process exit at once. Large frames are sent without a
copy, so the caller must not write into them again.

A bound socket is a file of this machine; where other machines are to reach it, it has a *gate* as well (`wire.keys`,
`wire.outer`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import zmq
from typing_extensions import Buffer

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.wire.codec import MAX_MESSAGE_BYTES, Codec, Envelope, Frame, frame_bytes
from elastichost.wire.control import ControlMessage
from elastichost.wire.data import DataMessage
from elastichost.wire.facts import ServerAddress
from elastichost.wire.security.keys import Gate, KeyPair, Pass, is_version_6, present
from elastichost.wire.security.refusals import RefusalLog
from elastichost.wire.security.tcp_router import OuterRouter, Waiting, cut, unforeseen

__all__ = [
    "VIA_SUFFIX",
    "VIA_VARIABLE",
    "Caller",
    "ControlClient",
    "ControlServer",
    "DataClient",
    "DataServer",
    "Waiter",
    "wait_readable",
]

HIGH_WATER_MARK = 10_000
# At a gate. An answer on its way to a worker may be a dense vector or the rows of a batch: whoever has left so many
# unread gets no more, and asks again. Of the control conversation all are small.
DATA_WAITING, CONTROL_WAITING = Waiting(to_peer=8, from_peer=64), Waiting(to_peer=256, from_peer=256)
ZERO_COPY_BYTES = 64 * 1024
M = TypeVar("M")
# For tests and `elastichost chaos`: with this variable set, a fault proxy stands between a socket and its clients.
VIA_VARIABLE = "ELASTICHOST_VIA_PROXY"
VIA_SUFFIX = ".via"


def _configure(socket: zmq.Socket[bytes], *, identity: bytes = b"") -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    if identity:
        socket.setsockopt(zmq.IDENTITY, identity)


def _send_parts(socket: zmq.Socket[bytes], parts: Sequence[Frame], flags: int = 0) -> None:
    last = len(parts) - 1
    for position, part in enumerate(parts):
        large = frame_bytes(part) >= ZERO_COPY_BYTES
        socket.send(cast(Buffer, part), flags | (0 if position == last else zmq.SNDMORE), copy=not large)


def _receive_parts(socket: zmq.Socket[bytes]) -> list[memoryview] | None:
    try:
        return [frame.buffer for frame in socket.recv_multipart(zmq.NOBLOCK, copy=False)]
    except zmq.Again:
        return None


def _note_what_was_read(socket: zmq.Socket[bytes]) -> None:
    """Brings the socket's counts of unread messages up to date. `send` itself does so once a millisecond at most: it
    takes messages for unread that the peer has answered already, and at a gate a few unread ones are too many."""
    socket.getsockopt(zmq.EVENTS)


def _named(parts: list[memoryview] | None) -> tuple[bytes, list[memoryview]] | None:
    """(identity, parts) of what a ROUTER has received."""
    return None if parts is None else (bytes(parts[0]), parts[1:])


class _Router:
    """A bound ROUTER: many peers, each named by its identity; with a gate, a second one for those from elsewhere."""

    def __init__(self, address: str, gate: Gate | None, waiting: Waiting) -> None:
        self._context = zmq.Context()
        self._local = self._context.socket(zmq.ROUTER)
        _configure(self._local)
        self._local.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._local.bind(address)
        self.address = address
        self._outer: OuterRouter | None = None
        self._is_outers_turn = False
        if gate is not None:
            try:
                self._outer = OuterRouter(gate, waiting, self._context)
            except OSError:
                self._context.destroy(linger=0)
                raise

    @property
    def outer_address(self) -> str:
        """Where other machines reach it; "" when they cannot."""
        return "" if self._outer is None else self._outer.address

    @property
    def sockets(self) -> tuple[zmq.Socket[bytes], ...]:
        return (self._local,) if self._outer is None else (self._local, self._outer.socket)

    def _receive(self) -> tuple[bytes, list[memoryview]] | None:
        """(identity, parts), from inside and outside in turn. Raises ProtocolError for one that is not whom it says."""
        if self._outer is None:
            return _named(_receive_parts(self._local))
        for _ in self.sockets:
            self._is_outers_turn = not self._is_outers_turn
            found = self._outer.receive() if self._is_outers_turn else _named(_receive_parts(self._local))
            if found is not None:
                return found
        return None

    def _send(self, identity: bytes, parts: Sequence[Frame]) -> None:
        outer = self._outer if self._outer is not None and self._outer.knows(identity) else None
        socket, routing_id = (self._local, identity) if outer is None else (outer.socket, outer.routing_id(identity))
        message = [routing_id, *parts]
        try:
            try:
                _send_parts(socket, message, zmq.NOBLOCK)
            except zmq.Again:
                _note_what_was_read(socket)
                _send_parts(socket, message, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise ProtocolError(f"peer {identity.decode(errors='replace')} cannot be reached") from error
            raise

    def close(self) -> None:
        self._local.close()
        if self._outer is not None:
            self._outer.close()
        self._context.term()


class ControlServer(_Router):
    """The supervisor's end of the control conversation."""

    def __init__(self, address: str, job_id: int, gate: Gate | None = None) -> None:
        super().__init__(address, gate, CONTROL_WAITING)
        self._codec: Codec[ControlMessage] = Codec(ControlMessage, job_id, None)

    def poll(
        self, timeout_s: float, extra_fds: Iterable[int] = (), others: Iterable[zmq.Socket[bytes]] = ()
    ) -> frozenset[int]:
        """Waits until a message here or for `others`, or one of `extra_fds`, is readable. Returns the readable extra
        descriptors."""
        poller = zmq.Poller()
        for source in (*self.sockets, *extra_fds, *others):
            poller.register(source, zmq.POLLIN)
        ready = dict(poller.poll(int(timeout_s * 1000)))
        return frozenset(key for key in ready if isinstance(key, int))

    def receive(self) -> Envelope[ControlMessage] | None:
        """The next message, or None. Raises ProtocolError for one that must be refused (and is dropped)."""
        received = self._receive()
        if received is None:
            return None
        identity, parts = received
        envelope = self._codec.decode(parts)
        if envelope.sender is None or identity != str(envelope.sender).encode():
            raise ProtocolError(f"peer {identity!r} speaks for {envelope.sender}")
        return envelope

    def send(self, process: ProcessId, message: ControlMessage, frames: Sequence[Frame] = ()) -> None:
        """Raises ProtocolError when that incarnation is not connected."""
        self._send(str(process).encode(), self._codec.encode(message, frames))


class DataServer(_Router):
    """A PS' end of the data conversation. Peers are (worker incarnation, channel)."""

    def __init__(self, address: str, job_id: int, process: ProcessId, gate: Gate | None = None) -> None:
        super().__init__(address, gate, DATA_WAITING)
        self._codec: Codec[DataMessage] = Codec(DataMessage, job_id, process)

    def receive(self) -> tuple[bytes, Envelope[DataMessage]] | None:
        """(peer identity to answer to, message). Raises ProtocolError for one that must be refused."""
        received = self._receive()
        if received is None:
            return None
        identity, parts = received
        envelope = self._codec.decode(parts)
        if envelope.sender is None or not identity.startswith(f"{envelope.sender}/".encode()):
            raise ProtocolError(f"peer {identity!r} speaks for {envelope.sender}")
        return identity, envelope

    def send(self, peer: bytes, message: DataMessage, frames: Sequence[Frame] = ()) -> None:
        """Raises ProtocolError when the peer is gone."""
        self._send(peer, self._codec.encode(message, frames))


class _Dealer:
    """A connected DEALER: one peer."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], address: str, identity: str, shown: Pass | None
    ) -> None:
        self._context = context
        self._socket = self._context.socket(zmq.DEALER)
        self._is_outer = shown is not None
        _configure(self._socket, identity=unforeseen(identity) if self._is_outer else identity.encode())
        if shown is not None:
            present(shown, self._socket)
            self._socket.setsockopt(zmq.IPV6, is_version_6(address))
        self._socket.connect(address + VIA_SUFFIX if os.environ.get(VIA_VARIABLE) else address)
        self.address = address
        self._refused = RefusalLog()

    @property
    def socket(self) -> zmq.Socket[bytes]:
        return self._socket

    @property
    def sockets(self) -> tuple[zmq.Socket[bytes], ...]:
        return (self._socket,)

    def _next(self, codec: Codec[M]) -> Envelope[M] | None:
        """The next message that is one. What is malformed is told and dropped: whoever waits for it will ask again."""
        while (parts := _receive_parts(self._socket)) is not None:
            try:
                return codec.decode(parts)
            except ProtocolError as error:
                self._refused(str(error))
        return None

    def _send(self, parts: Sequence[Frame]) -> None:
        _send_parts(self._socket, list(cut(parts)) if self._is_outer else parts)

    def close(self) -> None:
        self._socket.close()


class ControlClient(_Dealer):
    """A worker's, PS' or probe's end of the control conversation. Belongs to one thread.

    It has a context of its own, so that `flush` can wait for the last messages to leave."""

    def __init__(self, address: str, job_id: int, process: ProcessId, shown: Pass | None = None) -> None:
        super().__init__(zmq.Context(), address, str(process), shown)
        self._codec: Codec[ControlMessage] = Codec(ControlMessage, job_id, process)

    def send(self, message: ControlMessage, frames: Sequence[Frame] = ()) -> None:
        self._send(self._codec.encode(message, frames))

    def receive(self) -> Envelope[ControlMessage] | None:
        return self._next(self._codec)

    def flush(self, timeout_s: float) -> None:
        """Lets queued messages leave, for at most `timeout_s`, and closes; the last thing a process does."""
        self._socket.setsockopt(zmq.LINGER, int(timeout_s * 1000))
        self._socket.close()
        self._context.term()


class DataClient(_Dealer):
    """A worker's connection to one PS incarnation. `channel` tells a worker's own connections apart; all of a process
    share one context, hence one I/O thread. shown: where that PS is on another machine."""

    def __init__(self, address: str, job_id: int, process: ProcessId, channel: str, shown: Pass | None = None) -> None:
        super().__init__(zmq.Context.instance(), address, f"{process}/{channel}", shown)
        self._codec: Codec[DataMessage] = Codec(DataMessage, job_id, process)

    def send(self, message: DataMessage, frames: Sequence[Frame] = ()) -> None:
        self._send(self._codec.encode(message, frames))

    def receive(self) -> Envelope[DataMessage] | None:
        return self._next(self._codec)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who connects to PS: from which host, with which keys where some are on other machines."""

    job_id: int
    process: ProcessId
    host: int = 0
    keys: KeyPair | None = None

    def connect(self, server: ServerAddress, channel: str) -> DataClient:
        """Over the network only where that PS is on another machine. Raises ProtocolError without keys."""
        if server.host == self.host or not server.outer:
            return DataClient(server.address, self.job_id, self.process, channel)
        if self.keys is None or not server.key:
            raise ProtocolError(f"{self.process} has no key for PS {server.index} on host {server.host}")
        return DataClient(server.outer, self.job_id, self.process, channel, Pass(self.keys, server.key))


class Waiter:
    """Waits for any of several endpoints and plain descriptors; registered once, waited on often."""

    def __init__(self, *sources: _Router | _Dealer | int) -> None:
        self._poller = zmq.Poller()
        for source in sources:
            for one in (source,) if isinstance(source, int) else source.sockets:
                self._poller.register(one, zmq.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Whether something can be read within the timeout."""
        return bool(self._poller.poll(int(timeout_s * 1000)))

    def ready(self, timeout_s: float) -> frozenset[zmq.Socket[bytes]]:
        """Sockets that can be read within the timeout."""
        found = self._poller.poll(int(timeout_s * 1000))
        return frozenset(source for source, _ in found if not isinstance(source, int))


def wait_readable(sockets: Iterable[zmq.Socket[bytes]], timeout_s: float) -> bool:
    """Whether one of these sockets can be received from within the timeout."""
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    return bool(poller.poll(int(timeout_s * 1000)))
