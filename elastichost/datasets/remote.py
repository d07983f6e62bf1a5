"""Limits the rate of training data to that of a connection to a remote store. The job file states the rate.

A reader is one thread with one connection, as in RMixer: it requests a unit, waits `latency_s` for its first byte, then
the bytes of the unit arrive one after another at `bytes_per_s`. A batch is available when its last byte has arrived. So
the only state is the time at which the connection becomes free. It is a token bucket that may become negative: the
virtual scheduling form of the generic cell rate algorithm, ITU-T I.371.

    request of a unit     free <- max(free, now) + latency
    request of a batch    free <- max(free, now - BURST_S) + bytes / rate;    the batch is available at free

While the reader decodes or prepares a batch, bytes continue to arrive in buffers, but for at most BURST_S: a reader
with a full queue does not fetch the whole unit in the meantime.

The bytes of a batch are its share of the unit's bytes in the file, by positions, including bad rows. A worker that
reads a part of a unit pays for that part only. Synthetic data is in no file, and the bytes that a custom reader reads
are not known: for both, the bytes of the batch's arrays count (`batch_bytes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from elastichost.datasets.api import DatasetDescription, Reader, SampleBatch, Unit
from elastichost.datasets.reader import UnitReader

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec

__all__ = [
    "BURST_S",
    "RemoteConnection",
    "RemoteRate",
    "RemoteReader",
    "asked",
    "batch_bytes",
    "cut_off",
    "opened",
    "remote_rate",
]

BURST_S = 0.25  # the buffers between store and reader hold the bytes of this time
MOST_WAIT_S = 1.0  # longest single wait: the whole time to wait may be longer than a timer accepts


@dataclass(frozen=True, slots=True)
class RemoteRate:
    """Rate and latency of one connection. bytes_per_s 0: no limit."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoteConnection:
    """The state of a connection. free_s: the time at which everything requested has arrived."""

    rate: RemoteRate
    free_s: float


def opened(link: RemoteConnection, now_s: float) -> RemoteConnection:
    """The connection after a unit was requested: none of its bytes can have arrived before."""
    return replace(link, free_s=max(link.free_s, now_s) + link.rate.latency_s)


def asked(link: RemoteConnection, size_bytes: float, now_s: float) -> tuple[RemoteConnection, float]:
    """The connection after the next bytes of the unit were requested, and the seconds until they arrive (>= 0).

    Between the request of a batch at t and the arrival of a batch at t', at most rate * (t' - t + BURST_S) bytes
    arrive."""
    taken_s = size_bytes / link.rate.bytes_per_s if link.rate.bytes_per_s else 0.0
    free_s = max(link.free_s, now_s - BURST_S) + taken_s
    return replace(link, free_s=free_s), max(0.0, free_s - now_s)


def cut_off(link: RemoteConnection, now_s: float) -> RemoteConnection:
    """The connection after the current transfer was cancelled: its remaining bytes do not arrive."""
    return replace(link, free_s=min(link.free_s, now_s))


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
    """A `Reader` that returns the batches of another reader no faster than a connection of this rate.

    `wait(seconds)` waits without using CPU time. It returns False at once when the batch is no longer needed; the
    batches then end. `now_s`: the clock.
    """

    def __init__(
        self, reader: Reader, rate: RemoteRate, wait: Callable[[float], bool], now_s: Callable[[], float]
    ) -> None:
        self._reader, self._wait, self._now_s = reader, wait, now_s
        self._link = RemoteConnection(rate, now_s())
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
            self._link, wait_s = asked(self._link, self._bytes(batch), self._now_s())
            if not self._hold(wait_s):
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

    def _bytes(self, batch: SampleBatch) -> float:
        if self._position_bytes is None:
            return float(batch_bytes(batch))
        return self._position_bytes * (batch.stop - batch.start)

    def _hold(self, wait_s: float) -> bool:
        while wait_s > 0.0:
            if not self._wait(min(wait_s, MOST_WAIT_S)):
                return False
            wait_s = self._link.free_s - self._now_s()
        return True
