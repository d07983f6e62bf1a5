"""ZeroMQ sockets of both conversations, with options against silent loss of messages.

- A ROUTER silently drops messages to unknown peers, so ROUTER_MANDATORY is set.
- Messages to a peer that uses the identity of another one are lost, so each incarnation has its own identity.
- LINGER is 0, so that a process can exit at once.
- Large frames are sent without a copy, so the caller must not write to them afterwards.

A bound socket is a file on this machine. If other machines need to reach it, it also has a *gate*
(`wire.security.keys`, `wire.security.tcp_router`).
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
# Limits at a gate. An answer to a worker may be a dense vector or the rows of a batch, so a peer with 8 unread answers
# gets no further ones and has to ask again. All messages of the control conversation are small.
DATA_WAITING, CONTROL_WAITING = Waiting(to_peer=8, from_peer=64), Waiting(to_peer=256, from_peer=256)
ZERO_COPY_BYTES = 64 * 1024
M = TypeVar("M")
# For tests and `elastichost chaos`: if this variable is set, clients connect to a fault proxy in front of the socket.
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
    """Updates the socket's counts of unread messages. `send` updates them at most once a millisecond, so it may count
    messages as unread that the peer has answered already; at a gate the limit is a few unread messages."""
    socket.getsockopt(zmq.EVENTS)


def _named(parts: list[memoryview] | None) -> tuple[bytes, list[memoryview]] | None:
    """(identity, parts) of a message that a ROUTER has received; None for None."""
    return None if parts is None else (bytes(parts[0]), parts[1:])


class _Router:
    """A bound ROUTER socket for many peers, each named by its identity. With a gate it has a second socket for peers on
    other machines."""

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
        """The address of the gate, for other machines; "" without a gate."""
        return "" if self._outer is None else self._outer.address

    @property
    def sockets(self) -> tuple[zmq.Socket[bytes], ...]:
        return (self._local,) if self._outer is None else (self._local, self._outer.socket)

    def _receive(self) -> tuple[bytes, list[memoryview]] | None:
        """(identity, parts) of the next message, from the local socket and the gate in turn. Raises ProtocolError if
        the key of a peer does not belong to its identity."""
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
        """Waits until this socket, one of `others` or one of `extra_fds` is readable, at most `timeout_s`. Returns the
        readable ones of `extra_fds`."""
        poller = zmq.Poller()
        for source in (*self.sockets, *extra_fds, *others):
            poller.register(source, zmq.POLLIN)
        ready = dict(poller.poll(int(timeout_s * 1000)))
        return frozenset(key for key in ready if isinstance(key, int))

    def receive(self) -> Envelope[ControlMessage] | None:
        """The next message, or None. Raises ProtocolError for a malformed or forged message, which is dropped."""
        received = self._receive()
        if received is None:
            return None
        identity, parts = received
        envelope = self._codec.decode(parts)
        if envelope.sender is None or identity != str(envelope.sender).encode():
            raise ProtocolError(f"peer {identity!r} sent a message in the name of {envelope.sender}")
        return envelope

    def send(self, process: ProcessId, message: ControlMessage, frames: Sequence[Frame] = ()) -> None:
        """Sends a message to an incarnation. Raises ProtocolError when it is not connected, or does not read."""
        self._send(str(process).encode(), self._codec.encode(message, frames))


class DataServer(_Router):
    """A PS' end of the data conversation. A peer is one channel of one incarnation of a worker or of another PS."""

    def __init__(self, address: str, job_id: int, process: ProcessId, gate: Gate | None = None) -> None:
        super().__init__(address, gate, DATA_WAITING)
        self._codec: Codec[DataMessage] = Codec(DataMessage, job_id, process)

    def receive(self) -> tuple[bytes, Envelope[DataMessage]] | None:
        """The next (peer identity for the answer, message), or None. Raises ProtocolError for a malformed or forged
        message, which is dropped."""
        received = self._receive()
        if received is None:
            return None
        identity, parts = received
        envelope = self._codec.decode(parts)
        if envelope.sender is None or not identity.startswith(f"{envelope.sender}/".encode()):
            raise ProtocolError(f"peer {identity!r} sent a message in the name of {envelope.sender}")
        return identity, envelope

    def send(self, peer: bytes, message: DataMessage, frames: Sequence[Frame] = ()) -> None:
        """Sends a message to a peer. Raises ProtocolError when it is gone, or does not read."""
        self._send(peer, self._codec.encode(message, frames))


