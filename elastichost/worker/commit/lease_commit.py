"""The commits of leased batches: what direct, served, mixed and emulated access share.

A batch is committed when the dense owner acknowledges its push. Here are the pushes on their way, sent again to
whoever owns the dense vector, the progress of leases, and the clock of bounded mode. A strategy says how a push leaves,
what goes with it, and what becomes of one that is refused.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastichost.plan import ProcessId
from elastichost.wire.codec import Envelope, Frame
from elastichost.wire.control import LeaseProgressMsg
from elastichost.wire.crash import crash_point
from elastichost.wire.data import ClockAdvancedMsg, DataMessage, DenseFetchMsg, DensePushedMsg, DensePushMsg, RetryMsg
from elastichost.wire.sockets import wait_readable
from elastichost.worker.channels.channel import (
    POLL_S,
    Channel,
    DirectoryHolder,
    FencedError,
    Pump,
    Resend,
    StoppedError,
)
from elastichost.worker.channels.exchange import DenseStream, LeaseAccount
from elastichost.worker.channels.routing import Directory
from elastichost.worker.commit.dense_transport import DenseParameters
from elastichost.worker.commit.strategy import CommitStrategy

if TYPE_CHECKING:  # who only commits needs no torch
    from elastichost.worker.access.rows import PreparedBatch

__all__ = ["BatchRange", "LeaseCommit", "ModelCommit"]


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What a commit accounts for."""

    lease_id: int
    epoch: int
    unit: int
    start: int
    stop: int
    samples: int
    skipped: int


