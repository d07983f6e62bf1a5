"""Limits the rate of training data to that of connections to a remote store. The job file states the rate of one.

A reader is one thread with a number of connections (`InputKnobs.connections`). It requests a unit, and waits
`latency_s` for its first byte. The bytes of a batch are requested in ranges of at most `range_bytes`. Each range goes
to the connection that is free first, and its bytes arrive one after another at `bytes_per_s`. A batch is available
when its last byte has arrived. So the only state is the time at which each connection becomes free: token buckets
that may become negative, the virtual scheduling form of the generic cell rate algorithm, ITU-T I.371.

    request of a unit     free <- max(free, now) + latency, of every connection
    request of a range    free <- max(free, now - BURST_S) + bytes / rate;    the range is available at free

While the reader decodes or prepares a batch, bytes continue to arrive in buffers, but for at most BURST_S on each
connection: a reader with a full queue does not fetch the whole unit in the meantime.

The bytes of a batch are its share of the unit's bytes in the file, by positions, including bad rows. A worker that
reads a part of a unit pays for that part only. Synthetic data is in no file, and the bytes that a custom reader reads
are not known: for both, the bytes of the batch's arrays count (`batch_bytes`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from elastichost.datasets.api import DatasetDescription, Reader, SampleBatch, Unit
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.sources.control import InputControl

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec

__all__ = [
    "BURST_S",
    "RemoteLink",
    "RemoteRate",
    "RemoteReader",
    "asked",
    "batch_bytes",
    "cut_off",
    "opened",
    "remote_rate",
    "resized",
]

BURST_S = 0.25  # the buffers between store and reader hold the bytes of this time
MOST_RANGES = 256  # of one batch; with more, they are larger
MOST_WAIT_S = 1.0  # longest single wait: the whole time to wait may be longer than a timer accepts


@dataclass(frozen=True, slots=True)
class RemoteRate:
    """Rate and latency of one connection. bytes_per_s 0: no limit."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoteLink:
    """The state of all connections of a reader. free_s: for each, the time at which everything requested has
    arrived."""

    rate: RemoteRate
    free_s: tuple[float, ...]


def opened(link: RemoteLink, now_s: float) -> RemoteLink:
    """The connections after a unit was requested: none of its bytes can have arrived before."""
    return replace(link, free_s=tuple(max(free_s, now_s) + link.rate.latency_s for free_s in link.free_s))


def asked(link: RemoteLink, size_bytes: float, now_s: float, range_bytes: float = math.inf) -> tuple[RemoteLink, float]:
    """The connections after the next bytes of the unit were requested, and the seconds until they arrive (>= 0).

    Between the request of a batch at t and the arrival of a batch at t', at most rate * (t' - t + BURST_S) bytes
    arrive on each connection."""
    ranges = min(MOST_RANGES, max(1, math.ceil(size_bytes / range_bytes)))
    taken_s = size_bytes / ranges / link.rate.bytes_per_s if link.rate.bytes_per_s else 0.0
    free, here_s = [(free_s, place) for place, free_s in enumerate(link.free_s)], now_s
    heapq.heapify(free)
    for _ in range(ranges):
        free_s, place = free[0]
        arrives_s = max(free_s, now_s - BURST_S) + taken_s
        heapq.heapreplace(free, (arrives_s, place))
        here_s = max(here_s, arrives_s)
    by_place = sorted((place, free_s) for free_s, place in free)
    return replace(link, free_s=tuple(free_s for _, free_s in by_place)), here_s - now_s


def cut_off(link: RemoteLink, now_s: float) -> RemoteLink:
    """The connections after the current transfers were cancelled: their remaining bytes do not arrive."""
    return replace(link, free_s=tuple(min(free_s, now_s) for free_s in link.free_s))


def resized(link: RemoteLink, connections: int, now_s: float) -> RemoteLink:
    """The link with this number of connections. A new one is free after the latency. Those that are busiest stay, so
    that a change of the number brings no bytes earlier."""
    kept = sorted(link.free_s, reverse=True)[:connections]
    return replace(link, free_s=(*kept, *[now_s + link.rate.latency_s] * (connections - len(kept))))


