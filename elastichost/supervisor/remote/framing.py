"""Frames of msgpack over two descriptors: the standard streams of an agent, which ssh carries.

    greeting line | length u32 little-endian | body | length | body ...

Only the agent sends the greeting. Shells and login scripts may print text before it; the supervisor keeps that text for
an error message. Neither end waits for the other: bytes that cannot be written at once are queued, up to
MOST_QUEUED_BYTES.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from elastichost.errors import ProtocolError
from elastichost.wire.codec import UNDECODABLE

__all__ = ["GREETING", "Pipe", "PipeEndedError"]

GREETING = b"elastichost agent, protocol 1\n"
MAX_NOISE_BYTES = 64 * 1024
MAX_FRAME_BYTES = 32 << 20
MOST_QUEUED_BYTES = 128 << 20
PIPE_BYTES = 1 << 20  # capacity of a pipe: it holds what comes between two turns of the reader
_READ_BYTES = 1 << 20
_LENGTH = struct.Struct("<I")
M = TypeVar("M")


class PipeEndedError(Exception):
    """The other end has closed the connection, or does not read what is sent to it."""


class Pipe(Generic[M]):
    """Both directions of a connection between the supervisor and an agent.

    received: the union of the message types that this end receives. greets: this end is the agent's and sends the
    greeting; the other end waits for it.
    """

    def __init__(self, reading: int, writing: int, received: object, *, greets: bool) -> None:
        self.reading, self._writing = reading, writing
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(received)
        self._encoder = msgspec.msgpack.Encoder()
        self._outgoing = bytearray(GREETING if greets else b"")
        self._incoming = bytearray()
        self._was_greeted = greets
        self.noise = b""  # what came before the greeting
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
            with contextlib.suppress(OSError):  # it is not a pipe, or the user's limit is reached
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def send(self, message: object) -> None:
        """Queues a message and writes what can be written at once. Raises PipeEndedError, and ProtocolError when the
        message is larger than MAX_FRAME_BYTES."""
        body = self._encoder.encode(message)
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(
                f"a {type(message).__name__} has {len(body)} bytes; at most {MAX_FRAME_BYTES} may be sent"
            )
        self._outgoing += _LENGTH.pack(len(body))
        self._outgoing += body
        self.flush()

    @property
    def has_queued(self) -> bool:
        return bool(self._outgoing)

    def flush(self) -> None:
        """Writes queued bytes as far as possible without waiting. Raises PipeEndedError."""
        while self._outgoing:
            try:
                written = os.write(self._writing, memoryview(self._outgoing)[:_READ_BYTES])
            except BlockingIOError:
                break
            except OSError as error:
                raise PipeEndedError(f"the other end cannot be written to: {error.strerror}") from error
            del self._outgoing[:written]
        if len(self._outgoing) > MOST_QUEUED_BYTES:
            raise PipeEndedError(f"the other end has not read {len(self._outgoing)} bytes that wait for it")

    def receive(self) -> Iterator[M]:
        """The messages that have come. Raises PipeEndedError after the last message if the other end has closed the
        connection, and ProtocolError."""
        is_over = self._read()
        yield from self._frames()
        if is_over:
            raise PipeEndedError("the other end has closed the connection")

    def _read(self) -> bool:
        """Reads what has come. Returns whether the other end has closed the connection."""
        while True:
            try:
                data = os.read(self.reading, _READ_BYTES)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not data:
                return True
            self._incoming += data
            if len(self._incoming) > MAX_FRAME_BYTES + _LENGTH.size:
                return False  # at least one whole frame is there; the next call reads on

    def _frames(self) -> Iterator[M]:
        if not self._was_greeted and not self._take_greeting():
            return
        while len(self._incoming) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._incoming)
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes was announced; at most {MAX_FRAME_BYTES} are allowed")
            end = _LENGTH.size + size
            if len(self._incoming) < end:
                return
            body = bytes(memoryview(self._incoming)[_LENGTH.size : end])
            del self._incoming[:end]
            try:
                message = self._decoder.decode(body)
            except UNDECODABLE as error:
                raise ProtocolError(f"a frame cannot be decoded: {error}") from error
            yield message

    def _take_greeting(self) -> bool:
        before, found, after = bytes(self._incoming).partition(GREETING)
        if not found:
            if len(before) > MAX_NOISE_BYTES:
                raise ProtocolError(f"no agent's greeting came, but {before[:200].decode(errors='replace')!r} ...")
            self.noise = before
            return False
        self.noise, self._was_greeted = before, True
        self._incoming = bytearray(after)
        return True

    def close(self) -> None:
        for descriptor in {self.reading, self._writing}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
