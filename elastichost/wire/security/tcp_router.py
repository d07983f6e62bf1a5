"""Both ends of a way between machines: the ROUTER behind a gate, and what a client has to do to be heard there.

ZeroMQ reads a message part whole before it knows who sends it, keeps for a peer what that does not read, and gives a
name to whoever claims it first. So at a gate no part is longer than PART_BYTES, few messages wait for or from one peer,
and a client adds to its name what nobody else can foresee: a name is taken by the message whose key may use it.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import zmq
from typing_extensions import Buffer

from elastichost.errors import ProtocolError
from elastichost.wire.codec import MAX_MESSAGE_BYTES, Frame, frame_bytes
from elastichost.wire.security.keys import Gate, guard
from elastichost.wire.security.listener import Door

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

__all__ = ["MAX_ROUTES", "PART_BYTES", "OuterRouter", "Waiting", "cut", "join", "unforeseen"]

PART_BYTES = 64 * 1024
CURVE_BYTES = 256  # more than encryption adds to a part, and more than any part of a handshake
MAX_ROUTES = (
    16  # conversations with one incarnation: a worker's threads have one each, a PS one for each round of copies
)
_MARK = b"#"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Messages that wait at most for one peer to read them, and from one peer to be read."""

    to_peer: int
    from_peer: int


def unforeseen(identity: str) -> bytes:
    """The name under which a client comes to a gate: nobody else can have taken it before."""
    return identity.encode() + _MARK + secrets.token_hex(8).encode()


def cut(parts: Sequence[Frame]) -> Iterator[Frame]:
    """What is longer goes in several: one of exactly PART_BYTES is continued by the next."""
    for part in parts:
        size_bytes = frame_bytes(part)
        if size_bytes < PART_BYTES:
            yield part
            continue
        whole = memoryview(cast(Buffer, part)).cast("B")
        for start in range(0, size_bytes + 1, PART_BYTES):
            yield whole[start : start + PART_BYTES]


def join(pieces: Sequence[memoryview]) -> list[memoryview]:
    """Undoes `cut`. Raises ProtocolError for what it cannot have made."""
    parts: list[memoryview] = []
    begun: list[memoryview] = []
    for piece in pieces:
        if piece.nbytes > PART_BYTES:
            raise ProtocolError(f"a part of {piece.nbytes} bytes came through a gate; {PART_BYTES} are allowed")
        begun.append(piece)
        if piece.nbytes < PART_BYTES:
            parts.append(begun[0] if len(begun) == 1 else memoryview(b"".join(begun)))
            begun = []
    if begun:
        raise ProtocolError("a message ended within a frame")
    if sum(part.nbytes for part in parts) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a message is larger than {MAX_MESSAGE_BYTES} bytes")
    return parts


class OuterRouter:
    """A ROUTER that is bound to a gate. Names are those of the conversation: `worker-0.1` or `worker-0.1/pull1`."""

    def __init__(self, gate: Gate, waiting: Waiting, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Raises OSError when the gate's address is none of this machine's, or taken."""
        self._door, self._allowed = Door(gate.address), gate.allowed
        self._routes: dict[str, OrderedDict[bytes, bytes]] = {}  # incarnation -> name -> routing id, the newest last
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # Who comes again under a name that nobody else knows is the same peer, whose connection before was cut.
        self.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.socket.setsockopt(zmq.MAXMSGSIZE, PART_BYTES + CURVE_BYTES)
        self.socket.setsockopt(zmq.SNDHWM, waiting.to_peer)
        self.socket.setsockopt(zmq.RCVHWM, waiting.from_peer)
        self._authenticator: ThreadAuthenticator = guard(gate, self.socket, context)
        self._door.lead_to(self.socket)

    @property
    def address(self) -> str:
        return self._door.address

    def receive(self) -> tuple[bytes, list[memoryview]] | None:
        """(name, parts). Raises ProtocolError for a message whose sender's key may not use that name, or no message."""
        self._door.tend(time.monotonic())
        try:
            routing_id, *frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        name, mark, _ = routing_id.bytes.rpartition(_MARK)
        speaker = self._allowed.speaker(str(frames[-1].get("User-Id")))
        if speaker is None or not mark or name.partition(b"/")[0] != speaker.encode():
            raise ProtocolError(f"peer {name[:100]!r} has the key of {speaker or 'nobody who may speak'}")
        self._note_route(speaker, name, routing_id.bytes)
        return name, join([frame.buffer for frame in frames])

    def _note_route(self, speaker: str, name: bytes, routing_id: bytes) -> None:
        """Whoever comes first under a name keeps it: a client has it for its life, through all its connections. Raises
        ProtocolError."""
        routes = self._routes.get(speaker)
        if routes is None:
            self._routes = {
                incarnation: known
                for incarnation, known in self._routes.items()
                if self._allowed.is_allowed(incarnation)
            }
            routes = self._routes[speaker] = OrderedDict()
        if routes.setdefault(name, routing_id) != routing_id:
            raise ProtocolError(f"peer {name[:100]!r} comes a second time, from elsewhere")
        routes.move_to_end(name)
        while len(routes) > MAX_ROUTES:
            routes.popitem(last=False)

    def knows(self, name: bytes) -> bool:
        """Whether somebody speaks under that name."""
        return name in self._routes.get(_incarnation_of(name), ())

    def routing_id(self, name: bytes) -> bytes:
        """Of a name that it `knows`."""
        return self._routes[_incarnation_of(name)][name]

    def close(self) -> None:
        self.socket.close()
        self._door.close()
        self._authenticator.stop()


def _incarnation_of(name: bytes) -> str:
    return name.partition(b"/")[0].decode("ascii", "replace")
