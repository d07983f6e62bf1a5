"""ZeroMQ sockets of both conversations, with the traps of ZeroMQ closed.

A ROUTER drops messages to unknown peers silently unless ROUTER_MANDATORY is set; a reused identity black-holes
a peer, so every incarnation has its own; LINGER 0 lets a process exit at once. Large frames are sent without a
copy, so the caller must not write into them again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

import zmq
from typing_extensions import Buffer

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.wire.codec import MAX_MESSAGE_BYTES, Codec, Envelope, Frame, frame_bytes
from elastichost.wire.control import ControlMessage
from elastichost.wire.data import DataMessage

__all__ = [
    "VIA_SUFFIX",
    "VIA_VARIABLE",
    "ControlClient",
    "ControlServer",
    "DataClient",
    "DataServer",
    "Waiter",
    "wait_readable",
]

HIGH_WATER_MARK = 10_000
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


def _next(socket: zmq.Socket[bytes], codec: Codec[M]) -> Envelope[M] | None:
    """The next message that is one. What is malformed is told and dropped: whoever waits for it will ask again."""
    while (parts := _receive_parts(socket)) is not None:
        try:
            return codec.decode(parts)
        except ProtocolError as error:
            print(f"refused a message: {error}", flush=True)
    return None


class _Router:
    """A bound ROUTER: many peers, each named by its identity."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        _configure(self._socket)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.bind(address)
        self.address = address

    @property
    def socket(self) -> zmq.Socket[bytes]:
        return self._socket

    def _receive(self) -> tuple[bytes, list[memoryview]] | None:
        parts = _receive_parts(self._socket)
        return None if parts is None else (bytes(parts[0]), parts[1:])

    def _send(self, identity: bytes, parts: Sequence[Frame]) -> None:
        try:
            _send_parts(self._socket, [identity, *parts], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise ProtocolError(f"peer {identity.decode(errors='replace')} cannot be reached") from error
            raise

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class ControlServer(_Router):
    """The supervisor's end of the control conversation."""

    def __init__(self, address: str, job_id: int) -> None:
        super().__init__(address)
        self._codec: Codec[ControlMessage] = Codec(ControlMessage, job_id, None)

    def poll(
        self, timeout_s: float, extra_fds: Iterable[int] = (), others: Iterable[zmq.Socket[bytes]] = ()
    ) -> frozenset[int]:
        """Waits until a message here or for `others`, or one of `extra_fds`, is readable. Returns the readable extra
        descriptors."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        for source in (*extra_fds, *others):
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

    def __init__(self, address: str, job_id: int, process: ProcessId) -> None:
        super().__init__(address)
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

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, identity: str) -> None:
        self._context = context
        self._socket = self._context.socket(zmq.DEALER)
        _configure(self._socket, identity=identity.encode())
        self._socket.connect(address + VIA_SUFFIX if os.environ.get(VIA_VARIABLE) else address)
        self.address = address

    @property
    def socket(self) -> zmq.Socket[bytes]:
        return self._socket

    def close(self) -> None:
        self._socket.close()


class ControlClient(_Dealer):
    """A worker's, PS' or probe's end of the control conversation. Belongs to one thread.

    It has a context of its own, so that `flush` can wait for the last messages to leave."""

    def __init__(self, address: str, job_id: int, process: ProcessId) -> None:
        super().__init__(zmq.Context(), address, str(process))
        self._codec: Codec[ControlMessage] = Codec(ControlMessage, job_id, process)

    def send(self, message: ControlMessage, frames: Sequence[Frame] = ()) -> None:
        _send_parts(self._socket, self._codec.encode(message, frames))

    def receive(self) -> Envelope[ControlMessage] | None:
        return _next(self._socket, self._codec)

    def flush(self, timeout_s: float) -> None:
        """Lets queued messages leave, for at most `timeout_s`, and closes; the last thing a process does."""
        self._socket.setsockopt(zmq.LINGER, int(timeout_s * 1000))
        self._socket.close()
        self._context.term()


class DataClient(_Dealer):
    """A worker's connection to one PS life. `channel` tells a worker's own connections apart; all of a process share
    one context, hence one I/O thread."""

    def __init__(self, address: str, job_id: int, process: ProcessId, channel: str) -> None:
        super().__init__(zmq.Context.instance(), address, f"{process}/{channel}")
        self._codec: Codec[DataMessage] = Codec(DataMessage, job_id, process)

    def send(self, message: DataMessage, frames: Sequence[Frame] = ()) -> None:
        _send_parts(self._socket, self._codec.encode(message, frames))

    def receive(self) -> Envelope[DataMessage] | None:
        return _next(self._socket, self._codec)


class Waiter:
    """Waits for any of several endpoints and plain descriptors; registered once, waited on often."""

    def __init__(self, *sources: _Router | _Dealer | int) -> None:
        self._poller = zmq.Poller()
        for source in sources:
            self._poller.register(source if isinstance(source, int) else source.socket, zmq.POLLIN)

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
