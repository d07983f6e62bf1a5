"""The base of the commit strategies for leased batches: direct, served, mixed and emulated.

Rules
1. Batch n of an incarnation has sequence number n. Its DensePushMsg goes to the dense owner, which applies it once: it
   compares n with the worker's applied record (incarnation, sequence) in the arena.
2. A batch is committed when the dense owner has acknowledged it (DensePushedMsg). Only then is it counted in the
   progress of its lease.
3. At most two pushes are outstanding (`exchange.DenseStream`).

Theory of operation
The worker sends the push, and sends all outstanding pushes again when no answer comes in time, when the dense owner is
another PS or another incarnation, and after a refusal. The order of events for one batch:

    push sent -> applied.bin record written -> dense half written -> published (committed) -> acknowledged -> progress

A kill of the worker before the push is sent: the positions go back to the ledger. After it: when the supervisor fences
the incarnation, the dense owner either has applied the push before its answer or refuses it afterwards; the applied
record in that answer settles the lease. A kill of the dense owner before publication leaves the old half live; its
successor repeats the commit when the worker sends again, and overwrites the same record of applied.bin. After
publication the successor finds the applied record and answers the repeated push as a duplicate.

A subclass defines how a push leaves (`commit`), which frames go with it (`_frames_of`) and what a refusal means
(`_refused`).
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
from elastichost.wire.data import (
    ClockAdvancedMsg,
    ClockReachedMsg,
    DataMessage,
    DenseFetchMsg,
    DensePushedMsg,
    DensePushMsg,
    RetryMsg,
)
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

if TYPE_CHECKING:  # a process that only commits (emulation) needs no torch
    from elastichost.worker.access.rows import PreparedBatch

__all__ = ["BatchRange", "LeaseCommit", "ModelCommit"]


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The positions that a commit accounts for: [start, stop) of a unit, of which `samples` were trained. skipped: also
    counts skipped samples before `start` that no earlier commit of the lease accounts for. loss_sum: of the trained
    samples."""

    lease_id: int
    epoch: int
    unit: int
    start: int
    stop: int
    samples: int
    skipped: int
    loss_sum: float


