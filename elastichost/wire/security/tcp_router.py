"""Both ends of a connection between machines: the ROUTER behind a gate, and the rules for its clients.

Three properties of ZeroMQ let a peer attack a ROUTER, and a gate limits each:

- ZeroMQ reads a message part completely before the sender can be checked. At a gate no part is longer than PART_BYTES;
  `cut` and `join` split longer frames.
- ZeroMQ keeps the messages that a peer does not read. At a gate few messages wait for or from one peer (`Waiting`).
- ZeroMQ gives a routing id to the first peer that uses it. So a client adds a random suffix to its name, which no other
  peer can guess, and the name is bound to the routing id of the first message with a key that may use the name.
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
MAX_ROUTES = 16  # connections of one incarnation: one for each thread of a worker, one for each round of copies of a PS
_MARK = b"#"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Limits of queued messages. to_peer: sent to one peer and not read by it. from_peer: received from one peer and
    not read here."""

    to_peer: int
    from_peer: int


def unforeseen(identity: str) -> bytes:
    """The routing id of a client at a gate: its name and a random suffix, which no other peer can guess."""
    return identity.encode() + _MARK + secrets.token_hex(8).encode()


def cut(parts: Sequence[Frame]) -> Iterator[Frame]:
    """Splits parts that are too long for a gate. A piece of exactly PART_BYTES is continued by the next piece, so the
    last piece of a part is shorter, or empty."""
    for part in parts:
        size_bytes = frame_bytes(part)
        if size_bytes < PART_BYTES:
            yield part
            continue
        whole = memoryview(cast(Buffer, part)).cast("B")
        for start in range(0, size_bytes + 1, PART_BYTES):
            yield whole[start : start + PART_BYTES]


def join(pieces: Sequence[memoryview]) -> list[memoryview]:
    """Joins the pieces that `cut` made. Raises ProtocolError for pieces that `cut` cannot have made."""
    parts: list[memoryview] = []
    begun: list[memoryview] = []
    for piece in pieces:
        if piece.nbytes > PART_BYTES:
            raise ProtocolError(f"a gate received a part of {piece.nbytes} bytes; the limit is {PART_BYTES}")
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
    """A ROUTER socket that is bound to a gate. A name is that of the conversation: `worker-0.1` or
    `worker-0.1/pull1`."""

    def __init__(self, gate: Gate, waiting: Waiting, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Raises OSError when the gate's address is not an address of this machine, or is in use."""
        self._door, self._allowed = Door(gate.address), gate.allowed
        self._routes: dict[str, OrderedDict[bytes, bytes]] = {}  # incarnation -> name -> routing id, the newest last
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # No other peer can guess a routing id, so a second connection with the same one is the same peer after its
        # first connection was cut.
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
        """The next (name, parts), or None. Raises ProtocolError for a message with a key that does not belong to its
        name, and for a malformed one."""
        self._door.tend(time.monotonic())
        try:
            routing_id, *frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        name, mark, _ = routing_id.bytes.rpartition(_MARK)
        speaker = self._allowed.speaker(str(frames[-1].get("User-Id")))
        if speaker is None or not mark or name.partition(b"/")[0] != speaker.encode():
            raise ProtocolError(f"peer {name[:100]!r} has the key of {speaker or 'no admitted process'}")
        self._note_route(speaker, name, routing_id.bytes)
        return name, join([frame.buffer for frame in frames])

    def _note_route(self, speaker: str, name: bytes, routing_id: bytes) -> None:
        """Binds a name to the routing id that uses it first. A client keeps its routing id for its whole life, also
        when it reconnects. Raises ProtocolError for a second routing id."""
        routes = self._routes.get(speaker)
        if routes is None:
            self._routes = {
                incarnation: known
                for incarnation, known in self._routes.items()
                if self._allowed.is_allowed(incarnation)
            }
            routes = self._routes[speaker] = OrderedDict()
        if routes.setdefault(name, routing_id) != routing_id:
            raise ProtocolError(f"peer {name[:100]!r} is connected already, with another routing id")
        routes.move_to_end(name)
        while len(routes) > MAX_ROUTES:
            routes.popitem(last=False)

    def knows(self, name: bytes) -> bool:
        """Whether a peer has sent a valid message with this name."""
        return name in self._routes.get(_incarnation_of(name), ())

    def routing_id(self, name: bytes) -> bytes:
        """The routing id of a name, for which `knows` is true."""
        return self._routes[_incarnation_of(name)][name]

    def close(self) -> None:
        self.socket.close()
        self._door.close()
        self._authenticator.stop()


def _incarnation_of(name: bytes) -> str:
    return name.partition(b"/")[0].decode("ascii", "replace")
