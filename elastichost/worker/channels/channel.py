"""A worker thread's connections to the PS: requests that survive the death of the PS they were sent to.

Every request is idempotent (a pull, or a push under a sequence number), so whenever the shard map changes under
one, the caller cuts it anew and sends it again.
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
    """This incarnation was replaced, or sent what no PS takes: nothing it sends counts any more."""


class StoppedError(ElastichostError):
    """The worker is stopping; raised in threads that wait."""


class StaleDirectoryError(Exception):
    """The shard map changed while a request was on its way."""


class Resend:
    """When a request that was sent at `now_s` is to be sent again, while no answer comes: each time twice as late."""

    def __init__(self, now_s: float) -> None:
        self._wait_s = RESEND_S
        self._due_s = now_s + self._wait_s

    def is_due(self, now_s: float) -> bool:
        """True once for each time it is due."""
        if now_s < self._due_s:
            return False
        self._wait_s = min(2 * self._wait_s, MAX_RESEND_S)
        self._due_s = now_s + self._wait_s
        return True


class DirectoryHolder:
    """The present shard map, shared between the worker's threads. caller: that connects by it."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._condition = threading.Condition()
        self._directory: Directory | None = None
        self._stopped = False

    def publish(self, directory: Directory) -> bool:
        """Takes a newer epoch; False for an old one."""
        with self._condition:
            if self._directory is not None and directory.epoch <= self._directory.epoch:
                return False
            self._directory = directory
            self._condition.notify_all()
            return True

    def stop(self) -> None:
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
        """Raises StoppedError while there is none or after `stop`."""
        directory = self._directory
        if directory is None or self._stopped:
            raise StoppedError("no shard map")
        return directory

    def wait_newer(self, epoch: int, timeout_s: float) -> None:
        """Returns when the epoch is beyond this one or the time is over. Raises StoppedError."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopped or self.epoch > epoch, timeout_s)
        if self._stopped:
            raise StoppedError("the worker is stopping")


@dataclass(slots=True)
class Traffic:
    """Bytes of frames since the last time it was taken: of those that leave the host, where there are other hosts."""

    sent: int = 0
    received: int = 0


class Pump(Protocol):
    """Reads control messages. The thread that owns the control socket must go on reading it while it waits for a PS, or
    it would never learn of the new shard map it waits for."""

    def __call__(self, timeout_s: float = 0.0) -> None:
        """Waits for the first one for at most `timeout_s`."""
        ...


def pump_nothing(timeout_s: float = 0.0) -> None:
    """The pump of a thread that has no control socket to look after."""


class Channel:
    """Connections to every PS under one channel name; belongs to one thread.

    `pump` is called again and again while a call waits. What is not answered in time is sent again: every request may
    be repeated, and a message may have been lost with the incarnation of a PS or on its way.
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
        """The connections there are now, to wait on."""
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
        channel = f"{self._name}{self._connections}"  # a ROUTER must never see an identity again
        client = self._holder.caller.connect(address, channel)
        self._clients[server] = (address.incarnation, client)
        return client

    def call(
        self,
        directory: Directory,
        requests: Sequence[Request],
        others: list[Envelope[DataMessage]] | None = None,
    ) -> list[Envelope[DataMessage]]:
        """Sends (server, message, frames) and waits for all the answers, in order. Answers to other requests are
        appended to `others`, or dropped: they answer a request that was cut anew.

        Raises StaleDirectoryError (cut again and repeat), FencedError, StoppedError.
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
        """Repeats `attempt` with the newest shard map until it is not stale."""
        while True:
            directory = self._holder.current()
            try:
                return attempt(directory)
            except StaleDirectoryError:
                # A PS may know the new epoch before this worker does: wait for it, but not for ever.
                self.wait_newer(directory.epoch)

    def wait_newer(self, epoch: int) -> None:
        """Returns when the shard map is beyond this epoch, or after POLL_S. Raises StoppedError."""
        if self._holder.epoch <= epoch:
            self._pump(POLL_S)
        self._holder.wait_newer(epoch, POLL_S if self._pump is pump_nothing else 0.0)

    def close(self) -> None:
        for _, client in self._clients.values():
            client.close()
        self._clients.clear()