class LeaseCommit(CommitStrategy):
    """Holds the channel to the dense owner. parameters: how the dense vector reaches the model."""

    def __init__(self, holder: DirectoryHolder, parameters: DenseParameters, pump: Pump) -> None:
        self._process: ProcessId = holder.caller.process
        self._holder, self._pump = holder, pump
        self.channel = Channel("dense", holder, pump)
        self._parameters = parameters
        self._stream = DenseStream()
        self._account = LeaseAccount()
        self._clock_base: int | None = None  # bounded mode: what the clock adds to this worker's batches; None: idle
        self._owner = (0, 0)  # index and incarnation of the dense owner; incarnation 0: none yet, -1: it refused
        self._resend = Resend(time.monotonic())

    # --- what a strategy defines ------------------------------------------------------------------------------

    @abstractmethod
    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Sends the gradients that are in the model, as the next batch. May wait for the commits of earlier batches.
        Raises FencedError, StoppedError."""

    @abstractmethod
    def _frames_of(self, push: DensePushMsg) -> tuple[Frame, ...]:
        """The frames of this push. Called each time the push is sent."""

    def _refused(self, request: int) -> None:
        """The PS refused a push, because it does not own the dense vector any more or not yet. Waits shortly for the
        next shard map; then all outstanding pushes are sent again."""
        self._owner = (0, -1)
        self.channel.wait_newer(self._holder.epoch)

    def _committed(self, push: DensePushMsg, by: ProcessId | None) -> None:
        """A batch was committed by PS `by` (None: not known)."""
        self._account.committed(push)

    # --- the dense vector ---------------------------------------------------------------------------------------

    @property
    def samples_applied(self) -> int:
        """Samples applied by all workers, as far as this worker has received it."""
        return self._parameters.samples_applied

    def refresh(self) -> None:
        """Copies the newest dense vector that is available here into the model."""
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
        """The sequence number of the batch that is being computed."""
        return self._stream.sequence + 1

    def poll(self) -> None:
        """Takes acknowledgements that have come; sends outstanding pushes again to a new dense owner. Never blocks."""
        if not self._stream.is_empty:
            self._reconnect(self._holder.current())
            self._collect()

    def settle(self) -> None:
        """Returns when every push is acknowledged. Raises FencedError, StoppedError."""
        while not self._stream.is_empty:
            self._wait()

    def progress(self) -> tuple[LeaseProgressMsg, ...]:
        """The lease progress since the last call."""
        return self._account.changes()

    def skip(self, lease_id: int, stop: int, skipped: int) -> None:
        """Accounts for skipped samples at the end of a lease, which no batch's commit accounts for."""
        self._account.skipped(lease_id, stop, skipped)

    def finished(self, lease_id: int) -> None:
        """Drops the account of a lease that is finished and reported."""
        self._account.forget(lease_id)

    def wait_for_peers(self, batch: int, staleness: int) -> None:
        """Bounded mode: returns when no member is more than `staleness` batches behind `batch`, the number of batches
        that this worker has finished. batch -1: this worker is idle; returns at once."""

        def attempt(directory: Directory) -> None:
            self._reconnect(directory)
            request = self.channel.next_request()
            answer = self._ask(directory, ClockAdvancedMsg(request, batch, staleness, self._clock_base)).message
            if isinstance(answer, ClockReachedMsg):
                self._clock_base = answer.base if batch >= 0 else None

        self.channel.until_current(attempt)

    # --- outstanding pushes -------------------------------------------------------------------------------------

    def _push_of(self, batch: BatchRange, learning_rate_scale: float, mailbox: int) -> DensePushMsg:
        """The DensePushMsg of a batch. mailbox: the half that holds its vector; -1: the vector is a frame."""
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
            loss_sum=batch.loss_sum,
        )

    def _await_room(self) -> None:
        """Waits until at most one push is outstanding."""
        self._collect()
        while self._stream.is_full:
            self._wait()

    def _release(self, push: DensePushMsg) -> None:
        """Notes a push as outstanding and sends it."""
        crash_point("worker.batch.before_commit")
        self._stream.push(push)
        self._send_first(push)

    def _send_first(self, push: DensePushMsg) -> None:
        """Sends a push for the first time. It is noted as outstanding already."""
        self._reconnect(self._holder.current())
        self._send(push)
        self._resend = Resend(time.monotonic())
        crash_point("worker.batch.after_commit")

    def _send(self, push: DensePushMsg) -> None:
        directory, frames = self._holder.current(), self._frames_of(push)
        self.channel.count_sent(directory, directory.dense_owner, frames)
        self.channel.client(directory, directory.dense_owner).send(push, frames)

    def _reconnect(self, directory: Directory) -> None:
        """Sends all outstanding pushes again when the dense owner is another PS, or a new incarnation."""
        owner = (directory.dense_owner, directory.servers[directory.dense_owner].incarnation)
        if owner == self._owner:
            return
        first, self._owner = self._owner[1] == 0, owner
        if not first:
            for push in self._stream.to_resend():
                self._send(push)

    # --- answers ------------------------------------------------------------------------------------------------

    def _ask(self, directory: Directory, message: DataMessage) -> Envelope[DataMessage]:
        """The dense owner's answer to a message. Acknowledgements of pushes that come before it are taken, too."""
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
    """The strategy of a worker that trains the user's model. It also prepares the model for each batch.

    The calls for a batch, in order: `refresh`, `load`, the forward pass, `before_backward`, the backward pass, then
    `commit` or `leave_out`.
    """

    @abstractmethod
    def load(self, batch: PreparedBatch, learning_rate_scale: float) -> None:
        """Gives the model the batch's rows, and a place for the rows' gradients."""

    @abstractmethod
    def before_backward(self) -> float:
        """Returns when rows may change, with the seconds spent waiting for the previous batch. Does not change the
        model: the backward pass needs the values of the forward pass."""

    def leave_out(self) -> None:
        """Ends a batch without a commit. Its forward pass may have changed the model's buffers; the next `refresh`
        restores them."""
        self._parameters.forget()

    def unmapped_epoch(self, *, is_idle: bool) -> int | None:
        """Mixed access, between two batches: the shard map epoch to report to the supervisor; None: nothing to report.

        From now on this worker uses rows in place only by the shard map of that epoch or a newer one. is_idle: no batch
        is prepared or being prepared.
        """
        return None
