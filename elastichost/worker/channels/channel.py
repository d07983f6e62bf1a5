"""A worker thread's connections to the PS. A request is repeated until it is answered, also by a successor PS.

Every request is idempotent: a pull, or a push with a sequence number. A request without an answer is sent again after
1, 2, 4, 4 ... s. When the shard map changes before the answer comes, `call` raises StaleDirectoryError; the caller
splits the batch by the new map and sends new requests (`until_current` does that). Answers to abandoned requests are
recognised by their request number. Each PS incarnation gets a new connection under a new ZeroMQ identity.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from elastichost.errors import ElastichostError
from elastichost.wire.codec import Envelope, Frame, frame_bytes
from elastichost.wire.data import DataMessage, RetryMsg
from elastichost.wire.sockets import Caller, DataClient, wait_readable
from elastichost.worker.channels.routing import Directory

__all__ = [
    "POLL_S",
    "Channel",
    "DirectoryHolder",
    "FencedError",
    "Pump",
    "Request",
    "Resend",
    "StaleDirectoryError",
    "StoppedError",
    "Traffic",
    "pump_nothing",
]

POLL_S = 0.05
RESEND_S = 1.0
MAX_RESEND_S = 4.0
Result = TypeVar("Result")
Request = tuple[int, DataMessage, Sequence[Frame]]


class FencedError(ElastichostError):
    """A PS refused this incarnation finally: it was fenced, or its message is invalid. The worker must end."""


class StoppedError(ElastichostError):
    """The worker is stopping. Raised in threads that wait."""


class StaleDirectoryError(Exception):
    """The shard map changed before a request was answered, or the PS has another shard map."""


class Resend:
    """Times at which an unanswered request is sent again: 1 s after `now_s`, then at doubled intervals up to 4 s."""

    def __init__(self, now_s: float) -> None:
        self._wait_s = RESEND_S
        self._due_s = now_s + self._wait_s

    def is_due(self, now_s: float) -> bool:
        """Whether the request is to be sent again now. True once per interval."""
        if now_s < self._due_s:
            return False
        self._wait_s = min(2 * self._wait_s, MAX_RESEND_S)
        self._due_s = now_s + self._wait_s
        return True


class DirectoryHolder:
    """The present shard map, shared between the worker's threads. caller: the identity and keys for connections."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._condition = threading.Condition()
        self._directory: Directory | None = None
        self._stopped = False

    def publish(self, directory: Directory) -> bool:
        """Stores a shard map with a newer epoch. False: the epoch is not newer; nothing changes."""
        with self._condition:
            if self._directory is not None and directory.epoch <= self._directory.epoch:
                return False
            self._directory = directory
            self._condition.notify_all()
            return True

    def stop(self) -> None:
        """Makes `current` and `wait_newer` raise StoppedError in every thread, also in those that wait."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    @property
    def epoch(self) -> int:
        directory = self._directory
        return 0 if directory is None else directory.epoch

    @property
    def stopped(self) -> bool:
        return self._stopped

    def current(self) -> Directory:
        """The present shard map. Raises StoppedError while there is none, and after `stop`."""
        directory = self._directory
        if directory is None or self._stopped:
            raise StoppedError("the worker is stopping, or it has no shard map yet")
        return directory

    def wait_newer(self, epoch: int, timeout_s: float) -> None:
        """Returns when the epoch is greater than `epoch`, or after `timeout_s`. Raises StoppedError."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopped or self.epoch > epoch, timeout_s)
        if self._stopped:
            raise StoppedError("the worker is stopping")


@dataclass(slots=True)
class Traffic:
    """Bytes of frames since the counts were last reset. With several hosts only bytes between hosts are counted."""

    sent: int = 0
    received: int = 0


class Pump(Protocol):
    """Reads control messages. The thread that owns the control socket must go on reading it while it waits for a PS:
    the new shard map that ends its wait comes over that socket."""

    def __call__(self, timeout_s: float = 0.0) -> None:
        """Reads all control messages; waits for the first one for at most `timeout_s`."""
        ...


def pump_nothing(timeout_s: float = 0.0) -> None:
    """The pump of a thread that owns no control socket."""


