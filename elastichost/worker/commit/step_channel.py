"""Sync mode: a worker's requests to the PS about its micro-batches, and to the dense owner about steps.

Unlike `PushChannel`, this channel does not split rows again when the shard map changes. The worker must first ask the
dense owner which step is open, because what was staged under the older map may or may not have been committed. So every
call that sends by a shard map may raise StaleDirectoryError.

Order for a micro-batch that is left out (`leave_out`): first the dense owner drops its dense part, so that the step
cannot commit with a part of it; then the other PS drop its rows; then its push with `is_left_out` lets the step commit.
A worker that is killed between these leaves a step that cannot commit; the worker that takes the micro-batch over
repeats all three.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError
from elastichost.micro_batches import MicroBatch
from elastichost.wire.codec import Envelope
from elastichost.wire.data import (
    DataMessage,
    DenseFetchMsg,
    DensePushedMsg,
    DensePushMsg,
    PushedMsg,
    PushMsg,
    RetryMsg,
    StepAskMsg,
    StepReachedMsg,
)
from elastichost.worker.access.row_channels import RowCutter
from elastichost.worker.access.served import RowGradients
from elastichost.worker.channels.channel import Channel, DirectoryHolder, Pump, Request, Resend, StaleDirectoryError
from elastichost.worker.channels.routing import Directory

__all__ = ["StepChannel", "StepStart"]

Float32Array = npt.NDArray[np.float32]
NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.float32))  # frames of a push without rows


@dataclass(frozen=True, slots=True)
class StepStart:
    """The first step that is not committed: its number, the dense vector that it begins with (float32 [elements]) and
    the samples applied before it."""

    step: int
    vector: Float32Array
    samples_applied: int


class StepChannel(Channel):
    """The channel of a worker in sync mode. Belongs to the thread that trains."""

    def __init__(self, holder: DirectoryHolder, cutter: RowCutter, elements: int, pump: Pump) -> None:
        super().__init__("step", holder, pump)
        self._cutter, self._elements = cutter, elements
        self._asked: StepAskMsg | None = None
        self._resend = Resend(time.monotonic())
        self._sequence = 0
        self._others: list[Envelope[DataMessage]] = []  # answers to `ask` that came during another call

    # --- micro-batches ----------------------------------------------------------------------------------------

    def stage(
        self, directory: Directory, task: MicroBatch, gradients: RowGradients, learning_rate_scale: float
    ) -> None:
        """Returns when every owner has staged its part of the rows. Raises StaleDirectoryError."""
        requests: list[Request] = []
        for server, counts, frames in self._cutter.cut(gradients, directory):
            message = PushMsg(
                request=self.next_request(),
                sequence=task.step,
                shard_map_epoch=directory.epoch,
                counts=counts,
                learning_rate_scale=learning_rate_scale,
                step=task.step,
                micro=task.micro,
            )
            requests.append((server, message, frames))
        for answer in self.call(directory, requests, self._others):
            _expect(answer, PushedMsg)

    def leave_out(self, directory: Directory, task: MicroBatch) -> None:
        """Returns when no PS has a part of this micro-batch staged; a worker may have died after it had staged some.

        The dense owner is notified first, so that the step cannot commit with a part of the micro-batch. Raises
        StaleDirectoryError.
        """
        others = sorted(server for server in directory.servers if server != directory.dense_owner)
        for servers in ([directory.dense_owner], others):
            requests = [(server, self._nothing(directory, task), NOTHING) for server in servers]
            for answer in self.call(directory, requests, self._others):
                _expect(answer, PushedMsg)

    def _nothing(self, directory: Directory, task: MicroBatch) -> PushMsg:
        """A push without rows: the PS drops what it has of the micro-batch."""
        return PushMsg(
            request=self.next_request(),
            sequence=task.step,
            shard_map_epoch=directory.epoch,
            counts=(0,) * len(directory.owners),
            step=task.step,
            micro=task.micro,
        )

    def push(
        self,
        directory: Directory,
        task: MicroBatch,
        vector: Float32Array,
        learning_rate_scale: float,
        *,
        samples: int,
        skipped: int,
        loss_sum: float,
    ) -> None:
        """Sends the dense owner the micro-batch's part of the dense gradient. vector float32 [elements]; the caller
        must not write to it afterwards. Raises StaleDirectoryError."""
        self._sequence += 1
        message = DensePushMsg(
            request=self.next_request(),
            sequence=self._sequence,
            mailbox=-1,
            lease_id=task.lease_id,
            epoch=task.epoch,
            unit=task.unit,
            start=task.start,
            stop=task.stop,
            samples=samples,
            skipped=skipped,
            want_parameters=False,
            learning_rate_scale=learning_rate_scale,
            shard_map_epoch=directory.epoch,
            loss_sum=loss_sum,
            step=task.step,
            micro=task.micro,
            micros=task.micros,
            is_left_out=task.is_left_out,
        )
        (answer,) = self.call(directory, [(directory.dense_owner, message, (vector,))], self._others)
        _expect(answer, DensePushedMsg)

    def fetch(self) -> Envelope[DataMessage]:
        """Requests the dense vector; the dense owner's answer has it as frame 0. Raises StoppedError."""

        def attempt(directory: Directory) -> Envelope[DataMessage]:
            message = DenseFetchMsg(request=self.next_request())
            return self.call(directory, [(directory.dense_owner, message, ())], self._others)[0]

        return self.until_current(attempt)

    # --- steps ------------------------------------------------------------------------------------------------

    def ask(self, directory: Directory, step: int) -> None:
        """Requests to begin this step; `reached` returns the answer, perhaps much later. Repeated calls send nothing
        new until the request is due to be sent again."""
        asked = self._asked
        same = asked is not None and asked.step == step and asked.shard_map_epoch == directory.epoch
        if same and not self._resend.is_due(time.monotonic()):
            return
        if not same:
            self._resend = Resend(time.monotonic())
        self._asked = StepAskMsg(request=self.next_request(), step=step, shard_map_epoch=directory.epoch)
        self.client(directory, directory.dense_owner).send(self._asked)

    def reached(self, directory: Directory) -> StepStart | None:
        """The answer to `ask`; None: it has not come yet. Never blocks. Raises StaleDirectoryError."""
        client = self.client(directory, directory.dense_owner)
        while (envelope := client.receive()) is not None:
            self._others.append(envelope)
        found: StepStart | None = None
        while self._others:
            found = self._take(self._others.pop(0)) or found
        return found

    def _take(self, envelope: Envelope[DataMessage]) -> StepStart | None:
        asked, message = self._asked, envelope.message
        if asked is None or message.request != asked.request:
            return None
        if isinstance(message, RetryMsg):
            self._asked = None
            raise StaleDirectoryError
        answer = _expect(envelope, StepReachedMsg)
        if len(answer.frames) != 1 or answer.frames[0].nbytes != 4 * self._elements:
            raise ProtocolError(f"{envelope.sender} sent no dense vector of {4 * self._elements} bytes as its frame")
        self._asked = None
        assert isinstance(message, StepReachedMsg)
        return StepStart(message.step, np.frombuffer(answer.frames[0], dtype=np.float32), message.samples_applied)

    def forget(self) -> None:
        """Drops the request of `ask`; its answer will be ignored."""
        self._asked = None
        self._others.clear()


def _expect(envelope: Envelope[DataMessage], kind: type[DataMessage]) -> Envelope[DataMessage]:
    if not isinstance(envelope.message, kind):
        raise ProtocolError(f"{envelope.sender} sent {type(envelope.message).__name__} instead of {kind.__name__}")
    return envelope