class _Dealer:
    """A DEALER socket that is connected to one peer. shown: the keys for the peer's gate, if it is reached there."""

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
        """The next valid message, or None. A malformed message is logged and dropped; the process that waits for it
        sends its request again."""
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
    """A worker's, PS' or probe's end of the control conversation, for use by one thread. It has its own ZeroMQ context,
    so that `flush` can wait until the last messages are sent."""

    def __init__(self, address: str, job_id: int, process: ProcessId, shown: Pass | None = None) -> None:
        super().__init__(zmq.Context(), address, str(process), shown)
        self._codec: Codec[ControlMessage] = Codec(ControlMessage, job_id, process)

    def send(self, message: ControlMessage, frames: Sequence[Frame] = ()) -> None:
        self._send(self._codec.encode(message, frames))

    def receive(self) -> Envelope[ControlMessage] | None:
        return self._next(self._codec)

    def flush(self, timeout_s: float) -> None:
        """Waits at most `timeout_s` until queued messages are sent, and closes the connection. A process calls this
        last."""
        self._socket.setsockopt(zmq.LINGER, int(timeout_s * 1000))
        self._socket.close()
        self._context.term()


class DataClient(_Dealer):
    """A connection of a worker, or of a PS that copies buckets, to one PS incarnation. channel: distinguishes the
    connections of a process. All of them share one ZeroMQ context with one I/O thread. shown: the keys, if the PS is on
    another machine."""

    def __init__(self, address: str, job_id: int, process: ProcessId, channel: str, shown: Pass | None = None) -> None:
        super().__init__(zmq.Context.instance(), address, f"{process}/{channel}", shown)
        self._codec: Codec[DataMessage] = Codec(DataMessage, job_id, process)

    def send(self, message: DataMessage, frames: Sequence[Frame] = ()) -> None:
        self._send(self._codec.encode(message, frames))

    def receive(self) -> Envelope[DataMessage] | None:
        return self._next(self._codec)


@dataclass(frozen=True, slots=True)
class Caller:
    """The process that connects to PS, its host, and its keys if some PS are on other machines."""

    job_id: int
    process: ProcessId
    host: int = 0
    keys: KeyPair | None = None

    def connect(self, server: ServerAddress, channel: str) -> DataClient:
        """Connects to a PS, over the network only if it is on another machine. Raises ProtocolError if keys are needed
        and missing."""
        if server.host == self.host or not server.outer:
            return DataClient(server.address, self.job_id, self.process, channel)
        if self.keys is None or not server.key:
            raise ProtocolError(f"{self.process} has no key for PS {server.index} on host {server.host}")

        return DataClient(server.outer, self.job_id, self.process, channel, Pass(self.keys, server.key))


class Waiter:
    """Waits for any of several endpoints and file descriptors, which are registered once for many waits."""

    def __init__(self, *sources: _Router | _Dealer | int) -> None:
        self._poller = zmq.Poller()
        for source in sources:
            for one in (source,) if isinstance(source, int) else source.sockets:
                self._poller.register(one, zmq.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Waits until an endpoint or descriptor is readable. False: none was within `timeout_s`."""
        return bool(self._poller.poll(int(timeout_s * 1000)))

    def ready(self, timeout_s: float) -> frozenset[zmq.Socket[bytes]]:
        """Waits until an endpoint or descriptor is readable, at most `timeout_s`. Returns the readable sockets."""
        found = self._poller.poll(int(timeout_s * 1000))
        return frozenset(source for source, _ in found if not isinstance(source, int))


def wait_readable(sockets: Iterable[zmq.Socket[bytes]], timeout_s: float) -> bool:
    """Waits until one of the sockets has a message. False: none had within `timeout_s`."""
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    return bool(poller.poll(int(timeout_s * 1000)))