class LeaseCommit(CommitStrategy):
    """Owns the channel to the dense owner. parameters: where the dense vector comes from."""

    def __init__(self, holder: DirectoryHolder, parameters: DenseParameters, pump: Pump) -> None:
        self._process: ProcessId = holder.caller.process
        self._holder, self._pump = holder, pump
        self.channel = Channel("dense", holder, pump)
        self._parameters = parameters
        self._stream = DenseStream()
        self._account = LeaseAccount()
        self._owner = (0, 0)  # index and incarnation of the dense owner; incarnation 0: none yet, -1: it refused
        self._resend = Resend(time.monotonic())

    # --- what a strategy says ---------------------------------------------------------------------------------

    @abstractmethod
    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Sends the gradients that lie in the model. May wait for batches before it to be committed. Raises
        FencedError, StoppedError."""

    @abstractmethod
    def _frames_of(self, push: DensePushMsg) -> tuple[Frame, ...]:
        """What travels with this push, whenever it is sent."""

    def _refused(self, request: int) -> None:
        """The PS that was asked to commit does not own the dense vector any more, or not yet: all that is outstanding
        is sent again, with the next shard map if it comes."""
        self._owner = (0, -1)
        self.channel.wait_newer(self._holder.epoch)

    def _committed(self, push: DensePushMsg, by: ProcessId | None) -> None:
        """A batch is committed."""
        self._account.committed(push)

    # --- the dense vector ---------------------------------------------------------------------------------------

    @property
    def samples_applied(self) -> int:
        """By all workers, as far as this one knows."""
        return self._parameters.samples_applied

    def refresh(self) -> None:
        """Brings the newest dense vector into the model."""
        self._parameters.refresh(self._ask_for_vector)

    def fetch(self) -> None:
        """Implements `CommitStrategy.fetch`."""
        self._parameters.fetch(self._ask_for_vector)

    def _ask_for_vector(self) -> Envelope[DataMessage]:
        return self.channel.until_current(lambda d: self._ask(d, DenseFetchMsg(request=self.channel.next_request())))

    # --- between batches ----------------------------------------------------------------------------------------

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Implements `CommitStrategy.channels`."""
        return (self.channel,)

    @property
    def next_sequence(self) -> int:
        """Of the batch that is being computed."""
        return self._stream.sequence + 1

    def poll(self) -> None:
        """Takes acknowledgements that have come; resends to a new owner. Never blocks."""
        if not self._stream.is_empty:
            self._reconnect(self._holder.current())
            self._collect()

    def settle(self) -> None:
        """Returns when every push is acknowledged, and with it every row updated."""
        while not self._stream.is_empty:
            self._wait()

    def progress(self) -> tuple[LeaseProgressMsg, ...]:
        """Lease progress since the last call."""
        return self._account.changes()

    def skip(self, lease_id: int, stop: int, skipped: int) -> None:
        """Bad rows at the end of a lease, which no batch's commit accounts for."""
        self._account.skipped(lease_id, stop, skipped)

    def finished(self, lease_id: int) -> None:
        self._account.forget(lease_id)

    def wait_for_peers(self, batch: int, staleness: int) -> None:
        """Bounded mode: returns when no member is more than `staleness` batches behind; batch -1 says "idle"."""

        def attempt(directory: Directory) -> None:
            self._reconnect(directory)
            self._ask(directory, ClockAdvancedMsg(self.channel.next_request(), batch, staleness))

        self.channel.until_current(attempt)

    # --- pushes on their way ------------------------------------------------------------------------------------

    def _push_of(self, batch: BatchRange, learning_rate_scale: float, mailbox: int) -> DensePushMsg:
        """mailbox: the half where its vector lies; -1: it travels with the message."""
        return DensePushMsg(
            request=self.channel.next_request(),
            sequence=self.next_sequence,
            mailbox=mailbox,
            lease_id=batch.lease_id,
            epoch=batch.epoch,
            unit=batch.unit,
            start=batch.start,
            stop=batch.stop,
            samples=batch.samples,
            skipped=batch.skipped,
            want_parameters=self._parameters.is_sent,
            learning_rate_scale=learning_rate_scale,
        )

    def _await_room(self) -> None:
        """Two pushes may be on the way."""
        self._collect()
        while self._stream.is_full:
            self._wait()

    def _release(self, push: DensePushMsg) -> None:
        crash_point("worker.batch.before_commit")
        self._stream.push(push)
        self._send_first(push)

    def _send_first(self, push: DensePushMsg) -> None:
        """The push is noted as outstanding."""
        self._reconnect(self._holder.current())
        self._send(push)
        self._resend = Resend(time.monotonic())
        crash_point("worker.batch.after_commit")

    def _send(self, push: DensePushMsg) -> None:
        directory, frames = self._holder.current(), self._frames_of(push)
        self.channel.count_sent(directory, directory.dense_owner, frames)
        self.channel.client(directory, directory.dense_owner).send(push, frames)

    def _reconnect(self, directory: Directory) -> None:
        """Sends what is outstanding again when the dense owner is another PS, or a new incarnation."""
        owner = (directory.dense_owner, directory.servers[directory.dense_owner].incarnation)
        if owner == self._owner:
            return
        first, self._owner = self._owner[1] == 0, owner
        if not first:
            for push in self._stream.to_resend():
                self._send(push)

    # --- answers ------------------------------------------------------------------------------------------------

    def _ask(self, directory: Directory, message: DataMessage) -> Envelope[DataMessage]:
        """The dense owner's answer; acknowledgements of pushes may come before it."""
        passed: list[Envelope[DataMessage]] = []
        try:
            return self.channel.call(directory, [(directory.dense_owner, message, ())], others=passed)[0]
        finally:
            for envelope in passed:
                self._take(envelope)

    def _wait(self) -> None:
        directory = self._holder.current()
        self._reconnect(directory)
        if self._resend.is_due(time.monotonic()):
            for push in self._stream.to_resend():
                self._send(push)
        client = self.channel.client(directory, directory.dense_owner)
        if not self._collect():
            wait_readable([client.socket], POLL_S)
            self._collect()
        self._pump()
        if self._holder.stopped:
            raise StoppedError("the worker is stopping")

    def _collect(self) -> bool:
        directory = self._holder.current()
        client = self.channel.client(directory, directory.dense_owner)
        taken = False
        while (envelope := client.receive()) is not None:
            taken = True
            self._take(envelope)
        return taken

    def _take(self, envelope: Envelope[DataMessage]) -> None:
        message = envelope.message
        if isinstance(message, RetryMsg):
            if message.final:
                raise FencedError(f"a PS refuses {self._process}: {message.reason}")
            self._refused(message.request)
            return
        if not isinstance(message, DensePushedMsg) or message.sequence == 0:
            return
        pushes = self._stream.acknowledge(message)
        if not pushes:
            return
        for push in pushes:
            self._committed(push, envelope.sender)
        known = self._parameters
        known.samples_applied = max(known.samples_applied, message.samples_applied)
        if envelope.frames:
            self.channel.count_received(self._holder.current(), envelope)
            known.take(envelope)


class ModelCommit(LeaseCommit):
    """Of a worker that trains the user's model: where a batch's rows are before it is computed, and what has to be done
    before they change. For each batch: `refresh`, `load`, the forward pass, `before_backward`, the backward pass, then
    `commit` or `leave_out`."""

    @abstractmethod
    def load(self, batch: PreparedBatch, learning_rate_scale: float) -> None:
        """Gives the model the batch's rows, and the rows' gradients their place."""

    @abstractmethod
    def before_backward(self) -> float:
        """Rows may change once this returns. Seconds for which it waited for the batch before. Leaves the model as it
        is: the backward pass needs what the forward pass had."""

    def leave_out(self) -> None:
        """The batch is not committed. The forward pass may have spoilt the model's buffers: the next `refresh` brings
        them in again."""
        self._parameters.forget()

    def unmapped_epoch(self, *, is_idle: bool) -> int | None:
        """Between two batches: the epoch of the shard map by which, or by a newer one, all rows are used in place from
        now on, if it is to be told. is_idle: nothing is prepared or being prepared."""
        return None