def batch_bytes(batch: SampleBatch) -> int:
    """The bytes of the batch's arrays without `truth`: 4 for a dense value, label, weight and length, 8 for an id."""
    weights = 0 if batch.weights is None else batch.weights.nbytes
    return batch.dense.nbytes + batch.keys.nbytes + batch.lengths.nbytes + batch.labels.nbytes + weights


def remote_rate(job: JobSpec) -> RemoteRate | None:
    """The rate of each of the job's readers of training data; None: no limit."""
    remote = job.data.remote
    rate = RemoteRate(remote.rate_bytes_per_s, remote.latency_s)
    return rate if rate.bytes_per_s or rate.latency_s else None


class RemoteReader:
    """A `Reader` that returns the batches of another reader no faster than connections of this rate.

    `wait(seconds)` waits without using CPU time. It returns False at once when the batch is no longer needed; the
    batches then end. `now_s`: the clock. control: the number of connections, the size of ranges, and the meters that
    count the waiting.
    """

    def __init__(
        self,
        reader: Reader,
        rate: RemoteRate,
        wait: Callable[[float], bool],
        now_s: Callable[[], float],
        control: InputControl | None = None,
    ) -> None:
        self._reader, self._wait, self._now_s = reader, wait, now_s
        self._control = control if control is not None else InputControl()
        self._link = RemoteLink(rate, (now_s(),) * self._control.knobs.connections)
        self._unit: tuple[Unit, int | None] | None = None
        self._position_bytes: float | None = None  # bytes of one position of that unit; None: its file is not known

    def describe(self) -> DatasetDescription:
        """The description by the other reader, without a delay."""
        return self._reader.describe()

    def batches(
        self,
        unit: Unit,
        start: int,
        stop: int,
        batch_size: int,
        shuffle_seed: int | None = None,
        min_samples: int = 1,
    ) -> Iterator[SampleBatch]:
        """See `Reader.batches`."""
        self._open(unit, shuffle_seed)
        for batch in self._reader.batches(unit, start, stop, batch_size, shuffle_seed, min_samples):
            if not self._receive(self._bytes(batch)):
                self._link = cut_off(self._link, self._now_s())
                self._unit = None
                return
            yield batch

    def _open(self, unit: Unit, shuffle_seed: int | None) -> None:
        if self._unit == (unit, shuffle_seed):
            return
        self._unit = (unit, shuffle_seed)
        self._position_bytes = None
        if isinstance(self._reader, UnitReader):
            self._position_bytes = self._reader.stored_bytes(unit) / unit.samples
        self._link = opened(self._link, self._now_s())
        latency_s = self._link.rate.latency_s * len(self._link.free_s)
        self._control.source.add(source_s=latency_s, first_byte_s=latency_s)

    def _receive(self, size_bytes: float) -> bool:
        """Waits until the next bytes have arrived. False: they are not needed any more."""
        knobs, now_s = self._control.knobs, self._now_s()
        if knobs.connections != len(self._link.free_s):
            self._link = resized(self._link, knobs.connections, now_s)
        self._link, wait_s = asked(self._link, size_bytes, now_s, knobs.range_bytes)
        rate = self._link.rate.bytes_per_s
        transfer_s = size_bytes / rate if rate else 0.0  # of all connections together
        self._control.source.add(source_s=transfer_s, size_bytes=int(size_bytes), items=1, time_s=wait_s)
        is_needed = self._hold(wait_s, now_s)
        self._control.decode.wait_here(source_s=self._now_s() - now_s)
        return is_needed

    def _bytes(self, batch: SampleBatch) -> float:
        if self._position_bytes is None:
            return float(batch_bytes(batch))
        return self._position_bytes * (batch.stop - batch.start)

    def _hold(self, wait_s: float, now_s: float) -> bool:
        arrives_s = now_s + wait_s
        while wait_s > 0.0:
            if not self._wait(min(wait_s, MOST_WAIT_S)):
                return False
            wait_s = arrives_s - self._now_s()
        return True