class Channel:
    """Connections to every PS under one channel name. Belongs to one thread.

    `pump` is called repeatedly while a call waits. A request that is not answered in time is sent again, because it may
    have been lost on its way or with an incarnation of the PS.
    """

    def __init__(
        self,
        name: str,
        holder: DirectoryHolder,
        pump: Pump = pump_nothing,
    ) -> None:
        self._process, self._name, self._holder, self._pump = holder.caller.process, name, holder, pump
        self._clients: dict[int, tuple[int, DataClient]] = {}
        self._connections = 0
        self._request = 0
        self.traffic = Traffic()

    @property
    def clients(self) -> tuple[DataClient, ...]:
        """The present connections, to wait on."""
        return tuple(client for _, client in self._clients.values())

    def directory(self) -> Directory:
        """The present shard map. Raises StoppedError."""
        return self._holder.current()

    def next_request(self) -> int:
        self._request += 1
        return self._request

    def client(self, directory: Directory, server: int) -> DataClient:
        """The connection to the PS' present incarnation; an older incarnation's is closed."""
        address = directory.servers[server]
        known = self._clients.get(server)
        if known is not None and known[0] == address.incarnation:
            return known[1]
        if known is not None:
            known[1].close()
        self._connections += 1
        channel = f"{self._name}{self._connections}"  # an identity must never be used twice at a ROUTER socket
        client = self._holder.caller.connect(address, channel)
        self._clients[server] = (address.incarnation, client)
        return client

    def call(
        self,
        directory: Directory,
        requests: Sequence[Request],
        others: list[Envelope[DataMessage]] | None = None,
    ) -> list[Envelope[DataMessage]]:
        """Sends (server, message, frames) requests and returns their answers in the same order. Blocks.

        Answers to other requests are appended to `others`; without it they are dropped, because they belong to requests
        that were abandoned. Raises StaleDirectoryError (split by the new shard map and repeat), FencedError,
        StoppedError.
        """
        waiting = {message.request: number for number, (_, message, _) in enumerate(requests)}
        answers: dict[int, Envelope[DataMessage]] = {}
        self._send_all(directory, requests)
        resend = Resend(time.monotonic())
        clients = [self._clients[server][1] for server in {server for server, _, _ in requests}]
        while True:
            for client in clients:
                self._collect(directory, client, waiting, answers, others)
            if len(answers) == len(requests):
                return [answers[number] for number in range(len(requests))]
            wait_readable([client.socket for client in clients], POLL_S)
            self._pump()
            if self._holder.stopped:
                raise StoppedError("the worker is stopping")
            if self._holder.epoch > directory.epoch:
                raise StaleDirectoryError
            if resend.is_due(time.monotonic()):
                self._send_all(directory, [r for number, r in enumerate(requests) if number not in answers])

    def _send_all(self, directory: Directory, requests: Sequence[Request]) -> None:
        for server, message, frames in requests:
            self.client(directory, server).send(message, frames)
            self.count_sent(directory, server, frames)

    def count_sent(self, directory: Directory, server: int, frames: Sequence[Frame]) -> None:
        if directory.is_traffic(server, self._holder.caller.host):
            self.traffic.sent += sum(frame_bytes(frame) for frame in frames)

    def count_received(self, directory: Directory, envelope: Envelope[DataMessage]) -> None:
        if envelope.sender is not None and directory.is_traffic(envelope.sender.index, self._holder.caller.host):
            self.traffic.received += sum(frame.nbytes for frame in envelope.frames)

    def _collect(
        self,
        directory: Directory,
        client: DataClient,
        waiting: dict[int, int],
        answers: dict[int, Envelope[DataMessage]],
        others: list[Envelope[DataMessage]] | None,
    ) -> None:
        while (envelope := client.receive()) is not None:
            number = waiting.get(envelope.message.request)
            if number is None:
                if others is not None:
                    others.append(envelope)
                continue
            if isinstance(envelope.message, RetryMsg):
                if envelope.message.final:
                    raise FencedError(f"a PS refuses {self._process}: {envelope.message.reason}")
                raise StaleDirectoryError
            self.count_received(directory, envelope)
            answers[number] = envelope

    def until_current(self, attempt: Callable[[Directory], Result]) -> Result:
        """Repeats `attempt` with the newest shard map while it raises StaleDirectoryError."""
        while True:
            directory = self._holder.current()
            try:
                return attempt(directory)
            except StaleDirectoryError:
                # A PS may have the new epoch before this worker: wait for it, but for a limited time.
                self.wait_newer(directory.epoch)

    def wait_newer(self, epoch: int) -> None:
        """Returns when the shard map's epoch is greater than `epoch`, or after POLL_S. Raises StoppedError."""
        if self._holder.epoch <= epoch:
            self._pump(POLL_S)
        self._holder.wait_newer(epoch, POLL_S if self._pump is pump_nothing else 0.0)

    def close(self) -> None:
        for _, client in self._clients.values():
            client.close()
        self._clients.clear()
