"""Frames of msgpack over two descriptors: the standard streams of an agent, as ssh carries them.

    greeting line | length u32 little-endian | body | length | body ...

Shells and login scripts may print before the agent does: what comes before its greeting is kept for the error message.
Neither end ever waits for the other: what does not go out at once is queued, up to a bound.
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

__all__ = ["GREETING", "Pipe", "PipeEndedError"]

GREETING = b"elastichost agent, protocol 1\n"
MAX_NOISE_BYTES = 64 * 1024
MAX_FRAME_BYTES = 32 << 20
MOST_QUEUED_BYTES = 128 << 20
PIPE_BYTES = 1 << 20  # what fits in between two looks
_READ_BYTES = 1 << 20
_LENGTH = struct.Struct("<I")
M = TypeVar("M")


class PipeEndedError(Exception):
    """The other end is gone, or does not take what it is sent."""


class Pipe(Generic[M]):
    """Both directions of one conversation; `received` is the union of what comes.

    greets: this end says the greeting; the other one waits for it.
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
            with contextlib.suppress(OSError):  # it is no pipe, or as large as its user may have
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def send(self, message: object) -> None:
        """Raises PipeEndedError, and ProtocolError for what is larger than a frame may be."""
        body = self._encoder.encode(message)
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a {type(message).__name__} of {len(body)} bytes; {MAX_FRAME_BYTES} are allowed")
        self._outgoing += _LENGTH.pack(len(body))
        self._outgoing += body
        self.flush()

    @property
    def has_queued(self) -> bool:
        return bool(self._outgoing)

    def flush(self) -> None:
        """Writes what goes without waiting. Raises PipeEndedError."""
        while self._outgoing:
            try:
                written = os.write(self._writing, memoryview(self._outgoing)[:_READ_BYTES])
            except BlockingIOError:
                break
            except OSError as error:
                raise PipeEndedError(f"it takes nothing any more: {error.strerror}") from error
            del self._outgoing[:written]
        if len(self._outgoing) > MOST_QUEUED_BYTES:
            raise PipeEndedError(f"it has not taken {len(self._outgoing)} bytes")

    def receive(self) -> Iterator[M]:
        """What has come. Raises PipeEndedError at the end, after what came before it; ProtocolError."""
        is_over = self._read()
        yield from self._frames()
        if is_over:
            raise PipeEndedError("its output has ended")

    def _read(self) -> bool:
        """Whether the other end is closed."""
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
                return False  # enough for now

    def _frames(self) -> Iterator[M]:
        if not self._was_greeted and not self._take_greeting():
            return
        while len(self._incoming) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._incoming)
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes was announced; {MAX_FRAME_BYTES} are allowed")
            end = _LENGTH.size + size
            if len(self._incoming) < end:
                return
            body = bytes(memoryview(self._incoming)[_LENGTH.size : end])
            del self._incoming[:end]
            try:
                message = self._decoder.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ProtocolError(f"a frame is no message: {error}") from error
            yield message

    def _take_greeting(self) -> bool:
        before, found, after = bytes(self._incoming).partition(GREETING)
        if not found:
            if len(before) > MAX_NOISE_BYTES:
                raise ProtocolError(f"no agent speaks there, but {before[:200].decode(errors='replace')!r} ...")
            self.noise = before
            return False
        self.noise, self._was_greeted = before, True
        self._incoming = bytearray(after)
        return True

    def close(self) -> None:
        for descriptor in {self.reading, self._writing}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
