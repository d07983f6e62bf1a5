"""The socket between a worker and its reader. The kernel closes it when either ends, however it ends.

The worker listens on a name that has its index and not its incarnation: a reader that has lost its worker connects to
the successor. The name lies in the run's directory of sockets, which only this user may enter.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from elastichost.worker.readers.messages import MAX_PACKET_BYTES

__all__ = ["LinkLostError", "ReaderLink", "connect", "listen", "wait_ready"]

WAITING = 16  # readers that may wait to be accepted

Received = TypeVar("Received")


class LinkLostError(Exception):
    """The other end is gone."""


def _name(directory: str, worker: int) -> str:
    return str(Path(directory) / f"readers-of-{worker}")


def listen(directory: str, worker: int) -> socket.socket:
    """The socket on which the readers of this worker connect. It replaces that of the worker's predecessor."""
    name = _name(directory, worker)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    listening.bind(name)
    listening.listen(WAITING)
    return listening


def connect(directory: str, worker: int) -> socket.socket | None:
    """A connection to the worker with this index; None: it does not listen now."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        made.connect(_name(directory, worker))
    except OSError:
        made.close()
        return None
    made.setblocking(False)
    return made


class ReaderLink(Generic[Received]):
    """One end. kind: the type of the messages that arrive. Messages that do not fit into the kernel's queue wait in
    order in this process; their number is bounded by that of the open orders."""

    def __init__(self, connection: socket.socket, kind: object) -> None:
        self._socket = connection
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(kind)
        self._waiting: deque[tuple[bytes, int | None]] = deque()

    @property
    def interest(self) -> tuple[int, int]:
        """The descriptor and the events of poll() to wait for."""
        return self._socket.fileno(), select.POLLIN | (select.POLLOUT if self._waiting else 0)

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait to be sent."""
        return bool(self._waiting)

    def send(self, message: msgspec.Struct, descriptor: int | None = None) -> None:
        """Sends a message that must arrive. descriptor: sent with it; it stays open here. Raises LinkLostError."""
        self._waiting.append((self._encoder.encode(message), None if descriptor is None else os.dup(descriptor)))
        self.flush()

    def hint(self, message: msgspec.Struct) -> bool:
        """Sends a message that may be left out, because the other end looks again once it has read what waits for it.
        Returns whether it was sent. Raises LinkLostError."""
        return not self._waiting and self._try(self._encoder.encode(message), None)

    def flush(self) -> None:
        """Sends what waits, as far as there is room. Raises LinkLostError."""
        while self._waiting and self._try(*self._waiting[0]):
            _, descriptor = self._waiting.popleft()
            if descriptor is not None:
                os.close(descriptor)

    def _try(self, packet: bytes, descriptor: int | None) -> bool:
        ancillary = (
            [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        )
        try:
            self._socket.sendmsg([packet], ancillary, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError as error:
            raise LinkLostError(str(error)) from error
        return True

    def receive(self) -> tuple[Received, int | None] | None:
        """The next message and the descriptor that came with it; None: there is none now. Raises LinkLostError."""
        try:
            packet, ancillary, _, _ = self._socket.recvmsg(
                MAX_PACKET_BYTES, socket.CMSG_LEN(array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        except OSError as error:
            raise LinkLostError(str(error)) from error
        descriptor = _descriptor_of(ancillary)
        if not packet:
            raise LinkLostError("the other end has closed the connection")
        try:
            return self._decoder.decode(packet), descriptor
        except msgspec.MsgspecError as error:
            raise LinkLostError(f"the other end is no worker or reader of this run: {error}") from error

    def close(self) -> None:
        """Closes the connection."""
        for _, descriptor in self._waiting:
            if descriptor is not None:
                os.close(descriptor)
        self._waiting.clear()
        self._socket.close()


def _descriptor_of(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            (descriptor,) = array.array("i", data)
            return descriptor
    return None


def wait_ready(interests: Iterable[tuple[int, int]], others: Iterable[int], timeout_s: float) -> None:
    """Waits for the events of links (`ReaderLink.interest`), or until one of the other descriptors can be read; at most
    `timeout_s`."""
    poller = select.poll()
    for descriptor, events in (*interests, *((one, select.POLLIN) for one in others)):
        poller.register(descriptor, events)
    poller.poll(max(0, round(timeout_s * 1000)))
