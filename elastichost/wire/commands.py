"""Commands to a running run: tagged JSON over a separate socket. A command has one reply, or AcceptedMsg and then a
second reply when it is done.

The directory of the socket has mode 0700, so only its user can send commands. The size of a message is limited, and a
message that is not a valid command is answered with RefusedMsg.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import zmq

from elastichost.errors import ProtocolError
from elastichost.wire.codec import UNDECODABLE
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
    "verb_of",
]

MAX_COMMAND_BYTES = 1 << 20  # enough for a job file with thousands of tables
HIGH_WATER_MARK = 64

Figure = int | float | str | None | dict[str, float | None]


# --- command line -> supervisor ---------------------------------------------------------------------------------------


class ScaleMsg(Message, frozen=True):
    """`scale` -> supervisor: the number of processes and of the cores of a worker from now on. None: unchanged."""

    workers: int | None = None
    servers: int | None = None
    worker_cores: int | None = None


class JoinMsg(Message, frozen=True):
    """Command line -> supervisor: machines join the run. hosts: JSON of a `config.hosts.HostsFile`. The sizes are those
    of the whole run with these machines. None: as many more workers as their cores have room for, at least one, and one
    more PS for each machine."""

    hosts: str
    workers: int | None = None
    servers: int | None = None
    worker_cores: int | None = None


class LendMsg(Message, frozen=True):
    """Dispatcher -> supervisor: the share of the host that the run has from now on. cores: numbers of the cores that
    all its processes are pinned to. memory_bytes: its total memory. The sizes are as in ScaleMsg. None: unchanged.
    is_proposal: the size is the one that the run's own tuner proposes. The run refuses it if it proposes another one
    by now, or none."""

    cores: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    workers: int | None = None
    servers: int | None = None
    worker_cores: int | None = None
    is_proposal: bool = False


class SubmitMsg(Message, frozen=True):
    """Command line -> dispatcher: a job for the queue. name: the requested name. toml: the resolved job file.
    working_directory: the directory from which the job's modules are imported. The answer is ReachedMsg with the name
    that the job got."""

    name: str
    toml: str
    working_directory: str
    weight: float = 1.0


class CancelMsg(Message, frozen=True):
    """Command line -> dispatcher: cancel this job. Its run directory keeps what it has trained so far."""

    job: str


# --- supervisor -> command line ---------------------------------------------------------------------------------------


class RefusedMsg(Message, frozen=True):
    """The command was refused, or the supervisor stopped waiting for its completion. is_usage: the command itself is
    wrong, so a later try fails as well."""

    message: str
    hint: str = ""
    is_usage: bool = False


class AcceptedMsg(Message, frozen=True):
    """The command is being carried out. ReachedMsg or RefusedMsg will follow."""

    text: str


class ReachedMsg(Message, frozen=True):
    """The command is done. data: measurements."""

    text: str
    data: dict[str, Figure] = msgspec.field(default_factory=dict)


Command = ScaleMsg | JoinMsg | LendMsg | SubmitMsg | CancelMsg
_VERBS: dict[type[Command], str] = {
    ScaleMsg: "scale",
    JoinMsg: "join",
    LendMsg: "lend",
    SubmitMsg: "submit",
    CancelMsg: "cancel",
}
Reply = RefusedMsg | AcceptedMsg | ReachedMsg


# --- the two ends -----------------------------------------------------------------------------------------------------


def _configure(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_COMMAND_BYTES)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)


def verb_of(command: Command) -> str:
    """The word for a command in events, causes ("scale-1.4") and replies."""
    return _VERBS[type(command)]


class CommandServer:
    """The supervisor's end of the command socket. A peer is a client that has sent a command and is still connected."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        _configure(self.socket)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.bind(address)
        self._decoder = msgspec.json.Decoder(Command)

    def receive(self) -> tuple[bytes, Command] | None:
        """The next (peer, command), or None if there is none. Raises ProtocolError for an invalid message, which is
        answered with RefusedMsg and dropped."""
        try:
            peer, *parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        try:
            if len(parts) != 1:
                raise ProtocolError(f"it has {len(parts)} parts; a command has 1")
            return peer, self._decoder.decode(parts[0])
        except (ProtocolError, *UNDECODABLE) as error:
            self.reply(
                peer, RefusedMsg(f"not a valid command: {error}", "use the elastichost version that runs the job", True)
            )
            raise ProtocolError(f"a peer sent an invalid command: {error}") from error

    def wait(self, timeout_s: float, descriptors: Iterable[int] = ()) -> None:
        """Waits until a command has arrived, one of the descriptors is readable, or `timeout_s` is over."""
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        for descriptor in descriptors:
            poller.register(descriptor, zmq.POLLIN)
        poller.poll(int(timeout_s * 1000))

    def reply(self, peer: bytes, reply: Reply) -> bool:
        """Sends a reply. False when the peer is gone, or has too many unread replies."""
        try:
            self.socket.send_multipart([peer, msgspec.json.encode(reply)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def close(self) -> None:
        """Closes the socket. Queued replies are still sent for up to 200 ms."""
        self.socket.close(linger=200)
        self._context.term()


class CommandClient:
    """The command line's end of the command socket: sends one command and receives its replies."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        _configure(self._socket)
        self._socket.connect(address)
        self._decoder = msgspec.json.Decoder(Reply)

    def send(self, command: Command) -> None:
        self._socket.send(msgspec.json.encode(command))

    def receive(self, timeout_s: float) -> Reply | None:
        """The next reply; None if none arrived in time. Raises ProtocolError for an invalid message."""
        if not self._socket.poll(int(timeout_s * 1000)):
            return None
        try:
            reply: Reply = self._decoder.decode(self._socket.recv())
        except UNDECODABLE as error:
            raise ProtocolError(f"the run sent an invalid reply: {error}") from error
        return reply

    def close(self) -> None:
        self._socket.close()
        self._context.term()
