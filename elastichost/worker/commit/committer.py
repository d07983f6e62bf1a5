"""The dense exchange of a worker, and with it the commit of every batch.

Direct access: gradients go through the worker's mailbox in the arena and parameters are read from it; messages only
say that they are there. Served access: both travel in the messages. Mixed access: gradients travel in the messages, and
parameters are read from the arena by workers of its host.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError
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
from elastichost.worker.channels.exchange import WINDOW, DenseStream, LeaseAccount, half_of
from elastichost.worker.channels.routing import Directory

if TYPE_CHECKING:  # who only commits needs no torch
    from elastichost.arena.dense.store import DenseStore
    from elastichost.worker.access.row_channels import PushChannel
    from elastichost.worker.access.served import RowGradients
    from elastichost.worker.model.dense_vector import FlatDense

__all__ = ["BatchRange", "Committer"]


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


class Committer:
    """Owns the channel to the dense owner. `dense` is the arena's dense store, or None where that is not mapped;
    `rows`: where rows of a batch go through first, None with direct access."""

    def __init__(
        self,
        holder: DirectoryHolder,
        flat: FlatDense,
        dense: DenseStore | None,
        elements: int,
        pump: Pump,
        rows: PushChannel | None = None,
    ) -> None:
        self._rows = rows
        self._process, self._holder, self._pump = holder.caller.process, holder, pump
        self.flat, self._dense = flat, dense
        self.channel = Channel("dense", holder, pump)
        self._stream = DenseStream()
        self._account = LeaseAccount()
        self._has_mailbox = dense is not None and rows is None
        self._halves = [] if self._has_mailbox else [np.zeros(elements, dtype=np.float32) for _ in range(WINDOW)]
        self._owner = (0, 0)  # index and incarnation of the dense owner; incarnation 0: none yet, -1: it refused
        self._resend = Resend(time.monotonic())
        self._version = -1
        self._newest: tuple[int, memoryview] | None = None  # version, parameters: not in the model yet
        self._keeps_model = False
        self.samples_applied = 0

    @property
    def next_sequence(self) -> int:
        """Of the batch that is being computed."""
        return self._stream.sequence + (1 if self._rows is None or self._rows.is_empty else 2)

    def refresh(self) -> None:
        """Brings the newest dense vector into the model. Served access gets it with every acknowledgement."""
        if self._dense is not None:
            version = self._dense.version()
            if version != self._version:
                self._version = self._dense.read_into(self.flat.values)
                self.flat.loaded()
            self.samples_applied = self._dense.samples_applied()
            return
        self._load_newest()
        if self._version < 0:
            self.fetch()

    def forget_vector(self) -> None:
        """The model's own copy is spoilt: the next `refresh` brings it in again, newer or not."""
        self._version = -1

    def fetch(self) -> None:
        """Asks the dense owner for the vector (served access: at the start and before an evaluation)."""
        if self._dense is not None:
            self.refresh()
            return
        self._take_parameters(
            self.channel.until_current(lambda d: self._ask(d, DenseFetchMsg(request=self.channel.next_request())))
        )

    def commit(self, batch: BatchRange, learning_rate_scale: float, rows: RowGradients | None = None) -> None:
        """Sends the gradients that lie in the model as one push; waits while two are on the way already.

        With `rows` (served and mixed access) these are sent, and the push follows when they are staged. Waits for the
        batch before to be committed.
        """
        if rows is None:
            self._collect()
            while self._stream.is_full:
                self._wait()
            self._release(self._stage(batch, learning_rate_scale))
            return
        assert self._rows is not None
        # Its own gradients first: what comes while it waits for the batch before are other parameters and buffers.
        message = self._stage(batch, learning_rate_scale)
        self._settle_commits()
        self._rows.begin(rows, message)

    def poll_rows(self) -> None:
        """Commits the batch before if its rows are staged. Never blocks, and leaves the model as it is."""
        if self._rows is not None and (message := self._rows.poll()) is not None:
            self._release(message)

    def await_commit(self) -> float:
        """Seconds until the batch before was committed. To be called before a batch changes rows in place, if others
        are pushed: so a worker that is killed tears that one only. Leaves the model as it is: parameters that come
        meanwhile wait for the next `refresh`."""
        if self._rows is None:
            return 0.0  # what is released is committed even if its worker dies
        began_s = time.monotonic()
        self._keeps_model = True
        try:
            self._settle_commits()
        finally:
            self._keeps_model = False
        return time.monotonic() - began_s

    def settle(self) -> None:
        """Returns when every push is acknowledged and every row updated."""
        self._settle_commits()
        if self._rows is not None:
            self._rows.settle()

    def _settle_commits(self) -> None:
        """A commit that is refused brings its rows back on their way."""
        while True:
            self._settle_rows()
            if self._stream.is_empty:
                return
            self._wait()

    def poll(self) -> None:
        """Takes acknowledgements that have come; resends to a new owner. Never blocks."""
        self.poll_rows()
        if not self._stream.is_empty:
            self._reconnect(self._holder.current())
            self._collect()

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

        self._settle_rows()  # a batch counts as finished when its commit has left, on this very connection

        def attempt(directory: Directory) -> None:
            self._reconnect(directory)
            self._ask(directory, ClockAdvancedMsg(self.channel.next_request(), batch, staleness))

        self.channel.until_current(attempt)

    def close(self) -> None:
        self.channel.close()

    # --- inside ---------------------------------------------------------------------------------------------

    def _stage(self, batch: BatchRange, learning_rate_scale: float) -> DensePushMsg:
        """Copies the model's gradients to where the push will take them from."""
        sequence = self.next_sequence
        half, dense = half_of(sequence), self._dense if self._has_mailbox else None
        self.flat.write_push(self._halves[half] if dense is None else dense.mailbox(self._process.index, half).vector)
        return DensePushMsg(
            request=self.channel.next_request(),
            sequence=sequence,
            mailbox=half if dense is not None else -1,
            lease_id=batch.lease_id,
            epoch=batch.epoch,
            unit=batch.unit,
            start=batch.start,
            stop=batch.stop,
            samples=batch.samples,
            skipped=batch.skipped,
            want_parameters=self._dense is None,
            learning_rate_scale=learning_rate_scale,
        )

    def _release(self, message: DensePushMsg) -> None:
        crash_point("worker.batch.before_commit")
        self._stream.push(message)
        if self._dense is not None and message.mailbox >= 0:
            mailbox = self._dense.mailbox(self._process.index, message.mailbox)
            mailbox.post(self._process.incarnation, message.sequence, msgspec.msgpack.encode(message))
            crash_point("worker.batch.posted")
        self._reconnect(self._holder.current())
        self._send(message)
        self._resend = Resend(time.monotonic())
        crash_point("worker.batch.after_commit")

    def _settle_rows(self) -> None:
        if self._rows is not None and not self._rows.is_empty:
            self._release(self._rows.wait())

    def _ask(self, directory: Directory, message: DataMessage) -> Envelope[DataMessage]:
        """The dense owner's answer; acknowledgements of pushes may come before it."""
        passed: list[Envelope[DataMessage]] = []
        try:
            return self.channel.call(directory, [(directory.dense_owner, message, ())], others=passed)[0]
        finally:
            for envelope in passed:
                self._take(envelope)

    def _send(self, message: DensePushMsg) -> None:
        directory = self._holder.current()
        frames: tuple[Frame, ...] = ()
        if message.mailbox < 0:
            # A copy: the half is written again while ZeroMQ may still be reading the frame.
            frames = (self._halves[half_of(message.sequence)].copy(),)
            self.channel.count_sent(directory, directory.dense_owner, frames)
        self.channel.client(directory, directory.dense_owner).send(message, frames)

    def _reconnect(self, directory: Directory) -> None:
        """Sends what is outstanding again when the dense owner is another PS, or a new incarnation."""
        owner = (directory.dense_owner, directory.servers[directory.dense_owner].incarnation)
        if owner == self._owner:
            return
        first, self._owner = self._owner[1] == 0, owner
        if not first:
            for message in self._stream.to_resend():
                self._send(message)

    def _wait(self) -> None:
        directory = self._holder.current()
        self._reconnect(directory)
        if self._resend.is_due(time.monotonic()):
            for message in self._stream.to_resend():
                self._send(message)
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
            if self._rows is not None:
                self._stage_again(message.request)
                return
            self._owner = (0, -1)  # not the owner any more, or not yet: send again, with the next shard map if it comes
            self.channel.wait_newer(self._holder.epoch)
            return
        if not isinstance(message, DensePushedMsg) or message.sequence == 0:
            return
        pushes = self._stream.acknowledge(message)
        if not pushes:
            return
        for push in pushes:
            self._account.committed(push)
            if self._rows is not None and envelope.sender is not None:
                self._rows.confirm(push.sequence, envelope.sender.index)
        self.samples_applied = max(self.samples_applied, message.samples_applied)
        if envelope.frames:
            self.channel.count_received(self._holder.current(), envelope)
            self._take_parameters(envelope)

    def _stage_again(self, request: int) -> None:
        """The dense owner has refused a commit: its rows were staged under an older shard map."""
        push = self._stream.withdraw(request)
        if push is None or self._rows is None:
            return  # refused twice: it was sent twice
        self.channel.wait_newer(push.shard_map_epoch)
        self._rows.again(msgspec.structs.replace(push, request=self.channel.next_request()))

    def _take_parameters(self, envelope: Envelope[DataMessage]) -> None:
        message = envelope.message
        expected = self.flat.values.nbytes
        if not isinstance(message, DensePushedMsg) or not envelope.frames or envelope.frames[0].nbytes != expected:
            raise ProtocolError(f"{envelope.sender} sent no dense vector of {expected} bytes")
        if message.version >= self._version and (self._newest is None or message.version >= self._newest[0]):
            self._newest = message.version, envelope.frames[0]
        if not self._keeps_model:
            self._load_newest()
        self.samples_applied = max(self.samples_applied, message.samples_applied)

    def _load_newest(self) -> None:
        """Into the model."""
        if self._newest is None:
            return
        (self._version, frame), self._newest = self._newest, None
        vector: npt.NDArray[np.float32] = np.frombuffer(frame, dtype=np.float32)
        self.flat.values[:] = vector
        self.flat.loaded()
