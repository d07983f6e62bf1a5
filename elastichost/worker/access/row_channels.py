"""Sends a worker's requests about rows to the parameter servers: pulls (keys to rows and weights) and pushes.

Rules
1. A pull and a push go to the owners of the rows by one shard map. A PS with another shard map refuses them; the batch
   is then split again by the newer map.
2. A push has the sequence number of its batch. The PS stages it and changes no row. It may be sent any number of times.
3. The commit of a batch (DensePushMsg) is handed out only when every owner has staged its part (`exchange.RowStream`).
4. After the commit every owner except the committing one is sent RowsCommittedMsg until it has answered. The next push
   has the same information (`committed`), so a PS applies a batch before it stages the next one of this worker.

What a kill leaves: before all parts are staged, some PS hold a part of a batch that is never committed; they drop it
when the supervisor settles the incarnation. After the commit, PS that were not notified hold a committed part; they
apply it when the supervisor sends Settle, or when the worker's next message arrives. Staged pushes
of a killed PS stay in the arena. Its successor comes with a newer shard map epoch, so the worker sends the push again:
it replaces the staged one, or is answered as a duplicate if it was applied. `_tell_again` notifies the successor of the
commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from elastichost.arena.kernels import gather_lines, kernel_ready, scatter_lines
from elastichost.arena.rows.lines import LinePlan
from elastichost.errors import ProtocolError
from elastichost.specs import ModelSpec
from elastichost.wire.codec import Envelope, Frame
from elastichost.wire.data import (
    DataMessage,
    DensePushMsg,
    PulledMsg,
    PullMsg,
    PushedMsg,
    PushMsg,
    RetryMsg,
    RowsAppliedMsg,
    RowsCommittedMsg,
)
from elastichost.wire.sockets import wait_readable
from elastichost.worker.access.served import PulledRows, RowGradients
from elastichost.worker.channels.channel import (
    POLL_S,
    Channel,
    DirectoryHolder,
    FencedError,
    Pump,
    Request,
    Resend,
    StoppedError,
    pump_nothing,
)
from elastichost.worker.channels.exchange import RowStream
from elastichost.worker.channels.routing import Directory, ServerPart, key_router, row_router

__all__ = ["PullChannel", "PushChannel", "RowCutter"]

Scalar = TypeVar("Scalar", bound=np.generic)
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]


def _frame_array(
    envelope: Envelope[DataMessage], position: int, dtype: type[Scalar], count: int
) -> npt.NDArray[Scalar]:
    if position >= len(envelope.frames):
        raise ProtocolError(f"{type(envelope.message).__name__} of {envelope.sender} lacks frame {position}")
    frame = envelope.frames[position]
    if frame.nbytes != count * np.dtype(dtype).itemsize:
        raise ProtocolError(
            f"frame {position} of {envelope.sender} has {frame.nbytes} bytes; expected {count} {dtype.__name__} items"
        )
    return kernel_ready(np.frombuffer(frame, dtype=dtype))


class PullChannel(Channel):
    """Requests rows for keys, and with served access also their weights."""

    def __init__(
        self,
        holder: DirectoryHolder,
        model: ModelSpec,
        name: str = "pull",
        pump: Pump = pump_nothing,
    ) -> None:
        super().__init__(name, holder, pump)
        self._router = key_router(model.tables)
        self._lines = LinePlan(model.embeddings)
        self.step = 0  # sync mode: all steps before this one are committed

    def pull(self, keys: Int64Array, bounds: Int64Array, *, weights: bool, create: bool, clock: int) -> PulledRows:
        """The rows of unique keys int64, and with `weights` their weights. Table t has keys[bounds[t] : bounds[t + 1]].

        create: unknown ids get rows; clock: samples trained so far. Blocks until every owner has answered. Raises
        FencedError, StoppedError.
        """

        return self.until_current(
            lambda d: self.pull_once(d, keys, bounds, weights=weights, create=create, clock=clock)
        )

    def pull_once(
        self, directory: Directory, keys: Int64Array, bounds: Int64Array, *, weights: bool, create: bool, clock: int
    ) -> PulledRows:
        """`pull` by exactly this shard map. Raises StaleDirectoryError when a PS has another one."""
        parts = self._router.split(keys, bounds, directory)
        requests: list[tuple[int, DataMessage, Sequence[Frame]]] = []
        for part in parts:
            message = PullMsg(
                request=self.next_request(),
                shard_map_epoch=directory.epoch,
                create=create,
                weights=weights,
                counts=tuple(np.diff(part.bounds).tolist()),
                clock=clock,
                step=self.step,
            )
            requests.append((part.server, message, (part.items,)))
        return self._merge(parts, bounds, weights, self.call(directory, requests), directory.epoch)

    def _merge(
        self,
        parts: Sequence[ServerPart],
        bounds: Int64Array,
        weights: bool,
        answers: Sequence[Envelope[DataMessage]],
        epoch: int,
    ) -> PulledRows:
        """Merges the answers of several PS into the order of the batch. A single answer is used without a copy."""
        offsets = self._lines.offsets(bounds) if weights else np.zeros(1, np.int64)
        taken = [self._take(part, answer, weights, epoch) for part, answer in zip(parts, answers, strict=True)]
        if len(parts) == 1 and parts[0].positions is None:
            return taken[0]
        whole = PulledRows(np.empty(bounds[-1], np.int64), bounds, np.empty(offsets[-1], np.float32), offsets, epoch)
        bases = self._lines.bases_within(bounds)
        for part, got in zip(parts, taken, strict=True):
            assert part.positions is not None
            whole.rows[part.positions] = got.rows
            if weights:
                scatter_lines(got.weights, self._lines.lines(part.bounds, bases), part.positions, whole.weights)
        return whole

    def _take(self, part: ServerPart, answer: Envelope[DataMessage], weights: bool, epoch: int) -> PulledRows:
        if not isinstance(answer.message, PulledMsg):
            raise ProtocolError(f"{answer.sender} answered a Pull with {type(answer.message).__name__}")
        offsets = self._lines.offsets(part.bounds) if weights else np.zeros(1, np.int64)
        rows = _frame_array(answer, 0, np.int64, len(part.items))
        lines = _frame_array(answer, 1, np.float32, int(offsets[-1])) if weights else np.empty(0, np.float32)
        return PulledRows(rows, part.bounds, lines, offsets, epoch)


class RowCutter:
    """Splits a batch's gradients by the owners of its rows.

    bucket_rows: per table, the distance in rows between the first rows of consecutive buckets in its row space.
    """

    def __init__(self, model: ModelSpec, bucket_rows: Sequence[int]) -> None:
        self._router = row_router(bucket_rows)
        self._bucket_rows = tuple(bucket_rows)
        self._lines = LinePlan(model.embeddings)

    def cut(self, gradients: RowGradients, directory: Directory) -> list[tuple[int, tuple[int, ...], Sequence[Frame]]]:
        """(PS, counts, frames) of a PushMsg for each owner. Left out are rows below 0, and rows of buckets that were
        lost and made anew since the rows were pulled."""
        pulled = gradients.pulled
        rows = self._rows_left(pulled, directory)
        return [
            (part.server, tuple(np.diff(part.bounds).tolist()), (part.items, self._lines_of(part, gradients)))
            for part in self._router.split(rows, pulled.bounds, directory)
        ]

    def _rows_left(self, pulled: PulledRows, directory: Directory) -> Int64Array:
        lost = directory.lost_since(pulled.epoch)
        if not lost:
            return pulled.rows
        rows = pulled.rows.copy()
        for table, bucket in lost:
            of_table = rows[pulled.bounds[table] : pulled.bounds[table + 1]]
            of_table[of_table // self._bucket_rows[table] == bucket] = -1
        return rows

    def _lines_of(self, part: ServerPart, gradients: RowGradients) -> Float32Array:
        if part.positions is None:
            return gradients.sums
        lines = self._lines.lines(part.bounds, self._lines.bases_within(gradients.pulled.bounds))
        frame = np.empty(int(self._lines.offsets(part.bounds)[-1]), np.float32)
        gather_lines(gradients.sums, lines, part.positions, frame)
        return frame


class PushChannel(Channel):
    """Pushes the gradients of unique rows to their owners (served access) while the next batch is computed."""

    def __init__(
        self,
        holder: DirectoryHolder,
        cutter: RowCutter,
        pump: Pump,
    ) -> None:
        super().__init__("push", holder, pump)
        self._cutter = cutter
        self._stream = RowStream()
        self._gradients: RowGradients | None = None
        self._requests: dict[int, Request] = {}  # of the present cut
        self._resend = self._resend_news = Resend(time.monotonic())
        self._incarnations: dict[int, int] = {}  # PS -> its incarnation that was notified of the newest commit

    @property
    def is_empty(self) -> bool:
        """Whether no rows are being staged."""
        return self._stream.is_empty

    @property
    def is_settled(self) -> bool:
        """Whether no rows are being staged and every owner has applied what is committed."""
        return self._stream.is_empty and not self._stream.unconfirmed

    def begin(self, gradients: RowGradients, commit: DensePushMsg) -> None:
        """Sends the rows of a batch to be staged. `poll` or `wait` hands its commit out when all are staged.

        `gradients.sums` must not be written to before the batch is committed: it may be sent again. Raises
        ProtocolError while the rows of another batch are being staged.
        """
        self._stream.begin(commit)
        self._gradients = gradients
        self._cut()

    def again(self, commit: DensePushMsg) -> None:
        """Stages the rows of the same batch again by the newest shard map, because the dense owner refused its commit.
        commit: with a new request number."""
        self._stream.begin(commit)
        self._cut()

    def confirm(self, sequence: int, dense_owner: int) -> None:
        """The batch was committed by PS `dense_owner`: notifies all other owners of its rows."""
        self._stream.confirm(sequence, dense_owner)
        self._resend_news = Resend(time.monotonic())
        self._tell(self._stream.unconfirmed)

    def _tell(self, servers: Iterable[int]) -> None:
        directory = self._holder.current()
        for server in tuple(servers):
            if server not in directory.servers:
                self._stream.forget(server)
                continue
            self._incarnations[server] = directory.servers[server].incarnation
            message = RowsCommittedMsg(request=self.next_request(), sequence=self._stream.unconfirmed[server])
            self.client(directory, server).send(message)

    def poll(self) -> DensePushMsg | None:
        """The commit, once every owner has staged its part; None: not yet. Never blocks. Raises FencedError."""
        if not self._stream.is_empty and self._holder.epoch > self._stream.epoch:
            self._cut()
        if self._stream.unconfirmed:
            self._tell_again()
        for _, client in self._clients.values():
            while (envelope := client.receive()) is not None:
                self._take(envelope)
        return self._stream.take()

    def _tell_again(self) -> None:
        """Notifies owners of a commit again: new incarnations at once, all others when their answer is overdue."""
        incarnations = self._holder.current().servers
        if self._resend_news.is_due(time.monotonic()):
            self._tell(self._stream.unconfirmed)
            return
        self._tell(
            [
                s
                for s in self._stream.unconfirmed
                if s not in incarnations or incarnations[s].incarnation != self._incarnations.get(s)
            ]
        )

    def wait(self) -> DensePushMsg:
        """As `poll`, but blocks until there is a commit. Rows must be in staging. Raises FencedError, StoppedError."""
        while (commit := self.poll()) is None:
            if self._stream.is_refused:
                # Either the PS or this worker received the next shard map first: wait until both have it.
                self.wait_newer(self._stream.epoch)
                self._cut()
                continue
            if self._resend.is_due(time.monotonic()):
                # under the same numbers: an answer that is on its way counts, however slow the link is
                self._send_all(self._holder.current(), [self._requests[number] for number in self._stream.waiting])
            self._wait_for_answer()
        return commit

    def settle(self) -> None:
        """Returns when every owner has applied what is committed. No rows may be in staging. Raises as `wait`."""
        while self._stream.unconfirmed:
            self._wait_for_answer()
            self.poll()

    def _wait_for_answer(self) -> None:
        wait_readable([client.socket for _, client in self._clients.values()], POLL_S)
        self._pump()
        if self._holder.stopped:
            raise StoppedError("the worker is stopping")

    def _cut(self) -> None:
        """Sends every owner its part of the rows, by the present shard map."""
        directory, gradients, commit = self._holder.current(), self._gradients, self._stream.commit
        assert gradients is not None and commit is not None
        self._requests = {}
        for server, counts, frames in self._cutter.cut(gradients, directory):
            message = PushMsg(
                request=self.next_request(),
                sequence=commit.sequence,
                shard_map_epoch=directory.epoch,
                counts=counts,
                learning_rate_scale=commit.learning_rate_scale,
                committed=self._stream.committed,
            )
            self._requests[message.request] = (server, message, frames)
        self._stream.cut(directory.epoch, {number: server for number, (server, _, _) in self._requests.items()})
        self._send_all(directory, list(self._requests.values()))
        self._resend = Resend(time.monotonic())

    def _take(self, envelope: Envelope[DataMessage]) -> None:
        match envelope.message:
            case PushedMsg(request=request):
                self._stream.answer(request)
            case RowsAppliedMsg(sequence=sequence):
                if envelope.sender is not None:
                    self._stream.confirmed(envelope.sender.index, sequence)
            case RetryMsg(final=True, reason=reason):
                raise FencedError(f"a PS refuses {self._process}: {reason}")
            case RetryMsg(request=request):
                self._stream.refuse(request)
            case other:
                raise ProtocolError(f"{envelope.sender} answered a Push with {type(other).__name__}")
