"""The bytes of a message: a fixed header, a msgpack body, raw frames.

Part 0 is the header. Part 1 is the body, a tagged struct of `wire.control` or `wire.data`. The other parts are raw
little-endian frames. The header (little-endian) names the job and the sender's incarnation, so a message of another job
is refused before its body is decoded.

    magic 4s | version u16 | role u8 | flags u8 | index u32 | incarnation u32 | job u64 | sequence u64
    | body_bytes u32 | frames u32 | frame_bytes u64 | crc32 of the body u32
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec
import numpy.typing as npt
from typing_extensions import Buffer

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId, Role

__all__ = ["MAX_FRAMES", "MAX_MESSAGE_BYTES", "UNDECODABLE", "Codec", "Envelope", "Frame", "frame_bytes"]

MAX_MESSAGE_BYTES = 1 << 31
MAX_BODY_BYTES = 1 << 26
MAX_FRAMES = 4096
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what msgspec raises for bytes from a peer

_MAGIC = b"EHST"
_VERSION = 1
_HEADER = struct.Struct("<4sHBBIIQQIIQI")
_ROLES: tuple[Role, ...] = ("worker", "server", "probe", "reader")
_SUPERVISOR = 255  # role byte of the supervisor, which has no ProcessId

M = TypeVar("M")
Frame: TypeAlias = "Buffer | npt.NDArray[Any]"  # numpy arrays are buffers, but their type stubs do not declare it


def frame_bytes(frame: Frame) -> int:
    """Size of a frame in bytes."""
    return memoryview(cast(Buffer, frame)).nbytes


@dataclass(frozen=True, slots=True)
class Envelope(Generic[M]):
    """A received message with the incarnation that sent it. `sender` is None for the supervisor."""

    sender: ProcessId | None
    sequence: int
    message: M
    frames: tuple[memoryview, ...]


class Codec(Generic[M]):
    """Encodes and decodes the messages of one conversation for one job.

    `decode` raises ProtocolError for any message that is malformed, too large, or of another job or protocol version.
    """

    def __init__(self, message_type: object, job_id: int, sender: ProcessId | None) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(message_type)
        self._encoder = msgspec.msgpack.Encoder()
        self._job_id = job_id
        self._role = _SUPERVISOR if sender is None else _ROLES.index(sender.role)
        self._index = 0 if sender is None else sender.index
        self._incarnation = 0 if sender is None else sender.incarnation
        self._sequence = 0

    def encode(self, message: M, frames: Sequence[Frame] = ()) -> list[Frame]:
        """The parts of the message. Raises ProtocolError for a frame that no process would receive: ZeroMQ drops it
        and says nothing, so the message would be sent again and again."""
        sizes = [frame_bytes(frame) for frame in frames]
        if max(sizes, default=0) > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"a {type(message).__name__} has {max(sizes)} bytes; at most {MAX_MESSAGE_BYTES} can be sent at once",
                hint="use a smaller train.batch_size, or more parameter servers, which divide the rows of a batch",
            )
        body = self._encoder.encode(message)
        self._sequence += 1
        header = _HEADER.pack(
            _MAGIC,
            _VERSION,
            self._role,
            0,
            self._index,
            self._incarnation,
            self._job_id,
            self._sequence,
            len(body),
            len(frames),
            sum(sizes),
            zlib.crc32(body),
        )
        return [header, body, *frames]

    def decode(self, parts: Sequence[Buffer]) -> Envelope[M]:
        if len(parts) < 2 or len(parts) > MAX_FRAMES + 2:
            raise ProtocolError(f"a message has {len(parts)} parts, which is out of range (2 to {MAX_FRAMES + 2})")
        header, body = memoryview(parts[0]), memoryview(parts[1])
        if header.nbytes != _HEADER.size:
            raise ProtocolError(f"a message header has {header.nbytes} bytes; it must have {_HEADER.size}")
        magic, version, role, _flags, index, incarnation, job, sequence, size, count, total_bytes, crc = _HEADER.unpack(
            header
        )
        if magic != _MAGIC or version != _VERSION:
            raise ProtocolError(
                f"a message has magic {magic!r} and protocol version {version}; {_MAGIC!r} and {_VERSION} are expected"
            )
        if job != self._job_id:
            raise ProtocolError(f"a message belongs to job {job:016x}; this process belongs to {self._job_id:016x}")
        frames = tuple(memoryview(part) for part in parts[2:])
        if size != body.nbytes or count != len(frames) or total_bytes != sum(f.nbytes for f in frames):
            raise ProtocolError("a message is shorter or longer than the sizes in its header")
        if size > MAX_BODY_BYTES:
            raise ProtocolError(f"a message body has {size} bytes; the limit is {MAX_BODY_BYTES}")
        if zlib.crc32(body) != crc:
            raise ProtocolError("a message body does not match its checksum")
        return Envelope(_sender(role, index, incarnation), sequence, self._decode_body(body), frames)

    def _decode_body(self, body: memoryview) -> M:
        try:
            return self._decoder.decode(body)
        except UNDECODABLE as error:
            raise ProtocolError(f"a message body is malformed: {error}") from error


def _sender(role: int, index: int, incarnation: int) -> ProcessId | None:
    if role == _SUPERVISOR:
        return None
    if role >= len(_ROLES):
        raise ProtocolError(f"the header of a message has the unknown role {role}")
    return ProcessId(_ROLES[role], index, incarnation)
