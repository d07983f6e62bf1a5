"""Commands to a run under way: tagged JSON over a socket of its own, replies as things happen.

The directory that the socket is in (0700) says who may command; a message is bounded, and whatever is no command is
answered with RefusedMsg.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import zmq

from elastichost.errors import ProtocolError
from elastichost.wire.facts import Message

__all__ = [
    "MAX_COMMAND_BYTES",
    "AcceptedMsg",
    "CancelMsg",
    "Command",
    "CommandClient",
    "CommandServer",
    "JoinMsg",
    "LendMsg",
    "ReachedMsg",
    "RefusedMsg",
    "Reply",
    "ScaleMsg",
    "SubmitMsg",
]

MAX_COMMAND_BYTES = 1 << 20  # a job file with thousands of tables
HIGH_WATER_MARK = 64

Figure = int | float | str | None | dict[str, float | None]


# --- command line -> supervisor ---------------------------------------------------------------------------------------


class ScaleMsg(Message, frozen=True):
    """As many processes, with as many cores each, from now on. None: as it is."""

    workers: int | None = None
    servers: int | None = None
    worker_cores: int | None = None


class JoinMsg(Message, frozen=True):
    """Machines join the run. hosts: JSON of a `config_hosts.HostsFile`; the sizes are those with them, None: a worker
    more for each of their cores, and a PS more for each of them."""

    hosts: str
    workers: int | None = None
    servers: int | None = None
    worker_cores: int | None = None


class LendMsg(Message, frozen=True):
    """What of the host is the run's from now on, from a dispatcher that shares it among jobs. cores: their numbers, all
    processes are pinned to these; memory_bytes: all of it; the sizes as in ScaleMsg. None: as it is."""

    cores: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    workers: int | None = None
    servers: int | None = None
    worker_cores: int | None = None


class SubmitMsg(Message, frozen=True):
    """To a host with many jobs: a job for its queue. name: wanted for it; toml: the resolved job file;
    working_directory: from which the job's modules are imported. Answered by ReachedMsg, with the name it got."""

    name: str
    toml: str
    working_directory: str
    weight: float = 1.0


class CancelMsg(Message, frozen=True):
    """To a host with many jobs: this one is not wanted any more. What it has trained is kept in its run directory."""

    job: str


# --- supervisor -> command line ---------------------------------------------------------------------------------------


class RefusedMsg(Message, frozen=True):
    """Nothing was done, or what was begun is not waited for any more. `is_usage`: the command is wrong, not the
    moment."""

    message: str
    hint: str = ""
    is_usage: bool = False


class AcceptedMsg(Message, frozen=True):
    """It is being done; Reached or RefusedMsg will follow."""

    text: str


class ReachedMsg(Message, frozen=True):
    """It is done. `data`: what was measured."""

    text: str
    data: dict[str, Figure] = msgspec.field(default_factory=dict)


Command = ScaleMsg | JoinMsg | LendMsg | SubmitMsg | CancelMsg
Reply = RefusedMsg | AcceptedMsg | ReachedMsg


# --- the two ends -----------------------------------------------------------------------------------------------------


def _configure(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_COMMAND_BYTES)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)


class CommandServer:
    """The supervisor's end. A peer is whoever sent a command, for as long as it listens."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        _configure(self.socket)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.bind(address)
        self._decoder = msgspec.json.Decoder(Command)

    def receive(self) -> tuple[bytes, Command] | None:
        """(peer, command), or None. Raises ProtocolError for anything else, which is answered and dropped."""
        try:
            peer, *parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        try:
            if len(parts) != 1:
                raise ProtocolError(f"a command of {len(parts)} parts")
            return peer, self._decoder.decode(parts[0])
        except (ProtocolError, msgspec.DecodeError) as error:
            self.reply(peer, RefusedMsg(f"not a command: {error}", "is the command line of another version?", True))
            raise ProtocolError(f"a peer sent what is no command: {error}") from error

    def wait(self, timeout_s: float, descriptors: Iterable[int] = ()) -> None:
        """Until a command is there, one of the descriptors can be read, or the time is over."""
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        for descriptor in descriptors:
            poller.register(descriptor, zmq.POLLIN)
        poller.poll(int(timeout_s * 1000))

    def reply(self, peer: bytes, reply: Reply) -> bool:
        """False when the peer is gone, or does not read what it is sent."""
        try:
            self.socket.send_multipart([peer, msgspec.json.encode(reply)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def close(self) -> None:
        """Replies that are on their way still leave, for a moment."""
        self.socket.close(linger=200)
        self._context.term()


class CommandClient:
    """The command line's end: one command, and the replies to it."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        _configure(self._socket)
        self._socket.connect(address)
        self._decoder = msgspec.json.Decoder(Reply)

    def send(self, command: Command) -> None:
        self._socket.send(msgspec.json.encode(command))

    def receive(self, timeout_s: float) -> Reply | None:
        """The next reply; None when none came in time. Raises ProtocolError for anything else."""
        if not self._socket.poll(int(timeout_s * 1000)):
            return None
        try:
            reply: Reply = self._decoder.decode(self._socket.recv())
        except msgspec.DecodeError as error:
            raise ProtocolError(f"the run answered with what is no reply: {error}") from error
        return reply

    def close(self) -> None:
        self._socket.close()
        self._context.term()
