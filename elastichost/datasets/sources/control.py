"""The knobs of one worker's input, with the memory that it may hold ahead and the meters of its stages.

The reader, its connections and the pipeline share one `InputControl`. A change of the knobs takes effect at the next
request, unit or batch; nothing that was read is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from elastichost.datasets.api import Unit
from elastichost.datasets.sources.budget import ByteBudget
from elastichost.datasets.sources.meter import StageMeter
from elastichost.wire.control_work import SourceTroubleMsg
from elastichost.wire.facts import MOST_CONNECTIONS, InputKnobs, StageSample

__all__ = ["Closable", "InputControl", "Upcoming"]

LEAST_RANGE_BYTES = 4096
MOST_DECODE_THREADS = 16
TROUBLES_KEPT = 100


class Upcoming(Protocol):
    """A part of a reader that prepares units before they are requested."""

    def expect(self, unit: Unit) -> None:
        """This unit will be requested, after those that were announced before."""

    def forget(self) -> None:
        """None of the announced units will be requested."""

    def close(self) -> None:
        """Ends its threads."""


class Closable(Protocol):
    """Connections to the source."""

    def close(self) -> None:
        """Ends its threads."""


class InputControl:
    """The input of one worker: knobs, memory, meters. ahead, connections: the parts that decode ahead and that read
    from a remote source, if the reader has them. shared: the directory of decoded units that the workers of the host
    share; None: there is none. cache_bytes: their bound."""

    def __init__(self, knobs: InputKnobs = InputKnobs(), shared: Path | None = None) -> None:  # noqa: B008, frozen
        self._knobs = knobs = _possible(knobs)
        self.shared, self.cache_bytes = shared, 0
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._troubles: list[SourceTroubleMsg] = []
        self._taken_s = time.monotonic()
        self.budget = ByteBudget(knobs.prefetch_bytes)
        self.source, self.decode = StageMeter("source"), StageMeter("decode")
        self.prepare, self.train = StageMeter("prepare"), StageMeter("train")
        self.readers = 0  # reader processes that are connected
        self.unit_bytes = 0  # the largest charge of a unit that is decoded ahead; set by the reader
        self.ahead: Upcoming | None = None
        self.connections: Closable | None = None

    @property
    def knobs(self) -> InputKnobs:
        return self._knobs

    def tune(self, knobs: InputKnobs, cache_bytes: int = 0) -> None:
        """Sets the knobs, each within the limits of what it means, and wakes whoever waits for room."""
        before, knobs = self._knobs, _possible(knobs)
        self._knobs, self.cache_bytes = knobs, max(0, cache_bytes)
        if knobs.range_bytes != before.range_bytes:
            self.source.forget_times()
        self.budget.limit(knobs.prefetch_bytes)
        for changed in tuple(self._listeners):
            changed()

    def when_tuned(self, changed: Callable[[], None]) -> None:
        """`changed` is called after every change of the knobs, by the thread that changes them."""
        self._listeners.append(changed)

    def tell(self, trouble: SourceTroubleMsg) -> None:
        """Notes a trouble of the source, or that it has recovered, for the supervisor."""
        with self._lock:
            if len(self._troubles) < TROUBLES_KEPT:
                self._troubles.append(trouble)

    def merge(self, stages: Sequence[StageSample]) -> None:
        """Adds what the stages of a reader process did."""
        meters = {"source": self.source, "decode": self.decode}
        for sample in stages:
            if sample.stage in meters:
                meters[sample.stage].merge(sample)
            self.unit_bytes = max(self.unit_bytes, sample.unit_bytes)

    def take_troubles(self) -> Sequence[SourceTroubleMsg]:
        """The troubles since the last call."""
        with self._lock:
            found, self._troubles = self._troubles, []
            return found

    def take_stages(self, queued: int) -> tuple[StageSample, ...]:
        """The samples of all stages since the last call. queued: batches that wait to be prepared."""
        now_s = time.monotonic()
        seconds, self._taken_s = max(1e-6, now_s - self._taken_s), now_s
        source, decode, prepare = self.source.take(), self.decode.take(), self.prepare.take()
        decode = msgspec.structs.replace(decode, unit_bytes=self.unit_bytes)
        return (
            _occupied(source, source.source_s / (seconds * self._knobs.connections)),
            _occupied(
                decode, (decode.cpu_s + decode.source_s + decode.other_s) / (seconds * self._knobs.decode_threads)
            ),
            _occupied(prepare, queued / max(1, self._knobs.prefetch_batches)),
            self.train.take(),
        )

    def close(self) -> None:
        """Ends the threads that read ahead, and the connections."""
        if self.connections is not None:
            self.connections.close()
        if self.ahead is not None:
            self.ahead.close()


def _possible(knobs: InputKnobs) -> InputKnobs:
    return InputKnobs(
        connections=min(MOST_CONNECTIONS, max(1, knobs.connections)),
        decode_threads=min(MOST_DECODE_THREADS, max(1, knobs.decode_threads)),
        prefetch_batches=max(0, knobs.prefetch_batches),
        prefetch_bytes=max(0, knobs.prefetch_bytes),
        range_bytes=max(LEAST_RANGE_BYTES, knobs.range_bytes),
        cache=knobs.cache,
    )


def _occupied(sample: StageSample, share: float) -> StageSample:
    return msgspec.structs.replace(sample, occupancy=min(1.0, max(0.0, share)))
