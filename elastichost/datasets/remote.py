"""Training data that comes as slowly as over a connection to a remote store, at a rate that the job file states.

A reader is one thread with one connection, as RMixer's were: it asks for a unit, waits `latency_s` for its first byte,
then the unit's bytes come one after another at `bytes_per_s`. A batch is there when its last byte is. So the moment
from which the connection has nothing more to bring is all the state there is (a token bucket that may owe: the
virtual scheduling form of the generic cell rate algorithm, ITU-T I.371):

    ask for a unit     free <- max(free, now) + latency
    ask for a batch    free <- max(free, now - BURST_S) + bytes / rate;    the batch is there at free

While the reader decodes, or prepares what it has, bytes go on coming into buffers, but only for BURST_S: a reader that
nobody asks for more for a while (its queue is full) does not fetch the whole unit meanwhile.

What a batch's bytes are: its share of its unit's bytes as they lie in the file, by positions, bad rows included. A
worker that reads a part of a unit pays for that part. Synthetic data lies in no file, and of a reader of the user's own
nobody knows what it reads: there it is the arrays of the batch (`batch_bytes`).
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

BURST_S = 0.25  # that much of the rate fits into the buffers between store and reader
MOST_WAIT_S = 1.0  # between two looks at the clock: what is to be waited for may be longer than any timer can take


@dataclass(frozen=True, slots=True)
class RemoteRate:
    """Of one connection. bytes_per_s 0: bytes take no time."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoteConnection:
    """A connection. free_s: when all that it was asked for has come."""

    rate: RemoteRate
    free_s: float


def opened(link: RemoteConnection, now_s: float) -> RemoteConnection:
    """A unit is asked for: nothing of it can have come before."""
    return replace(link, free_s=max(link.free_s, now_s) + link.rate.latency_s)


def asked(link: RemoteConnection, size_bytes: float, now_s: float) -> tuple[RemoteConnection, float]:
    """The next bytes of the unit are asked for: the link after it, and the seconds until they are there (>= 0).

    From a batch asked for at t to one that comes at t', no more than rate * (t' - t + BURST_S) bytes come.
    """
    taken_s = size_bytes / link.rate.bytes_per_s if link.rate.bytes_per_s else 0.0
    free_s = max(link.free_s, now_s - BURST_S) + taken_s
    return replace(link, free_s=free_s), max(0.0, free_s - now_s)


def cut_off(link: RemoteConnection, now_s: float) -> RemoteConnection:
    """What is under way is not wanted any more: the rest of it does not come."""
    return replace(link, free_s=min(link.free_s, now_s))


def batch_bytes(batch: SampleBatch) -> int:
    """Of its arrays, the planted truth apart: 4 for a dense value, label, weight and length of a list, 8 for an id."""
    weights = 0 if batch.weights is None else batch.weights.nbytes
    return batch.dense.nbytes + batch.keys.nbytes + batch.lengths.nbytes + batch.labels.nbytes + weights


def remote_rate(job: JobSpec) -> RemoteRate | None:
    """Of each of the job's readers of training data; None: data comes as fast as it can be read."""
    remote = job.data.remote
    rate = RemoteRate(remote.rate_bytes_per_s, remote.latency_s)
    return rate if rate.bytes_per_s or rate.latency_s else None


class RemoteReader:
    """A `Reader` that gives the batches of another no faster than a connection of this rate would bring them.

    `wait` waits so many seconds without using CPU time; False, at once, when the batch is not wanted any more: then the
    batches end there. `now_s`: the clock by which it waits.
    """

    def __init__(
        self, reader: Reader, rate: RemoteRate, wait: Callable[[float], bool], now_s: Callable[[], float]
    ) -> None:
        self._reader, self._wait, self._now_s = reader, wait, now_s
        self._link = RemoteConnection(rate, now_s())
        self._unit: tuple[Unit, int | None] | None = None
        self._position_bytes: float | None = None  # of that unit; None: it lies in no file that is known

    def describe(self) -> DatasetDescription:
        """As the other one does, at once."""
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
