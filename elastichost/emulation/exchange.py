"""The requests of an emulated worker: one to every PS that has a part of the load. A PS answers when its virtual cores
are done with the request."""

from __future__ import annotations

import struct
import time
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from elastichost.config.sections.emulate import NewIdsSettings
from elastichost.emulation.model import NEW_IDS, Keys, Part, owner_of_new, parts_of
from elastichost.emulation.prices import Pricing
from elastichost.errors import ProtocolError
from elastichost.wire.codec import Envelope, Frame
from elastichost.wire.data import DataMessage, PulledMsg, PullMsg, RetryMsg
from elastichost.worker.channels.channel import POLL_S, Channel, DirectoryHolder, FencedError, Resend
from elastichost.worker.channels.routing import Directory

__all__ = ["DONE", "Call", "Exchange"]

DONE = struct.Struct("<d")  # a frame of an answer: the moment at which the worker receives it, on the monotonic clock
NOTHING: Keys = np.zeros(0, np.int64)


@dataclass(slots=True)
class Call:
    """The pull or push requests of one batch, which are sent to all PS at once. Moments are of the monotonic clock.

    done_s: when the worker has the last answer; valid when `is_done`. new_ids: int64 [n], ids for which the PS create
    rows. waiting: number of an unanswered request -> (PS, message, frames)."""

    kind: Literal["pull", "push"]
    samples: int
    sent_s: float
    done_s: float
    new_ids: Keys
    epoch: int = 0  # of the shard map by which the batch was split into requests
    waiting: dict[int, tuple[int, PullMsg, tuple[Frame, ...]]] = field(default_factory=dict)
    retry_s: float | None = None  # a PS has another shard map: split again then, or when a newer map comes
    resend: Resend = field(default_factory=lambda: Resend(time.monotonic()))

    @property
    def is_done(self) -> bool:
        return not self.waiting and self.retry_s is None


class Exchange(Channel):
    """Sends requests (`begin`) and takes their answers (`collect`). Never blocks."""

    def __init__(
        self,
        holder: DirectoryHolder,
        pricing: Pricing,
        skew: float,
        new_ids: NewIdsSettings,
    ) -> None:
        super().__init__("emulated", holder)
        self._pricing, self._skew, self._new_ids = pricing, skew, new_ids
        self._parts: tuple[int, tuple[Part, ...]] = (0, ())
        self._open: list[Call] = []

    def begin(self, kind: Literal["pull", "push"], samples: int, sent_s: float, new_ids: Keys = NOTHING) -> Call:
        """Sends the requests of a batch. sent_s: the moment at which they count as sent. Raises StoppedError."""
        call = Call(kind, samples, sent_s, sent_s, new_ids)
        self._open.append(call)
        self._cut(call)
        return call

    def collect(self, readable: Container[object]) -> None:
        """Takes the answers that these sockets have received. Sends requests again when they were not answered in time,
        were refused, or the shard map has changed. Raises FencedError, StoppedError, ProtocolError."""
        for client in self.clients:
            while client.socket in readable and (envelope := client.receive()) is not None:
                self._take(envelope)
        now_s = time.monotonic()
        for call in self._open:
            is_stale = self._holder.epoch > call.epoch or (call.retry_s is not None and now_s >= call.retry_s)
            if is_stale and not call.is_done:
                call.sent_s = max(call.sent_s, now_s)
                self._cut(call)
            elif call.resend.is_due(now_s):
                self._send(call.waiting.values())
        self._open = [call for call in self._open if not call.is_done]

    def forget(self, call: Call) -> None:
        """Drops a call: its answers are ignored."""
        call.waiting.clear()
        call.retry_s = None
        self._open = [other for other in self._open if other is not call]

    # --- inside ---------------------------------------------------------------------------------------------

    def _cut(self, call: Call) -> None:
        directory = self._holder.current()
        call.epoch, call.retry_s, call.resend = directory.epoch, None, Resend(time.monotonic())
        call.waiting.clear()
        new: dict[int, list[int]] = {}
        for key in call.new_ids.tolist():
            new.setdefault(owner_of_new(key, directory), []).append(key)
        for part in self._parts_of(directory):
            is_owner = part.server == directory.dense_owner
            price = self._pricing.request(call.kind, call.samples, part.share, call.sent_s, is_dense_owner=is_owner)
            counts, keys = _asked(part, call.kind, new.pop(part.server, []))
            request = self.next_request()
            message = PullMsg(request, directory.epoch, create=len(call.new_ids) > 0, weights=False, counts=counts)
            call.waiting[request] = (part.server, message, (keys, price.encode()))
        self._send(call.waiting.values())

    def _parts_of(self, directory: Directory) -> tuple[Part, ...]:
        if self._parts[0] != directory.epoch:
            self._parts = directory.epoch, parts_of(directory, self._skew)
        return self._parts[1]

    def _send(self, requests: Iterable[tuple[int, PullMsg, tuple[Frame, ...]]]) -> None:
        directory = self._holder.current()
        for server, message, frames in requests:
            self.client(directory, server).send(message, frames)

    def _take(self, envelope: Envelope[DataMessage]) -> None:
        message = envelope.message
        call = next((call for call in self._open if message.request in call.waiting), None)
        if isinstance(message, RetryMsg):
            if message.final:
                raise FencedError(f"a PS refuses {self._process}: {message.reason}")
            if call is not None:
                call.retry_s = time.monotonic() + POLL_S
            return
        if call is None:
            return  # the answer to a request by an older shard map
        if not isinstance(message, PulledMsg) or len(envelope.frames) < 2 or envelope.frames[1].nbytes != DONE.size:
            raise ProtocolError(
                f"{envelope.sender} does not answer as an emulated PS: a {type(message).__name__} with "
                f"{len(envelope.frames)} frames came instead of a PulledMsg with a moment"
            )
        del call.waiting[message.request]
        call.done_s = max(call.done_s, *DONE.unpack(envelope.frames[1]))


def _asked(part: Part, kind: Literal["pull", "push"], new: list[int]) -> tuple[tuple[int, ...], Keys]:
    """The number of keys of each table, and the keys. A push has none, because the PS counts the keys of requests as
    the load of buckets, and each batch must count once."""
    if kind == "push":
        return (0,) * len(part.counts), NOTHING
    if not new:
        return part.counts, part.keys
    return (*part.counts[:NEW_IDS], len(new)), np.concatenate([part.keys, np.array(new, np.int64)])
